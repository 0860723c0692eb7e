//! What is under way, in order of arrival, and what has to wait for what.

use crate::extent::Extent;
use crate::request::{Completion, Job, Op, Request, RequestId, Side, StepId};
use alloc::vec::Vec;

/// What became of something that may be sent to a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Half {
    /// Not sent, or not waited for any more.
    Unused,
    /// Sent.
    Pending,
    /// Ended.
    Ended(Completion),
}

impl Half {
    pub(crate) const FAILED: Half = Half::Ended(Completion::Failed);
}

/// Where a step of the copy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Stage {
    /// Earlier changes of its extent are under way.
    Waiting,
    /// The source says what is there.
    Examining,
    /// The source reads it.
    Reading,
    /// The target gets it.
    Writing,
}

/// Which part of the copy a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Part {
    /// What nobody copied yet.
    Front,
    /// What was copied, and may differ since.
    Redo,
}

/// Whether the switch has to wait for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Awaited {
    No,
    Yes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct GuestEntry {
    pub(crate) id: RequestId,
    pub(crate) request: Request,
    pub(crate) source: Half,
    pub(crate) target: Half,
    pub(crate) awaited: Awaited,
}

impl GuestEntry {
    pub(crate) fn new(id: RequestId, request: Request) -> GuestEntry {
        let (source, target, awaited) = (Half::Unused, Half::Unused, Awaited::No);
        GuestEntry { id, request, source, target, awaited }
    }

    pub(crate) fn is_waiting(&self) -> bool {
        self.source == Half::Unused && self.target == Half::Unused
    }

    pub(crate) fn half(&mut self, side: Side) -> &mut Half {
        match side {
            Side::Source => &mut self.source,
            Side::Target => &mut self.target,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct StepEntry {
    pub(crate) id: StepId,
    pub(crate) extent: Extent,
    pub(crate) part: Part,
    pub(crate) stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Entry {
    Guest(GuestEntry),
    Step(StepEntry),
}

/// How an entry uses its extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Reads,
    Changes,
    Copies,
}

impl Entry {
    fn usage(&self) -> Option<(Use, Extent)> {
        match self {
            Entry::Step(step) => Some((Use::Copies, step.extent)),
            Entry::Guest(guest) => {
                let extent = guest.request.extent()?;
                match guest.request {
                    Request::Read(_) => Some((Use::Reads, extent)),
                    _ => Some((Use::Changes, extent)),
                }
            }
        }
    }

    /// Whether the two may not be under way together. Reads do not disturb a copy: it leaves the
    /// source as it is.
    fn excludes(&self, other: &Entry) -> bool {
        let (Some((one, here)), Some((two, there))) = (self.usage(), other.usage()) else {
            return false;
        };
        let harmless = matches!(
            (one, two),
            (Use::Reads, Use::Reads) | (Use::Reads, Use::Copies) | (Use::Copies, Use::Reads)
        );
        !harmless && here.overlaps(there)
    }

    pub(crate) fn is_waiting(&self) -> bool {
        match self {
            Entry::Guest(guest) => guest.is_waiting(),
            Entry::Step(step) => step.stage == Stage::Waiting,
        }
    }

    /// For what it sends, and what first.
    pub(crate) fn first(&self) -> (Job, Op) {
        match self {
            Entry::Guest(guest) => (Job::Request(guest.id), guest.request.op()),
            Entry::Step(step) => (Job::Copy(step.id), Op::Examine(step.extent)),
        }
    }
}

/// All that is under way or waits, in order of arrival.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Order {
    entries: Vec<Entry>,
}

impl Order {
    pub(crate) fn with_room(entries: usize) -> Order {
        Order { entries: Vec::with_capacity(entries) }
    }

    /// Adds what arrives; returns its place.
    pub(crate) fn push(&mut self, entry: Entry) -> usize {
        self.entries.push(entry);
        self.entries.len() - 1
    }

    pub(crate) fn remove(&mut self, at: usize) {
        if at < self.entries.len() {
            self.entries.remove(at);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn get(&self, at: usize) -> Option<&Entry> {
        self.entries.get(at)
    }

    pub(crate) fn guest_at(&mut self, at: usize) -> Option<&mut GuestEntry> {
        match self.entries.get_mut(at) {
            Some(Entry::Guest(guest)) => Some(guest),
            _ => None,
        }
    }

    pub(crate) fn step_at(&mut self, at: usize) -> Option<&mut StepEntry> {
        match self.entries.get_mut(at) {
            Some(Entry::Step(step)) => Some(step),
            _ => None,
        }
    }

    pub(crate) fn guests(&self) -> impl Iterator<Item = &GuestEntry> {
        self.entries.iter().filter_map(|entry| match entry {
            Entry::Guest(guest) => Some(guest),
            Entry::Step(_) => None,
        })
    }

    pub(crate) fn guests_mut(&mut self) -> impl Iterator<Item = &mut GuestEntry> {
        self.entries.iter_mut().filter_map(|entry| match entry {
            Entry::Guest(guest) => Some(guest),
            Entry::Step(_) => None,
        })
    }

    pub(crate) fn steps(&self) -> impl Iterator<Item = &StepEntry> {
        self.entries.iter().filter_map(|entry| match entry {
            Entry::Guest(_) => None,
            Entry::Step(step) => Some(step),
        })
    }

    pub(crate) fn find_guest(&self, id: RequestId) -> Option<usize> {
        self.entries.iter().position(|entry| matches!(entry, Entry::Guest(g) if g.id == id))
    }

    pub(crate) fn find_step(&self, id: StepId) -> Option<usize> {
        self.entries.iter().position(|entry| matches!(entry, Entry::Step(s) if s.id == id))
    }

    /// Ends all steps of the copy.
    pub(crate) fn drop_steps(&mut self) {
        self.entries.retain(|entry| matches!(entry, Entry::Guest(_)));
    }

    /// Whether the entry waits and no longer has to. Who came first goes first, also among those
    /// that wait, so that nobody waits for ever.
    pub(crate) fn may_start(&self, at: usize) -> bool {
        let Some(entry) = self.entries.get(at) else { return false };
        entry.is_waiting() && !self.entries[..at].iter().any(|earlier| earlier.excludes(entry))
    }
}
