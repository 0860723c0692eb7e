//! Long writes to an image in memory, received to where they belong: the kernel copies a payload
//! once, out of the socket into the image, instead of into a buffer and from there.
//!
//! The scheduler decides before the payload is taken: the request goes to the disk as soon as its
//! head is known, and until the disk grants it the payload stays in the socket, and all that the
//! client sent behind it. What is half received when the connection ends is half written, as a
//! write may be that nobody acknowledged.

use super::super::intake::{Assembling, Piece, Taken, Target, Whole};
use super::super::phase::Phase;
use super::super::translate::{Command, outcome};
use super::NbdPort;
use headgate_engine::port::PortIo;
use headgate_engine::request::{Durability, IoError, Op};
use headgate_nbd::server::reply;

impl NbdPort {
    /// Brings a write whose payload goes to its place as far as possible; `true` when it is there,
    /// or not wanted any more.
    pub(super) fn finish_placed(&mut self, io: &mut dyn PortIo) -> bool {
        let Some(Assembling { command, target }) = &mut self.assembling else { return true };
        let command = *command;
        match *target {
            Target::None | Target::Buffer(_) | Target::Parts(_) | Target::Unaligned(_) => {
                if io.room() == 0 {
                    return false;
                }
                let piece = Piece::first(&command, self.longest_piece);
                let key =
                    self.taken.insert(Taken { command, buffer: None, whole: Whole::Yes, piece });
                *target = Target::Asked;
                self.submit(io, key);
                false
            }
            Target::Asked => false,
            Target::Placed(key, _) => {
                let left = self.requests.payload_left();
                let early = self.inbox.bytes();
                let early = &early[..early.len().min(left as usize)];
                if !early.is_empty() {
                    let at = command.offset + u64::from(command.len - left);
                    if let Err(e) = io.write_placed(at, early) {
                        let error = IoError::from_errno(e.raw_os_error().unwrap_or(libc::EIO));
                        self.displace(io, key, error);
                        // A request like others is left, or none.
                        return self.assembling.is_none() || self.finish_intake(io);
                    }
                    let len = early.len();
                    self.inbox.consume(len);
                    self.requests.on_payload(len as u32);
                }
                if self.requests.payload_left() > 0 {
                    return false;
                }
                self.assembling = None;
                if let Some(taken) = self.taken.try_remove(key) {
                    self.send_queue.push(|out| reply::done(out, taken.command.cookie));
                }
                true
            }
        }
    }

    /// The disk answered a request for a place.
    pub(super) fn on_granted(
        &mut self,
        io: &mut dyn PortIo,
        key: usize,
        result: Result<(), IoError>,
    ) {
        if self.phase != Phase::Open {
            self.taken.try_remove(key);
            return;
        }
        let Some(Assembling { command, target }) = &mut self.assembling else { return };
        let granted = result.and_then(|()| {
            io.map_for_recv(command.offset, command.len).ok_or(IoError::Backend(libc::EIO))
        });
        match granted {
            Ok(place) => *target = Target::Placed(key, place),
            Err(e) => self.misplaced(key, e),
        }
        self.pump(io);
    }

    /// Nothing is received any more: a write that is half received is not a request.
    pub(super) fn abandon_placed(&mut self) {
        if let Some(Assembling { target: Target::Placed(key, _), .. }) = self.assembling {
            self.taken.try_remove(key);
        }
        // One that was asked for is taken out when the disk answers.
        self.assembling = None;
    }

