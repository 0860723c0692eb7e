//! What is judged.

use super::defect::Defect;
use headgate_mirror::instant::{
    Action, NotTaken, Over, PointInTime, Progress, Setup, SetupError, Unexpected,
};
use headgate_mirror::{Completion, Found, Job, Request, RequestId, Side, StepId, Turn};
use headgate_units::Bytes;
use std::hash::Hash;

/// The calls of [`PointInTime`].
pub trait Machine: Clone + Eq + Hash {
    /// Only one that stands in has a defect by request.
    fn new(setup: Setup, defect: Defect) -> Result<Self, SetupError>;
    fn drained(&mut self, how: Completion, out: &mut Vec<Action>) -> Result<(), Unexpected>;
    fn request(
        &mut self,
        id: RequestId,
        request: Request,
        out: &mut Vec<Action>,
    ) -> Result<(), NotTaken>;
    fn copy(&mut self, out: &mut Vec<Action>) -> Turn;
    fn found(
        &mut self,
        step: StepId,
        found: Found,
        len: Bytes,
        out: &mut Vec<Action>,
    ) -> Result<(), Unexpected>;
    fn read_zeroes(&mut self, step: StepId, out: &mut Vec<Action>) -> Result<(), Unexpected>;
    fn read_part(
        &mut self,
        step: StepId,
        len: Bytes,
        out: &mut Vec<Action>,
    ) -> Result<(), Unexpected>;
    fn refused(&mut self, step: StepId, out: &mut Vec<Action>) -> Result<(), Unexpected>;
    fn done(
        &mut self,
        side: Side,
        job: Job,
        how: Completion,
        out: &mut Vec<Action>,
    ) -> Result<(), Unexpected>;
    fn cancel(&mut self, out: &mut Vec<Action>) -> Result<(), Over>;
    fn lose_target(&mut self, out: &mut Vec<Action>) -> Result<(), Over>;
    fn chunk(&self) -> Bytes;
    fn steps(&self) -> u32;
    fn progress(&self) -> Progress;
    fn is_over(&self) -> bool;
}

impl Machine for PointInTime {
    fn new(setup: Setup, _: Defect) -> Result<Self, SetupError> {
        PointInTime::new(setup)
    }

    fn drained(&mut self, how: Completion, out: &mut Vec<Action>) -> Result<(), Unexpected> {
        self.drained(how, out)
    }

    fn request(
        &mut self,
        id: RequestId,
        request: Request,
        out: &mut Vec<Action>,
    ) -> Result<(), NotTaken> {
        self.request(id, request, out)
    }

    fn copy(&mut self, out: &mut Vec<Action>) -> Turn {
        self.copy(out)
    }

    fn found(
        &mut self,
        step: StepId,
        found: Found,
        len: Bytes,
        out: &mut Vec<Action>,
    ) -> Result<(), Unexpected> {
        self.found(step, found, len, out)
    }

    fn read_zeroes(&mut self, step: StepId, out: &mut Vec<Action>) -> Result<(), Unexpected> {
        self.read_zeroes(step, out)
    }

    fn read_part(
        &mut self,
        step: StepId,
        len: Bytes,
        out: &mut Vec<Action>,
    ) -> Result<(), Unexpected> {
        self.read_part(step, len, out)
    }

    fn refused(&mut self, step: StepId, out: &mut Vec<Action>) -> Result<(), Unexpected> {
        self.refused(step, out)
    }

    fn done(
        &mut self,
        side: Side,
        job: Job,
        how: Completion,
        out: &mut Vec<Action>,
    ) -> Result<(), Unexpected> {
        self.done(side, job, how, out)
    }

    fn cancel(&mut self, out: &mut Vec<Action>) -> Result<(), Over> {
        self.cancel(out)
    }

    fn lose_target(&mut self, out: &mut Vec<Action>) -> Result<(), Over> {
        self.lose_target(out)
    }

    fn chunk(&self) -> Bytes {
        self.chunk()
    }

    fn steps(&self) -> u32 {
        self.steps()
    }

    fn progress(&self) -> Progress {
        self.progress()
    }

    fn is_over(&self) -> bool {
        self.is_over()
    }
}
