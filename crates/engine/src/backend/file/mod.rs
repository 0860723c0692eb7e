//! The file backend: image files and block devices, through io_uring.
//!
//! - [`image`]: opens, locks and measures a file, on the control side.
//! - [`steps`]: the operations of a request, one after the other.
//! - [`fence`]: keeps requests from storage whose lease has ended, or that is another host's.
//! - `tenure`: what may end an image's being served.
//! - [`inline`]: transfers of files in memory, done on the shard's thread.
//! - [`bounce`]: aligned memory for buffers that direct IO cannot use.
//! - [`pages`]: the pages of a file in memory.
//! - [`shared`]: a second handle on a file, for what blocks.
//! - `submission`: who hands operations to a file system that may block.
//! - `stamps`: what file systems tell of changes of a file.
//! - `reflink`: blocks that two files share.
//! - [`io_scheduler`]: priorities for the kernel's own IO scheduler.

pub(crate) mod bounce;
pub(crate) mod fence;
pub(crate) mod image;
mod inline;
pub(crate) mod io_scheduler;
mod lock;
pub(crate) mod mapping;
pub(crate) mod pages;
mod reflink;
pub(crate) mod shared;
mod stamps;
mod steps;
mod submission;
pub(crate) mod tenure;
mod without_links;

use super::context::Context;
use super::execute::{Execute, Opening, Refused};
use super::storage::{OpenFile, Source, Storage};
use crate::error::EngineError;
use headgate_qos::SchedulerKind;
pub use image::{Caching, ImageError};
use std::os::fd::AsRawFd;
pub(crate) use steps::issue;

/// Image files and block devices, at their own speed.
pub(crate) struct File {
    /// Only mClock knows priorities.
    scheduler: SchedulerKind,
}

impl File {
    pub(crate) fn new(scheduler: SchedulerKind) -> File {
        File { scheduler }
    }
}

impl Execute for File {
    fn open(&mut self, ctx: &mut Context, disk: Opening) -> Result<Storage, Refused> {
        let image = match disk.source {
            Source::File(image) => image,
            other => return Err((other.mismatch(), Box::new(other))),
        };
        match ctx.ring.register_file(image.file().as_raw_fd()) {
            Ok(fixed) => Ok(Storage::File(OpenFile { image, fixed })),
            Err(e) => Err((EngineError::Register(e), Box::new(Source::File(image)))),
        }
    }

    fn close(&mut self, ctx: &mut Context, _key: u32, storage: &Storage) {
        if let Some(file) = storage.file() {
            ctx.ring.unregister_file(file.fixed);
        }
    }

    #[inline]
    fn start(&mut self, ctx: &mut Context, key: u32) {
        let ioprio = io_scheduler::ioprio(ctx, key, self.scheduler);
        let slot = &mut ctx.tables.slots[key];
        slot.host_ioprio = ioprio;
        slot.parties = 1;
        issue(ctx, key);
    }

    #[inline]
    fn on_kernel(&mut self, ctx: &mut Context, key: u32, result: i32) {
        steps::on_kernel(ctx, key, result);
    }
}