    /// The rest of a payload cannot be received to its place, for want of space as a rule: it
    /// becomes a write like others, which the disk fails, or holds. What is there of its first
    /// block is read back.
    pub(super) fn displace(&mut self, io: &mut dyn PortIo, key: usize, error: IoError) {
        let left = self.requests.payload_left();
        let Some(Assembling { command, .. }) = self.assembling else { return };
        let there = command.len - left;
        let odd = there % io.disk().block_size;
        let offset = command.offset + u64::from(there - odd);
        let len = left + odd;
        let Ok(buffer) = self.arena.take(len) else { return self.misplaced(key, error) };
        // SAFETY: the buffer is at least as long as a block, and nobody else's.
        let head = unsafe { std::slice::from_raw_parts_mut(self.arena.at(&buffer), odd as usize) };
        if io.read_placed(offset, head).is_err() {
            self.arena.give(buffer);
            return self.misplaced(key, error);
        }
        self.taken.try_remove(key);
        let op = Op::Write(Durability::Cached);
        let command = Command { op, offset, len, ..command };
        self.assembling = Some(Assembling { command, target: Target::Buffer(buffer) });
    }

    /// A payload cannot go to its place: it is thrown away, and its request fails.
    pub(super) fn misplaced(&mut self, key: usize, error: IoError) {
        self.assembling = None;
        self.requests.skip_payload();
        if let Some(Taken { command, .. }) = self.taken.try_remove(key)
            && let Err(error) = outcome(command.op, Err(error))
        {
            self.refuse(command.cookie, error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::harness::{Harness, Outcome, Space};
    use headgate_engine::port::Detach;
    use headgate_engine::request::{Durability, IoError, Op};
    use headgate_nbd::server::command::{Replies, Session};
    use headgate_nbd::server::contexts::Contexts;
    use headgate_nbd::wire::{REQUEST_LEN, REQUEST_MAGIC, command};

    const SIMPLE: Session = Session { replies: Replies::Simple, contexts: Contexts::NONE };
    const DISK: usize = 1 << 20;
    const LONG: usize = 64 << 10;

    fn write(cookie: u64, offset: u64, data: &[u8]) -> Vec<u8> {
        let mut bytes = REQUEST_MAGIC.to_be_bytes().to_vec();
        bytes.extend([0, 0]);
        bytes.extend(command::WRITE.to_be_bytes());
        bytes.extend(cookie.to_be_bytes());
        bytes.extend(offset.to_be_bytes());
        bytes.extend((data.len() as u32).to_be_bytes());
        [bytes, data.to_vec()].concat()
    }

    fn pattern(seed: u8) -> Vec<u8> {
        (0..LONG).map(|n| (n % 251) as u8 ^ seed).collect()
    }

    /// Cookies and errors of the answers.
    fn answers(output: &[u8]) -> Vec<(u64, u32)> {
        let word = |b: &[u8]| u32::from_be_bytes(b.try_into().unwrap());
        let one = |b: &[u8]| (u64::from_be_bytes(b[8..16].try_into().unwrap()), word(&b[4..8]));
        output.chunks(16).map(one).collect()
    }

    #[test]
    fn a_long_write_waits_in_the_socket_for_its_grant_and_is_received_to_its_place() {
        let mut harness = Harness::splicing(SIMPLE, DISK, 8);
        let (first, second) = (pattern(1), pattern(2));
        // What comes along with the first head is put, for the port could not know that it would be
        // long.
        let bytes = write(1, 4096, &first);
        let came_along = harness.send(&bytes);
        assert!(REQUEST_LEN < came_along && came_along < bytes.len());
        assert_eq!(harness.shard.queue[0].request.op, Op::PlacedWrite);
        harness.complete(0, Outcome::Served);
        harness.send(&bytes[came_along..]);
        assert_eq!(&harness.shard.content[4096..4096 + LONG], first);
        // From now on heads are received alone.
        let bytes = write(2, 128 << 10, &second);
        assert_eq!(harness.send(&bytes), REQUEST_LEN);
        assert_eq!(harness.shard.queue.len(), 1);
        harness.complete(0, Outcome::Served);
        assert_eq!(harness.send(&bytes[REQUEST_LEN..]), LONG);
        harness.settle();
        assert_eq!(&harness.shard.content[128 << 10..(128 << 10) + LONG], second);
        assert_eq!(answers(&harness.output), [(1, 0), (2, 0)]);
    }

    #[test]
    fn a_refused_place_fails_its_request_alone() {
        let mut harness = Harness::splicing(SIMPLE, DISK, 8);
        let (lost, kept) = (pattern(3), pattern(4));
        let bytes = [write(1, 0, &lost), write(2, 256 << 10, &kept)].concat();
        let mut taken = harness.send(&bytes);
        harness.complete(0, Outcome::Failed(IoError::NoSpace));
        taken += harness.send(&bytes[taken..]);
        harness.complete(0, Outcome::Served);
        harness.send(&bytes[taken..]);
        harness.settle();
        assert_eq!(answers(&harness.output), [(1, 28), (2, 0)]);
        assert_eq!(&harness.shard.content[256 << 10..(256 << 10) + LONG], kept);
        assert!(!harness.shard.closed);
    }

    #[test]
    fn a_place_without_space_becomes_a_write_that_the_disk_may_hold() {
        let mut harness = Harness::splicing(SIMPLE, DISK, 8);
        let bytes = write(1, 4096, &pattern(8));
        let came_along = harness.send(&bytes);
        harness.shard.space = Space::Full;
        harness.complete(0, Outcome::Served);
        harness.send(&bytes[came_along..]);
        let op = Op::Write(Durability::Cached);
        let [queued] = &harness.shard.queue[..] else { panic!("{:?}", harness.shard.queue) };
        assert_eq!(
            (queued.request.op, queued.request.offset, queued.request.len),
            (op, 4096, LONG as u64)
        );
        assert!(harness.output.is_empty(), "its client waits");
        harness.settle();
        assert_eq!(answers(&harness.output), [(1, 0)]);
        assert_eq!(&harness.shard.content[4096..4096 + LONG], pattern(8));
    }

    #[test]
    fn what_was_placed_of_a_block_before_the_space_was_used_up_is_written_again() {
        let mut harness = Harness::splicing(SIMPLE, DISK, 8);
        let bytes = write(1, 4096, &pattern(9));
        let came_along = harness.send(&bytes);
        harness.complete(0, Outcome::Served);
        // The head that came along is placed. A part of the rest is, and then there is no space.
        harness.send_once(&bytes[came_along..came_along + 1_000]);
        let there = came_along - REQUEST_LEN + 1_000;
        harness.fail_receive(libc::EFAULT);
        harness.shard.content[4096 + there..].fill(0xee);
        harness.send(&bytes[came_along + 1_000..]);
        let [queued] = &harness.shard.queue[..] else { panic!("{:?}", harness.shard.queue) };
        let start = there as u64 / 512 * 512;
        assert_eq!(
            (queued.request.offset, queued.request.len),
            (4096 + start, LONG as u64 - start)
        );
        harness.settle();
        assert_eq!(answers(&harness.output), [(1, 0)]);
        assert_eq!(&harness.shard.content[4096..4096 + LONG], pattern(9));
    }

    #[test]
    fn an_image_that_ends_early_has_no_place() {
        let mut harness = Harness::splicing(SIMPLE, DISK, 8);
        harness.shard.end = 100 << 10;
        let bytes = [write(1, 64 << 10, &pattern(5)), write(2, 0, &pattern(6))].concat();
        let mut taken = harness.send(&bytes);
        for _ in 0..2 {
            harness.complete(0, Outcome::Served);
            taken += harness.send(&bytes[taken..]);
        }
        harness.settle();
        assert_eq!(answers(&harness.output), [(1, 5), (2, 0)]);
    }

    #[test]
    fn draining_does_not_wait_for_what_is_half_received() {
        for granted in [false, true] {
            let mut harness = Harness::splicing(SIMPLE, DISK, 8);
            let bytes = write(1, 0, &pattern(7));
            harness.send(&bytes[..REQUEST_LEN]);
            if granted {
                harness.complete(0, Outcome::Served);
                harness.send(&bytes[REQUEST_LEN..1000]);
            }
            harness.detach(Detach::Drain);
            harness.settle();
            assert!(harness.shard.closed, "granted: {granted}");
            assert!(harness.output.is_empty());
        }
    }
}
