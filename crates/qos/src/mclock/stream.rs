//! The streams of a disk: its requests by priority.

use super::amount::rate;
use super::disk::DiskTags;
use super::lanes::LaneState;
use crate::direction::Direction;
use crate::inheritance::Inheritance;
use crate::priority::{PriorityPolicy, PriorityScope, SHARES_PER_PRIORITY};
use crate::queue::Chain;
use crate::rate::{Tag, before};
use alloc::vec::Vec;
use core::num::NonZeroU64;
use headgate_units::{Priority, Shares};

pub(super) const NOWHERE: u32 = u32::MAX;

/// Whether the requests of a disk are divided into streams by priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tagging {
    Honoured,
    Ignored,
}

/// Priority policy and streams of a disk whose guest may set priorities; others have no entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Priorities {
    pub(super) policy: PriorityPolicy,
    pub(super) inheritance: Inheritance,
    /// The disk's shares while its streams compete instead of it.
    pub(super) shares: Shares,
    /// Of its streams, while it has several.
    pub(super) block: u32,
    /// The disk's own time: the largest start tag of a stream that was served, as shifted since.
    /// Across VMs always, else while it has several streams.
    pub(super) clock: u64,
    /// Across VMs, where the share clock was when the disk's own showed that.
    pub(super) anchor: u64,
    /// The streams whose requests the disk has had since it was last empty.
    pub(super) mix: StreamMix,
}

/// The streams that a disk's requests, queued or in flight, belong to since it was last empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamMix {
    /// The stream that the disk's label names, if any.
    Usual,
    /// This stream alone.
    Only(Priority),
    /// Several streams.
    Mixed,
}

impl Priorities {
    /// A stream was served that began at `start`. One that comes back with a lane begins behind
    /// others: the disk's own time does not go back with it, or newcomers would begin there, and
    /// the next to come back as far behind again.
    #[inline]
    pub(super) fn pass(&mut self, start: u64) {
        if before(self.clock, start) {
            self.clock = start;
        }
    }
}

impl Default for Priorities {
    fn default() -> Priorities {
        Priorities {
            policy: PriorityPolicy::default(),
            inheritance: Inheritance::default(),
            shares: Shares::default(),
            block: NOWHERE,
            clock: ORIGIN,
            anchor: 0,
            mix: StreamMix::Usual,
        }
    }
}

#[derive(Clone)]
pub(super) struct Stream {
    pub(super) priority: Priority,
    /// Start tag of its next request. Across VMs, that of the front is in [`DiskTags::share`].
    pub(super) tag: Tag,
    /// That of the front is in [`DiskTags::queue`].
    pub(super) queue: Chain,
    /// In pairs, that of reads says it for both: which goes first where both may go.
    pub(super) first: Direction,
}

impl Stream {
    pub(super) fn new(priority: Priority, start: u64) -> Stream {
        let tag = Tag::new(start, weight(priority));
        Stream { priority, tag, queue: Chain::EMPTY, first: Direction::Read }
    }
}

/// The streams of a disk that has several, or lanes: those with requests queued, and those whose
/// tag is ahead.
#[derive(Clone)]
pub(super) struct Streams {
    /// By falling priority, so that the first of equals is the highest. Of a disk with lanes each
    /// twice, for reads and for the rest (`paired.rs`).
    pub(super) list: Vec<Stream>,
    /// Index of the stream that is served next.
    pub(super) front: usize,
    pub(super) slot: u32,
    /// Of a disk with lanes.
    pub(super) lanes: Option<[LaneState; 2]>,
}

impl Streams {
    pub(super) fn new() -> Streams {
        Streams { list: Vec::new(), front: 0, slot: 0, lanes: None }
    }

    #[cfg(test)]
    pub(super) fn streams(&self) -> usize {
        self.list.len()
    }

    pub(super) fn put_front_back(&mut self, disk: &mut DiskTags, scope: PriorityScope) {
        let front = &mut self.list[self.front];
        front.queue = core::mem::replace(&mut disk.queue, Chain::EMPTY);
        if scope == PriorityScope::AcrossVms {
            front.tag = disk.share;
        }
        if self.lanes.is_some() {
            self.agree();
        }
    }

    /// Makes the earliest stream with queued requests the front; keeps the front if none has any.
    pub(super) fn bring_forward(&mut self, disk: &mut DiskTags, scope: PriorityScope) {
        let best = match self.lanes {
            None => self.earliest(),
            Some(lanes) => self.earliest_of_pairs(lanes),
        };
        self.front = best.unwrap_or(self.front);
        let front = &mut self.list[self.front];
        disk.queue = core::mem::replace(&mut front.queue, Chain::EMPTY);
        if scope == PriorityScope::AcrossVms {
            disk.share = front.tag;
        }
    }

    #[inline]
    fn earliest(&self) -> Option<usize> {
        let mut best: Option<(usize, u64)> = None;
        for (i, stream) in self.list.iter().enumerate() {
            if !stream.queue.is_empty() && best.is_none_or(|(_, at)| before(stream.tag.at, at)) {
                best = Some((i, stream.tag.at));
            }
        }
        best.map(|(i, _)| i)
    }

    /// Forgets streams that have nothing queued and whose tag is behind, all but one.
    pub(super) fn purge(&mut self, is_behind: impl Fn(u64) -> bool) {
        if self.lanes.is_some() {
            return self.purge_pairs(is_behind);
        }
        let mut i = self.list.len();
        while i > 0 && self.list.len() > 1 {
            i -= 1;
            let stream = &self.list[i];
            if stream.queue.is_empty() && is_behind(stream.tag.at) {
                self.list.remove(i);
                if i < self.front {
                    self.front -= 1;
                }
                self.front = self.front.min(self.list.len() - 1);
            }
        }
    }

    /// The stream of a priority, new if need be; its tag is then `start`.
    pub(super) fn find(&mut self, priority: Priority, start: u64) -> usize {
        let place = self.list.partition_point(|s| s.priority > priority);
        if self.list.get(place).is_none_or(|s| s.priority != priority) {
            self.list.insert(place, Stream::new(priority, start));
            if place <= self.front && self.list.len() > 1 {
                self.front += 1;
            }
        }
        place
    }
}

/// Where a disk's own clock starts. It never says anything beyond differences; near the end of the
/// circle in tests of the rules, so that it goes round.
pub(super) const ORIGIN: u64 = if cfg!(test) { u64::MAX - (1 << 50) } else { 0 };

/// What a priority weighs, in shares.
#[inline]
pub(super) fn weight(priority: Priority) -> NonZeroU64 {
    rate(u64::from(priority.get()) * SHARES_PER_PRIORITY)
}
