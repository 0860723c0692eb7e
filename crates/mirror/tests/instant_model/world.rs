//! A machine between two storages and a guest.
//!
//! | part | what it says |
//! |---|---|
//! | `neighbours` | what a storage or the caller tells the machine |
//! | `orders` | what the machine asks for, and what it may not ask for |
//! | `checks` | what must hold in each state |
//! | `waits` | who may wait, and for what |
//! | `nonsense` | calls that make no sense |

mod checks;
mod neighbours;
mod nonsense;
mod orders;
mod waits;

use super::defect::Defect;
use super::guest::{Guest, SLOTS};
use super::machine::Machine;
use super::search::System;
use super::storage::{Discards, Flight, How, Init, Storage, Value, blocks};
use headgate_mirror::instant::{Action, Keeps, Limits, Outcome, Setup};
use headgate_mirror::{
    Durability, Extent, Found, Job, Op, Request, RequestId, Side, StepId, TargetContent,
};
use headgate_units::Bytes;
use std::fmt;

/// How finely time is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effects {
    /// What is sent takes effect as it is reported.
    WhenReported,
    /// It takes effect, and is reported at any time later.
    Before,
}

/// Whether the caller looks if what a step has read is zeroes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Looks {
    Always,
    Never,
}

/// Whether calls that make no sense are tried in each state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nonsense {
    Tried,
    NotTried,
}

/// What may be done or go wrong, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Budget {
    pub requests: u8,
    pub failures: u8,
    /// Cancellations and targets that are given up.
    pub ends: u8,
    /// Reads that a target which shares blocks refuses, or does a part of.
    pub refusals: u8,
}

/// What the world is made of.
#[derive(Clone)]
pub struct Case<const N: usize> {
    pub name: &'static str,
    pub source: [Init; N],
    pub target: TargetContent,
    pub keeps: Keeps,
    pub discards: (Discards, Discards),
    /// Under way at the instant.
    pub old: Vec<Request>,
    pub limits: Limits,
    pub requests: Vec<Request>,
    pub budget: Budget,
    pub effects: Effects,
    pub looks: Looks,
    pub nonsense: Nonsense,
    pub defect: Defect,
}

/// The requests that may come are left out: there are hundreds.
impl<const N: usize> fmt::Debug for Case<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Case { name, source, target, keeps, discards, old, limits, .. } = self;
        let Case { budget, effects, looks, nonsense, defect, .. } = self;
        writeln!(f, "{name}: {source:?} to {target:?}, {keeps:?}, {discards:?}, old {old:?}")?;
        writeln!(f, "  {limits:?}")?;
        write!(f, "  {budget:?}, {effects:?}, {looks:?}, {nonsense:?}, {defect:?}")
    }
}

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Request(Request),
    /// The caller has seen the end of what was under way at the instant.
    Drained,
    Copy,
    Cancel,
    LoseTarget,
    /// The target does not share what a step is to read.
    Refuse(StepId),
    /// It shares so many blocks of it.
    Part(StepId, u8),
    /// Something that was sent to a side takes effect, or fails.
    Effect(Side, Job, How),
    /// Its sender hears of it.
    Report(Side, Job),
}

/// Who sent the source a request of the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Sender {
    Machine,
    /// The caller, before the instant.
    Caller,
}

/// Whether something may take back what the copy reads of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Doubt {
    No,
    /// It was sent in the call in which the last of the disk was read.
    Maybe,
    Yes,
}

/// A request of the guest that has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Out<const N: usize> {
    request: Request,
    sender: Sender,
    /// What it writes; also tells who came first.
    value: Value,
    read: Option<[Value; N]>,
    sends: u8,
    /// What of its extent was sent.
    sent: [bool; N],
    /// Something that was sent for it failed.
    failed: bool,
    /// The source lost what was not durable by it.
    lost: bool,
    doubt: Doubt,
}

/// Whether a step was begun by `copy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Order {
    #[default]
    No,
    /// It has examined, and reads what a change waits for. Or it is over, and its number was taken
    /// by a step for that change.
    Maybe,
    Yes,
}

