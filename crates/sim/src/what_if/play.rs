//! Clients, the gate and the device in virtual time.

use super::client::{LoadKind, Sending};
use super::device::Device;
use super::plan::{Plan, Stretch};
use super::record::{LoadRecord, PeriodRecord};
use super::tally::{Simulated, Tally};
use crate::queue::Queue;
use crate::random::Stream;
use headgate_qos::window::Slots;
use headgate_qos::{
    AnyScheduler, ConfigError, Cost, Decision, DiskId, Gate, Groups, GroupsError, Io, IoKind,
    Scheduler as _, Took,
};
use headgate_units::{Bytes, Nanos};
use slab::Slab;

/// Which policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Before,
    After,
}

/// Why a run ended early.
#[derive(Clone, Debug)]
pub(super) enum Cut {
    GivenUp,
    TooMany,
    Scheduler(ConfigError),
    Groups(GroupsError),
}

/// What came of a run.
pub(super) struct Played {
    pub(super) disks: Vec<Simulated>,
    pub(super) simulated: Nanos,
    pub(super) requests: u64,
}

impl Played {
    /// The mean number of requests at the device.
    pub(super) fn in_flight(&self) -> f64 {
        self.disks.iter().map(Simulated::in_flight).sum()
    }
}

/// Requests of one disk that wait at most: what comes beyond is not sent.
const WAITING_MAX: u32 = 16_384;
/// Events between two questions whether to go on.
const ASK_EVERY: u64 = 4_096;

#[derive(Clone, Copy)]
enum Event {
    /// The next of a disk's requests that come by themselves, unless that has changed since.
    Comes {
        disk: usize,
        since: u32,
    },
    /// One of its clients' pauses is over.
    Resumes {
        disk: usize,
    },
    Done {
        request: usize,
    },
    Wake,
}

struct Request {
    disk: usize,
    arrived: Nanos,
    dispatched: Nanos,
    cost: Cost,
}

struct Actor {
    id: DiskId,
    sending: Sending,
    /// Raised whenever what it sends changes.
    since: u32,
    outstanding: u32,
    /// Clients that pause.
    pausing: u32,
    random: Stream,
    device: Stream,
    read_percent: u8,
    size: Bytes,
    tally: Tally,
}

struct Run<'a> {
    record: &'a LoadRecord,
    device: &'a Device,
    gate: Gate<usize>,
    queue: Queue<Event>,
    actors: Vec<Actor>,
    requests: Slab<Request>,
    period: usize,
    wake: Nanos,
    sent: u64,
    events: u64,
}

/// Plays what is planned. Only what comes after a second is counted.
pub(super) fn play(
    record: &LoadRecord,
    clients: &[Option<LoadKind>],
    plan: &Plan,
    device: &Device,
    side: Side,
    seed: u64,
    give_up: &mut dyn FnMut() -> bool,
) -> Result<Played, Cut> {
    let mut run = Run::new(record, device, side, seed)?;
    let mut now = Nanos::ZERO;
    let warm_up = plan.stretches.first().map(|first| Stretch { length: plan.warm_up, ..*first });
    for (n, stretch) in warm_up.iter().chain(&plan.stretches).enumerate() {
        if n == 1 {
            run.count_anew(now);
        }
        run.begin(now, stretch, clients);
        let end = now + stretch.length;
        now = run.go_on(now, end, plan.most, give_up)?;
    }
    let simulated = now - plan.warm_up.min(now);
    let disks: Vec<Simulated> =
        run.actors.into_iter().map(|actor| actor.tally.finish(simulated)).collect();
    let requests = disks.iter().map(|disk| disk.requests).sum();
    Ok(Played { disks, simulated, requests })
}

