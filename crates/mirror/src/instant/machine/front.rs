//! What the copy does next: for a change that waits, and in order.

use super::{Phase, PointInTime, Room};
use crate::action::Turn;
use crate::extent::Extent;
use crate::instant::action::Action;
use crate::instant::chunks::Chunk;
use crate::instant::guests::{Front, Guest, Known};
use crate::instant::setup::Keeps;
use crate::instant::steps::{Cause, Stage, Step};
use crate::mirror::TargetContent;
use crate::request::{Durability, Found, Job, Op, Request, RequestId, Side, StepId, Unmap};
use alloc::vec::Vec;
use headgate_units::Bytes;

/// A step that somebody needs.
enum Need {
    /// All that he wants is copied, or being read.
    Nothing,
    Examine(Extent),
    /// This, or less from its beginning.
    Read(Extent),
    /// Zeroes that the target has to be told of.
    Zero(Extent),
}

/// What came of an attempt to begin a step.
enum Attempt {
    Began,
    NotNeeded,
    /// There is no buffer, or no step.
    NoRoom,
}

/// What a change got when its turn came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Got {
    /// All that it needs, or nothing.
    Whatever,
    /// A piece, and others are before it now.
    Turn,
    /// It is over.
    Answer,
}

impl PointInTime {
    /// What a request needs copied before it is sent.
    pub(super) fn front_of(&self, request: Request) -> Front {
        let none = Front { at: 0, end: 0, known: Known::Data, until: 0 };
        let (extent, looks) = match request {
            Request::Read(_) | Request::Flush | Request::Discard(_) => return none,
            // It is read anyway, so asking first would only take time.
            Request::Write(extent, _) => (extent, false),
            Request::Zero(extent, ..) => (extent, self.is_by_pieces(request)),
        };
        let at = self.chunks.border_before(extent.start().0);
        let end = self.chunks.border_behind(extent.end().0);
        Front { at, end, known: Known::Data, until: if looks { at } else { end } }
    }

    /// Whether it is done bit by bit, lest all others wait for it.
    fn is_by_pieces(&self, request: Request) -> bool {
        matches!(request, Request::Zero(extent, ..) if extent.len().0 > self.step())
    }

    /// The source has ended a step. Who may need many more stands behind the others again.
    pub(super) fn line_up(&mut self, cause: Cause) {
        let Cause::Request(id) = cause else { return };
        let Some(at) = self.guests.find(id) else { return };
        let Some(&mut Guest { request, .. }) = self.guests.get(at) else { return };
        if self.is_by_pieces(request) {
            self.guests.put_last(at);
        }
    }

    /// How much a step reads at most.
    pub(super) fn step(&self) -> u64 {
        self.chunks.whole(self.limits.step)
    }

    /// What is frozen next, and read by nobody.
    fn free(&self, from: u64, to: u64) -> Option<Extent> {
        let mut start = from;
        loop {
            start = self.chunks.run_end(Chunk::Copied, start, to);
            match self.steps.read_end(start) {
                Some(end) if start < to => start = end.min(to),
                _ => break,
            }
        }
        let end = self.chunks.run_end(Chunk::Frozen, start, to);
        let read = self.steps.read_behind(start).unwrap_or(end);
        Extent::between(start, end.min(read))
    }

    fn need(&self, front: &mut Front, most: u64) -> Need {
        let Some(free) = self.free(front.at, front.end) else {
            front.at = front.end;
            return Need::Nothing;
        };
        front.at = free.start().0;
        if front.at >= front.until {
            let far = front.at.saturating_add(self.chunks.whole(self.limits.look));
            let all = Extent::between(front.at, far.min(front.end));
            return all.map_or(Need::Nothing, Need::Examine);
        }
        let known = free.cut(Bytes(front.until - front.at)).0;
        match front.known {
            Known::Data => Need::Read(known.cut(Bytes(most)).0),
            Known::Zeroes => Need::Zero(known),
        }
    }

