//! What a storage or the caller tells the machine.

use super::{
    Broken, Case, Cause, Doubt, Effects, Event, FIRST_INIT, Looks, Out, Sender, Step, World,
    changes, check, is_copy, synchronises,
};
use crate::machine::Machine;
use crate::storage::{Cache, Effect, Flight, How, Value, blocks};
use headgate_mirror::instant::{Action, Keeps, Outcome, Reason};
use headgate_mirror::{
    Completion, Extent, Found, Job, Op, Request, RequestId, Side, StepId, TargetContent, Turn,
};
use headgate_units::Bytes;

fn must(outcome: Outcome) -> Cause {
    Cause { may: Some(outcome), must: Some(outcome) }
}

fn given_up(reason: Reason) -> Cause {
    must(Outcome::GivenUp(reason))
}

impl<M: Machine, const N: usize> World<M, N> {
    pub(super) fn happen(
        &mut self,
        case: &Case<N>,
        event: Event,
        out: &mut Vec<Action>,
    ) -> Result<(), Broken> {
        match event {
            Event::Request(request) => self.ask(case, request, out),
            Event::Drained => {
                self.drained = true;
                let how = if self.old_failed { Completion::Failed } else { Completion::Done };
                if self.old_failed {
                    self.causes(given_up(Reason::SourceNotDurable));
                }
                self.machine.drained(how, out).map_err(|e| e.to_string())
            }
            Event::Copy => {
                let turn = self.machine.copy(out);
                self.check_turn(turn, out)
            }
            Event::Cancel => {
                self.left.ends = self.left.ends.saturating_sub(1);
                self.causes(must(Outcome::Cancelled));
                self.machine.cancel(out).map_err(|e| e.to_string())
            }
            Event::LoseTarget => {
                self.left.ends = self.left.ends.saturating_sub(1);
                self.causes(given_up(Reason::TargetLost));
                self.machine.lose_target(out).map_err(|e| e.to_string())
            }
            Event::Refuse(step) => {
                self.left.refusals -= 1;
                self.shared(step)?;
                self.keeps = Keeps::Buffers;
                self.steps[step.0 as usize] = Step::default();
                self.machine.refused(step, out).map_err(|e| e.to_string())
            }
            Event::Part(step, len) => {
                self.left.refusals -= 1;
                let (flight, content) = self.shared(step)?;
                let all = flight.extent().ok_or("a read of nothing")?;
                let len = Bytes(len.into());
                let part = Extent::new(all.start(), len).ok_or("an empty part")?;
                blocks(part).for_each(|block| self.read[block] = true);
                self.steps[step.0 as usize].content = Some(content);
                self.machine.read_part(step, len, out).map_err(|e| e.to_string())
            }
            Event::Effect(side, job, how) => {
                self.take_effect(side, job, how)?;
                match case.effects {
                    Effects::WhenReported => self.report(case, side, job, out),
                    Effects::Before => Ok(()),
                }
            }
            Event::Report(side, job) => self.report(case, side, job, out),
        }
    }

    /// What a step reads is shared, as far as it is.
    fn shared(&mut self, step: StepId) -> Result<(Flight<N>, [Value; N]), Broken> {
        let job = Job::Copy(step);
        let at = self.flight(Side::Source, job).ok_or("nothing is read")?;
        self.take_effect(Side::Source, job, How::Done)?;
        let flight = self.source.report(at);
        let effect = flight.effect.ok_or("a read without effect")?;
        Ok((flight, effect.content))
    }

    fn causes(&mut self, cause: Cause) {
        if self.ended.is_none() {
            self.cause = cause;
        }
    }

    fn check_turn(&self, turn: Turn, out: &[Action]) -> Result<(), Broken> {
        check((turn == Turn::Began) != out.is_empty(), || format!("{turn:?}, and {out:?}"))?;
        check(self.ended.is_none() || turn == Turn::Idle, || "copies after the end".into())?;
        let reads = |block: &usize| self.is_being_read(*block) || self.is_safe(*block);
        check(turn != Turn::Idle || self.ended.is_some() || (0..N).all(|b| reads(&b)), || {
            "idle, and not all is read".into()
        })
    }

