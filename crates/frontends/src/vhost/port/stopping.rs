//! A ring's end: what of its requests is served, and what goes back into it.
//!
//! `GET_VRING_BASE` asks for a ring's position once the device no longer works on it. A guest makes
//! its front-end ask whenever it writes 0 to the virtio status register, as often as it likes: so a
//! stop must not be a way to the storage. See `docs/decisions/0043-ring-stops.md`.

use super::ring::Phase;
use super::{BlkPort, InFlight};
use headgate_engine::port::PortIo;
use headgate_vring::blk::Status;
use std::sync::mpsc::SyncSender;

impl BlkPort {
    /// Stops a ring: it takes nothing new, and `answer` gets its position once nothing of it is in
    /// flight. O(n log n) in the requests of the port.
    pub(super) fn stop(&mut self, io: &mut dyn PortIo, index: u16, answer: SyncSender<u16>) {
        self.awaited.remove(&index);
        let Some(ring) = self.ring(index) else { return };
        ring.phase = Phase::Stopping(answer);
        self.let_go(io, index);
        self.mark_dirty(index);
    }

    /// The disk holds requests. Nobody knows for how long: rings that stop do not wait for that.
    pub(super) fn let_go_of_held(&mut self, io: &mut dyn PortIo) {
        for index in 0..self.rings.len() as u16 {
            if self.ring(index).is_some_and(|ring| matches!(ring.phase, Phase::Stopping(_))) {
                self.let_go(io, index);
                self.mark_dirty(index);
            }
        }
    }

    /// Puts back what can be put back, and has what is held of the rest fail.
    fn let_go(&mut self, io: &mut dyn PortIo, index: u16) {
        self.put_back(io, index);
        if io.held() == 0 {
            return;
        }
        let Some(key) = self.ring(index).map(|ring| ring.key) else { return };
        let of_ring = |r: &InFlight| r.queue == index && r.key == key;
        let left = self.requests.iter().filter(|(_, request)| of_ring(request));
        let cookies: Vec<u64> = left.map(|(cookie, _)| cookie as u64).collect();
        io.give_up(&cookies);
    }

    /// Puts those chains back into a ring that nobody has begun to serve, from the newest on. What
    /// was taken before one that is served or answered already stays, and goes when its disk may
    /// go on: the ring's end waits for it, and nobody else does.
    fn put_back(&mut self, io: &mut dyn PortIo, index: u16) {
        let BlkPort { rings, requests, .. } = self;
        let Some(ring) = rings.get_mut(usize::from(index)).and_then(Option::as_mut) else { return };
        let next = ring.queue.next_available();
        let of_ring = |r: &InFlight| r.queue == index && r.key == ring.key;
        let mut newest_first: Vec<(u16, u64)> = requests
            .iter()
            .filter(|(_, request)| of_ring(request))
            .filter_map(|(cookie, r)| Some((next.wrapping_sub(r.completion.position()?), cookie)))
            .map(|(back, cookie)| (back, cookie as u64))
            .collect();
        newest_first.sort_unstable();
        let adjacent = newest_first.iter().zip(1..).take_while(|((back, _), n)| back == n);
        let cookies: Vec<u64> = adjacent.map(|((_, cookie), _)| *cookie).collect();
        let count = io.take_back(&cookies);
        for cookie in &cookies[..count.min(cookies.len())] {
            let Some(request) = requests.try_remove(*cookie as usize) else { continue };
            if let Err(kept) = ring.queue.put_back(request.completion) {
                debug_assert!(false, "{kept:?} is not the newest of its ring");
                ring.finish(kept, Status::IoError, 0);
            }
        }
    }
}
