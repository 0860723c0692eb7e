//! The machine: what comes in. What follows from it is in `settle.rs`, and what the copy does next
//! in `front.rs`.

mod front;
mod settle;

use super::action::{Action, Outcome, Reason};
use super::chunks::Chunks;
use super::error::{NotTaken, Over, SetupError, Unexpected};
use super::guests::{Awaited, Front, Guest, Guests, Known, Sent};
use super::setup::{Keeps, Limits, Progress, Setup, State};
use super::steps::{Cause, Stage, Step, Steps};
use crate::action::Turn;
use crate::mirror::TargetContent;
use crate::request::{Completion, Found, Job, Op, Request, RequestId, Side, StepId};
use alloc::vec::Vec;
use headgate_units::Bytes;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    /// Changes from before the instant are under way.
    Draining,
    Copying,
    /// All is read.
    Finishing,
    /// The target is complete.
    Complete,
    /// The target is good for nothing.
    GivenUp,
}

impl Phase {
    fn is_over(self) -> bool {
        matches!(self, Phase::Complete | Phase::GivenUp)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Drained {
    No,
    Yes,
}

/// The flush of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum LastFlush {
    NotSent,
    UnderWay,
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Released {
    No,
    Yes,
}

/// Whether a change waits for a buffer or a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Room {
    Enough,
    Awaited,
}

/// The copy of one disk as of one instant. The rules are in the [module's page](super).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PointInTime {
    size: Bytes,
    target: TargetContent,
    keeps: Keeps,
    limits: Limits,
    phase: Phase,
    drained: Drained,
    last_flush: LastFlush,
    released: Released,
    chunks: Chunks,
    steps: Steps,
    guests: Guests,
    room: Room,
    /// The copy in order.
    order: Front,
}

impl PointInTime {
    /// The instant. Requests that were sent to the source before are the caller's, and changes wait
    /// until it has said that they ended: [`PointInTime::drained`].
    ///
    /// # Errors
    /// Limits that no copy can keep to, or that there is no memory for.
    pub fn new(setup: Setup) -> Result<PointInTime, SetupError> {
        let Setup { size, target, keeps, limits } = setup;
        let Limits { requests, steps, ahead, step, look, buffers, chunk, bitmap } = limits;
        let amounts = [step, look, buffers, bitmap];
        if requests == 0 || steps == 0 || ahead == 0 || amounts.contains(&Bytes(0)) {
            return Err(SetupError::Nothing);
        }
        let chunks = Chunks::new(size, chunk, bitmap)?;
        if buffers.0 < chunks.chunk().min(size.0) {
            return Err(SetupError::BuffersBelowChunk);
        }
        Ok(PointInTime {
            size,
            target,
            keeps,
            limits,
            phase: Phase::Draining,
            drained: Drained::No,
            last_flush: LastFlush::NotSent,
            released: Released::No,
            chunks,
            steps: Steps::with_room(steps).ok_or(SetupError::NoMemory)?,
            guests: Guests::with_room(requests).ok_or(SetupError::NoMemory)?,
            room: Room::Enough,
            order: Front { at: 0, end: size.0, known: Known::Data, until: 0 },
        })
    }

    /// All changes and flushes that the source was sent before the instant have ended. `Failed` if
    /// a flush or a write through among them failed since the machine was made: then the source may
    /// have lost what it held at the instant, and the copy is given up. Said once, also when the
    /// copy has ended.
    ///
    /// # Errors
    /// [`Unexpected::AlreadyDrained`] if it was said before.
    pub fn drained(
        &mut self,
        completion: Completion,
        out: &mut Vec<Action>,
    ) -> Result<(), Unexpected> {
        if self.drained == Drained::Yes {
            return Err(Unexpected::AlreadyDrained);
        }
        self.drained = Drained::Yes;
        if self.phase == Phase::Draining {
            match completion {
                Completion::Done => self.phase = Phase::Copying,
                Completion::Failed => self.give_up(Reason::SourceNotDurable, out),
            }
        }
        self.settle(out);
        Ok(())
    }

