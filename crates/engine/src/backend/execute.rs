//! The interface of a backend.

use super::context::Context;
use super::nbd::line::ServerLines;
use super::storage::{Source, Storage};
use crate::error::EngineError;
use crate::request::IoError;
use crate::snapshot::FlashSnapshot;
use headgate_devices::{FlashDrive, Readiness};
use headgate_units::{Bytes, Nanos, Shares};

/// A disk that is being opened on a backend.
pub(crate) struct Opening {
    /// Its number in the shard.
    pub key: u32,
    /// Its image's storage.
    pub source: Source,
    pub size: Bytes,
    pub shares: Shares,
    /// Of exports: the lines to the threads that connect them, by member.
    pub lines: Vec<ServerLines>,
}

/// Why a backend does not take a disk, and the disk's storage, to be closed where that may block.
pub(crate) type Refused = (EngineError, Box<Source>);

/// What a backend does. All calls come from the shard's thread and never block.
pub(crate) trait Execute {
    /// Takes a disk.
    ///
    /// # Errors
    /// When it cannot be one of this backend's.
    fn open(&mut self, ctx: &mut Context, disk: Opening) -> Result<Storage, Refused>;

    /// Has room for a disk of this size from now on; its storage is given the size elsewhere.
    ///
    /// # Errors
    /// When there is no room; the disk is as it was then.
    fn resize(&mut self, _now: Nanos, _disk: u32, _size: Bytes) -> Result<(), EngineError> {
        Ok(())
    }

    /// Gives up a disk that has no requests, before its storage is dropped elsewhere.
    fn close(&mut self, ctx: &mut Context, key: u32, storage: &Storage);

    /// Executes a request. Sets `parties` of its slot, and has [`Context::end_party`] called for
    /// each, now or later.
    fn start(&mut self, ctx: &mut Context, key: u32);

    /// The kernel has finished an operation that the backend gave to the ring for this request.
    fn on_kernel(&mut self, ctx: &mut Context, key: u32, _result: i32) {
        ctx.end_party(key, Err(IoError::Backend(libc::EIO)));
    }

    /// Ends what is due by `ctx.now` without an event from outside.
    fn poll(&mut self, _ctx: &mut Context) {}

    /// When to [`poll`](Execute::poll) next. `None`: not before another event.
    fn next_event(&self) -> Option<Nanos> {
        None
    }

    /// Does some of the computing that must be done before the next request.
    fn prepare(&mut self, _now: Nanos) -> Readiness {
        Readiness::Ready
    }

    /// A disk's shares have changed.
    fn set_shares(&mut self, _now: Nanos, _disk: u32, _shares: Shares) {}

    /// The flash drive that it emulates.
    fn flash_drive(&self) -> Option<FlashDrive> {
        None
    }

    /// What that drive did for a disk.
    fn flash(&self, _disk: u32) -> Option<FlashSnapshot> {
        None
    }
}