    fn ask(
        &mut self,
        case: &Case<N>,
        request: Request,
        out: &mut Vec<Action>,
    ) -> Result<(), Broken> {
        let slot = self.slots.iter().position(Option::is_none).ok_or("no slot")?;
        let number = case.budget.requests - self.left.requests + case.old.len() as u8;
        self.left.requests -= 1;
        let value = FIRST_INIT + N as Value + number;
        self.guest.ask(slot, request, value);
        if let (Some(extent), true) = (request.extent(), changes(request)) {
            // A read before a change asks nobody whether there is a hole.
            let excused = case.looks == Looks::Never;
            self.whole_chunks(extent).for_each(|block| self.excused[block] |= excused);
        }
        self.slots[slot] = Some(Out::new(request, Sender::Machine, value));
        self.machine
            .request(RequestId(slot as u64), request, out)
            .map_err(|e| format!("{request:?} is not taken: {e}"))
    }

    fn take_effect(&mut self, side: Side, job: Job, how: How) -> Result<(), Broken> {
        let at = self.flight(side, job).ok_or("nothing to take effect")?;
        let flight = self.flights(side)[at];
        if let (Job::Copy(step), Op::Examine(extent), How::Done) = (job, flight.op, how) {
            let (found, len) = self.source.examine(extent);
            self.steps[step.0 as usize].found = Some((found, len as u8));
        }
        self.storage(side).take_effect(at, how);
        if let How::Failed(_, cache) = how {
            self.left.failures -= 1;
            if let (Cache::IsLost, Side::Source) = (cache, side) {
                self.guest.lose_cache();
                if let Job::Request(id) = job
                    && let Some(out) = &mut self.slots[id.0 as usize]
                {
                    out.lost = true;
                }
            }
        }
        self.leave_image(job, flight.extent());
        Ok(())
    }

    /// What was under way at the instant belongs to the disk as it was then, whatever it leaves.
    fn leave_image(&mut self, job: Job, extent: Option<Extent>) {
        let Job::Request(id) = job else { return };
        let out = self.slots[id.0 as usize].as_ref();
        let old = out.is_some_and(|o| o.sender == Sender::Caller && changes(o.request));
        for block in extent.filter(|_| old).into_iter().flat_map(blocks) {
            self.image[block] = self.source.current(block);
            self.allocated[block] = self.source.is_allocated(block);
        }
    }

    fn report(
        &mut self,
        case: &Case<N>,
        side: Side,
        job: Job,
        out: &mut Vec<Action>,
    ) -> Result<(), Broken> {
        let at = self.flight(side, job).ok_or("nothing to report")?;
        let flight = self.storage(side).report(at);
        let Some(effect) = flight.effect else { return Err("a report without effect".into()) };
        match job {
            Job::Request(id) => self.report_request(id, flight, effect, out),
            Job::Copy(_) | Job::LastFlush => self.report_copy(case, side, flight, effect, out),
        }
    }

    fn report_request(
        &mut self,
        id: RequestId,
        flight: Flight<N>,
        effect: Effect<N>,
        out: &mut Vec<Action>,
    ) -> Result<(), Broken> {
        let slot = id.0 as usize;
        let asked = self.slots[slot].as_mut().ok_or("a report for nobody")?;
        asked.failed |= effect.failed;
        if let (Op::Read(_), false) = (flight.op, effect.failed) {
            asked.read = Some(effect.content);
        }
        let asked = *asked;
        if asked.sender == Sender::Caller {
            self.old_failed |= asked.failed && synchronises(asked.request);
            return self.answer_guest(slot, effect.completion());
        }
        if effect.failed && synchronises(asked.request) && asked.doubt != Doubt::No {
            let outcome = Outcome::GivenUp(Reason::SourceNotDurable);
            let must = (asked.doubt == Doubt::Yes).then_some(outcome);
            self.causes(Cause { may: Some(outcome), must });
        }
        self.tell(Side::Source, Job::Request(id), effect.completion(), out)
    }

