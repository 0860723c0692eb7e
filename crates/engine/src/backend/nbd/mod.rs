//! The NBD backend: disks that are exports of NBD servers.
//!
//! - `connection`: connects and negotiates within a deadline, on threads of the control side.
//! - `line`: what a dialer and a link say to each other.
//! - `dialer`: a thread per disk that replaces a lost connection.
//! - `offer`: what an export supports, checked.
//! - `command`: which command to send for the next step of a request.
//! - `loss`: which writes a lost connection may have lost, and which flushes must report it.
//! - `link`: transmission, on the shard's thread.
//!
//! Reasons: `docs/decisions/0023-remote-disks.md`.

pub(crate) mod command;
pub(crate) mod connection;
pub(crate) mod dialer;
pub(crate) mod line;
pub(crate) mod link;
pub(crate) mod loss;
pub(crate) mod offer;

use super::context::Context;
use super::execute::{Execute, Opening, Refused};
use super::storage::{Source, Storage};
use crate::error::EngineError;

pub use connection::{Connection, RemoteError};
pub use dialer::PATIENCE;

/// Exports of an NBD server, each with a connection of its own.
pub(crate) struct Nbd;

impl Execute for Nbd {
    fn open(&mut self, ctx: &mut Context, disk: Opening) -> Result<Storage, Refused> {
        match (disk.source, disk.line) {
            (Source::Export(_), Some(line)) => Ok(Storage::Link(ctx.add_link(disk.key, line))),
            (other, _) => Err((EngineError::OtherStorage, Box::new(other))),
        }
    }

    fn close(&mut self, ctx: &mut Context, _key: u32, storage: &Storage) {
        if let Some(link) = storage.link() {
            ctx.close_link(link);
        }
    }

    #[inline]
    fn start(&mut self, ctx: &mut Context, key: u32) {
        ctx.tables.slots[key].parties = 1;
        ctx.send_away(key);
    }
}
