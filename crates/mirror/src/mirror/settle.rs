//! What follows from what came in: who starts, who is answered, how the move ends.

use super::{Journal, Mirror, Pace, Phase, Reclaimed};
use crate::action::{Action, Outcome};
use crate::error::Reason;
use crate::extent::Extent;
use crate::journal::Record;
use crate::order::{Awaited, Entry, GuestEntry, Half, Make, Passes, Stage};
use crate::request::{Answer, Completion, Durability, Job, Op, Request, RequestId, Side, StepId};
use alloc::vec::Vec;

/// What is to be done with a request of the guest.
enum Verdict {
    Wait,
    Answer(Answer),
    /// The source failed it, and the target counts.
    SendToTarget,
}

impl Mirror {
    /// Sends what waited.
    pub(super) fn start(&mut self, at: usize, out: &mut Vec<Action>) {
        let Some(entry) = self.order.get(at).copied() else { return };
        let (job, op) = entry.first();
        let passes = match entry {
            Entry::Guest(guest) => self.pass_steps(guest.request),
            Entry::Step(_) => Passes::No,
        };
        let (to_source, to_target) = match entry {
            Entry::Guest(_) if passes == Passes::Yes => (Half::Pending, Half::Pending),
            Entry::Guest(guest) => self.sides(guest.request),
            Entry::Step(_) => (Half::Pending, Half::Unused),
        };
        if let Some(step) = self.order.step_at(at) {
            step.stage = Stage::Examining;
        }
        if let Some(guest) = self.order.guest_at(at) {
            (guest.source, guest.target, guest.passes) = (to_source, to_target, passes);
            if let (Half::Pending, Some(extent)) = (to_target, guest.request.extent()) {
                self.untouched = self.untouched.max(extent.end());
            }
        }
        for (side, half) in [(Side::Source, to_source), (Side::Target, to_target)] {
            if half == Half::Pending {
                self.send(side, job, op, out);
            }
        }
    }

    /// A change starts beside steps that look or read: what it brings is not theirs to write.
    fn pass_steps(&mut self, request: Request) -> Passes {
        let (Request::Write(extent, _) | Request::Zero(extent, ..)) = request else {
            return Passes::No;
        };
        let mut passes = Passes::No;
        for step in self.order.passed_by(extent) {
            step.passed.add(extent);
            passes = Passes::Yes;
        }
        passes
    }

    /// Has a step write the next stretch that no change has passed. Without one it is over.
    pub(super) fn write_next(&mut self, at: usize, out: &mut Vec<Action>) {
        let Some(step) = self.order.step_at(at) else { return };
        let next = step.passed.first_left(step.extent);
        let left = next.and_then(|next| Extent::between(next.start().0, step.extent.end().0));
        let Some((next, left)) = next.zip(left) else { return self.order.remove(at) };
        (step.sent, step.extent) = (Some(next), left);
        let op = match step.make {
            Make::Content => Op::Write(next, Durability::Cached),
            Make::Zeroes(unmap) => Op::Zero(next, unmap, Durability::Cached),
        };
        let job = Job::Copy(step.id);
        self.send(Side::Target, job, op, out);
    }

    /// To which sides a request goes that starts now.
    fn sides(&self, request: Request) -> (Half, Half) {
        const SOURCE: (Half, Half) = (Half::Pending, Half::Unused);
        const TARGET: (Half, Half) = (Half::Unused, Half::Pending);
        const BOTH: (Half, Half) = (Half::Pending, Half::Pending);
        match self.phase {
            Phase::Switched => return TARGET,
            Phase::Starting | Phase::Ended => return SOURCE,
            Phase::Copying | Phase::Flushing | Phase::Settling | Phase::Switching => {}
        }
        match request {
            Request::Read(_) => SOURCE,
            Request::Flush if self.cursor.0 > 0 || self.untouched.0 > 0 => BOTH,
            Request::Flush => SOURCE,
            Request::Write(extent, _) | Request::Discard(extent) | Request::Zero(extent, ..) => {
                if extent.start() < self.cursor {
                    BOTH
                } else {
                    SOURCE
                }
            }
        }
    }

