//! The disk's pages, by which long reads and writes go, when the disk gets other storage.

use super::super::intake::Target;
use super::super::phase::{Pages, PlacedWrites};
use super::super::splice::Splicer;
use super::NbdPort;
use headgate_engine::port::{PageUse, PortIo};
use headgate_engine::request::Op;
use std::os::fd::AsFd;

impl NbdPort {
    /// Moves data by the pages of the disk's storage from now on, where it has any.
    pub(super) fn use_pages(&mut self, io: &dyn PortIo) {
        self.pages = Pages::InUse;
        if !io.can_splice() {
            self.splicer = None;
        } else if self.splicer.is_none() {
            self.splicer = Splicer::new(self.socket.as_fd());
        }
        self.placed_writes = if io.can_place() { PlacedWrites::On } else { PlacedWrites::Off };
    }

    /// Begins nothing new by the pages.
    pub(super) fn begin_to_leave(&mut self) -> PageUse {
        self.pages = Pages::Leaving;
        let by_pages = |op| matches!(op, Op::Splice | Op::PlacedWrite);
        let taken = self.taken.iter().any(|(_, taken)| by_pages(taken.command.op));
        let splicing = self.splicer.as_ref().is_some_and(Splicer::is_busy);
        let queued = self.send_queue.has_spliced();
        // One that is unaligned is decided on piece by piece.
        let assembling = self.assembling.as_ref().is_some_and(|one| {
            by_pages(one.command.op) && !matches!(one.target, Target::Unaligned(_))
        });
        if taken || splicing || queued || assembling { PageUse::Some } else { PageUse::None }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::harness::{Harness, Outcome};
    use super::super::tests::{DISK, SIMPLE};
    use super::*;
    use headgate_nbd::wire::{REQUEST_MAGIC, command};

    const LONG: usize = 64 << 10;

    fn request(command: u16, cookie: u64, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = REQUEST_MAGIC.to_be_bytes().to_vec();
        bytes.extend(0u16.to_be_bytes());
        bytes.extend(command.to_be_bytes());
        bytes.extend(cookie.to_be_bytes());
        bytes.extend(offset.to_be_bytes());
        bytes.extend((len as u32).to_be_bytes());
        bytes
    }

    fn ops(harness: &Harness) -> Vec<Op> {
        harness.shard.queue.iter().map(|queued| queued.request.op).collect()
    }

    #[test]
    fn a_port_that_leaves_moves_data_by_buffers_until_it_has_pages_again() {
        let mut harness = Harness::splicing(SIMPLE, DISK, 8);
        harness.send(&request(command::READ, 1, 0, LONG));
        assert_eq!(ops(&harness), [Op::Splice]);
        assert_eq!(harness.leave_pages(), PageUse::Some, "it has asked for pages");
        harness.send(&request(command::READ, 2, 0, LONG));
        assert_eq!(ops(&harness), [Op::Splice, Op::Read]);
        harness.complete(0, Outcome::Served);
        harness.settle();
        assert_eq!(harness.leave_pages(), PageUse::None, "its answer is out");
        let mut write = request(command::WRITE, 3, 0, LONG);
        write.extend(vec![7; LONG]);
        let taken = harness.send(&write);
        assert!(taken > LONG && !ops(&harness).contains(&Op::PlacedWrite));
        assert_eq!(harness.leave_pages(), PageUse::None);
        harness.new_storage();
        harness.send(&request(command::READ, 4, 0, LONG));
        assert_eq!(ops(&harness).last(), Some(&Op::Splice));
    }

    #[test]
    fn a_write_that_is_received_to_its_place_is_waited_for() {
        let mut harness = Harness::splicing(SIMPLE, DISK, 8);
        let mut write = request(command::WRITE, 1, 4096, LONG);
        write.extend(vec![7; LONG]);
        let taken = harness.send(&write);
        assert_eq!(harness.leave_pages(), PageUse::Some, "it has asked for a place");
        harness.complete(0, Outcome::Served);
        assert_eq!(harness.leave_pages(), PageUse::Some, "its payload is to come");
        harness.send(&write[taken..]);
        harness.settle();
        assert_eq!(harness.leave_pages(), PageUse::None);
        assert_eq!(harness.shard.content[4096..4096 + LONG], [7; LONG]);
    }
}
