//! The queued requests of all disks in one slab: a disk's queue is a chain through it, so an idle
//! disk holds no memory for requests and a warm slab allocates none.

use crate::direction::Direction;
use crate::learned_cost::QueuedSize;
use crate::priority::Given;
use alloc::vec::Vec;

const NIL: u32 = u32::MAX;

#[derive(Clone)]
struct Slot<R> {
    request: Option<R>,
    start: Start,
    next: u32,
    /// Size of the next request in the chain.
    next_size: QueuedSize,
}

/// What is known of a request while it waits.
#[derive(Clone, Copy)]
pub(crate) struct Queued {
    /// Its first byte on the disk.
    pub(crate) position: u64,
    pub(crate) size: QueuedSize,
    pub(crate) direction: Direction,
    /// The priority that it was given.
    pub(crate) given: Given,
}

/// Where on its disk a request starts, in steps of 256 bytes, its direction, and the priority that
/// it was given.
#[derive(Clone, Copy)]
struct Start(u64);

impl Start {
    const GIVEN: u64 = 0xff;
    /// No disk is that large.
    const WRITES: u64 = 1 << 63;

    #[inline]
    fn new(position: u64, direction: Direction, given: Given) -> Start {
        let writes = match direction {
            Direction::Read => 0,
            Direction::Write => Start::WRITES,
        };
        Start(position & !(Start::GIVEN | Start::WRITES) | writes | u64::from(given.bits()))
    }

    #[inline]
    fn position(self) -> u64 {
        self.0 & !(Start::GIVEN | Start::WRITES)
    }

    fn direction(self) -> Direction {
        if self.0 & Start::WRITES == 0 { Direction::Read } else { Direction::Write }
    }

    #[inline]
    fn given(self) -> Given {
        Given::from_bits(self.0 as u8)
    }
}

/// One stream's requests, first come, first served.
///
/// The size of the first is kept here and that of each other in the one before it: a decision knows
/// what it charges without waiting for a line of the slab.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chain {
    head: u32,
    head_size: QueuedSize,
    tail: u32,
    len: u32,
}

impl Chain {
    pub(crate) const EMPTY: Chain =
        Chain { head: NIL, head_size: QueuedSize::NONE, tail: NIL, len: 0 };

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    /// The size of the first request; [`QueuedSize::NONE`] when there is none.
    #[inline]
    pub(crate) fn head_size(&self) -> QueuedSize {
        self.head_size
    }

    /// Hangs a slot at the end.
    #[inline]
    fn append<R>(&mut self, slots: &mut [Slot<R>], index: u32, size: QueuedSize) {
        if self.is_empty() {
            self.head = index;
            self.head_size = size;
        } else {
            let last = &mut slots[self.tail as usize];
            last.next = index;
            last.next_size = size;
        }
        self.tail = index;
        self.len += 1;
    }
}

/// The slab.
#[derive(Clone)]
pub(crate) struct Requests<R> {
    slots: Vec<Slot<R>>,
    /// Head of the chain of free slots, last freed first.
    free: u32,
    len: usize,
}

impl<R> Requests<R> {
    pub(crate) fn new() -> Requests<R> {
        Requests { slots: Vec::new(), free: NIL, len: 0 }
    }

    /// All queued requests.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Appends to a chain.
    ///
    /// # Panics
    /// With 2^32 - 1 requests queued, which no memory holds.
    #[inline(always)]
    pub(crate) fn push(&mut self, chain: &mut Chain, queued: Queued, request: R) {
        let start = Start::new(queued.position, queued.direction, queued.given);
        let slot = Slot { request: Some(request), start, next: NIL, next_size: QueuedSize::NONE };
        let index = self.free;
        let index = if index == NIL {
            let index = self.slots.len() as u32;
            assert!(index < NIL, "2^32 - 1 requests are queued");
            self.slots.push(slot);
            index
        } else {
            let start = &mut self.slots[index as usize];
            self.free = start.next;
            *start = slot;
            index
        };
        chain.append(&mut self.slots, index, queued.size);
        self.len += 1;
    }

    /// Where on its disk the first request of a chain starts.
    #[inline]
    pub(crate) fn head_position(&self, chain: &Chain) -> Option<u64> {
        if chain.is_empty() { None } else { Some(self.slots[chain.head as usize].start.position()) }
    }

    /// The priority that the first request of a chain was given, and its direction.
    pub(crate) fn head(&self, chain: &Chain) -> Option<(Given, Direction)> {
        let start = self.slots.get(chain.head as usize)?.start;
        if chain.is_empty() { None } else { Some((start.given(), start.direction())) }
    }

    /// Moves the first request of a chain to the end of another.
    pub(crate) fn shift(&mut self, from: &mut Chain, to: &mut Chain) {
        if from.is_empty() {
            return;
        }
        let (index, size) = (from.head, from.head_size);
        let slot = &mut self.slots[index as usize];
        (from.head, from.head_size) = (slot.next, slot.next_size);
        (slot.next, slot.next_size) = (NIL, QueuedSize::NONE);
        from.len -= 1;
        if from.len == 0 {
            from.tail = NIL;
        }
        to.append(&mut self.slots, index, size);
    }

