//! The machine behind a front: that of a live move, or that of a copy as of one instant. What the
//! two have in common is here, for whoever carries out what they ask.

use crate::copying::{Blocks, CopyEvent, CopyGauge, CopyListener};
use crate::moving::{Listening, MoveEvent, MoveGauge, MoveListener};
use headgate_mirror::instant::{self, PointInTime};
use headgate_mirror::{
    Answer, Completion, Found, Job, Mirror, NotCancelled, NotTaken, Op, Outcome, Record, Request,
    RequestId, Side, State, StepId, Turn, Unexpected, Word,
};
use headgate_units::Bytes;

/// What a machine asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    Send {
        side: Side,
        job: Job,
        op: Op,
    },
    Answer(RequestId, Answer),
    Record(Record),
    Ended(Ending),
    /// Nothing uses this side any more.
    Reclaim(Side),
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Move(Outcome),
    Copy(instant::Outcome),
}

/// The machine of a live move, and who is told of it.
pub(crate) struct Move {
    pub mirror: Mirror,
    pub gauge: MoveGauge,
    pub listener: MoveListener,
    out: Vec<headgate_mirror::Action>,
}

/// The machine of a copy as of one instant, and who is told of it.
pub(crate) struct Copy {
    pub copy: PointInTime,
    pub gauge: CopyGauge,
    pub listener: CopyListener,
    drained: Drained,
    out: Vec<instant::Action>,
}

/// Whether the requests from before the instant have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Drained {
    NotTold,
    Told,
}

pub(crate) enum Machine {
    Move(Move),
    Copy(Copy),
}

impl Move {
    /// `out`: what it has asked for already.
    pub(crate) fn new(
        mirror: Mirror,
        out: Vec<headgate_mirror::Action>,
        gauge: MoveGauge,
        listener: MoveListener,
    ) -> Move {
        Move { mirror, gauge, listener, out }
    }
}

impl Copy {
    pub(crate) fn new(copy: PointInTime, gauge: CopyGauge, listener: CopyListener) -> Copy {
        Copy { copy, gauge, listener, drained: Drained::NotTold, out: Vec::new() }
    }
}

fn of_move(action: headgate_mirror::Action) -> Action {
    use headgate_mirror::Action as Asked;
    match action {
        Asked::Send { side, job, op } => Action::Send { side, job, op },
        Asked::Answer(id, answer) => Action::Answer(id, answer),
        Asked::Record(record) => Action::Record(record),
        Asked::Ended(outcome) => Action::Ended(Ending::Move(outcome)),
        Asked::Reclaim(side) => Action::Reclaim(side),
    }
}

fn of_copy(action: instant::Action) -> Action {
    use instant::Action as Asked;
    match action {
        Asked::Send { side, job, op } => Action::Send { side, job, op },
        Asked::Answer(id, Completion::Done) => Action::Answer(id, Answer::Done),
        Asked::Answer(id, Completion::Failed) => Action::Answer(id, Answer::Failed(Side::Source)),
        Asked::Ended(outcome) => Action::Ended(Ending::Copy(outcome)),
        Asked::Release => Action::Reclaim(Side::Target),
    }
}

impl Machine {
    /// What it has asked for before anything came to it.
    pub(crate) fn first(&mut self) -> Vec<Action> {
        match self {
            Machine::Move(one) => one.out.drain(..).map(of_move).collect(),
            Machine::Copy(one) => one.out.drain(..).map(of_copy).collect(),
        }
    }

    /// A request of a client.
    pub(crate) fn request(
        &mut self,
        id: RequestId,
        request: Request,
        out: &mut Vec<Action>,
    ) -> Result<(), Refusal> {
        match self {
            Machine::Move(one) => {
                let taken = one.mirror.request(id, request, &mut one.out);
                out.extend(one.out.drain(..).map(of_move));
                taken.map_err(|e| match e {
                    NotTaken::Full => Refusal::Full,
                    NotTaken::OutOfRange | NotTaken::Duplicate => Refusal::Invalid,
                })
            }
            Machine::Copy(one) => {
                let taken = one.copy.request(id, request, &mut one.out);
                out.extend(one.out.drain(..).map(of_copy));
                taken.map_err(|e| match e {
                    instant::NotTaken::Full => Refusal::Full,
                    instant::NotTaken::OutOfRange | instant::NotTaken::Duplicate => {
                        Refusal::Invalid
                    }
                })
            }
        }
    }

