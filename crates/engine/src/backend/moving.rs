//! The backend of a moving disk's front: it hands every request to the machine of the move.

use super::context::Context;
use super::execute::{Execute, Opening, Refused};
use super::storage::Storage;

/// No storage of its own.
pub(crate) struct Moving;

impl Execute for Moving {
    fn open(&mut self, _ctx: &mut Context, disk: Opening) -> Result<Storage, Refused> {
        Err((disk.source.mismatch(), Box::new(disk.source)))
    }

    fn close(&mut self, _ctx: &mut Context, _key: u32, _storage: &Storage) {}

    #[inline]
    fn start(&mut self, ctx: &mut Context, key: u32) {
        ctx.tables.slots[key].parties = 1;
        ctx.relayed.push(key);
    }
}