    /// A request of the guest.
    ///
    /// # Errors
    /// It is not taken, and may come again.
    pub fn request(
        &mut self,
        id: RequestId,
        request: Request,
        out: &mut Vec<Action>,
    ) -> Result<(), NotTaken> {
        if request.extent().is_some_and(|extent| extent.end() > self.size) {
            return Err(NotTaken::OutOfRange);
        }
        if self.guests.find(id).is_some() {
            return Err(NotTaken::Duplicate);
        }
        if self.guests.is_full() {
            return Err(NotTaken::Full);
        }
        let at = self.guests.push(Guest {
            id,
            request,
            front: self.front_of(request),
            at: request.extent().map_or(0, |extent| extent.start().0),
            pieces: 0,
            sent: Sent::Nothing,
            awaited: Awaited::No,
        });
        self.advance(at, out);
        Ok(())
    }

    /// There is room for another step in order. Who calls this decides how fast the disk is copied.
    ///
    /// [`Turn::Began`]: something was sent. [`Turn::Later`]: something must end first.
    /// [`Turn::Idle`]: all is read, or the copy has ended; no step will come any more, and the
    /// target is flushed without another call.
    pub fn copy(&mut self, out: &mut Vec<Action>) -> Turn {
        match self.phase {
            Phase::Draining => Turn::Later,
            Phase::Copying => self.go_ahead(out),
            Phase::Finishing | Phase::Complete | Phase::GivenUp => Turn::Idle,
        }
    }

    /// Steps in order that are under way.
    pub fn steps(&self) -> u32 {
        self.steps.iter().filter(|step| step.cause == Cause::Order).count() as u32
    }

    /// Whether a step was begun for a change of the guest, and not in order. A step that is not
    /// under way was not.
    pub fn is_for_change(&self, step: StepId) -> bool {
        self.steps.find(step).is_some_and(|step| step.cause != Cause::Order)
    }

    /// What the extent of an examination begins with, and how far that goes: any number of bytes,
    /// and more than was asked for is no error. Nothing else ends an examination but its failure,
    /// which counts as data: the read will tell.
    ///
    /// # Errors
    /// No such examination is under way, or nothing was found.
    pub fn found(
        &mut self,
        step: StepId,
        found: Found,
        len: Bytes,
        out: &mut Vec<Action>,
    ) -> Result<(), Unexpected> {
        let examined = self.steps.get(step).filter(|step| step.stage == Stage::Examining);
        let examined = *examined.ok_or(Unexpected::NotExamining)?;
        if len.0 == 0 {
            return Err(Unexpected::FoundNothing);
        }
        self.learn(examined, found, len, out);
        Ok(())
    }

    /// The read of a step has ended, and all of what it read is zeroes. A caller that does not look
    /// says [`PointInTime::done`]. A target of zeroes is then left as it was made.
    ///
    /// # Errors
    /// The step does not read.
    pub fn read_zeroes(&mut self, step: StepId, out: &mut Vec<Action>) -> Result<(), Unexpected> {
        let read = self.steps.get(step).filter(|step| step.stage == Stage::Reading);
        let read = *read.ok_or(Unexpected::NotReading)?;
        self.read(read, Known::Zeroes, out);
        self.settle(out);
        Ok(())
    }

    /// The read of a step has ended, and only so much of its beginning was read: whole chunks. The
    /// rest is frozen still, and is read by another step.
    ///
    /// # Errors
    /// The step does not read, or that is no part of what it reads.
    pub fn read_part(
        &mut self,
        step: StepId,
        len: Bytes,
        out: &mut Vec<Action>,
    ) -> Result<(), Unexpected> {
        let chunk = self.chunks.chunk();
        let read = self.steps.get(step).filter(|step| step.stage == Stage::Reading);
        let read = read.ok_or(Unexpected::NotReading)?;
        let (part, rest) = read.extent.cut(len);
        let rest = rest.filter(|_| len.0 > 0 && len.0.is_multiple_of(chunk));
        let rest = rest.ok_or(Unexpected::NoPart)?;
        read.extent = part;
        let read = *read;
        if !self.phase.is_over() {
            self.read_again(rest);
        }
        self.read(read, Known::Data, out);
        self.settle(out);
        Ok(())
    }