    pub(super) fn request_done(
        &mut self,
        side: Side,
        id: RequestId,
        completion: Completion,
        out: &mut Vec<Action>,
    ) {
        // Otherwise it is of a request that was answered by the other side.
        let Some(at) = self.order.find_guest(id) else { return };
        let Some(guest) = self.order.guest_at(at) else { return };
        let half = guest.half(side);
        if *half != Half::Pending {
            return;
        }
        *half = Half::Ended(completion);
        let vouches = guest.request.vouches();
        if completion == Completion::Failed {
            match side {
                Side::Target => self.blame(Reason::TargetFailed, out),
                // It may be other now than what was copied of it.
                Side::Source if vouches => self.blame(Reason::SourceNotDurable, out),
                Side::Source => {}
            }
        }
        self.answer(at, out);
    }

    pub(super) fn step_done(
        &mut self,
        side: Side,
        id: StepId,
        completion: Completion,
        out: &mut Vec<Action>,
    ) {
        // Otherwise the move has ended.
        let Some(at) = self.order.find_step(id) else { return };
        let Some(step) = self.order.step_at(at) else { return };
        match (step.stage, side, completion) {
            (_, Side::Source, Completion::Failed) => {
                self.end(Outcome::Failed(Reason::SourceUnreadable), out);
            }
            (_, Side::Target, Completion::Failed) => self.blame(Reason::TargetFailed, out),
            (Stage::Reading, Side::Source, Completion::Done) => {
                step.stage = Stage::Writing;
                self.write_next(at, out);
            }
            (Stage::Writing, Side::Target, Completion::Done) => {
                let written = step.sent.take().map_or(0, |sent| sent.end().0);
                match Extent::between(written, step.extent.end().0) {
                    Some(rest) => {
                        step.extent = rest;
                        // Who has waited for this comes before the next stretch.
                        self.start_all(out);
                        self.write_next(at, out);
                    }
                    None => self.order.remove(at),
                }
            }
            _ => {}
        }
    }

    pub(super) fn last_flush_done(&mut self, completion: Completion, out: &mut Vec<Action>) {
        if self.phase != Phase::Flushing {
            return;
        }
        if completion == Completion::Failed {
            return self.blame(Reason::TargetFailed, out);
        }
        self.phase = Phase::Settling;
        for guest in self.order.guests_mut() {
            let ends_both = guest.request.vouches() && !guest.is_waiting();
            guest.awaited = if ends_both { Awaited::Yes } else { Awaited::No };
        }
    }

    /// Has the switch recorded, if nothing speaks against it any more.
    fn decide(&mut self, out: &mut Vec<Action>) {
        // What the source failed meanwhile is copied again, and a pause holds the switch.
        if self.redo.is_empty() && self.pace == Pace::Running {
            self.phase = Phase::Switching;
            self.journal = Journal::Asked;
            out.push(Action::Record(Record::Switched));
        } else {
            self.phase = Phase::Copying;
        }
    }

    /// A side cannot be relied on. While the target may count nothing is decided.
    pub(super) fn blame(&mut self, reason: Reason, out: &mut Vec<Action>) {
        match self.phase {
            Phase::Starting | Phase::Copying | Phase::Flushing | Phase::Settling => {
                self.end(Outcome::Failed(reason), out);
            }
            Phase::Switching => self.trouble = self.trouble.or(Some(reason)),
            Phase::Switched | Phase::Ended => {}
        }
    }

    /// Ends the move with the source as the disk. Nobody waits for the target any more.
    pub(super) fn end(&mut self, outcome: Outcome, out: &mut Vec<Action>) {
        self.phase = Phase::Ended;
        self.order.drop_steps();
        self.redo.clear();
        for guest in self.order.guests_mut() {
            guest.target = Half::Unused;
        }
        out.push(Action::Ended(outcome));
        self.answer_all(out);
    }