    fn report_copy(
        &mut self,
        case: &Case<N>,
        side: Side,
        flight: Flight<N>,
        effect: Effect<N>,
        out: &mut Vec<Action>,
    ) -> Result<(), Broken> {
        if side == Side::Target || !matches!(flight.job, Job::Copy(_)) {
            if effect.failed {
                self.causes(given_up(Reason::TargetFailed));
            }
            if let Job::Copy(step) = flight.job {
                self.steps[step.0 as usize] = Step::default();
            }
            return self.tell(side, flight.job, effect.completion(), out);
        }
        let Job::Copy(step) = flight.job else { return Ok(()) };
        let at = step.0 as usize;
        if let Op::Examine(extent) = flight.op {
            self.steps[at].examined = Some(extent);
        }
        match (flight.op, effect.failed) {
            (Op::Examine(extent), false) => {
                let (found, len) = self.steps[at].found.take().ok_or("nothing was found")?;
                self.learn(case, extent, found, len);
                let len = Bytes(len.into());
                self.machine.found(step, found, len, out).map_err(|e| e.to_string())
            }
            (Op::Examine(extent), true) => {
                // Counts as data, and data with holes among it is written whole.
                blocks(extent).for_each(|block| self.excused[block] = true);
                self.tell(side, flight.job, Completion::Failed, out)
            }
            (Op::Read(extent), false) => {
                blocks(extent).for_each(|block| self.read[block] = true);
                self.steps[at].content = Some(effect.content);
                let zeroes = blocks(extent).all(|block| effect.content[block] == 0);
                if zeroes && case.looks == Looks::Always {
                    self.steps[at].zeroes = true;
                    return self.machine.read_zeroes(step, out).map_err(|e| e.to_string());
                }
                self.tell(side, flight.job, Completion::Done, out)
            }
            _ => {
                self.causes(given_up(Reason::SourceUnreadable));
                self.tell(side, flight.job, Completion::Failed, out)
            }
        }
    }

    /// The source says what an extent begins with.
    fn learn(&mut self, case: &Case<N>, extent: Extent, found: Found, len: u8) {
        if found == Found::Data {
            return;
        }
        let start = blocks(extent).start;
        let known = start..(start + usize::from(len)).min(blocks(extent).end);
        known.clone().for_each(|block| self.known[block] = true);
        let chunk = self.chunk() as usize;
        // An unknown target has to be sent something first.
        let all = found == Found::Hole && case.target == TargetContent::Zeroes;
        for at in (0..N).step_by(chunk).filter(|_| all) {
            let end = (at + chunk).min(N);
            if known.start <= at && end <= known.end {
                (at..end).for_each(|block| self.hole[block] = true);
            }
        }
    }

    fn tell(
        &mut self,
        side: Side,
        job: Job,
        how: Completion,
        out: &mut Vec<Action>,
    ) -> Result<(), Broken> {
        let told = self.machine.done(side, job, how, out);
        told.map_err(|e| format!("{e}: {side:?} {job:?}"))
    }

    /// The guest hears of the end of its request.
    pub(super) fn answer_guest(&mut self, slot: usize, how: Completion) -> Result<(), Broken> {
        let Some(out) = self.slots[slot].take() else { return Err("answered twice".into()) };
        let failed = how == Completion::Failed;
        let unheard = self.slots.iter().flatten().any(|other| other.lost);
        if unheard || (failed && synchronises(out.request)) {
            self.guest.lose_cache();
        }
        self.guest.answer(slot, failed, out.read)
    }

    /// Whether a step reads the block now.
    pub(super) fn is_being_read(&self, block: usize) -> bool {
        let flights = self.source.flights.iter().filter(|f| is_copy(f.job));
        let mut reads = flights.filter(|f| matches!(f.op, Op::Read(_)));
        reads.any(|f| f.extent().is_some_and(|e| blocks(e).contains(&block)))
    }
}