    /// The target would not share what a step was to read. Nothing was read, and what is read from
    /// now on is kept in buffers, this too.
    ///
    /// # Errors
    /// The step does not read what the target is to keep.
    pub fn refused(&mut self, step: StepId, out: &mut Vec<Action>) -> Result<(), Unexpected> {
        let shares = |step: &&mut Step| step.stage == Stage::Reading && step.keeps == Keeps::Target;
        let refused = *self.steps.get(step).filter(shares).ok_or(Unexpected::NotReading)?;
        self.keeps = Keeps::Buffers;
        self.steps.remove(refused.id);
        if !self.phase.is_over() {
            self.read_again(refused.extent);
            self.line_up(refused.cause);
        }
        self.settle(out);
        Ok(())
    }

    /// Something that was sent has ended.
    ///
    /// # Errors
    /// Nothing is under way at that side for that job, or an examination has succeeded, which ends
    /// by [`PointInTime::found`].
    pub fn done(
        &mut self,
        side: Side,
        job: Job,
        completion: Completion,
        out: &mut Vec<Action>,
    ) -> Result<(), Unexpected> {
        match job {
            Job::Request(id) => {
                let at = self.guests.find(id).filter(|_| side == Side::Source);
                let at = at.ok_or(Unexpected::NothingUnderWay)?;
                self.request_done(at, completion, out)?;
            }
            Job::Copy(id) => {
                let step = self.steps.get(id).filter(|step| step.stage.side() == side);
                let step = *step.ok_or(Unexpected::NothingUnderWay)?;
                match (step.stage, completion) {
                    (Stage::Examining, Completion::Done) => return Err(Unexpected::FoundWhat),
                    (Stage::Examining, Completion::Failed) => {
                        self.learn(step, Found::Data, step.extent.len(), out);
                    }
                    _ => self.step_done(step, completion, out),
                }
            }
            Job::LastFlush => {
                if side != Side::Target || self.last_flush != LastFlush::UnderWay {
                    return Err(Unexpected::NothingUnderWay);
                }
                self.last_flush = LastFlush::Ended;
                if completion == Completion::Failed {
                    self.give_up(Reason::TargetFailed, out);
                }
            }
        }
        self.settle(out);
        Ok(())
    }

    /// Ends the copy. Its target is good for nothing.
    ///
    /// # Errors
    /// It has ended.
    pub fn cancel(&mut self, out: &mut Vec<Action>) -> Result<(), Over> {
        self.end_early(Outcome::Cancelled, out)
    }

    /// Gives the target up: it has not answered for too long.
    ///
    /// # Errors
    /// The copy has ended.
    pub fn lose_target(&mut self, out: &mut Vec<Action>) -> Result<(), Over> {
        self.end_early(Outcome::GivenUp(Reason::TargetLost), out)
    }

    fn end_early(&mut self, outcome: Outcome, out: &mut Vec<Action>) -> Result<(), Over> {
        if self.phase.is_over() {
            return Err(Over);
        }
        self.end(outcome, out);
        self.settle(out);
        Ok(())
    }

    /// How large a chunk is: what is read before a change of one byte.
    pub fn chunk(&self) -> Bytes {
        Bytes(self.chunks.chunk())
    }

    /// Where the copy is.
    pub fn progress(&self) -> Progress {
        let state = match self.phase {
            Phase::Draining => State::Draining,
            Phase::Copying => State::Copying,
            Phase::Finishing => State::Finishing,
            Phase::Complete => State::Complete,
            Phase::GivenUp => State::GivenUp,
        };
        Progress {
            copied: self.chunks.copied(),
            size: self.size,
            buffers: Bytes(self.steps.held()),
            waiting: self.guests.iter().filter(|guest| guest.is_waiting()).count(),
            state,
        }
    }

    /// Whether the machine has nothing left to do: the copy has ended, nothing is under way, and
    /// the source can serve without it.
    pub fn is_over(&self) -> bool {
        self.released == Released::Yes && self.guests.len() == 0
    }

    fn send(side: Side, job: Job, op: Op, out: &mut Vec<Action>) {
        out.push(Action::Send { side, job, op });
    }
}