/// What is known of a step that is under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Step<const N: usize> {
    order: Order,
    /// What it has examined, in the call in which it hears of that.
    examined: Option<Extent>,
    /// What an examination that has taken effect will say.
    found: Option<(Found, u8)>,
    /// What was read.
    content: Option<[Value; N]>,
    /// The machine was told that it is zeroes.
    zeroes: bool,
    /// What it reads the target keeps.
    shares: bool,
}

/// The most steps.
pub const STEPS: usize = 4;

/// How the event that is happening may end the copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Cause {
    may: Option<Outcome>,
    must: Option<Outcome>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World<M, const N: usize> {
    machine: M,
    source: Storage<N>,
    target: Storage<N>,
    guest: Guest<N>,
    /// What keeps what is read from now on.
    keeps: Keeps,
    /// The disk as of the instant.
    image: [Value; N],
    /// What of it was allocated.
    allocated: [bool; N],
    drained: bool,
    /// A flush or a write through from before the instant failed.
    old_failed: bool,
    /// A step read it.
    read: [bool; N],
    /// Or the source said that it is zeroes.
    known: [bool; N],
    /// Of a chunk that is a hole, as the source said, and there is nothing left to do.
    hole: [bool; N],
    /// The target was sent something for it.
    written: [bool; N],
    flushed: bool,
    steps: [Step<N>; STEPS],
    slots: [Option<Out<N>>; SLOTS],
    ended: Option<Outcome>,
    released: bool,
    cause: Cause,
    /// Nobody may ask for what is a hole and then have it written, but these.
    excused: [bool; N],
    left: Budget,
}

/// What must hold and does not.
pub type Broken = String;

fn check(holds: bool, what: impl FnOnce() -> String) -> Result<(), Broken> {
    if holds { Ok(()) } else { Err(what()) }
}

/// What an unknown target holds.
const GARBAGE: Value = 1;
const FIRST_INIT: Value = 2;

/// The content that a block of the source begins with.
pub fn data(block: u8) -> Init {
    Init::Data(FIRST_INIT + block)
}

/// What a storage is to do for a request that it gets whole.
fn op_of(request: Request) -> Op {
    match request {
        Request::Read(extent) => Op::Read(extent),
        Request::Write(extent, durability) => Op::Write(extent, durability),
        Request::Discard(extent) => Op::Discard(extent),
        Request::Zero(extent, unmap, durability) => Op::Zero(extent, unmap, durability),
        Request::Flush => Op::Flush,
    }
}

/// Whether it changes something.
fn changes(request: Request) -> bool {
    !matches!(request, Request::Read(_) | Request::Flush)
}

/// Whether its failure tells of a storage's cache.
fn synchronises(request: Request) -> bool {
    use Durability::Fua;
    matches!(request, Request::Flush | Request::Write(_, Fua) | Request::Zero(_, _, Fua))
}

fn is_copy(job: Job) -> bool {
    !matches!(job, Job::Request(_))
}

impl<M: Machine, const N: usize> World<M, N> {
    fn new(case: &Case<N>) -> Result<Self, Broken> {
        let (limits, target) = (case.limits, case.target);
        let keeps = case.keeps;
        let setup = Setup { size: Bytes(N as u64), target, keeps, limits };
        let machine = M::new(setup, case.defect).map_err(|e| e.to_string())?;
        let there = match target {
            TargetContent::Zeroes => Init::Hole,
            TargetContent::Unknown => Init::Data(GARBAGE),
        };
        let source = Storage::new(case.source, case.discards.0);
        let image = std::array::from_fn(|block| source.current(block));
        let mut world = World {
            machine,
            guest: Guest::new(image),
            keeps,
            image,
            allocated: std::array::from_fn(|block| source.is_allocated(block)),
            source,
            target: Storage::new([there; N], case.discards.1),
            drained: false,
            old_failed: false,
            read: [false; N],
            known: [false; N],
            hole: [false; N],
            written: [false; N],
            flushed: false,
            steps: [Step::default(); STEPS],
            slots: [None; SLOTS],
            ended: None,
            released: false,
            cause: Cause::default(),
            excused: [false; N],
            left: case.budget,
        };
        for (slot, request) in case.old.iter().enumerate() {
            let value = FIRST_INIT + (N + slot) as Value;
            world.slots[slot] = Some(Out::new(*request, Sender::Caller, value));
            world.guest.ask(slot, *request, value);
            world.source.send(Job::Request(RequestId(slot as u64)), op_of(*request), [value; N]);
        }
        Ok(world)
    }