    /// The target is the disk. Nobody waits for the source any more, but for what was sent there
    /// alone, and for its word on what it was to make durable.
    pub(super) fn switch(&mut self, out: &mut Vec<Action>) {
        self.phase = Phase::Switched;
        self.redo.clear();
        let changed = |guest: &&mut GuestEntry| !guest.request.vouches();
        for guest in self.order.guests_mut().filter(changed) {
            if guest.target != Half::Unused {
                guest.source = Half::Unused;
            }
        }
        out.push(Action::Ended(Outcome::Switched));
        self.answer_all(out);
    }

    /// The switch was not recorded. The sides are as alike as before; [`Mirror::copy`] tries again.
    pub(super) fn stay(&mut self, out: &mut Vec<Action>) {
        self.phase = Phase::Copying;
        if let Some(reason) = self.trouble.take() {
            self.end(Outcome::Failed(reason), out);
        } else {
            self.answer_all(out);
        }
    }

    fn answer_all(&mut self, out: &mut Vec<Action>) {
        for at in (0..self.order.len()).rev() {
            self.answer(at, out);
        }
    }

    /// Answers the guest, if that is decided.
    fn answer(&mut self, at: usize, out: &mut Vec<Action>) {
        let phase = self.phase;
        let Some(guest) = self.order.guest_at(at).filter(|guest| !guest.is_waiting()) else {
            return;
        };
        let (id, request) = (guest.id, guest.request);
        match verdict(phase, guest) {
            Verdict::Wait => {}
            Verdict::SendToTarget => {
                (guest.source, guest.target) = (Half::Unused, Half::Pending);
                self.send(Side::Target, Job::Request(id), request.op(), out);
            }
            Verdict::Answer(answer) => {
                let differs = guest.source == Half::FAILED && guest.target != Half::Unused;
                self.order.remove(at);
                // Nobody knows what a failed change has left at the source.
                if let (true, Some(extent)) = (differs, request.extent()) {
                    self.redo.add(extent);
                }
                out.push(Action::Answer(id, answer));
            }
        }
    }

    fn start_all(&mut self, out: &mut Vec<Action>) {
        for at in 0..self.order.len() {
            if self.order.may_start(at) {
                self.start(at, out);
            }
        }
    }

    /// Starts what no longer waits, and lets go of the side that does not count.
    pub(super) fn settle(&mut self, out: &mut Vec<Action>) {
        self.start_all(out);
        let awaited = |guest: &GuestEntry| guest.awaited == Awaited::Yes;
        if self.phase == Phase::Settling && !self.order.guests().any(awaited) {
            self.decide(out);
        }
        let (side, left) = match self.phase {
            Phase::Switched => (Side::Source, self.under_way.source),
            Phase::Ended => (Side::Target, self.under_way.target),
            _ => return,
        };
        if left == 0 && self.journal == Journal::Idle && self.reclaimed == Reclaimed::No {
            self.reclaimed = Reclaimed::Yes;
            out.push(Action::Reclaim(side));
        }
    }
}

/// What the sides have said, and what that means now.
fn verdict(phase: Phase, guest: &GuestEntry) -> Verdict {
    let told = |side: Side, completion: Completion| match completion {
        Completion::Done => Verdict::Answer(Answer::Done),
        Completion::Failed => Verdict::Answer(Answer::Failed(side)),
    };
    match (phase, guest.source, guest.target) {
        (Phase::Switched, _, Half::FAILED) => told(Side::Target, Completion::Failed),
        // The source may have lost what reads have found there since, so the guest has to hear it,
        // whichever side counts.
        (Phase::Switched, Half::FAILED, Half::Unused | Half::Ended(_))
            if guest.request.vouches() =>
        {
            told(Side::Source, Completion::Failed)
        }
        (Phase::Switched, Half::Unused | Half::Ended(_), Half::Ended(target)) => {
            told(Side::Target, target)
        }
        (Phase::Switched, Half::Ended(Completion::Failed), Half::Unused) => Verdict::SendToTarget,
        // Which side counts is what the journal will say.
        (Phase::Switching, Half::FAILED, _) | (Phase::Switching, _, Half::FAILED) => Verdict::Wait,
        (_, Half::Ended(source), Half::Unused | Half::Ended(_)) => told(Side::Source, source),
        _ => Verdict::Wait,
    }
}
