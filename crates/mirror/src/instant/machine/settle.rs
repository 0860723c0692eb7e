//! What follows from what came in: who is sent, who is answered, how the copy ends.

use super::front::{Got, zeroes};
use super::{LastFlush, Phase, PointInTime, Released, Room};
use crate::extent::Extent;
use crate::instant::action::{Action, Outcome, Reason};
use crate::instant::chunks::Chunk;
use crate::instant::error::Unexpected;
use crate::instant::guests::{Awaited, Guest, Known, Sent};
use crate::instant::setup::DISCARD_PIECES;
use crate::instant::steps::{Stage, Step};
use crate::mirror::TargetContent;
use crate::request::{Completion, Durability, Job, Op, Request, Side};
use alloc::vec::Vec;

/// What may be sent of a request.
enum Ready {
    /// Its next chunk is frozen.
    Nothing,
    Piece(Extent),
    Flush,
    /// All was done, or left out.
    Over,
}

impl PointInTime {
    /// Does for a request what can be done now.
    pub(super) fn advance(&mut self, at: usize, out: &mut Vec<Action>) -> Got {
        if self.send_ready(at, out) == Got::Answer {
            return Got::Answer;
        }
        let got = self.copy_for(at, out);
        if got == Got::Turn {
            // What is known to be zeroes is copied without a read.
            self.send_ready(at, out);
            self.guests.put_last(at);
        }
        got
    }

    /// Sends what is ready of a request, or answers it.
    fn send_ready(&mut self, at: usize, out: &mut Vec<Action>) -> Got {
        let Some(&mut guest) = self.guests.get(at) else { return Got::Whatever };
        if guest.sent != Sent::Nothing {
            return Got::Whatever;
        }
        let (op, until) = match self.ready(&guest) {
            Ready::Nothing => return Got::Whatever,
            Ready::Over => {
                self.answer(at, Completion::Done, out);
                return Got::Answer;
            }
            Ready::Flush => (Op::Flush, 0),
            Ready::Piece(piece) => (guest.op(piece), piece.end().0),
        };
        let reading = matches!(self.phase, Phase::Draining | Phase::Copying);
        if let Some(guest) = self.guests.get(at) {
            let vouches = reading && guest.request.vouches();
            guest.awaited = if vouches { Awaited::Yes } else { Awaited::No };
            guest.sent = Sent::Until(until);
            guest.pieces = guest.pieces.saturating_add(1);
        }
        PointInTime::send(Side::Source, Job::Request(guest.id), op, out);
        Got::Whatever
    }

    fn ready(&self, guest: &Guest) -> Ready {
        if guest.request == Request::Flush {
            return Ready::Flush;
        }
        let Some((from, to)) = guest.rest() else { return Ready::Over };
        let piece = |from, to| Extent::between(from, to).map_or(Ready::Over, Ready::Piece);
        let copied = |from| self.chunks.run_end(Chunk::Copied, from, to);
        match guest.request {
            Request::Read(_) => piece(from, to),
            _ if self.phase.is_over() => piece(from, to),
            Request::Discard(_) if guest.pieces >= DISCARD_PIECES => Ready::Over,
            Request::Discard(_) => {
                let from = self.chunks.run_end(Chunk::Frozen, from, to);
                piece(from, copied(from))
            }
            // Small pieces would cost more than they bring.
            Request::Zero(..) if copied(from) - from >= self.step() => piece(from, copied(from)),
            _ if copied(from) == to => piece(from, to),
            _ => Ready::Nothing,
        }
    }

    fn answer(&mut self, at: usize, completion: Completion, out: &mut Vec<Action>) {
        let Some(&mut Guest { id, .. }) = self.guests.get(at) else { return };
        self.guests.remove(at);
        self.steps.forget(id);
        out.push(Action::Answer(id, completion));
    }

