//! The machine: what comes in. What follows from it is in `settle.rs`.

mod settle;

use crate::action::{Action, Outcome, Turn};
use crate::error::{NotCancelled, NotTaken, Operation, Reason, Refused, SetupError, Unexpected};
use crate::extent::Extent;
use crate::journal::{Record, Word};
use crate::order::{Entry, GuestEntry, Make, Order, Part, Passes, Stage, StepEntry};
use crate::redo::Redo;
use crate::request::{Completion, Found, Job, Op, Request, RequestId, Side, StepId, Unmap};
use alloc::vec::Vec;
use headgate_units::Bytes;

/// How much may be under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Requests of the guest without an answer.
    pub requests: usize,
    /// Steps of the copy.
    pub steps: u32,
    /// Data of one step.
    pub step: Bytes,
    /// The most that a step examines, at least [`Limits::step`]: so much of a hole is passed at
    /// once. Behind data a step examines no more than it may copy, behind holes twice as much as
    /// the last: changes of what it examines wait for it.
    pub look: Bytes,
    /// Extents that are known apart when they have to be copied again.
    pub redo: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        let (step, look) = (Bytes::from_mib(1), Bytes::from_mib(64));
        Limits { requests: 256, steps: 4, step, look, redo: 64 }
    }
}

/// What the target holds before anything is written to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TargetContent {
    /// Zeroes, known for certain: a new file.
    Zeroes,
    /// Anything: a device, an export.
    Unknown,
}

/// What is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Setup {
    /// The disk's size. The target is as large, or larger.
    pub size: Bytes,
    /// What is there.
    pub target: TargetContent,
    /// How much may be under way.
    pub limits: Limits,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    /// The start is being recorded.
    Starting,
    Copying,
    /// All is copied, the last flush is under way.
    Flushing,
    /// It is done. What might take its word back is waited for.
    Settling,
    /// The switch is being recorded. Nobody knows which side counts.
    Switching,
    /// The target counts.
    Switched,
    /// The source counts.
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Pace {
    Running,
    Paused,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Journal {
    Idle,
    /// A record was asked for, and it is not known what became of it.
    Asked,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Reclaimed {
    No,
    Yes,
}

/// How many things are under way at each side, also those that nobody waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct UnderWay {
    source: usize,
    target: usize,
}

impl UnderWay {
    fn at(&mut self, side: Side) -> &mut usize {
        match side {
            Side::Source => &mut self.source,
            Side::Target => &mut self.target,
        }
    }
}

/// Where a move is, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Progress {
    /// What need not be copied any more.
    pub copied: Bytes,
    /// The disk's size.
    pub size: Bytes,
    /// What is being done.
    pub state: State,
}

/// What a move is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Its start is being recorded.
    Starting,
    /// It copies.
    Copying,
    /// It mirrors and does not copy.
    Paused,
    /// The last flush, or the record of the switch.
    Switching,
    /// The target is the disk.
    Switched,
    /// The source is the disk.
    Ended,
}

/// The live move of one disk. The rules are in the [crate's page](crate).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Mirror {
    size: Bytes,
    target: TargetContent,
    limits: Limits,
    phase: Phase,
    pace: Pace,
    journal: Journal,
    reclaimed: Reclaimed,
    /// What lies before was found out and is copied, being copied, or to be copied again.
    cursor: Bytes,
    /// No change was mirrored from here on, so ahead of the copy the target is as it was made.
    untouched: Bytes,
    redo: Redo,
    /// How much the next step examines.
    reach: Bytes,
    order: Order,
    under_way: UnderWay,
    /// What went wrong at the target while the switch was being recorded.
    trouble: Option<Reason>,
}

impl Mirror {
    /// A move that begins: its start is to be recorded. The source serves as before, and the target
    /// has been made.
    pub fn new(setup: Setup, out: &mut Vec<Action>) -> Result<Mirror, SetupError> {
        let limits = setup.limits;
        if setup.size.0 == 0 {
            return Err(SetupError::Empty);
        }
        if limits.requests == 0 || limits.steps == 0 || limits.step.0 == 0 || limits.redo == 0 {
            return Err(SetupError::Nothing);
        }
        if limits.look < limits.step {
            return Err(SetupError::StepBeyondLook);
        }
        out.push(Action::Record(Record::Started));
        Ok(Mirror {
            size: setup.size,
            target: setup.target,
            limits,
            phase: Phase::Starting,
            pace: Pace::Running,
            journal: Journal::Asked,
            reclaimed: Reclaimed::No,
            cursor: Bytes(0),
            untouched: Bytes(0),
            redo: Redo::with_room(limits.redo),
            reach: limits.look,
            order: Order::with_room(limits.requests.saturating_add(limits.steps as usize)),
            under_way: UnderWay { source: 0, target: 0 },
            trouble: None,
        })
    }