    fn storage(&mut self, side: Side) -> &mut Storage<N> {
        match side {
            Side::Source => &mut self.source,
            Side::Target => &mut self.target,
        }
    }

    fn flights(&self, side: Side) -> &[Flight<N>] {
        match side {
            Side::Source => &self.source.flights,
            Side::Target => &self.target.flights,
        }
    }

    fn flight(&self, side: Side, job: Job) -> Option<usize> {
        self.flights(side).iter().position(|flight| flight.job == job)
    }

    fn step_flight(&self, step: usize) -> Option<Flight<N>> {
        let job = Job::Copy(StepId(step as u32));
        let of = |side| Some(self.flights(side)[self.flight(side, job)?]);
        of(Side::Source).or_else(|| of(Side::Target))
    }

    /// The machine's requests without an answer.
    fn asked(&self) -> impl Iterator<Item = (usize, &Out<N>)> {
        let slots = self.slots.iter().enumerate();
        let asked = slots.filter_map(|(slot, out)| Some((slot, out.as_ref()?)));
        asked.filter(|(_, out)| out.sender == Sender::Machine)
    }

    /// Whether the block's content as of the instant is in memory, or known.
    fn is_safe(&self, block: usize) -> bool {
        self.read[block] || self.known[block]
    }

    fn all_safe(&self) -> bool {
        (0..N).all(|block| self.is_safe(block))
    }

    /// Whether the machine knows that nothing is left to read, whatever it makes of zeroes.
    fn all_read(&self) -> bool {
        let known = |block: usize| self.read[block] || self.hole[block];
        (0..N).all(|block| known(block) && !self.is_being_read(block))
    }

    fn may_be_drained(&self) -> bool {
        let old = self.slots.iter().flatten().filter(|out| out.sender == Sender::Caller);
        !self.drained && old.clone().all(|out| matches!(out.request, Request::Read(_)))
    }

    fn chunk(&self) -> u64 {
        self.machine.chunk().0
    }

    /// The chunks that the extent touches.
    fn whole_chunks(&self, extent: Extent) -> std::ops::Range<usize> {
        let chunk = self.chunk() as usize;
        let blocks = blocks(extent);
        let end = blocks.end.next_multiple_of(chunk).min(N);
        blocks.start / chunk * chunk..end
    }

    /// What a target that shares blocks may make of this.
    fn refusals(&self, flight: &Flight<N>) -> Vec<Event> {
        let (Job::Copy(step), Op::Read(extent)) = (flight.job, flight.op) else {
            return Vec::new();
        };
        if self.left.refusals == 0 || !self.steps[step.0 as usize].shares {
            return Vec::new();
        }
        let parts = (1..extent.len().0).filter(|len| len.is_multiple_of(self.chunk()));
        let parts = parts.map(|len| Event::Part(step, len as u8));
        parts.chain([Event::Refuse(step)]).collect()
    }

    /// One event, with what the machine asks for because of it.
    fn advance(&self, case: &Case<N>, event: Event, out: &mut Vec<Action>) -> Result<Self, Broken> {
        let mut next = self.clone();
        next.happen(case, event, out)?;
        next.carry_out(case, self, event, out)?;
        let cause = std::mem::take(&mut next.cause);
        check(cause.must.is_none() || next.ended.is_some(), || {
            format!("the copy goes on, and ought to have ended: {:?}", cause.must)
        })?;
        next.forget_steps();
        next.check_overtaking(case, self)?;
        Ok(next)
    }

