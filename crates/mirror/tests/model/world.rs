//! The machine between two storages, a journal and a guest. What must hold at every instant is in
//! `checks.rs`.

mod checks;

use super::guest::{Guest, SLOTS};
use super::search::System;
use super::storage::{Cache, Discards, Effect, How, Init, Storage, Value, blocks};
use headgate_mirror::{
    Action, Answer, Job, Limits, Mirror, Op, Outcome, Record, Recovery, Request, RequestId, Setup,
    Side, TargetContent, Turn, Word,
};
use headgate_units::Bytes;

/// How finely time is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effects {
    /// What is sent takes effect as it is reported.
    WhenReported,
    /// It takes effect, and is reported at any time later.
    Before,
}

/// What may go wrong, or be done, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Budget {
    pub requests: u8,
    pub failures: u8,
    /// Records that are not made, or of which nothing is known.
    pub records: u8,
    pub pauses: u8,
    /// Cancellations and targets that are given up.
    pub ends: u8,
}

/// What the world is made of.
#[derive(Clone, Debug)]
pub struct Case<const N: usize> {
    pub name: &'static str,
    pub source: [Init; N],
    pub target: TargetContent,
    pub discards: (Discards, Discards),
    pub limits: Limits,
    pub requests: Vec<Request>,
    pub budget: Budget,
    pub effects: Effects,
}

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Request(Request),
    Copy,
    Pause,
    Resume,
    Cancel,
    LoseTarget,
    /// The number of something that was sent to a side, and how it ends.
    Effect(Side, u8, How),
    /// Its sender hears of it.
    Report(Side, u8),
    /// What is to be recorded becomes durable.
    RecordIsDurable,
    RecordWord(Word),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Journal {
    Idle,
    Asked(Record),
    /// Asked for, and nothing more will become of it.
    Unknown(Record),
}

