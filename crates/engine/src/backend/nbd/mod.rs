//! The NBD backend: disks that are exports of NBD servers.
//!
//! - `connection`: connects and negotiates within a deadline, on threads of the control side.
//! - `announced`: what the servers of a striped disk are told that it is promised.
//! - `line`: what a dialer and a link say to each other.
//! - `dialer`: a thread per disk that replaces a lost connection.
//! - `members`: labels of the exports of striped disks, read and written.
//! - `offer`: what an export supports, checked.
//! - `command`: which command to send for the next step of a request.
//! - `loss`: which writes a lost connection may have lost, and which flushes must report it.
//! - `status`: what servers say of ranges, and what the disk says then.
//! - `link`: transmission, on the shard's thread.
//! - `servers`: which of its connections to a server a request takes.
//! - `disk`: what a disk is beside its links.
//! - `remote`: the disk and its links; `stripe`: the parts of requests of a disk with several.
//!
//! Reasons: `docs/decisions/0023-remote-disks.md`.

mod announced;
pub(crate) mod command;
pub(crate) mod connection;
pub(crate) mod dialer;
pub(crate) mod disk;
pub(crate) mod line;
pub(crate) mod link;
pub(crate) mod loss;
mod members;
pub(crate) mod offer;
pub(crate) mod remote;
mod servers;
mod status;
pub(crate) mod stripe;

use super::context::Context;
use super::execute::{Execute, Opening, Refused};
use super::storage::{Source, Storage};
use crate::error::EngineError;
use disk::Stripe;

pub use announced::{Announced, PolicyText};
pub use connection::{Connection, RemoteError, announce};
pub use dialer::PATIENCE;
pub use members::{Member, MemberContent, label_member, look_at_member};

/// Exports of NBD servers, each with a connection of its own.
pub(crate) struct Nbd;

impl Execute for Nbd {
    fn open(&mut self, ctx: &mut Context, disk: Opening) -> Result<Storage, Refused> {
        let stripe = match &disk.source {
            Source::Export(_) => None,
            Source::Stripe(_, layout) => Some(Stripe::new(*layout)),
            Source::File(_) | Source::Null | Source::Memory(_) => {
                return Err((EngineError::OtherStorage, Box::new(disk.source)));
            }
        };
        Ok(Storage::Remote(ctx.add_remote(disk.key, disk.lines, stripe)))
    }

    fn close(&mut self, ctx: &mut Context, _key: u32, storage: &Storage) {
        if let Some(remote) = storage.remote() {
            ctx.close_remote(remote);
        }
    }

    #[inline]
    fn start(&mut self, ctx: &mut Context, key: u32) {
        ctx.start_remote(key);
    }
}