impl<'a> Run<'a> {
    fn new(
        record: &'a LoadRecord,
        device: &'a Device,
        side: Side,
        seed: u64,
    ) -> Result<Run<'a>, Cut> {
        let start = Nanos::ZERO;
        let scheduler =
            AnyScheduler::new(record.scheduler, record.config).map_err(Cut::Scheduler)?;
        let window = record.window.max(Slots::ONE);
        let mut gate = Gate::new(start, scheduler, window).without_wait_times();
        let mut actors = Vec::new();
        for disk in &record.disks {
            let policy = match side {
                Side::Before => disk.before,
                Side::After => disk.after,
            };
            let reads: u64 = disk.periods.iter().map(|period| period.reads).sum();
            actors.push(Actor {
                id: gate.register(start, policy),
                sending: Sending::Nothing,
                since: 0,
                outstanding: 0,
                pausing: 0,
                random: Stream::new(seed, &format!("{}/load", disk.name)),
                device: Stream::new(seed, &format!("{}/device", disk.name)),
                read_percent: (reads.saturating_mul(100) / disk.requests().max(1)).min(100) as u8,
                size: disk.size(),
                tally: Tally::new(policy.reservation(), start),
            });
        }
        if !record.groups.is_empty() {
            let member = |(disk, group): &(usize, _)| Some((actors.get(*disk)?.id, *group));
            let members = record.members.iter().filter_map(member).collect();
            let groups = Groups { groups: record.groups.clone(), members };
            gate.set_groups(start, &groups).map_err(Cut::Groups)?;
        }
        let (queue, requests) = (Queue::new(), Slab::new());
        let (wake, sent, events) = (Nanos::MAX, 0, 0);
        Ok(Run { record, device, gate, queue, actors, requests, period: 0, wake, sent, events })
    }

    fn count_anew(&mut self, now: Nanos) {
        self.sent = 0;
        for actor in &mut self.actors {
            let policy = self.gate.scheduler().policy(actor.id).unwrap_or_default();
            actor.tally = Tally::new(policy.reservation(), now);
        }
    }

    /// A stretch of the record begins: clients do what they did in it.
    fn begin(&mut self, now: Nanos, stretch: &Stretch, clients: &[Option<LoadKind>]) {
        self.period = stretch.period;
        let length = self.record.periods.get(stretch.period).copied().unwrap_or_default();
        let nothing = PeriodRecord::default();
        for (disk, kind) in clients.iter().enumerate() {
            let known = self.record.disks.get(disk);
            let period = known.and_then(|disk| disk.periods.get(stretch.period));
            let period = period.unwrap_or(&nothing);
            let sending = kind.map_or(Sending::Nothing, |kind| {
                kind.in_interval(period, length, stretch.interval)
            });
            self.send(now, disk, sending);
        }
    }

    fn send(&mut self, now: Nanos, disk: usize, sending: Sending) {
        let Some(actor) = self.actors.get_mut(disk) else { return };
        if actor.sending == sending {
            return;
        }
        actor.sending = sending;
        actor.since = actor.since.wrapping_add(1);
        match sending {
            Sending::Nothing => {}
            Sending::Open { gap } => {
                let at = now + actor.random.exponential(gap);
                self.queue.push(at, Event::Comes { disk, since: actor.since });
            }
            Sending::Closed { clients, .. } => {
                let more = clients.saturating_sub(actor.outstanding + actor.pausing);
                (0..more).for_each(|_| self.arrive(now, disk));
            }
        }
    }

    /// Goes on until `end`, second by second.
    fn go_on(
        &mut self,
        mut now: Nanos,
        end: Nanos,
        most: u64,
        give_up: &mut dyn FnMut() -> bool,
    ) -> Result<Nanos, Cut> {
        const SECOND: u64 = 1_000_000_000;
        self.ask(now);
        while now < end {
            let tick = Nanos((now.0 / SECOND + 1) * SECOND);
            let until = tick.min(end);
            while let Some((at, event)) = self.queue.pop_before(until) {
                self.happen(at, event);
                self.ask(at);
                self.events += 1;
                if self.events.is_multiple_of(ASK_EVERY) && give_up() {
                    return Err(Cut::GivenUp);
                }
            }
            if self.sent > most {
                return Err(Cut::TooMany);
            }
            if until == tick {
                for actor in self.actors.iter_mut().filter(|one| one.tally.has_reservation()) {
                    let queued = self.gate.scheduler().queued_of(actor.id);
                    actor.tally.on_second(tick, queued > 0);
                }
            }
            now = until;
        }
        Ok(end)
    }

    fn happen(&mut self, now: Nanos, event: Event) {
        match event {
            Event::Wake => self.wake = Nanos::MAX,
            Event::Comes { disk, since } => {
                let Some(actor) = self.actors.get_mut(disk).filter(|one| one.since == since) else {
                    return;
                };
                let Sending::Open { gap } = actor.sending else { return };
                let at = now + actor.random.exponential(gap).max(Nanos(1));
                self.queue.push(at, Event::Comes { disk, since });
                if actor.outstanding < WAITING_MAX {
                    self.arrive(now, disk);
                }
            }
            Event::Resumes { disk } => {
                let Some(actor) = self.actors.get_mut(disk) else { return };
                actor.pausing = actor.pausing.saturating_sub(1);
                self.follow(now, disk, Nanos::ZERO);
            }
            Event::Done { request } => {
                let Some(done) = self.requests.try_remove(request) else { return };
                self.complete(now, &done);
            }
        }
    }

    fn complete(&mut self, now: Nanos, done: &Request) {
        let Some(actor) = self.actors.get_mut(done.disk) else { return };
        actor.outstanding = actor.outstanding.saturating_sub(1);
        let device = now.since(done.dispatched);
        actor.tally.on_complete(now.since(done.arrived), device);
        let took = Took { queued: done.dispatched.since(done.arrived), device };
        self.gate.measure(now, actor.id, took, actor.size);
        self.gate.complete(now, actor.id, done.cost);
        if let Sending::Closed { pause, .. } = actor.sending {
            self.follow(now, done.disk, pause);
        }
    }

    /// A client of a closed loop goes on after a pause, unless there are too many of them.
    fn follow(&mut self, now: Nanos, disk: usize, pause: Nanos) {
        let Some(actor) = self.actors.get_mut(disk) else { return };
        let Sending::Closed { clients, .. } = actor.sending else { return };
        if actor.outstanding + actor.pausing >= clients {
            return;
        }
        if pause == Nanos::ZERO {
            return self.arrive(now, disk);
        }
        actor.pausing += 1;
        let at = now + actor.random.exponential(pause);
        self.queue.push(at, Event::Resumes { disk });
    }

    fn arrive(&mut self, now: Nanos, disk: usize) {
        let Some(actor) = self.actors.get_mut(disk) else { return };
        let kind =
            if actor.random.percent(actor.read_percent) { IoKind::Read } else { IoKind::Write };
        let io = Io { bytes: actor.size, kind, ..Io::default() };
        let request = Request { disk, arrived: now, dispatched: now, cost: Cost::default() };
        let key = self.requests.insert(request);
        self.sent += 1;
        // Disks stay registered for the whole run.
        match self.gate.enqueue(now, actor.id, io, key) {
            Ok(()) => actor.outstanding += 1,
            Err(_) => drop(self.requests.try_remove(key)),
        }
    }

    /// Asks the gate until it has nothing more to say.
    fn ask(&mut self, now: Nanos) {
        while self.gate.is_due(now) {
            match self.gate.next(now) {
                Decision::Dispatch(sent) => {
                    let Some(request) = self.requests.get_mut(sent.request) else { continue };
                    (request.dispatched, request.cost) = (now, sent.cost);
                    let Some(actor) = self.actors.get_mut(request.disk) else { continue };
                    actor.tally.on_dispatch(sent.cost);
                    let work = self.gate.work_in_flight().as_millionths() as f64;
                    let part = actor.device.unit();
                    let time = self.device.time(self.period, request.disk, work, part);
                    self.queue.push(now + time, Event::Done { request: sent.request });
                }
                Decision::WaitUntil(at) => {
                    if at < self.wake {
                        self.wake = at;
                        self.queue.push(at.max(now), Event::Wake);
                    }
                }
                Decision::Idle => {}
            }
        }
    }
}
