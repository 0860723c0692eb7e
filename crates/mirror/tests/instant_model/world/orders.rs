//! What the machine asks for, and what it may not ask for.

use super::{
    Broken, Case, Doubt, Event, Order, STEPS, Sender, World, check, is_copy, op_of, synchronises,
};
use crate::machine::Machine;
use crate::storage::{blocks, one};
use headgate_mirror::instant::{Action, DISCARD_PIECES, Keeps, Outcome};
use headgate_mirror::{
    Completion, Extent, Job, Op, Request, RequestId, Side, StepId, TargetContent,
};
use headgate_units::Bytes;

impl<M: Machine, const N: usize> World<M, N> {
    pub(super) fn carry_out(
        &mut self,
        case: &Case<N>,
        before: &Self,
        event: Event,
        out: &[Action],
    ) -> Result<(), Broken> {
        for action in out {
            match *action {
                Action::Send { side, job, op } => {
                    check(self.flight(side, job).is_none(), || {
                        format!("two things at once for {job:?}")
                    })?;
                    match job {
                        Job::Request(id) => self.send_request(before, side, id, op)?,
                        Job::Copy(step) => self.send_step(case, event, side, step, op)?,
                        Job::LastFlush => self.send_flush(side, op)?,
                    }
                }
                Action::Answer(id, how) => self.answer(id, how)?,
                Action::Ended(outcome) => self.end(case, outcome)?,
                Action::Release => self.release()?,
            }
        }
        Ok(())
    }

    fn send_request(
        &mut self,
        before: &Self,
        side: Side,
        id: RequestId,
        op: Op,
    ) -> Result<(), Broken> {
        check(side == Side::Source, || format!("{op:?} of the guest to the target"))?;
        let slot = id.0 as usize;
        let out = self.slots.get(slot).copied().flatten();
        let out = out.filter(|out| out.sender == Sender::Machine);
        let mut out = out.ok_or_else(|| format!("{op:?} for nobody"))?;
        let whole = op == op_of(out.request);
        let part = match (out.request, op) {
            (Request::Discard(all), Op::Discard(part)) => lies_in(part, all),
            (Request::Zero(all, unmap, durability), Op::Zero(part, u, d)) => {
                (unmap, durability) == (u, d) && lies_in(part, all)
            }
            _ => false,
        };
        check(whole || part, || format!("{op:?} for {:?}", out.request))?;
        let extent = out.request.extent().and(extent_of(op));
        let again = match extent {
            Some(extent) => blocks(extent).any(|block| out.sent[block]),
            None => out.sends > 0,
        };
        check(!again, || format!("{op:?} is sent twice"))?;
        let changes = !matches!(op, Op::Read(_) | Op::Flush);
        for block in extent.into_iter().flat_map(blocks) {
            out.sent[block] = true;
            let safe = !changes || self.ended.is_some() || self.is_safe(block);
            check(safe, || format!("{op:?}: block {block} is not read yet"))?;
        }
        out.sends += 1;
        let discard = matches!(op, Op::Discard(_));
        check(!discard || u32::from(out.sends) <= DISCARD_PIECES, || "too many pieces".into())?;
        // Of what is sent in pieces, the last that was sent counts: the others have ended.
        out.doubt = match (self.all_safe(), before.all_read()) {
            _ if self.ended.is_some() || !synchronises(out.request) => Doubt::No,
            (false, _) => Doubt::Yes,
            (true, false) => Doubt::Maybe,
            (true, true) => Doubt::No,
        };
        self.slots[slot] = Some(out);
        self.source.send(Job::Request(id), op, [out.value; N]);
        Ok(())
    }

