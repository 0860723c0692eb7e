//! What is under way, in order of arrival, and what has to wait for what.

use crate::extent::Extent;
use crate::passed::Passed;
use crate::request::{Completion, Job, Op, Request, RequestId, Side, StepId, Unmap};
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
    pub(crate) passes: Passes,
}

/// Whether a change has passed a step: until it has ended at the target, that has nothing of its
/// extent, neither what was copied nor what is brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Passes {
    No,
    Yes,
}

impl GuestEntry {
    pub(crate) fn new(id: RequestId, request: Request) -> GuestEntry {
        let (source, target, awaited) = (Half::Unused, Half::Unused, Awaited::No);
        GuestEntry { id, request, source, target, awaited, passes: Passes::No }
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
    /// What it need not write any more.
    pub(crate) passed: Passed,
    /// What the target is writing of it.
    pub(crate) sent: Option<Extent>,
    /// What it makes of its extent at the target.
    pub(crate) make: Make,
}

/// What a step makes at the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Make {
    /// What it has read.
    Content,
    /// Zeroes.
    Zeroes(Unmap),
}

impl StepEntry {
    pub(crate) fn new(id: StepId, extent: Extent, part: Part) -> StepEntry {
        let (stage, passed, make) = (Stage::Waiting, Passed::default(), Make::Content);
        StepEntry { id, extent, part, stage, passed, sent: None, make }
    }

    /// Whether a change may pass it: what it has seen of that extent counts for nothing then.
    pub(crate) fn is_passed(&self, extent: Extent) -> bool {
        match self.stage {
            Stage::Waiting => false,
            Stage::Examining | Stage::Reading => true,
            Stage::Writing => !self.sent.is_some_and(|sent| sent.overlaps(extent)),
        }
    }

    /// Whether all that it has of an extent was brought by others.
    fn has_nothing_of(&self, extent: Extent) -> bool {
        let both = extent.common(self.extent);
        both.is_none_or(|both| self.passed.first_left(both).is_none())
    }
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
        !harmless && here.overlaps(there) && !self.lets_pass(other)
    }

    /// Whether this is a step that a later change may pass.
    fn lets_pass(&self, later: &Entry) -> bool {
        let (Entry::Step(step), Entry::Guest(guest)) = (self, later) else { return false };
        let Some(extent) = guest.request.extent() else { return true };
        if !step.is_passed(extent) {
            return false;
        }
        // What a discard leaves at the target may be nobody's content.
        let brings = match guest.request {
            Request::Write(..) | Request::Zero(..) => step.passed.has_room(extent),
            Request::Read(_) | Request::Discard(_) | Request::Flush => false,
        };
        brings || (step.stage == Stage::Writing && step.has_nothing_of(extent))
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

    /// As much of an extent, from its first byte on, as no change waits for or has under way; where
    /// one has the first byte, as much as that one has of it.
    pub(crate) fn before_changes(&self, extent: Extent) -> Extent {
        let is_change = |guest: &&GuestEntry| !matches!(guest.request, Request::Read(_));
        let changed = self.guests().filter(is_change).filter_map(|guest| guest.request.extent());
        let (start, mut end) = (extent.start().0, extent.end().0);
        for one in changed.filter(|one| one.overlaps(extent)) {
            end = end.min(if one.start().0 > start { one.start().0 } else { one.end().0 });
        }
        Extent::between(start, end).unwrap_or(extent)
    }

    /// Steps that a change passes that starts now.
    pub(crate) fn passed_by(&mut self, extent: Extent) -> impl Iterator<Item = &mut StepEntry> {
        self.entries.iter_mut().filter_map(move |entry| match entry {
            Entry::Step(step) if step.extent.overlaps(extent) && step.is_passed(extent) => {
                Some(step)
            }
            Entry::Step(_) | Entry::Guest(_) => None,
        })
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
