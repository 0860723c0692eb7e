//! The memory backend: RAM disks. Their content is gone when the disk is closed.
//!
//! A RAM disk is an anonymous file in memory. So the file backend's steps execute its requests, and
//! frontends splice its pages and receive into them, as they do with images on tmpfs.

use super::context::Context;
use super::execute::{Execute, Opening, Refused};
use super::file::File;
use super::storage::{Source, Storage};
use headgate_qos::SchedulerKind;

/// RAM disks.
pub(crate) struct Memory {
    files: File,
}

impl Memory {
    pub(crate) fn new() -> Memory {
        // Memory has no IO scheduler that would take priorities.
        Memory { files: File::new(SchedulerKind::Fifo) }
    }
}

impl Execute for Memory {
    fn open(&mut self, ctx: &mut Context, disk: Opening) -> Result<Storage, Refused> {
        match disk.source {
            Source::Memory(image) => {
                self.files.open(ctx, Opening { source: Source::File(image), ..disk })
            }
            other => Err((other.mismatch(), Box::new(other))),
        }
    }

    fn close(&mut self, ctx: &mut Context, key: u32, storage: &Storage) {
        self.files.close(ctx, key, storage);
    }

    #[inline]
    fn start(&mut self, ctx: &mut Context, key: u32) {
        self.files.start(ctx, key);
    }

    #[inline]
    fn on_kernel(&mut self, ctx: &mut Context, key: u32, result: i32) {
        self.files.on_kernel(ctx, key, result);
    }
}
