//! A connection that goes to another shard with its disk.
//!
//! What has come of a request goes along, also half a payload: only what has begun at the disk is
//! finished before, and answers that are being sent.

use super::super::intake::{Assembling, PartBuffer, Target};
use super::super::phase::{HangUpWatch, Motion, Phase, Receiving};
use super::super::unaligned::Step;
use super::{NbdPort, RECEIVE, WATCH};
use headgate_engine::port::{PortIo, Rest};

impl NbdPort {
    /// Whether the port rests, and nothing of the request being taken is at the disk: it is left
    /// as it is.
    pub(super) fn leaves_intake(&self) -> bool {
        self.motion == Motion::Resting && self.assembling.as_ref().is_none_or(is_portable)
    }

    /// Takes nothing new, and says whether anything is left to be finished.
    pub(super) fn rest(&mut self, io: &mut dyn PortIo) -> Rest {
        if matches!(self.phase, Phase::Draining | Phase::Closed) {
            // It ends here.
            return Rest::Busy;
        }
        if self.motion != Motion::Resting {
            self.motion = Motion::Resting;
            if self.receiving != Receiving::Nothing {
                io.cancel(RECEIVE);
            }
            if self.watch == HangUpWatch::On {
                self.watch = HangUpWatch::Ending;
                io.cancel(WATCH);
            }
        }
        let is_done = self.taken.is_empty()
            && self.send_queue.replies() == 0
            && self.receiving == Receiving::Nothing
            && self.watch == HangUpWatch::Off
            && self.leaves_intake();
        if is_done { Rest::Ready } else { Rest::Busy }
    }

    /// Goes on where it was left.
    pub(super) fn arrive(&mut self, io: &mut dyn PortIo) {
        self.motion = Motion::Going;
        self.use_pages(io);
        self.pump(io);
    }
}

/// Whether all of a request being taken is in the port.
fn is_portable(assembling: &Assembling) -> bool {
    match &assembling.target {
        Target::None | Target::Buffer(_) => true,
        Target::Asked | Target::Placed(..) => false,
        Target::Parts(parts) => !matches!(parts.buffer, PartBuffer::AtDisk),
        Target::Unaligned(work) => matches!(work.step, Step::Next | Step::Filling(_)),
    }
}

#[cfg(test)]
#[path = "port_rest_tests.rs"]
mod tests;