    fn send_step(
        &mut self,
        case: &Case<N>,
        event: Event,
        side: Side,
        step: StepId,
        op: Op,
    ) -> Result<(), Broken> {
        let at = step.0 as usize;
        check(self.ended.is_none(), || format!("{op:?} of the copy after the end"))?;
        check(self.drained, || format!("{op:?} of the copy before all is drained"))?;
        check(step.0 < case.limits.steps, || "more steps than may be".into())?;
        check(self.step_flight(at).is_none(), || format!("two things at once for {step:?}"))?;
        self.judge_order(event, at, op);
        let mut content = [0; N];
        match (side, op) {
            (Side::Source, Op::Examine(extent)) => {
                let most = case.limits.look.max(self.machine.chunk());
                check(extent.len() <= most, || format!("{op:?} asks for too much"))?;
            }
            (Side::Source, Op::Read(extent)) => {
                self.steps[at].shares = self.keeps == Keeps::Target;
                self.check_read(case, at, extent)?;
            }
            (Side::Target, Op::Write(extent, _)) => {
                content = self.steps[at].content.take().ok_or("nothing was read")?;
                let kept = case.target == TargetContent::Zeroes && self.steps[at].zeroes;
                check(!kept, || "zeroes are written to a target of zeroes".into())?;
                self.mark_written(extent)?;
                // What is read for a change is not examined first, and goes whole.
                let asked_first = self.steps[at].order == Order::Yes;
                blocks(extent).for_each(|block| self.excused[block] |= !asked_first);
            }
            (Side::Target, Op::Zero(extent, ..)) => {
                check(case.target != TargetContent::Zeroes, || {
                    "a target of zeroes is zeroed".into()
                })?;
                self.mark_written(extent)?;
                blocks(extent).for_each(|block| self.hole[block] = true);
            }
            _ => return Err(format!("{op:?} is sent to {side:?} for {step:?}")),
        }
        self.storage(side).send(Job::Copy(step), op, content);
        self.check_memory(case)
    }

    fn judge_order(&mut self, event: Event, at: usize, op: Op) {
        let examined = self.steps[at].examined.take();
        self.steps[at].zeroes &= !matches!(op, Op::Read(_));
        let order = match (op, examined) {
            (Op::Read(extent) | Op::Zero(extent, ..), Some(all)) if lies_in(extent, all) => {
                match (self.steps[at].order, self.is_waited_for(extent)) {
                    (Order::Yes, true) => Order::Maybe,
                    (order, _) => order,
                }
            }
            (Op::Examine(_), Some(_)) => Order::Maybe,
            // Another step has found them.
            (Op::Zero(..), None) if !self.steps[at].zeroes => Order::No,
            (Op::Read(_) | Op::Examine(_), _) if event == Event::Copy => Order::Yes,
            (Op::Read(_) | Op::Examine(_), _) => Order::No,
            _ => self.steps[at].order,
        };
        self.steps[at].order = order;
    }

    fn is_waited_for(&self, extent: Extent) -> bool {
        self.asked().any(|(slot, out)| {
            let more = matches!(out.request, Request::Zero(..)) || !self.is_sent(slot);
            let wants = out.request.extent().filter(|_| more);
            let mut wants = wants.into_iter().flat_map(|e| self.whole_chunks(e));
            wants.any(|block| blocks(extent).contains(&block))
        })
    }

    fn check_read(&self, case: &Case<N>, at: usize, extent: Extent) -> Result<(), Broken> {
        let (chunk, step) = (self.chunk(), &self.steps[at]);
        // What nobody waits for is read in order.
        let in_order = step.order != Order::No || !self.is_waited_for(extent);
        let most = match step.shares && in_order {
            true => Bytes(case.limits.look.0.max(chunk).next_multiple_of(chunk)),
            false => case.limits.step.max(self.machine.chunk()),
        };
        check(extent.len() <= most, || format!("reads too much at once: {extent:?}"))?;
        check(self.whole_chunks(extent) == blocks(extent), || format!("no chunks: {extent:?}"))?;
        let again = blocks(extent).find(|b| self.read[*b] || self.is_being_read(*b));
        check(again.is_none(), || format!("{extent:?} is read twice"))
    }

    fn mark_written(&mut self, extent: Extent) -> Result<(), Broken> {
        for block in blocks(extent) {
            check(!self.written[block], || format!("target block {block} is written twice"))?;
            check(self.is_safe(block), || format!("block {block} is not read yet"))?;
            self.written[block] = true;
        }
        Ok(())
    }

    /// Buffers that steps have, of all and of those in order.
    pub(super) fn buffers(&self) -> (u64, u64) {
        let (mut all, mut in_order) = (0, 0);
        for flight in self.source.flights.iter().chain(&self.target.flights) {
            let (Job::Copy(step), Op::Read(extent) | Op::Write(extent, _)) =
                (flight.job, flight.op)
            else {
                continue;
            };
            if self.steps[step.0 as usize].shares {
                continue;
            }
            all += extent.len().0;
            if self.steps[step.0 as usize].order == Order::Yes {
                in_order += extent.len().0;
            }
        }
        (all, in_order)
    }