    /// How much a step reads at most that is made for this.
    fn most(&self, cause: Cause) -> u64 {
        match (cause, self.keeps) {
            (Cause::Order, Keeps::Target) => u64::MAX,
            _ => self.step(),
        }
    }

    /// Begins what is needed next, with so many bytes of buffers in all.
    fn begin(
        &mut self,
        front: &mut Front,
        cause: Cause,
        buffers: u64,
        out: &mut Vec<Action>,
    ) -> Attempt {
        let need = self.need(front, self.most(cause));
        let Some(id) = self.steps.free() else {
            let needed = !matches!(need, Need::Nothing);
            return if needed { Attempt::NoRoom } else { Attempt::NotNeeded };
        };
        let (extent, stage) = match need {
            Need::Nothing => return Attempt::NotNeeded,
            Need::Examine(extent) => (extent, Stage::Examining),
            Need::Read(extent) => {
                let room = match self.keeps {
                    Keeps::Buffers => buffers.saturating_sub(self.steps.held()),
                    Keeps::Target => u64::MAX,
                };
                // Whole chunks. The last of the disk may be shorter than others.
                let len = if room < extent.len().0 {
                    room & !(self.chunks.chunk() - 1)
                } else {
                    extent.len().0
                };
                if len == 0 {
                    return Attempt::NoRoom;
                }
                (extent.cut(Bytes(len)).0, Stage::Reading)
            }
            Need::Zero(extent) => (extent, Stage::Zeroing),
        };
        self.steps.add(Step { id, extent, stage, cause, keeps: self.keeps });
        match stage {
            Stage::Examining => self.send_step(id, Op::Examine(extent), stage, out),
            Stage::Reading => self.send_step(id, Op::Read(extent), stage, out),
            Stage::Writing | Stage::Zeroing => {
                self.copied(extent);
                self.send_step(id, zeroes(extent), stage, out);
            }
        }
        Attempt::Began
    }

    pub(super) fn send_step(&self, id: StepId, op: Op, stage: Stage, out: &mut Vec<Action>) {
        PointInTime::send(stage.side(), Job::Copy(id), op, out);
    }

    /// Copies for a change, as far as there is room. Zeroes that reach far take one step at a time,
    /// and let others go first after each.
    pub(super) fn copy_for(&mut self, at: usize, out: &mut Vec<Action>) -> Got {
        if self.phase != Phase::Copying || self.room == Room::Awaited {
            return Got::Whatever;
        }
        let Some(&mut Guest { id, request, mut front, .. }) = self.guests.get(at) else {
            return Got::Whatever;
        };
        if front.at >= front.end {
            return Got::Whatever;
        }
        let by_pieces = self.is_by_pieces(request);
        let mut got = Got::Whatever;
        while !(by_pieces && (got == Got::Turn || self.is_served(id))) {
            match self.begin(&mut front, Cause::Request(id), self.limits.buffers.0, out) {
                Attempt::Began if by_pieces => got = Got::Turn,
                Attempt::Began => {}
                Attempt::NotNeeded => break,
                Attempt::NoRoom => {
                    self.room = Room::Awaited;
                    break;
                }
            }
        }
        if let Some(guest) = self.guests.get(at) {
            guest.front = front;
        }
        got
    }

    /// Whether the source is at work on a step for this request.
    fn is_served(&self, id: RequestId) -> bool {
        let works = |step: &Step| step.cause == Cause::Request(id);
        self.steps.iter().any(|step| works(step) && step.stage.side() == Side::Source)
    }

    /// The next step in order, if nobody waits for the room that it takes.
    pub(super) fn go_ahead(&mut self, out: &mut Vec<Action>) -> Turn {
        let examines = |step: &Step| step.cause == Cause::Order && step.stage == Stage::Examining;
        let examines = self.steps.iter().any(examines);
        if self.room == Room::Awaited || self.steps() >= self.limits.ahead || examines {
            return Turn::Later;
        }
        let mut front = self.order;
        let most = (self.limits.buffers.0 / 2).max(self.chunks.chunk());
        let most = most.min(self.limits.buffers.0);
        let attempt = self.begin(&mut front, Cause::Order, most, out);
        self.order = front;
        if !matches!(attempt, Attempt::Began) {
            return Turn::Later;
        }
        self.settle(out);
        Turn::Began
    }

