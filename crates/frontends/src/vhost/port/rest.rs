//! A front-end whose port goes to another shard with its disk.
//!
//! What the guest offers meanwhile stays in its rings, and its kicks in their eventfds.

use super::BlkPort;
use super::intake::Intake;
use super::keys::RECALL_KEY;
use headgate_engine::port::{PortIo, Rest};

impl BlkPort {
    /// Takes nothing new, and says whether requests are left.
    pub(super) fn rest(&mut self, io: &mut dyn PortIo) -> Rest {
        if self.intake == Intake::Draining {
            // It ends here.
            return Rest::Busy;
        }
        self.intake = Intake::Resting;
        io.cancel(RECALL_KEY);
        for index in 0..self.rings.len() as u16 {
            let Some(ring) = self.ring(index) else { continue };
            io.cancel(ring.key);
            if ring.owes() {
                self.mark_dirty(index);
            }
        }
        // Nothing is kept back.
        self.settle(io);
        if self.requests.is_empty() { Rest::Ready } else { Rest::Busy }
    }

    /// Goes on where it was left.
    pub(super) fn arrive(&mut self, io: &mut dyn PortIo) {
        self.intake = Intake::Open;
        self.starved = false;
        io.poll_readable(self.recall.raw(), RECALL_KEY);
        for index in 0..self.rings.len() as u16 {
            let Some(ring) = self.ring(index) else { continue };
            (ring.polled, ring.held) = (false, false);
            io.poll_readable(ring.kick.raw(), ring.key);
            // Its kicks brought no event meanwhile.
            self.mark_ready(index);
        }
        self.pump(io);
    }
}
