//! Whether a request of a disk has been at its storage for too long.

use crate::shard::core::Core;
use crate::tables::lateness::Lateness;
use crate::tables::slots::Stage;
use headgate_units::Nanos;

impl Lateness {
    /// Whether a disk's storage has had a request for too long by now. Looks at the shard's
    /// requests no oftener than one can have become so.
    pub(super) fn look(&mut self, core: &Core, disk: u32) -> bool {
        let now = core.ctx.now;
        if now < self.next() {
            return false;
        }
        let oldest = core.oldest_at_storage(disk);
        self.looked(now, oldest)
    }
}

impl Core {
    /// When the oldest request of a disk that is at the storage was sent there.
    fn oldest_at_storage(&self, disk: u32) -> Option<Nanos> {
        let dispatched = self.ctx.tables.slots.under_way().map(|(_, slot)| slot);
        let at_storage =
            dispatched.filter(|slot| slot.disk == disk && slot.stage == Stage::Dispatched);
        at_storage.map(|slot| slot.dispatched).min()
    }
}