    /// Something that was sent has ended, which is no examination that succeeded.
    pub(crate) fn done(
        &mut self,
        side: Side,
        job: Job,
        completion: Completion,
        out: &mut Vec<Action>,
    ) {
        let told = match self {
            Machine::Move(one) => {
                let told = one.mirror.done(side, job, completion, &mut one.out);
                out.extend(one.out.drain(..).map(of_move));
                told.is_ok()
            }
            Machine::Copy(one) => {
                let told = one.copy.done(side, job, completion, &mut one.out);
                out.extend(one.out.drain(..).map(of_copy));
                told.is_ok()
            }
        };
        debug_assert!(told, "it was sent");
    }

    /// The read of a step has ended. Of a copy, zeroes that a target of zeroes has already are not
    /// written.
    pub(crate) fn read(&mut self, step: StepId, content: Content, out: &mut Vec<Action>) {
        if let (Machine::Copy(one), Content::Zeroes) = (&mut *self, content) {
            let told = one.copy.read_zeroes(step, &mut one.out);
            out.extend(one.out.drain(..).map(of_copy));
            debug_assert!(told.is_ok(), "it was sent");
            return;
        }
        self.done(Side::Source, Job::Copy(step), Completion::Done, out);
    }

    /// Of `all` that a step was to read the target shares so much, from the beginning on.
    pub(crate) fn shared(&mut self, step: StepId, all: Bytes, part: Bytes, out: &mut Vec<Action>) {
        match self {
            Machine::Copy(one) if part < all => {
                let told = one.copy.read_part(step, part, &mut one.out);
                out.extend(one.out.drain(..).map(of_copy));
                debug_assert!(told.is_ok(), "{told:?}: {part:?} of {all:?}");
            }
            _ => self.done(Side::Source, Job::Copy(step), Completion::Done, out),
        }
    }

    /// The target shares nothing of what a step was to read, and no more from now on.
    pub(crate) fn refused(&mut self, step: StepId, out: &mut Vec<Action>) {
        let Machine::Copy(one) = self else { return };
        let told = one.copy.refused(step, &mut one.out);
        out.extend(one.out.drain(..).map(of_copy));
        debug_assert!(told.is_ok(), "it was sent");
    }

    /// What an examined extent begins with.
    pub(crate) fn found(&mut self, step: StepId, found: Found, len: Bytes, out: &mut Vec<Action>) {
        let told = match self {
            Machine::Move(one) => {
                let told = one.mirror.found(step, found, len, &mut one.out);
                out.extend(one.out.drain(..).map(of_move));
                told.is_ok()
            }
            Machine::Copy(one) => {
                let told = one.copy.found(step, found, len, &mut one.out);
                out.extend(one.out.drain(..).map(of_copy));
                told.is_ok()
            }
        };
        debug_assert!(told, "it was sent");
    }

    /// Invites it to copy.
    pub(crate) fn copy(&mut self, out: &mut Vec<Action>) -> Turn {
        match self {
            Machine::Move(one) => {
                let turn = one.mirror.copy(&mut one.out);
                out.extend(one.out.drain(..).map(of_move));
                turn
            }
            Machine::Copy(one) => {
                let turn = one.copy.copy(&mut one.out);
                out.extend(one.out.drain(..).map(of_copy));
                turn
            }
        }
    }

    /// Steps in order that are under way.
    pub(crate) fn steps(&self) -> u32 {
        match self {
            Machine::Move(one) => one.mirror.steps(),
            Machine::Copy(one) => one.copy.steps(),
        }
    }

    /// Whether a step that was just asked for keeps a client's change waiting.
    pub(crate) fn is_awaited(&self, step: StepId) -> bool {
        match self {
            Machine::Move(_) => false,
            Machine::Copy(one) => one.copy.is_for_change(step),
        }
    }

    /// Requests from before it have ended. Said again, this changes nothing.
    pub(crate) fn drained(&mut self, completion: Completion, out: &mut Vec<Action>) -> First {
        let Machine::Copy(one) = self else { return First::No };
        if one.drained == Drained::Told {
            return First::No;
        }
        one.drained = Drained::Told;
        // It is said once.
        let _ = one.copy.drained(completion, &mut one.out);
        out.extend(one.out.drain(..).map(of_copy));
        First::Yes
    }