    /// Steps that are over are free, and nothing that they read is kept.
    fn forget_steps(&mut self) {
        for step in 0..STEPS {
            if self.step_flight(step).is_none() {
                self.steps[step] = Step::default();
            }
        }
    }
}

impl<const N: usize> Out<N> {
    fn new(request: Request, sender: Sender, value: Value) -> Out<N> {
        Out {
            request,
            sender,
            value,
            read: None,
            sends: 0,
            sent: [false; N],
            failed: false,
            lost: false,
            doubt: Doubt::No,
        }
    }
}

impl<M: Machine, const N: usize> System for World<M, N> {
    type Case = Case<N>;
    type Event = Event;

    fn begin(case: &Case<N>) -> Result<Self, Broken> {
        World::new(case)
    }

    fn events(&self, case: &Case<N>) -> Vec<Event> {
        let mut events = Vec::new();
        let free = self.slots.iter().any(Option::is_none);
        if self.left.requests > 0 && free && self.asked().count() < case.limits.requests {
            events.extend(case.requests.iter().copied().map(Event::Request));
        }
        events.push(Event::Copy);
        if self.may_be_drained() {
            events.push(Event::Drained);
        }
        if self.left.ends > 0 && self.ended.is_none() {
            events.extend([Event::Cancel, Event::LoseTarget]);
        }
        for side in [Side::Source, Side::Target] {
            for flight in self.flights(side) {
                if flight.effect.is_some() {
                    events.push(Event::Report(side, flight.job));
                    continue;
                }
                events.push(Event::Effect(side, flight.job, How::Done));
                events.extend(self.refusals(flight));
                if self.left.failures > 0 {
                    let ways = flight.failures().into_iter();
                    events.extend(ways.map(|how| Event::Effect(side, flight.job, how)));
                }
            }
        }
        events
    }

    /// The target comes last, and copies are invited when nothing else can happen.
    fn fair(&self) -> Option<Event> {
        let of = |side| {
            let flight: &Flight<N> = self.flights(side).first()?;
            Some(match flight.effect {
                Some(_) => Event::Report(side, flight.job),
                None => Event::Effect(side, flight.job, How::Done),
            })
        };
        of(Side::Source)
            .or_else(|| self.may_be_drained().then_some(Event::Drained))
            .or_else(|| of(Side::Target))
            .or_else(|| self.ended.is_none().then_some(Event::Copy))
    }

    fn step(&self, case: &Case<N>, event: Event) -> Result<Self, Broken> {
        self.advance(case, event, &mut Vec::new())
    }

    fn check_always(&self, case: &Case<N>) -> Result<(), Broken> {
        self.check_state(case)?;
        self.check_waits(case)?;
        self.check_lost_target(case)?;
        match case.nonsense {
            Nonsense::Tried => self.check_nonsense(case),
            Nonsense::NotTried => Ok(()),
        }
    }

    fn check_end(&self) -> Result<(), Broken> {
        check(self.slots.iter().all(Option::is_none), || "a request is never answered".into())?;
        check(self.ended.is_some(), || "the copy never ends".into())?;
        check(self.released, || "nothing is released".into())?;
        check(self.machine.is_over(), || "the machine is not over".into())
    }

    fn story(case: &Case<N>, events: &[Event]) -> String {
        let mut story = format!("{case:?}\n");
        let mut world = World::<M, N>::new(case).ok();
        for event in events {
            story += &format!("  {event:?}\n");
            let mut out = Vec::new();
            let next = world.as_ref().and_then(|w| w.advance(case, *event, &mut out).ok());
            out.iter().for_each(|action| story += &format!("      {}\n", short(action)));
            world = next;
        }
        story
    }
}

fn short(action: &Action) -> String {
    match action {
        Action::Send { side, job, op } => format!("{side:?}: {op:?} for {job:?}"),
        other => format!("{other:?}"),
    }
}