    /// Takes the first request of a chain and the priority that it was given.
    #[inline]
    pub(crate) fn pop(&mut self, chain: &mut Chain) -> Option<(R, Given)> {
        if chain.is_empty() {
            return None;
        }
        let index = chain.head;
        let slot = &mut self.slots[index as usize];
        let (request, given) = (slot.request.take(), slot.start.given());
        chain.head = slot.next;
        chain.head_size = slot.next_size;
        chain.len -= 1;
        if chain.len == 0 {
            chain.tail = NIL;
        }
        slot.next = self.free;
        self.free = index;
        self.len -= 1;
        request.map(|request| (request, given))
    }

    /// Takes all requests of a chain, in order, each with what was known of it. O(chain).
    pub(crate) fn drain(&mut self, chain: &mut Chain) -> Vec<(Queued, R)> {
        let mut taken = Vec::with_capacity(chain.len());
        while !chain.is_empty() {
            let (size, start) = (chain.head_size, self.slots[chain.head as usize].start);
            let Some((request, given)) = self.pop(chain) else { break };
            let (position, direction) = (start.position(), start.direction());
            taken.push((Queued { position, size, direction, given }, request));
        }
        taken
    }

    /// Takes those requests of a chain that `wanted` picks, in order; the others keep theirs.
    /// O(chain).
    pub(crate) fn extract(
        &mut self,
        chain: &mut Chain,
        wanted: &mut dyn FnMut(&R) -> bool,
    ) -> Vec<R> {
        let mut taken = Vec::new();
        let mut kept = Chain::EMPTY;
        let (mut index, mut size) = (chain.head, chain.head_size);
        while index != NIL {
            let slot = &mut self.slots[index as usize];
            let (next, next_size) = (slot.next, slot.next_size);
            if slot.request.as_ref().is_some_and(&mut *wanted) {
                taken.extend(slot.request.take());
                slot.next = self.free;
                self.free = index;
                self.len -= 1;
            } else {
                (slot.next, slot.next_size) = (NIL, QueuedSize::NONE);
                kept.append(&mut self.slots, index, size);
            }
            (index, size) = (next, next_size);
        }
        *chain = kept;
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headgate_units::Bytes;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        #[test]
        fn chains_are_queues_and_share_the_slab(operations in prop::collection::vec((0u8..8, 0usize..3), 0..300)) {
            let mut requests = Requests::new();
            let mut chains = [Chain::EMPTY; 3];
            let mut model = [const { VecDeque::<u32>::new() }; 3];
            let mut next = 0u32;
            let mut most = 0;
            for (operation, which) in operations {
                let (chain, queue) = (&mut chains[which], &mut model[which]);
                match operation {
                    0..=3 => {
                        let queued = Queued {
                            position: u64::from(next) << 9,
                            size: QueuedSize::from_bits(next),
                            direction: Direction::BOTH[next as usize % 2],
                            given: Given::from_bits(next as u8),
                        };
                        requests.push(chain, queued, next);
                        queue.push_back(next);
                        next += 1;
                    }
                    4..=6 => {
                        prop_assert_eq!(chain.head_size().bits(), queue.front().copied().unwrap_or(0));
                        let position = queue.front().map(|n| u64::from(*n) << 9);
                        prop_assert_eq!(requests.head_position(chain), position);
                        let head = requests.head(chain).map(|(given, direction)| (given.bits(), direction));
                        prop_assert_eq!(head, queue.front().map(|n| (*n as u8, Direction::BOTH[*n as usize % 2])));
                        let popped = queue.pop_front().map(|n| (n, Given::from_bits(n as u8)));
                        prop_assert_eq!(requests.pop(chain), popped);
                    }
                    _ => {
                        let taken = requests.extract(chain, &mut |n| n % 3 == 0);
                        let (out, kept): (Vec<u32>, Vec<u32>) = queue.iter().partition(|n| **n % 3 == 0);
                        prop_assert_eq!(taken, out);
                        *queue = kept.into();
                    }
                }
                let len = model.iter().map(VecDeque::len).sum();
                most = most.max(len);
                prop_assert_eq!(requests.len(), len);
                for (chain, queue) in chains.iter().zip(&model) {
                    prop_assert_eq!(chain.len(), queue.len());
                }
            }
            prop_assert!(requests.slots.len() <= most, "freed slots are used again");
        }
    }

    #[test]
    fn sizes_beyond_four_gibibytes_are_clamped() {
        let mut requests = Requests::new();
        let mut chain = Chain::EMPTY;
        let size = QueuedSize::plain(Bytes(u64::MAX));
        requests.push(
            &mut chain,
            Queued { position: 0, size, direction: Direction::Read, given: Given::NONE },
            (),
        );
        assert_eq!(chain.head_size().bits(), u32::MAX);
        assert_eq!(size_of::<Slot<u64>>(), 32);
    }
}