    pub(super) fn request_done(
        &mut self,
        at: usize,
        completion: Completion,
        out: &mut Vec<Action>,
    ) -> Result<(), Unexpected> {
        let guest = self.guests.get(at).ok_or(Unexpected::NothingUnderWay)?;
        let Sent::Until(until) = guest.sent else { return Err(Unexpected::NothingUnderWay) };
        (guest.sent, guest.at) = (Sent::Nothing, until);
        let awaited = guest.awaited;
        guest.awaited = Awaited::No;
        if completion == Completion::Failed || guest.rest().is_none() {
            self.answer(at, completion, out);
        }
        // With it may have gone what was still to be read, or what was read since.
        if awaited == Awaited::Yes && completion == Completion::Failed {
            self.give_up(Reason::SourceNotDurable, out);
        }
        Ok(())
    }

    /// Something of a step has ended that is no examination.
    pub(super) fn step_done(&mut self, step: Step, completion: Completion, out: &mut Vec<Action>) {
        match (step.stage, completion) {
            (Stage::Reading, Completion::Done) => self.read(step, Known::Data, out),
            (stage, Completion::Failed) => {
                self.steps.remove(step.id);
                let reason = match stage.side() {
                    Side::Source => Reason::SourceUnreadable,
                    Side::Target => Reason::TargetFailed,
                };
                self.give_up(reason, out);
            }
            (_, Completion::Done) => self.steps.remove(step.id),
        }
    }

    /// A step has its content, so the guest may change it at the source.
    pub(super) fn read(&mut self, step: Step, content: Known, out: &mut Vec<Action>) {
        let passed = content == Known::Zeroes && self.target == TargetContent::Zeroes;
        if self.phase.is_over() || passed {
            self.steps.remove(step.id);
        } else if let Some(kept) = self.steps.get(step.id) {
            let (stage, op) = match content {
                Known::Data => (Stage::Writing, Op::Write(step.extent, Durability::Cached)),
                Known::Zeroes => (Stage::Zeroing, zeroes(step.extent)),
            };
            kept.stage = stage;
            self.send_step(step.id, op, stage, out);
        }
        if !self.phase.is_over() {
            self.copied(step.extent);
            self.line_up(step.cause);
        }
    }

    /// The target has this, or will get it out of a buffer.
    pub(super) fn copied(&mut self, extent: Extent) {
        self.chunks.mark(extent);
        if self.chunks.is_full() {
            self.phase = Phase::Finishing;
        }
    }

    pub(super) fn give_up(&mut self, reason: Reason, out: &mut Vec<Action>) {
        if !self.phase.is_over() {
            self.end(Outcome::GivenUp(reason), out);
        }
    }

    /// Nobody waits for the copy any more.
    pub(super) fn end(&mut self, outcome: Outcome, out: &mut Vec<Action>) {
        self.phase = match outcome {
            Outcome::Complete => Phase::Complete,
            Outcome::GivenUp(_) | Outcome::Cancelled => Phase::GivenUp,
        };
        out.push(Action::Ended(outcome));
    }

    /// Lets those go on who can, and the copy end if it can.
    pub(super) fn settle(&mut self, out: &mut Vec<Action>) {
        self.finish(out);
        loop {
            let copied = self.chunks.copied();
            self.room = Room::Enough;
            let mut at = 0;
            for _ in 0..self.guests.len() {
                match self.advance(at, out) {
                    Got::Whatever => at += 1,
                    Got::Turn | Got::Answer => {}
                }
            }
            // Somebody may have waited for what was copied for another.
            if self.chunks.copied() == copied {
                break;
            }
        }
        self.finish(out);
    }

    fn finish(&mut self, out: &mut Vec<Action>) {
        let awaited = |guest: &Guest| guest.awaited == Awaited::Yes;
        if self.phase == Phase::Finishing {
            if self.last_flush == LastFlush::NotSent && self.steps.is_empty() {
                self.last_flush = LastFlush::UnderWay;
                PointInTime::send(Side::Target, Job::LastFlush, Op::Flush, out);
            }
            if self.last_flush == LastFlush::Ended && !self.guests.iter().any(awaited) {
                self.end(Outcome::Complete, out);
            }
        }
        let quiet = self.steps.is_empty() && self.last_flush != LastFlush::UnderWay;
        if self.phase.is_over() && quiet && self.released == Released::No {
            self.released = Released::Yes;
            out.push(Action::Release);
        }
    }
}
