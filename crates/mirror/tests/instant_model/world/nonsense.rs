//! Calls that make no sense: an error each, and nothing has changed.

use super::{Broken, Case, STEPS, World, check};
use crate::guest::SLOTS;
use crate::machine::Machine;
use headgate_mirror::instant::{Action, NotTaken, Over, Unexpected};
use headgate_mirror::{
    Completion, Durability, Extent, Found, Job, Op, Request, RequestId, Side, StepId,
};
use headgate_units::Bytes;
use std::fmt::Debug;

impl<M: Machine, const N: usize> World<M, N> {
    pub(super) fn check_nonsense(&self, case: &Case<N>) -> Result<(), Broken> {
        self.check_reports()?;
        self.check_steps()?;
        self.check_requests(case)?;
        if self.drained {
            self.refused("drained again", Unexpected::AlreadyDrained, |machine, out| {
                machine.drained(Completion::Done, out)
            })?;
        }
        if self.ended.is_some() {
            self.refused("cancelled after the end", Over, |machine, out| machine.cancel(out))?;
            self.refused("lost after the end", Over, |machine, out| machine.lose_target(out))?;
        }
        Ok(())
    }

    fn refused<E: Debug + PartialEq>(
        &self,
        what: &str,
        error: E,
        call: impl FnOnce(&mut M, &mut Vec<Action>) -> Result<(), E>,
    ) -> Result<(), Broken> {
        let (mut machine, mut out) = (self.machine.clone(), Vec::new());
        let told = call(&mut machine, &mut out);
        check(told == Err(error), || format!("nonsense: {what}: {told:?}"))?;
        check(out.is_empty(), || format!("nonsense: {what}: {out:?}"))?;
        check(machine == self.machine, || format!("nonsense: {what}: something has changed"))
    }

    /// The end of what is not under way.
    fn check_reports(&self) -> Result<(), Broken> {
        let requests = (0..=SLOTS as u64).map(|id| Job::Request(RequestId(id)));
        let steps = (0..=STEPS as u32).map(|id| Job::Copy(StepId(id)));
        let jobs = requests.chain(steps).chain([Job::LastFlush]);
        for job in jobs.chain([Job::Request(RequestId(u64::MAX)), Job::Copy(StepId(u32::MAX))]) {
            for side in [Side::Source, Side::Target] {
                let asked = match job {
                    Job::Request(id) => self.asked().any(|(slot, _)| slot as u64 == id.0),
                    Job::Copy(_) | Job::LastFlush => true,
                };
                if asked && self.flight(side, job).is_some() {
                    continue;
                }
                let what = format!("an end of {job:?} at {side:?}");
                let error = Unexpected::NothingUnderWay;
                self.refused(&what, error, |machine, out| {
                    machine.done(side, job, Completion::Failed, out)
                })?;
            }
        }
        Ok(())
    }

    /// What a step was not asked.
    fn check_steps(&self) -> Result<(), Broken> {
        for at in (0..=STEPS).chain([u32::MAX as usize]) {
            let step = StepId(at as u32);
            let op = self.step_flight(at).map(|flight| flight.op);
            if let Some(Op::Examine(_)) = op {
                let job = Job::Copy(step);
                self.refused("an examination is done", Unexpected::FoundWhat, |machine, out| {
                    machine.done(Side::Source, job, Completion::Done, out)
                })?;
                let error = Unexpected::FoundNothing;
                self.refused("nothing is found", error, |machine, out| {
                    machine.found(step, Found::Data, Bytes(0), out)
                })?;
            } else {
                let error = Unexpected::NotExamining;
                self.refused("found without examination", error, |machine, out| {
                    machine.found(step, Found::Hole, Bytes(1), out)
                })?;
            }
            let error = Unexpected::NotReading;
            if !matches!(op, Some(Op::Read(_))) {
                self.refused("zeroes without a read", error, |machine, out| {
                    machine.read_zeroes(step, out)
                })?;
                let error = Unexpected::NotReading;
                self.refused("a part without a read", error, |machine, out| {
                    machine.read_part(step, self.machine.chunk(), out)
                })?;
            }
            if let Some(Op::Read(extent)) = op {
                for len in [Bytes(0), extent.len(), Bytes(extent.len().0 + self.chunk())] {
                    let error = Unexpected::NoPart;
                    self.refused("a part that is none", error, |machine, out| {
                        machine.read_part(step, len, out)
                    })?;
                }
            }
            let shares = self.steps.get(at).is_some_and(|step| step.shares);
            if !shares || !matches!(op, Some(Op::Read(_))) {
                let error = Unexpected::NotReading;
                self.refused("a refusal of nobody", error, |machine, out| {
                    machine.refused(step, out)
                })?;
            }
        }
        Ok(())
    }

    fn check_requests(&self, case: &Case<N>) -> Result<(), Broken> {
        let full = self.asked().count() >= case.limits.requests;
        if full {
            let id = RequestId(77);
            return self.refused("a request too many", NotTaken::Full, |machine, out| {
                machine.request(id, Request::Flush, out)
            });
        }
        for (slot, _) in self.asked() {
            let id = RequestId(slot as u64);
            self.refused("a number twice", NotTaken::Duplicate, |machine, out| {
                machine.request(id, Request::Flush, out)
            })?;
        }
        let Some(beyond) = Extent::new(Bytes(N as u64 - 1), Bytes(2)) else { return Ok(()) };
        let write = Request::Write(beyond, Durability::Cached);
        self.refused("a write beyond the end", NotTaken::OutOfRange, |machine, out| {
            machine.request(RequestId(77), write, out)
        })
    }
}