/// A request of the guest that has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Out<const N: usize> {
    request: Request,
    value: Value,
    read: Option<[Value; N]>,
    /// The target had something to make durable when it arrived.
    target_was_dirty: bool,
    target_did_it: bool,
    /// The source lost what was not durable.
    lost: bool,
    /// It was sent to the source. Numbers come again while what they stood for is under way there.
    at_source: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World<const N: usize> {
    mirror: Mirror,
    source: Storage<N>,
    target: Storage<N>,
    guest: Guest<N>,
    durable: Option<Record>,
    journal: Journal,
    read_by_step: [Option<[Value; N]>; 4],
    /// Whether a step may write, or found nothing to write.
    found_data: [bool; 4],
    slots: [Option<Out<N>>; SLOTS],
    paused: bool,
    ended: Option<Outcome>,
    reclaimed: Option<Side>,
    changed_by_guest: [bool; N],
    failed: bool,
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

impl<const N: usize> World<N> {
    pub fn new(case: &Case<N>) -> Result<Self, Broken> {
        let mut out = Vec::new();
        let (limits, target) = (case.limits, case.target);
        let setup = Setup { size: Bytes(N as u64), target, limits };
        let mirror = Mirror::new(setup, &mut out).map_err(|e| e.to_string())?;
        let there = match target {
            TargetContent::Zeroes => Init::Hole,
            TargetContent::Unknown => Init::Data(GARBAGE),
        };
        let source = Storage::new(case.source, case.discards.0);
        let mut world = World {
            mirror,
            guest: Guest::new(std::array::from_fn(|block| source.current(block))),
            source,
            target: Storage::new([there; N], case.discards.1),
            durable: None,
            journal: Journal::Idle,
            read_by_step: [None; 4],
            found_data: [false; 4],
            slots: [None; SLOTS],
            paused: false,
            ended: None,
            reclaimed: None,
            changed_by_guest: [false; N],
            failed: false,
            left: case.budget,
        };
        world.carry_out(case, &out)?;
        Ok(world)
    }

    fn storage(&mut self, side: Side) -> &mut Storage<N> {
        match side {
            Side::Source => &mut self.source,
            Side::Target => &mut self.target,
        }
    }

    fn serving(&self) -> Side {
        match self.ended {
            Some(Outcome::Switched) => Side::Target,
            _ => Side::Source,
        }
    }

    fn happen(
        &mut self,
        case: &Case<N>,
        event: Event,
        out: &mut Vec<Action>,
    ) -> Result<(), Broken> {
        match event {
            Event::Request(request) => self.ask(case, request, out)?,
            Event::Copy => {
                let turn = self.mirror.copy(out);
                let idle = self.paused || self.ended.is_some();
                check(!idle || turn == Turn::Idle, || {
                    "copies in a pause, or after the end".into()
                })?;
            }
            Event::Pause => {
                (self.paused, self.left.pauses) = (true, self.left.pauses - 1);
                self.mirror.pause();
            }
            Event::Resume => {
                self.paused = false;
                self.mirror.resume();
            }
            Event::Cancel => {
                self.left.ends -= 1;
                let recording = self.is_switching();
                let cancelled = self.mirror.cancel(out).is_ok();
                check(cancelled != recording, || "cancel beside the record of the switch".into())?;
            }
            Event::LoseTarget => {
                self.left.ends -= 1;
                self.mirror.lose_target(out);
            }
            Event::Effect(side, at, how) => {
                if let How::Failed(_, cache) = how {
                    self.left.failures -= 1;
                    self.failed = true;
                    if cache == Cache::IsLost {
                        let job = self.storage(side).flights[at as usize].job;
                        self.on_lost_cache(side, job);
                    }
                }
                let storage = self.storage(side);
                let job = storage.flights[at as usize].job;
                storage.take_effect(at as usize, how);
                if case.effects == Effects::WhenReported {
                    let same = |f: &super::storage::Flight<N>| f.job == job && f.effect.is_some();
                    let at = storage.flights.iter().position(same).ok_or("no effect")?;
                    self.report(side, at, out)?;
                }
            }
            Event::Report(side, at) => self.report(side, at as usize, out)?,
            Event::RecordIsDurable => {
                if let Journal::Asked(record) = self.journal {
                    self.durable = Some(record);
                }
            }
            Event::RecordWord(word) => {
                let (Journal::Asked(record) | Journal::Unknown(record)) = self.journal else {
                    return Err("a word about nothing".into());
                };
                let certain = matches!(self.journal, Journal::Unknown(_)) || word == Word::Made;
                self.left.records -= u8::from(!certain);
                self.journal = match word {
                    Word::Unknown => Journal::Unknown(record),
                    Word::Made | Word::NotMade => Journal::Idle,
                };
                self.mirror.recorded(word, out).map_err(|e| e.to_string())?;
            }
        }
        Ok(())
    }

    fn is_switching(&self) -> bool {
        matches!(
            self.journal,
            Journal::Asked(Record::Switched) | Journal::Unknown(Record::Switched)
        )
    }

    /// A side has lost what was not durable. Who asked it for durability has to hear of it, if it
    /// is the source, whose reads may show it.
    fn on_lost_cache(&mut self, side: Side, job: Job) {
        let mut shows = side == self.serving() || self.is_switching();
        if let (Side::Source, Job::Request(id)) = (side, job)
            && let Some(out) = self.slots[id.0 as usize].as_mut().filter(|out| out.at_source)
        {
            (out.lost, shows) = (true, true);
        }
        if shows {
            self.guest.lose_cache();
        }
    }

    fn ask(
        &mut self,
        case: &Case<N>,
        request: Request,
        out: &mut Vec<Action>,
    ) -> Result<(), Broken> {
        let slot = self.slots.iter().position(Option::is_none).ok_or("no slot")?;
        let number = case.budget.requests - self.left.requests;
        self.left.requests -= 1;
        let value = FIRST_INIT + N as Value + number;
        self.guest.ask(slot, request, value);
        if let (Some(extent), false) = (request.extent(), matches!(request, Request::Read(_))) {
            blocks(extent).for_each(|block| self.changed_by_guest[block] = true);
        }
        let target_was_dirty = self.target.is_dirty();
        self.slots[slot] = Some(Out {
            request,
            value,
            read: None,
            target_was_dirty,
            target_did_it: false,
            lost: false,
            at_source: false,
        });
        self.mirror
            .request(RequestId(slot as u64), request, out)
            .map_err(|e| format!("{request:?} is not taken: {e}"))
    }

    fn report(&mut self, side: Side, at: usize, out: &mut Vec<Action>) -> Result<(), Broken> {
        let flight = self.storage(side).report(at);
        let Some(effect) = flight.effect else { return Err("a report without effect".into()) };
        let said = match (flight.job, flight.op) {
            (Job::Copy(step), Op::Examine(extent)) if !effect.failed => {
                // As it is now: who changes it meanwhile passes the step.
                let (found, len) = self.source.examine(extent);
                self.found_data[step.0 as usize] = found == headgate_mirror::Found::Data;
                self.read_by_step[step.0 as usize] = None;
                self.mirror.found(step, found, Bytes(len), out)
            }
            _ => {
                self.keep(side, flight.job, flight.op, effect);
                self.mirror.done(side, flight.job, effect.completion(), out)
            }
        };
        said.map_err(|e| format!("{e}: {side:?} {:?}", flight.job))
    }

    /// Keeps what was read.
    fn keep(&mut self, side: Side, job: Job, op: Op, effect: Effect<N>) {
        match (job, op) {
            (Job::Copy(step), Op::Read(_)) => {
                self.read_by_step[step.0 as usize] = Some(effect.content);
            }
            (Job::Request(id), Op::Read(_)) => {
                if let Some(out) = &mut self.slots[id.0 as usize]
                    && !effect.failed
                {
                    out.read = Some(effect.content);
                }
            }
            (Job::Request(id), _) if side == Side::Target => {
                if let Some(out) = &mut self.slots[id.0 as usize] {
                    out.target_did_it |= !effect.failed;
                }
            }
            _ => {}
        }
    }

    fn carry_out(&mut self, case: &Case<N>, out: &[Action]) -> Result<(), Broken> {
        for action in out {
            match *action {
                Action::Send { side, job, op } => self.send(case, side, job, op)?,
                Action::Answer(id, answer) => self.answer(id, answer)?,
                Action::Record(record) => {
                    check(self.journal == Journal::Idle, || "two records at once".into())?;
                    check(!self.paused || record == Record::Started, || {
                        "a switch in a pause".into()
                    })?;
                    self.journal = Journal::Asked(record);
                }
                Action::Ended(outcome) => self.end(case, outcome)?,
                Action::Reclaim(side) => self.reclaim(side)?,
            }
        }
        Ok(())
    }

    fn send(&mut self, case: &Case<N>, side: Side, job: Job, op: Op) -> Result<(), Broken> {
        check(self.reclaimed != Some(side), || format!("{job:?} to the reclaimed {side:?}"))?;
        check(side == Side::Source || self.durable.is_some(), || {
            "a target that no record knows is written".into()
        })?;
        let mut content = [0; N];
        match job {
            Job::Request(id) => {
                let out = self.slots[id.0 as usize].as_mut().ok_or("sent for nobody")?;
                out.at_source |= side == Side::Source;
                content = [out.value; N];
            }
            Job::Copy(step) => {
                let at = step.0 as usize;
                check(at < case.limits.steps as usize, || "more steps than may be".into())?;
                match op {
                    Op::Write(extent, _) => {
                        check(self.found_data[at], || "a hole is written as data".into())?;
                        check(extent.len() <= case.limits.step, || "too much at once".into())?;
                        content = self.read_by_step[at].ok_or("nothing was read")?;
                    }
                    Op::Read(extent) => {
                        check(extent.len() <= case.limits.step, || "too much at once".into())?;
                    }
                    _ => {}
                }
            }
            Job::LastFlush => {}
        }
        self.storage(side).send(job, op, content);
        let copies = self.storage(side).flights.iter().filter(|f| matches!(f.job, Job::Copy(_)));
        let copies = copies.count();
        check(copies <= case.limits.steps as usize, || "more steps than may be".into())
    }

    fn answer(&mut self, id: RequestId, answer: Answer) -> Result<(), Broken> {
        let slot = id.0 as usize;
        let Some(out) = self.slots[slot].take() else { return Err("answered twice".into()) };
        let (failed, counts) = match answer {
            Answer::Done => (false, true),
            Answer::Failed(side) => {
                (true, side == self.serving() || out.lost || synchronises(out.request))
            }
        };
        check(counts, || format!("{:?}: an error of a side that does not count", out.request))?;
        let unheard = self.slots.iter().flatten().any(|other| other.lost);
        if unheard || (failed && synchronises(out.request)) {
            self.guest.lose_cache();
        }
        self.guest.answer(slot, failed, out.read)?;
        if failed {
            return Ok(());
        }
        check(!out.lost, || "what the source has lost is not told".into())?;
        let mine = |f: &super::storage::Flight<N>| f.job == Job::Request(id);
        let at_source = self.source.flights.iter().any(mine);
        let at_target = self.target.flights.iter().any(mine);
        let early = match self.ended {
            None => at_source || at_target,
            Some(Outcome::Switched) => at_target,
            Some(Outcome::Failed(_) | Outcome::Cancelled) => at_source,
        };
        check(!early, || format!("{:?} is answered and under way", out.request))?;
        let flushes = self.ended.is_none() && out.request == Request::Flush;
        check(!flushes || !out.target_was_dirty || out.target_did_it, || {
            "a flush that has not reached the target".into()
        })
    }

    fn end(&mut self, case: &Case<N>, outcome: Outcome) -> Result<(), Broken> {
        check(self.ended.is_none(), || "a second end".into())?;
        self.ended = Some(outcome);
        let switched = outcome == Outcome::Switched;
        check(switched == (self.durable == Some(Record::Switched)), || {
            format!("{outcome:?}, and the journal says {:?}", self.durable)
        })?;
        if !switched {
            return Ok(());
        }
        let quiet = self.slots.iter().all(Option::is_none) && !self.failed;
        let zeroing = case.discards == (Discards::Zero, Discards::Zero);
        for block in (0..N).filter(|_| quiet && case.target == TargetContent::Zeroes) {
            let (here, there) = (self.source.is_allocated(block), self.target.is_allocated(block));
            check(there == here || (self.changed_by_guest[block] && !zeroing), || {
                format!("block {block} is allocated: {here} at the source, {there} at the target")
            })?;
        }
        Ok(())
    }

    fn reclaim(&mut self, side: Side) -> Result<(), Broken> {
        check(self.reclaimed.is_none(), || "reclaimed twice".into())?;
        check(self.storage(side).flights.is_empty(), || "reclaimed, with requests there".into())?;
        check(self.journal == Journal::Idle, || "reclaimed while a record is under way".into())?;
        let last = self.durable.unwrap_or(Record::Started);
        check(Recovery::of(last).reclaim == side, || format!("{side:?} counts, and is reclaimed"))?;
        check(self.ended.is_some(), || "reclaimed before the end".into())?;
        self.reclaimed = Some(side);
        Ok(())
    }
}

impl<const N: usize> System for World<N> {
    type Case = Case<N>;
    type Event = Event;

    fn begin(case: &Case<N>) -> Result<Self, Broken> {
        World::new(case)
    }

    fn events(&self, case: &Case<N>) -> Vec<Event> {
        let mut events = Vec::new();
        let out = self.slots.iter().flatten().count();
        if self.left.requests > 0 && out < case.limits.requests {
            events.extend(case.requests.iter().copied().map(Event::Request));
        }
        events.push(Event::Copy);
        if self.paused {
            events.push(Event::Resume);
        } else if self.left.pauses > 0 && self.ended.is_none() {
            events.push(Event::Pause);
        }
        if self.left.ends > 0 && self.ended.is_none() {
            events.extend([Event::Cancel, Event::LoseTarget]);
        }
        for (side, storage) in [(Side::Source, &self.source), (Side::Target, &self.target)] {
            for (at, flight) in storage.flights.iter().enumerate() {
                let at = at as u8;
                if flight.effect.is_some() {
                    events.push(Event::Report(side, at));
                    continue;
                }
                events.push(Event::Effect(side, at, How::Done));
                if self.left.failures > 0 {
                    let ways = flight.failures();
                    events.extend(ways.into_iter().map(|how| Event::Effect(side, at, how)));
                }
            }
        }
        if let Journal::Asked(record) = self.journal {
            if self.durable == Some(record) {
                events.push(Event::RecordWord(Word::Made));
            } else {
                events.push(Event::RecordIsDurable);
                if self.left.records > 0 {
                    events.push(Event::RecordWord(Word::NotMade));
                }
            }
            if self.left.records > 0 {
                events.push(Event::RecordWord(Word::Unknown));
            }
        }
        if let Journal::Unknown(record) = self.journal {
            let made = self.durable == Some(record);
            events.push(Event::RecordWord(if made { Word::Made } else { Word::NotMade }));
        }
        events
    }

    /// A side that does not count comes last.
    fn fair(&self) -> Option<Event> {
        let mut sides = [(Side::Source, &self.source), (Side::Target, &self.target)];
        if self.serving() == Side::Target {
            sides.reverse();
        }
        let of = |(side, storage): (Side, &Storage<N>)| {
            let flight = storage.flights.first()?;
            Some(match flight.effect {
                Some(_) => Event::Report(side, 0),
                None => Event::Effect(side, 0, How::Done),
            })
        };
        if let Some(event) = of(sides[0]) {
            return Some(event);
        }
        if let Some(event) = of(sides[1]) {
            return Some(event);
        }
        match self.journal {
            Journal::Asked(record) if self.durable == Some(record) => {
                return Some(Event::RecordWord(Word::Made));
            }
            Journal::Asked(_) => return Some(Event::RecordIsDurable),
            Journal::Unknown(record) if self.durable == Some(record) => {
                return Some(Event::RecordWord(Word::Made));
            }
            Journal::Unknown(_) => return Some(Event::RecordWord(Word::NotMade)),
            Journal::Idle => {}
        }
        match (self.ended, self.paused) {
            (None, true) => Some(Event::Resume),
            (None, false) => Some(Event::Copy),
            (Some(_), _) => None,
        }
    }

    fn step(&self, case: &Case<N>, event: Event) -> Result<Self, Broken> {
        let mut next = self.clone();
        let mut out = Vec::new();
        next.happen(case, event, &mut out)?;
        next.carry_out(case, &out)?;
        if let Event::Request(request) = event {
            next.check_no_pause(self, request, &out)?;
        }
        Ok(next)
    }

    fn check_always(&self, _: &Case<N>) -> Result<(), Broken> {
        self.check_disk()
    }

    fn check_end(&self) -> Result<(), Broken> {
        self.check_over()
    }

    fn story(case: &Case<N>, events: &[Event]) -> String {
        let lines = events.iter().map(|event| format!("    {event:?}\n"));
        format!("{}:\n{}", case.name, lines.collect::<String>())
    }
}

/// Whether its failure tells of a storage's cache.
fn synchronises(request: Request) -> bool {
    use headgate_mirror::Durability::Fua;
    matches!(request, Request::Flush | Request::Write(_, Fua) | Request::Zero(_, _, Fua))
}
