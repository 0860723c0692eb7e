//! Clients' ports on their way to another shard, where their disk is now.
//!
//! Each goes by itself, as soon as it rests: one whose client keeps it waiting keeps no other. None
//! goes while one of them changes a part of a block, for a lock of that block holds on one shard
//! only. Those that are left take nothing new, so nobody locks anything again.

use crate::port::Rest;
use crate::shard::Shard;
use crate::tables::moving::Moving;

/// Whether all ports have gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Departure {
    GoesOn,
    Over,
}

impl Shard {
    /// Sends the ports of a front that can go to the target's shard.
    pub(super) fn send_ports_away(&mut self, moving: &Moving, index: u32) -> Departure {
        let front = moving.front as usize;
        let mut resting = Vec::new();
        for port in self.core.ctx.tables.disks[front].ports.clone() {
            if self.core.ctx.tables.ports[port as usize].closing {
                continue;
            }
            let mut rest = Rest::Busy;
            self.with_port(port, |p, io| rest = p.come_to_rest(io));
            if rest == Rest::Ready {
                resting.push(port);
            }
        }
        if self.core.ctx.tables.disks[front].locks.is_unused() {
            for port in resting {
                if self.can_depart(port) {
                    self.send_away(port, index);
                }
            }
        }
        match self.core.ctx.tables.disks[front].ports.is_empty() {
            true => Departure::Over,
            false => Departure::GoesOn,
        }
    }

    /// Whether nothing of a port is under way on this shard.
    fn can_depart(&self, port: u32) -> bool {
        let state = &self.core.ctx.tables.ports[port as usize];
        state.active.is_empty() && state.requests == 0 && state.unsent.is_none() && !state.closing
    }

    fn send_away(&mut self, port: u32, index: u32) {
        let (shard, far) = (self.target_shards.get(&index), self.core.fars.get(&index));
        let Some((shard, landing)) = shard.cloned().zip(far.map(|far| far.landing)) else { return };
        let Some(hosted) = self.forget_port(port) else { return };
        let place = hosted.place.clone();
        if place.leave(&shard, move |shard| shard.land_port(landing, hosted)).is_err() {
            // The engine ends.
            place.gone().set();
        }
    }
}