    /// A request of the guest.
    pub fn request(
        &mut self,
        id: RequestId,
        request: Request,
        out: &mut Vec<Action>,
    ) -> Result<(), NotTaken> {
        if request.extent().is_some_and(|extent| extent.end() > self.size) {
            return Err(NotTaken::OutOfRange);
        }
        if self.order.find_guest(id).is_some() {
            return Err(NotTaken::Duplicate);
        }
        if self.order.guests().count() >= self.limits.requests {
            return Err(NotTaken::Full);
        }
        let at = self.order.push(Entry::Guest(GuestEntry::new(id, request)));
        if self.order.may_start(at) {
            self.start(at, out);
        }
        Ok(())
    }

    /// There is room for another step of the copy. Who calls this decides how fast the disk moves,
    /// and when a record that was not made is tried again.
    pub fn copy(&mut self, out: &mut Vec<Action>) -> Turn {
        if self.phase != Phase::Copying || self.pace == Pace::Paused {
            return Turn::Idle;
        }
        let steps = self.steps() as usize;
        // Until it is known how far a step goes, it is not known where the next one begins. One
        // that copies again may reach across others, so it is alone.
        let bars = |step: &StepEntry| {
            matches!(step.stage, Stage::Waiting | Stage::Examining) || step.part == Part::Redo
        };
        let alone = !self.redo.is_empty() && steps > 0;
        if steps >= self.limits.steps as usize || alone || self.order.steps().any(bars) {
            return Turn::Later;
        }
        let (extent, part) = if let Some(extent) = self.redo.take(self.reach) {
            (extent, Part::Redo)
        } else if let Some(left) = Extent::new(self.cursor, Bytes(self.size.0 - self.cursor.0)) {
            (self.order.before_changes(left.cut(self.reach).0), Part::Front)
        } else if steps == 0 && !self.order.guests().any(|guest| guest.passes == Passes::Yes) {
            self.phase = Phase::Flushing;
            self.send(Side::Target, Job::LastFlush, Op::Flush, out);
            return Turn::Began;
        } else {
            return Turn::Later;
        };
        let free = |id: &StepId| self.order.find_step(*id).is_none();
        let Some(id) = (0..self.limits.steps).map(StepId).find(free) else { return Turn::Later };
        let at = self.order.push(Entry::Step(StepEntry::new(id, extent, part)));
        if self.order.may_start(at) {
            self.start(at, out);
        }
        Turn::Began
    }

    /// Steps that are under way.
    pub fn steps(&self) -> u32 {
        self.order.steps().count() as u32
    }

    /// What the extent of a step begins with, and how far that goes.
    pub fn found(
        &mut self,
        step: StepId,
        found: Found,
        len: Bytes,
        out: &mut Vec<Action>,
    ) -> Result<(), Unexpected> {
        if self.under_way.source == 0 {
            return Err(Unexpected::NothingUnderWay);
        }
        if len.0 == 0 {
            return Err(Unexpected::FoundNothing);
        }
        let examines = |entry: &StepEntry| entry.id == step && entry.stage == Stage::Examining;
        if self.order.steps().any(examines) {
            self.under_way.source -= 1;
            self.follow(step, found, len, out);
        } else if self.phase == Phase::Ended {
            self.under_way.source -= 1;
        } else {
            return Err(Unexpected::NotExamining);
        }
        self.settle(out);
        Ok(())
    }

    /// Goes on with a step when it is known what is there.
    fn follow(&mut self, id: StepId, found: Found, len: Bytes, out: &mut Vec<Action>) {
        let Some(at) = self.order.find_step(id) else { return };
        let Some(step) = self.order.step_at(at) else { return };
        let start = step.extent.start();
        let (len, next) = match found {
            Found::Data => (len.min(self.limits.step), Some(Stage::Reading)),
            // What the target was never sent reads as zeroes there, and takes no space.
            Found::Hole if self.target == TargetContent::Zeroes && start >= self.untouched => {
                (len, None)
            }
            Found::Hole if self.target == TargetContent::Zeroes => {
                (len.min(Bytes(self.untouched.0 - start.0)), Some(Stage::Writing))
            }
            Found::Hole | Found::Zeroes => (len, Some(Stage::Writing)),
        };
        let (extent, rest) = step.extent.cut(len);
        step.extent = extent;
        self.reach = match (found, rest) {
            (Found::Hole | Found::Zeroes, None) => {
                Bytes(self.reach.0.saturating_mul(2)).min(self.limits.look)
            }
            _ => self.limits.step,
        };
        match (step.part, rest) {
            (Part::Front, _) => self.cursor = extent.end(),
            (Part::Redo, Some(rest)) => self.redo.add(rest),
            (Part::Redo, None) => {}
        }
        let Some(next) = next else { return self.order.remove(at) };
        step.stage = next;
        if next == Stage::Reading {
            return self.send(Side::Source, Job::Copy(id), Op::Read(extent), out);
        }
        let unmap = if found == Found::Hole { Unmap::May } else { Unmap::MustNot };
        step.make = Make::Zeroes(unmap);
        self.write_next(at, out);
    }

