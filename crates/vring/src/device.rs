//! The device side of a split virtqueue.

use crate::blk::Status;
use crate::chain::{self, ChainError, Request, Scratch};
use crate::inflight::{InflightError, InflightRegion};
use crate::layout::{
    Areas, EventIndex, FLAG_NO_SIGNAL, LayoutError, MAX_QUEUE_SIZE, QueueFeatures, QueueLayout,
    passed,
};
use crate::memory::{ByteCell, GuestMemory, full_fence};
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::fmt;
use thiserror::Error;

/// Why a queue cannot go on. It stays broken: every later [`DeviceQueue::next_request`] answers the
/// same, while requests in flight can still be completed. Only a new start of the ring helps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum QueueError {
    /// The driver offered more chains than the ring has places.
    #[error("the available index went from {from} to {to}, more than the queue's {size} entries")]
    AvailableIndex {
        /// What the device had taken up to.
        from: u16,
        /// What the driver wrote.
        to: u16,
        /// The queue's size.
        size: u16,
    },
    /// The available ring names a descriptor that does not exist.
    #[error("head {head} is not in a queue of {size}")]
    Head {
        /// What the driver wrote.
        head: u16,
        /// The queue's size.
        size: u16,
    },
    /// The available ring names a chain that the device has not given back yet.
    #[error("head {0} is already in flight")]
    HeadInFlight(u16),
    /// The chain has no findable status byte, so the guest cannot be told.
    #[error("chain at head {head}: {error}")]
    Chain {
        /// The chain's head.
        head: u16,
        /// What is wrong with it.
        error: ChainError,
    },
}

/// Why a queue cannot start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum StartError {
    /// The rings are not where they should be.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The in-flight region is not this queue's.
    #[error(transparent)]
    Inflight(#[from] InflightError),
}

/// The answer owed for one chain: where its status goes, and the guest memory that keeps this
/// place, and all the request's buffers, valid. It cannot be copied, so a request cannot be
/// answered twice. Dropped without an answer, the request stays in flight, and the in-flight region
/// has it replayed.
#[must_use = "a request that is not completed stays in flight for ever"]
pub struct Completion {
    memory: Arc<GuestMemory>,
    status: ByteCell,
    head: u16,
    position: Option<u16>,
}

impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Completion(head {})", self.head)
    }
}

impl Completion {
    /// The memory that the request's buffers lie in.
    pub fn memory(&self) -> &Arc<GuestMemory> {
        &self.memory
    }

    /// The chain's head: unique among the requests in flight of one queue.
    pub fn head(&self) -> u16 {
        self.head
    }

    /// Where this device took the chain from the available ring. `None` for a replay: a former
    /// device took it, and the in-flight region does not say from where.
    pub fn position(&self) -> Option<u16> {
        self.position
    }
}

/// A chain whose request cannot be served, but answered.
#[derive(Debug)]
#[must_use = "a request that is not completed stays in flight for ever"]
pub struct Rejected {
    /// The answer that is owed, with `error.status()`.
    pub completion: Completion,
    /// What is wrong.
    pub error: ChainError,
}

/// One chain taken from the ring.
#[derive(Debug)]
pub enum Fetched<'s> {
    /// To be served.
    Request(Request<'s>),
    /// To be answered at once.
    Rejected(Rejected),
}

/// Did requests arrive while kicks were off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kicks {
    /// No: the next one brings a kick.
    Armed,
    /// Yes, perhaps without a kick: take them now.
    MissedSome,
}

/// The device side of one split virtqueue. See the crate's documentation for the order of calls.
pub struct DeviceQueue {
    memory: Arc<GuestMemory>,
    areas: Areas,
    features: QueueFeatures,
    /// Position in the available ring of the next chain to take.
    next_avail: u16,
    /// The driver's available index as last read.
    known_avail: u16,
    /// Position in the used ring of the next element.
    next_used: u16,
    /// The used index that the driver has been told.
    published: u16,
    /// The used index at the last decision about a call; none before the first, which always calls.
    decided: Option<u16>,
    taken: HeadSet,
    inflight: Option<InflightRegion>,
    replays: VecDeque<u16>,
    broken: Option<QueueError>,
}

impl DeviceQueue {
    /// Starts on rings at `layout`.
    ///
    /// `base` is the position in the available ring to go on from (`SET_VRING_BASE`). With an
    /// in-flight region it is not used: what was taken before is the ring's used index plus what
    /// the region knows to be in flight. Those requests come from
    /// [`next_replay`](Self::next_replay).
    ///
    /// # Errors
    /// Rings outside of memory or misaligned; a region of another size or version.
    pub fn start(
        memory: Arc<GuestMemory>,
        layout: &QueueLayout,
        features: QueueFeatures,
        base: u16,
        mut inflight: Option<InflightRegion>,
    ) -> Result<DeviceQueue, StartError> {
        let areas = Areas::new(&memory, layout)?;
        let used = areas.used_idx();
        let mut next_avail = base;
        let mut taken = HeadSet::default();
        let mut replays = VecDeque::new();
        if let Some(region) = &mut inflight {
            replays = region.recover(used, layout.size)?.into();
            next_avail = used.wrapping_add(replays.len() as u16);
            for head in &replays {
                taken.insert(*head);
            }
        }
        Ok(DeviceQueue {
            memory,
            areas,
            features,
            next_avail,
            known_avail: next_avail,
            next_used: used,
            published: used,
            decided: None,
            taken,
            inflight,
            replays,
            broken: None,
        })
    }

