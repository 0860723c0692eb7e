//! What is under way for the copy.

use super::setup::Keeps;
use crate::extent::Extent;
use crate::request::{RequestId, Side, StepId};
use alloc::vec::Vec;

/// Where a step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Stage {
    /// The source says what is there. Its extent is nobody's meanwhile.
    Examining,
    /// The source reads it into the step's buffer. Nobody else reads it.
    Reading,
    /// The target gets it.
    Writing,
    /// The target makes zeroes of it. There is no buffer.
    Zeroing,
}

impl Stage {
    pub(super) fn side(self) -> Side {
        match self {
            Stage::Examining | Stage::Reading => Side::Source,
            Stage::Writing | Stage::Zeroing => Side::Target,
        }
    }
}

/// For what a step is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Cause {
    /// For the copy, in order.
    Order,
    /// A change waits for it.
    Request(RequestId),
    /// For a change that was answered.
    Nobody,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Step {
    pub(super) id: StepId,
    pub(super) extent: Extent,
    pub(super) stage: Stage,
    pub(super) cause: Cause,
    /// What keeps what it reads.
    pub(super) keeps: Keeps,
}

/// All steps, in no order. Those of a copy that has ended stay until what they sent has ended too.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Steps {
    steps: Vec<Step>,
    most: u32,
}

impl Steps {
    /// Nothing, unless there is memory.
    pub(super) fn with_room(most: u32) -> Option<Steps> {
        let mut steps = Vec::new();
        steps.try_reserve_exact(usize::try_from(most).ok()?).ok()?;
        Some(Steps { steps, most })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Step> {
        self.steps.iter()
    }

    pub(super) fn get(&mut self, id: StepId) -> Option<&mut Step> {
        self.steps.iter_mut().find(|step| step.id == id)
    }

    pub(super) fn find(&self, id: StepId) -> Option<&Step> {
        self.steps.iter().find(|step| step.id == id)
    }

    /// The number of a step that may begin.
    pub(super) fn free(&self) -> Option<StepId> {
        let free = |id: &StepId| self.steps.iter().all(|step| step.id != *id);
        (0..self.most).map(StepId).find(free)
    }

    pub(super) fn add(&mut self, step: Step) {
        self.steps.push(step);
    }

    pub(super) fn remove(&mut self, id: StepId) {
        self.steps.retain(|step| step.id != id);
    }

    /// The request has its answer, and its name may come again.
    pub(super) fn forget(&mut self, id: RequestId) {
        for step in self.steps.iter_mut().filter(|step| step.cause == Cause::Request(id)) {
            step.cause = Cause::Nobody;
        }
    }

    /// Bytes in buffers.
    pub(super) fn held(&self) -> u64 {
        let holds = |step: &&Step| {
            step.keeps == Keeps::Buffers && matches!(step.stage, Stage::Reading | Stage::Writing)
        };
        self.steps.iter().filter(holds).map(|step| step.extent.len().0).sum()
    }

    fn reads(&self) -> impl Iterator<Item = Extent> {
        self.steps.iter().filter(|step| step.stage == Stage::Reading).map(|step| step.extent)
    }

    /// Where the read ends that this byte is part of.
    pub(super) fn read_end(&self, at: u64) -> Option<u64> {
        let holds = |read: &Extent| read.start().0 <= at && at < read.end().0;
        self.reads().find(holds).map(|read| read.end().0)
    }

    /// Where the next read begins behind this byte.
    pub(super) fn read_behind(&self, at: u64) -> Option<u64> {
        self.reads().map(|read| read.start().0).filter(|start| *start > at).min()
    }
}