    /// This was to be read and was not, so it is frozen, and data. Who has gone on behind it comes
    /// back for what he needs of it.
    pub(super) fn read_again(&mut self, rest: Extent) {
        back_to(&mut self.order, rest);
        for at in 0..self.guests.len() {
            let Some(guest) = self.guests.get(at) else { continue };
            let (Request::Write(extent, _) | Request::Zero(extent, ..)) = guest.request else {
                continue;
            };
            let from = self.chunks.border_before(extent.start().0);
            let needs = Extent::between(from, guest.front.end).and_then(|all| all.common(rest));
            if let Some(needs) = needs {
                back_to(&mut guest.front, needs);
            }
        }
    }

    /// What an examination found holds as long as it is frozen. It need not be a whole chunk.
    pub(super) fn learn(
        &mut self,
        examined: Step,
        found: Found,
        len: Bytes,
        out: &mut Vec<Action>,
    ) {
        self.steps.remove(examined.id);
        self.line_up(examined.cause);
        if self.phase != Phase::Copying {
            return self.settle(out);
        }
        let (start, end) = (examined.extent.start().0, examined.extent.end().0);
        let until = start.saturating_add(len.0).min(end);
        let whole = self.chunks.border_before(until);
        let (known, until) = match found {
            Found::Hole | Found::Zeroes if whole > start => (Known::Zeroes, whole),
            Found::Hole | Found::Zeroes => (Known::Data, self.chunks.border_behind(start + 1)),
            Found::Data => (Known::Data, self.chunks.border_behind(until)),
        };
        let passed = known == Known::Zeroes && self.target == TargetContent::Zeroes;
        if passed {
            let mut from = start;
            while let Some(free) = self.free(from, until) {
                self.copied(free);
                from = free.end().0;
            }
        } else if let Some(front) = self.front(examined.cause)
            // Else it went back since, to what was not examined now.
            && front.at >= start
        {
            (front.known, front.until) = (known, until);
        }
        if known == Known::Zeroes && !passed {
            self.make_zeroes(examined, until, out);
        }
        self.settle(out);
        if examined.cause == Cause::Order && known == Known::Data && self.phase == Phase::Copying {
            self.go_ahead(out);
        }
    }

    /// The step that has found them tells the target, lest a change wait for another.
    fn make_zeroes(&mut self, examined: Step, until: u64, out: &mut Vec<Action>) {
        let Some(extent) = self.free(examined.extent.start().0, until) else { return };
        self.steps.add(Step { extent, stage: Stage::Zeroing, ..examined });
        self.copied(extent);
        self.send_step(examined.id, zeroes(extent), Stage::Zeroing, out);
    }

    fn front(&mut self, cause: Cause) -> Option<&mut Front> {
        match cause {
            Cause::Order => Some(&mut self.order),
            Cause::Request(id) => {
                let at = self.guests.find(id)?;
                self.guests.get(at).map(|guest| &mut guest.front)
            }
            Cause::Nobody => None,
        }
    }
}

/// What makes the target read as zeroes, as sparse as it can.
pub(super) fn zeroes(extent: Extent) -> Op {
    Op::Zero(extent, Unmap::May, Durability::Cached)
}

/// What is frozen and data is next, unless something before it is.
fn back_to(front: &mut Front, rest: Extent) {
    let (start, end) = (rest.start().0, rest.end().0);
    if front.at <= start {
        return;
    }
    front.at = start;
    if front.known == Known::Zeroes || front.until < end {
        (front.known, front.until) = (Known::Data, end);
    }
}
