//! What somebody waits for of that which a disk's fence keeps back.
//!
//! A term that is over may never be prolonged: another host has the disk, or the copy. What waits
//! for it then must not keep a move from its end, or a client's port from being closed.

use crate::shard::Shard;
use crate::shard::core::Core;
use crate::tables::Tables;
use crate::tables::crossing::{Landing, Wanted};
use crate::tables::moving::{Moving, Reach};
use crate::tables::port::{MovePart, Sender};
use slab::Slab;

impl Core {
    /// Gives the ring what fenced disks may send to their storage, and ends what nobody waits for.
    /// To be called immediately before the ring is submitted.
    #[inline]
    pub(in crate::shard) fn submit_fenced(&mut self) {
        let Core { ctx, moves, landings, .. } = self;
        ctx.submit_fenced(|tables, key| is_awaited(tables, moves, landings, key));
    }
}

fn is_awaited(
    tables: &Tables,
    moves: &Slab<Option<Box<Moving>>>,
    landings: &Slab<Landing>,
    key: u32,
) -> bool {
    let slot = &tables.slots[key];
    let port = &tables.ports[slot.port as usize];
    match port.sender {
        Sender::Client => !port.closing,
        Sender::Move(index, part) => match moves.get(index as usize) {
            Some(Some(moving)) => moving.awaits(tables, part, slot.request.cookie),
            _ => false,
        },
        Sender::Landing(index) => {
            landings.get(index as usize).is_some_and(|landing| landing.wanted == Wanted::Yes)
        }
    }
}

impl Moving {
    /// Whether somebody waits for what was sent for this part.
    fn awaits(&self, tables: &Tables, part: MovePart, cookie: u64) -> bool {
        if matches!(part, MovePart::SourceCopy | MovePart::TargetCopy) {
            return self.ending.is_none();
        }
        // One that is answered is under way still at the side that does not count.
        let front = self.clients.get(cookie as usize).and_then(|client| client.front);
        let port = front.map(|front| tables.slots[front].port);
        port.is_some_and(|port| !tables.ports[port as usize].closing)
    }

    /// Whether nobody waits any more for anything that was sent to the target.
    fn wants_nothing_there(&self, tables: &Tables) -> bool {
        let ports = &tables.disks[self.front as usize].ports;
        match self.ending {
            None => false,
            Some(_) if !self.has_switched() => true,
            Some(_) => ports.iter().all(|&port| tables.ports[port as usize].closing),
        }
    }
}

impl Shard {
    /// Tells the shard of a target elsewhere, once, when nobody waits for it any more.
    pub(super) fn give_up_target(&mut self, moving: &mut Moving, index: u32) {
        if moving.reach == Reach::Elsewhere
            && moving.wanted == Wanted::Yes
            && moving.wants_nothing_there(&self.core.ctx.tables)
        {
            moving.wanted = Wanted::No;
            self.tell_target(index, |shard, landing| {
                if let Some(found) = shard.core.landings.get_mut(landing as usize) {
                    found.wanted = Wanted::No;
                }
            });
        }
    }
}
