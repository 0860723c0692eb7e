//! Ports that change a part of a block: nobody else writes to it meanwhile.

use super::core::Core;
use crate::tables::Tables;
use crate::tables::block_locks::written;
use crate::tables::slots::Stage;

impl Tables {
    /// Gives blocks to the ports that have asked for them, where no write that came before is
    /// queued, at the storage, or held until that takes it; `ended` is a request that is that no
    /// more. O(requests), while a block is asked for.
    pub(super) fn grant_locks(&mut self, disk: u32, ended: Option<u32>) {
        let Some(state) = self.disks.get_mut(disk as usize) else { return };
        if state.locks.is_unused() {
            return;
        }
        let held: Vec<u32> = state.locks.waiting().copied().collect();
        let (slots, ports) = (&self.slots, &self.ports);
        let mut is_written = |offset: u64, len: u64| {
            slots.under_way().any(|(key, slot)| {
                // Not by the request's disk: what a port sent before its disk moved is elsewhere.
                ports.get(slot.port as usize).is_some_and(|port| port.disk == disk)
                    && Some(key) != ended
                    && matches!(slot.stage, Stage::Queued | Stage::Dispatched | Stage::Held)
                    && !held.contains(&key)
                    && written(&slot.request)
                        .is_some_and(|(at, long)| at < offset + len && offset < at + long)
            })
        };
        let granted = state.locks.grant(&mut is_written);
        self.granted.extend(granted);
    }
}

impl Core {
    /// A port wants a block for itself; it is told when it has it.
    pub(super) fn lock(&mut self, port: u32, offset: u64, len: u64) {
        let tables = &mut self.ctx.tables;
        let disk = tables.ports[port as usize].disk;
        tables.disks[disk as usize].locks.ask(port, offset, len);
        tables.grant_locks(disk, None);
    }

    /// A port is done with its block, if it has one.
    pub(super) fn unlock(&mut self, port: u32) {
        let Core { ctx, datastores, .. } = self;
        let disk = ctx.tables.ports[port as usize].disk;
        let state = &mut ctx.tables.disks[disk as usize];
        if !state.locks.has_asked(port) {
            return;
        }
        let held = state.locks.release(port);
        let store = &mut datastores[state.datastore];
        for key in held {
            store.enqueue_held(ctx.now, &mut ctx.tables, key);
        }
        ctx.tables.grant_locks(disk, None);
    }
}