    /// What became of the record that was asked for.
    pub(crate) fn recorded(&mut self, word: Word, out: &mut Vec<Action>) -> Result<(), Unexpected> {
        let Machine::Move(one) = self else { return Err(Unexpected::NoRecord) };
        let told = one.mirror.recorded(word, &mut one.out);
        out.extend(one.out.drain(..).map(of_move));
        told
    }

    pub(crate) fn cancel(&mut self, out: &mut Vec<Action>) -> Result<(), NotCancelled> {
        match self {
            Machine::Move(one) => {
                let told = one.mirror.cancel(&mut one.out);
                out.extend(one.out.drain(..).map(of_move));
                told
            }
            Machine::Copy(one) => {
                let told = one.copy.cancel(&mut one.out);
                out.extend(one.out.drain(..).map(of_copy));
                told.map_err(|instant::Over| NotCancelled::Over)
            }
        }
    }

    /// Gives the target up. Of what is over this changes nothing.
    pub(crate) fn lose_target(&mut self, out: &mut Vec<Action>) {
        match self {
            Machine::Move(one) => {
                one.mirror.lose_target(&mut one.out);
                out.extend(one.out.drain(..).map(of_move));
            }
            Machine::Copy(one) => {
                let _ = one.copy.lose_target(&mut one.out);
                out.extend(one.out.drain(..).map(of_copy));
            }
        }
    }

    /// The side that has the disk.
    pub(crate) fn counts(&self) -> Side {
        match self {
            Machine::Move(one) if one.mirror.progress().state == State::Switched => Side::Target,
            Machine::Move(_) | Machine::Copy(_) => Side::Source,
        }
    }

    /// Whether it uses its target, and can do without it.
    pub(crate) fn can_lose_target(&self) -> bool {
        match self {
            Machine::Move(one) => {
                !matches!(one.mirror.progress().state, State::Switched | State::Ended)
            }
            Machine::Copy(one) => {
                use instant::State;
                !matches!(one.copy.progress().state, State::Complete | State::GivenUp)
            }
        }
    }

    /// Shows where it is, to whoever must not wait for the shard.
    pub(crate) fn show(&self) {
        match self {
            Machine::Move(one) => one.gauge.set(Some(one.mirror.progress())),
            Machine::Copy(one) => one.gauge.set(Some(one.copy.progress())),
        }
    }

    /// There is nothing to show any more.
    pub(crate) fn show_nothing(&self) {
        match self {
            Machine::Move(one) => one.gauge.set(None),
            Machine::Copy(one) => one.gauge.set(None),
        }
    }

    /// Tells of a record that a move asks for.
    pub(crate) fn tell_of_record(&mut self, record: Record) -> Listening {
        match self {
            Machine::Move(one) => (one.listener)(MoveEvent::Record(record)),
            Machine::Copy(_) => Listening::Yes,
        }
    }

    /// Tells that the instant has passed whose content a copy will have.
    pub(crate) fn tell_of_instant(&mut self) -> Listening {
        match self {
            Machine::Move(_) => Listening::Yes,
            Machine::Copy(one) => (one.listener)(CopyEvent::Instant),
        }
    }

    /// Tells what a copy is made of from now on.
    pub(crate) fn tell_of_blocks(&mut self, blocks: Blocks) -> Listening {
        match self {
            Machine::Move(_) => Listening::Yes,
            Machine::Copy(one) => (one.listener)(CopyEvent::Blocks(blocks)),
        }
    }

    pub(crate) fn tell_of_end(&mut self, ending: Ending) -> Listening {
        match (self, ending) {
            (Machine::Move(one), Ending::Move(outcome)) => {
                (one.listener)(MoveEvent::Ended(outcome))
            }
            (Machine::Copy(one), Ending::Copy(outcome)) => {
                (one.listener)(CopyEvent::Ended(outcome))
            }
            (Machine::Move(_), Ending::Copy(_)) | (Machine::Copy(_), Ending::Move(_)) => {
                Listening::Yes
            }
        }
    }

    /// Tells that nothing uses this side any more. It is the last word: nobody needs to hear it.
    pub(crate) fn tell_of_release(&mut self, side: Side) {
        let _ = match self {
            Machine::Move(one) => (one.listener)(MoveEvent::Reclaim(side)),
            Machine::Copy(one) => (one.listener)(CopyEvent::Released),
        };
    }
}

/// Whether a copy hears for the first time that its instant has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum First {
    Yes,
    No,
}

/// What the read of a step has brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Data,
    Zeroes,
}

/// Why a machine does not take a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It comes again.
    Full,
    /// It is none of the disk.
    Invalid,
}