    /// Something that was sent has ended. An examination that succeeded ends by [`Mirror::found`].
    pub fn done(
        &mut self,
        side: Side,
        job: Job,
        completion: Completion,
        out: &mut Vec<Action>,
    ) -> Result<(), Unexpected> {
        let under_way = self.under_way.at(side);
        *under_way = under_way.checked_sub(1).ok_or(Unexpected::NothingUnderWay)?;
        match job {
            Job::Request(id) => self.request_done(side, id, completion, out),
            Job::Copy(id) => self.step_done(side, id, completion, out),
            Job::LastFlush => self.last_flush_done(completion, out),
        }
        self.settle(out);
        Ok(())
    }

    /// What became of the record that was asked for.
    pub fn recorded(&mut self, word: Word, out: &mut Vec<Action>) -> Result<(), Unexpected> {
        if self.journal == Journal::Idle {
            return Err(Unexpected::NoRecord);
        }
        if word != Word::Unknown {
            self.journal = Journal::Idle;
        }
        match (self.phase, word) {
            (Phase::Starting, Word::Made) => self.phase = Phase::Copying,
            (Phase::Starting, Word::NotMade | Word::Unknown) => {
                self.end(Outcome::Failed(Reason::NotStarted), out);
            }
            (Phase::Switching, Word::Made) => self.switch(out),
            (Phase::Switching, Word::NotMade) => self.stay(out),
            _ => {}
        }
        self.settle(out);
        Ok(())
    }

    /// No more steps, and no switch. What is under way ends, and changes go on being mirrored.
    pub fn pause(&mut self) {
        self.pace = Pace::Paused;
    }

    /// The end of a pause.
    pub fn resume(&mut self) {
        self.pace = Pace::Running;
    }

    /// Ends the move, unless the target may count already.
    pub fn cancel(&mut self, out: &mut Vec<Action>) -> Result<(), NotCancelled> {
        match self.phase {
            Phase::Switching => return Err(NotCancelled::Switching),
            Phase::Switched | Phase::Ended => return Err(NotCancelled::Over),
            Phase::Starting | Phase::Copying | Phase::Flushing | Phase::Settling => {}
        }
        self.end(Outcome::Cancelled, out);
        self.settle(out);
        Ok(())
    }

    /// Gives the target up: it has not answered for too long. After the switch it is the disk, and
    /// this changes nothing.
    pub fn lose_target(&mut self, out: &mut Vec<Action>) {
        self.blame(Reason::TargetLost, out);
        self.settle(out);
    }

    /// Whether an operation on the disk is possible now.
    pub fn permits(&self, operation: Operation) -> Result<(), Refused> {
        if self.reclaimed == Reclaimed::Yes {
            return Ok(());
        }
        Err(match operation {
            Operation::Resize => Refused::Resize,
            Operation::Snapshot => Refused::Snapshot,
            Operation::Move => Refused::Move,
            Operation::Remove => Refused::Remove,
        })
    }

    /// Where the move is.
    pub fn progress(&self) -> Progress {
        let again = self.redo.len().0 + self.order.steps().map(|s| s.extent.len().0).sum::<u64>();
        let state = match (self.phase, self.pace) {
            (Phase::Starting, _) => State::Starting,
            (Phase::Copying, Pace::Running) => State::Copying,
            (Phase::Copying, Pace::Paused) => State::Paused,
            (Phase::Flushing | Phase::Settling | Phase::Switching, _) => State::Switching,
            (Phase::Switched, _) => State::Switched,
            (Phase::Ended, _) => State::Ended,
        };
        Progress { copied: Bytes(self.cursor.0.saturating_sub(again)), size: self.size, state }
    }

    /// Whether the machine has nothing left to do: the side that counts can serve without it.
    pub fn is_over(&self) -> bool {
        self.reclaimed == Reclaimed::Yes && self.order.len() == 0
    }

    fn send(&mut self, side: Side, job: Job, op: Op, out: &mut Vec<Action>) {
        *self.under_way.at(side) += 1;
        out.push(Action::Send { side, job, op });
    }
}