    /// Goes on with a changed memory table; the rings stay where they were by guest address.
    /// Requests in flight keep the table they came with.
    ///
    /// # Errors
    /// The rings are not in the new table; the queue is then unchanged.
    pub fn set_memory(
        &mut self,
        memory: Arc<GuestMemory>,
        layout: &QueueLayout,
    ) -> Result<(), LayoutError> {
        self.areas = Areas::new(&memory, layout)?;
        self.memory = memory;
        Ok(())
    }

    /// Position in the available ring of the next chain to take: the answer to `GET_VRING_BASE`
    /// once nothing is in flight.
    pub fn next_available(&self) -> u16 {
        self.next_avail
    }

    /// Requests handed out and not completed.
    pub fn in_flight(&self) -> usize {
        self.taken.count().saturating_sub(self.replays.len())
    }

    /// Requests that [`next_replay`](Self::next_replay) has still to hand out.
    pub fn replays_left(&self) -> usize {
        self.replays.len()
    }

    /// Why the queue is broken, if it is.
    pub fn broken(&self) -> Option<QueueError> {
        self.broken
    }

    /// Takes the next request that the last owner of the in-flight region had taken and not
    /// completed, oldest first.
    ///
    /// # Errors
    /// [`QueueError::Chain`]: the chain changed into one that cannot even be answered.
    pub fn next_replay<'s>(
        &mut self,
        scratch: &'s mut Scratch,
    ) -> Result<Option<Fetched<'s>>, QueueError> {
        if let Some(error) = self.broken {
            return Err(error);
        }
        let Some(head) = self.replays.pop_front() else { return Ok(None) };
        self.fetch(head, None, scratch).map(Some)
    }

    /// Takes the next request from the available ring.
    ///
    /// # Errors
    /// The queue is broken, now or already. Cost: O(descriptors in the chain), no allocation once
    /// `scratch` has grown.
    pub fn next_request<'s>(
        &mut self,
        scratch: &'s mut Scratch,
    ) -> Result<Option<Fetched<'s>>, QueueError> {
        if let Some(error) = self.broken {
            return Err(error);
        }
        if self.known_avail == self.next_avail {
            let idx = self.areas.avail_idx();
            let size = self.areas.size;
            if idx.wrapping_sub(self.next_avail) > size {
                return Err(self.breaks(QueueError::AvailableIndex {
                    from: self.next_avail,
                    to: idx,
                    size,
                }));
            }
            if idx == self.next_avail {
                return Ok(None);
            }
            self.known_avail = idx;
        }
        let head = self.areas.avail_entry(self.next_avail);
        if head >= self.areas.size {
            return Err(self.breaks(QueueError::Head { head, size: self.areas.size }));
        }
        if !self.taken.insert(head) {
            return Err(self.breaks(QueueError::HeadInFlight(head)));
        }
        if let Some(region) = &mut self.inflight {
            region.on_taken(head);
        }
        let position = self.next_avail;
        self.next_avail = position.wrapping_add(1);
        self.fetch(head, Some(position), scratch).map(Some)
    }

    /// Puts the chain that was taken last back into the available ring, as if it had never been
    /// taken: [`next_available`](Self::next_available) is its position again. What the driver was
    /// told of kicks stays: it has kicked for this chain, so whoever starts on the ring next must
    /// look at it without one. O(1).
    ///
    /// Several are put back newest first. The in-flight region then says the truth after each of
    /// them, should the process die in between: what is marked and what was used are together what
    /// was taken.
    ///
    /// # Errors
    /// The completion comes back: another chain was taken after this one, or it is a replay.
    pub fn put_back(&mut self, completion: Completion) -> Result<(), Completion> {
        let last = self.next_avail.wrapping_sub(1);
        if completion.position != Some(last) || !self.taken.remove(completion.head) {
            return Err(completion);
        }
        if let Some(region) = &mut self.inflight {
            region.on_put_back(completion.head);
        }
        self.next_avail = last;
        // The driver may write its available ring anew, as in a reset: nothing read of it stays.
        self.known_avail = last;
        Ok(())
    }

    /// Has the driver offered more than was taken? One load, of a cache line that is shared until
    /// the driver writes to it.
    pub fn has_new(&self) -> bool {
        self.known_avail != self.next_avail || self.areas.avail_idx() != self.next_avail
    }

    fn breaks(&mut self, error: QueueError) -> QueueError {
        // Nobody will ask for these any more: they must not keep a drain waiting. The in-flight
        // region still has them.
        for head in self.replays.drain(..) {
            self.taken.remove(head);
        }
        self.broken = Some(error);
        error
    }

    fn fetch<'s>(
        &mut self,
        head: u16,
        position: Option<u16>,
        scratch: &'s mut Scratch,
    ) -> Result<Fetched<'s>, QueueError> {
        let parsed =
            match chain::parse(&self.areas, &self.memory, self.features.indirect, head, scratch) {
                Ok(parsed) => parsed,
                Err(error) => {
                    // Nobody will complete it: it must not keep a drain waiting.
                    self.taken.remove(head);
                    return Err(self.breaks(QueueError::Chain { head, error }));
                }
            };
        let completion =
            Completion { memory: Arc::clone(&self.memory), status: parsed.status, head, position };
        Ok(match parsed.outcome {
            Ok((operation, ioprio)) => {
                Fetched::Request(scratch.request(operation, ioprio, completion))
            }
            Err(error) => Fetched::Rejected(Rejected { completion, error }),
        })
    }

    /// Gives a request back: writes its status and its place in the used ring. The driver sees it
    /// at the next [`publish`](Self::publish). `written` is how many bytes of the request's data
    /// were written into guest memory.
    ///
    /// The completion must be this queue's own.
    pub fn complete(&mut self, completion: Completion, status: Status, written: u32) {
        let Completion { memory, status: cell, head, position: _ } = completion;
        let known = self.taken.remove(head);
        debug_assert!(known, "head {head} is not in flight: the completion is another queue's");
        if !known {
            return;
        }
        memory.set_byte(cell, status as u8);
        self.areas.set_used_element(self.next_used, head, written.saturating_add(1));
        self.next_used = self.next_used.wrapping_add(1);
        if let Some(region) = &mut self.inflight {
            region.on_given_back(head);
        }
    }

    /// Tells the driver of everything given back since the last time.
    pub fn publish(&mut self) {
        if self.published == self.next_used {
            return;
        }
        self.published = self.next_used;
        self.areas.set_used_idx(self.published);
        if let Some(region) = &mut self.inflight {
            region.on_published(self.published);
        }
    }

    /// Does the driver want a call for what was published since the last time this was asked. The
    /// first answer after [`start`](Self::start) is yes: a predecessor may have died between
    /// publishing and calling.
    pub fn needs_call(&mut self) -> bool {
        let (old, new) = (self.decided.replace(self.published), self.published);
        let Some(old) = old else { return true };
        if old == new {
            return false;
        }
        // The driver writes its wish, then reads the used index; the device the other way round.
        // Without a full fence on both sides each could miss the other's store (VIRTIO 1.2, section
        // 2.7.10.1).
        full_fence();
        match self.features.event_index {
            EventIndex::On => passed(self.areas.used_event(), new, old),
            EventIndex::Off => self.areas.avail_flags() & FLAG_NO_SIGNAL == 0,
        }
    }

    /// Does the driver wait to be called for the next answer that is published? Only a hint: no
    /// fence orders this look against the driver's stores, so it may be late.
    pub fn is_armed(&self) -> bool {
        match self.features.event_index {
            EventIndex::On => self.areas.used_event() == self.published,
            EventIndex::Off => self.areas.avail_flags() & FLAG_NO_SIGNAL == 0,
        }
    }

    /// Asks the driver not to kick: for a device that polls anyway. Only a hint; kicks may still
    /// come.
    pub fn disable_kicks(&mut self) {
        // With the event index nothing is to be done: an event position that lies behind is not
        // passed again before the index wraps.
        if self.features.event_index == EventIndex::Off {
            self.areas.set_used_flags(FLAG_NO_SIGNAL);
        }
    }

    /// Asks the driver to kick for the next request, then looks whether one came before it could
    /// know.
    pub fn enable_kicks(&mut self) -> Kicks {
        match self.features.event_index {
            EventIndex::On => self.areas.set_avail_event(self.next_avail),
            EventIndex::Off => self.areas.set_used_flags(0),
        }
        // As in `needs_call`, with the roles swapped.
        full_fence();
        if self.areas.avail_idx() == self.next_avail { Kicks::Armed } else { Kicks::MissedSome }
    }
}

/// Which heads are in flight.
#[derive(Default)]
struct HeadSet {
    words: [u64; MAX_QUEUE_SIZE as usize / 64],
}

impl HeadSet {
    /// How many. Counted only when a queue is to stop, so there is no counter to keep right per
    /// request.
    fn count(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Answers whether it was new.
    fn insert(&mut self, head: u16) -> bool {
        let (word, bit) = (&mut self.words[usize::from(head / 64)], 1u64 << (head % 64));
        let new = *word & bit == 0;
        *word |= bit;
        new
    }

    /// Answers whether it was there.
    fn remove(&mut self, head: u16) -> bool {
        let (word, bit) = (&mut self.words[usize::from(head / 64)], 1u64 << (head % 64));
        let known = *word & bit != 0;
        *word &= !bit;
        known
    }
}