    fn check_memory(&self, case: &Case<N>) -> Result<(), Broken> {
        let (all, in_order) = self.buffers();
        let most = case.limits.buffers.0;
        check(all <= most, || format!("{all} bytes of buffers in all"))?;
        let half = (most / 2).max(self.chunk());
        check(in_order <= half, || format!("{in_order} bytes of buffers for steps in order"))?;
        let ahead = self.steps_in_order();
        check(ahead <= case.limits.ahead as usize, || format!("{ahead} steps in order"))
    }

    pub(super) fn steps_in_order(&self) -> usize {
        let ahead = (0..STEPS).filter(|step| self.steps[*step].order == Order::Yes);
        ahead.filter(|step| self.step_flight(*step).is_some()).count()
    }

    fn send_flush(&mut self, side: Side, op: Op) -> Result<(), Broken> {
        check((side, op) == (Side::Target, Op::Flush), || format!("{op:?} as the last flush"))?;
        check(self.ended.is_none(), || "a flush after the end".into())?;
        check(!self.flushed, || "the target is flushed twice".into())?;
        self.flushed = true;
        self.target.send(Job::LastFlush, op, [0; N]);
        Ok(())
    }

    fn answer(&mut self, id: RequestId, how: Completion) -> Result<(), Broken> {
        let slot = id.0 as usize;
        let out = self.slots.get(slot).copied().flatten();
        let out = out.filter(|out| out.sender == Sender::Machine).ok_or("answered twice")?;
        let request = out.request;
        let under_way = self.flight(Side::Source, Job::Request(id)).is_some();
        check(!under_way, || format!("{request:?} is answered and under way"))?;
        check(out.failed == (how == Completion::Failed), || {
            format!("{request:?} is answered {how:?}, and the source says otherwise")
        })?;
        let all = request.extent().is_none_or(|e| blocks(e).all(|block| out.sent[block]));
        let sent = matches!(request, Request::Discard(_)) || (out.sends > 0 && all);
        check(out.failed || sent, || format!("{request:?} is answered before it is done"))?;
        self.answer_guest(slot, how)
    }

    fn end(&mut self, case: &Case<N>, outcome: Outcome) -> Result<(), Broken> {
        check(self.ended.is_none(), || "a second end".into())?;
        self.ended = Some(outcome);
        if outcome != Outcome::Complete {
            return check(self.cause.may == Some(outcome), || format!("no reason for {outcome:?}"));
        }
        check(self.cause.must.is_none(), || format!("complete, with {:?}", self.cause.must))?;
        check(self.all_safe(), || "complete, and not all is read".into())?;
        let unheard = self.asked().any(|(slot, out)| {
            let job = Job::Request(RequestId(slot as u64));
            out.doubt == Doubt::Yes && self.flight(Side::Source, job).is_some()
        });
        check(!unheard, || "complete, and the source may still have lost something".into())?;
        self.check_copy()?;
        for block in 0..N {
            let (here, there) = (self.chunk_is_allocated(block), self.target.is_allocated(block));
            check(here || !there || self.excused[block], || {
                format!("block {block} is a hole, and takes space at {:?}", case.target)
            })?;
        }
        Ok(())
    }

    /// Whether any of the block's chunk was allocated at the instant.
    fn chunk_is_allocated(&self, block: usize) -> bool {
        let chunk = self.chunk() as usize;
        let start = block / chunk * chunk;
        (start..(start + chunk).min(N)).any(|block| self.allocated[block])
    }

    /// What a crash leaves of a copy that is complete.
    pub(super) fn check_copy(&self) -> Result<(), Broken> {
        for block in 0..N {
            let (found, was) = (self.target.maybe(block), one(self.image[block]));
            check(found == was, || {
                format!(
                    "complete: block {block} was {was:b} at the instant, and a crash of the \
                     target leaves any of {found:b}"
                )
            })?;
        }
        Ok(())
    }

    fn release(&mut self) -> Result<(), Broken> {
        check(!self.released, || "released twice".into())?;
        check(self.ended.is_some(), || "released before the end".into())?;
        check(!self.copies_under_way(), || "released, with steps under way".into())?;
        self.released = true;
        Ok(())
    }

    pub(super) fn copies_under_way(&self) -> bool {
        self.source.flights.iter().chain(&self.target.flights).any(|f| is_copy(f.job))
    }
}

fn extent_of(op: Op) -> Option<Extent> {
    match op {
        Op::Examine(extent)
        | Op::Read(extent)
        | Op::Write(extent, _)
        | Op::Discard(extent)
        | Op::Zero(extent, ..) => Some(extent),
        Op::Flush => None,
    }
}

fn lies_in(part: Extent, all: Extent) -> bool {
    all.start() <= part.start() && part.end() <= all.end()
}
