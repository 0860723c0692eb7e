//! The event loop: clients, gate and storage in virtual time.

use crate::oracle::MADE_GOOD;
use crate::record::{Chance, DiskSecond, Record, Second, Sent};
use crate::rng::Rng;
use crate::setup::{Conduct, Load, Mix, Phase, Setup, Sizes, Suspect};
use crate::storage::Storage;
use crate::targets::ideal::thinkers;
use crate::thinking::Thinkers;
use anyhow::{Context, Result};
use headgate_qos::window::Slots;
use headgate_qos::{
    AnyScheduler, Burst, Cost, Decision, Direction, DiskId, Gate, Io, IoKind, Policy, Took,
};
use headgate_units::{Bytes, Iops, Nanos, Priority};

/// A hostile client acts this often.
const MISCHIEF: Nanos = Nanos::from_millis(7);

/// A request on its way.
#[derive(Clone, Copy, Debug)]
struct Request {
    disk: usize,
    id: DiskId,
    direction: Direction,
    bytes: Bytes,
    cost: f64,
    /// What the gate took it for.
    charged: Cost,
    /// When it is to be done, if its load is open.
    deadline: Option<Nanos>,
    queued: Nanos,
    dispatched: Nanos,
}

/// One disk and its client.
struct Client {
    id: DiskId,
    policy: Policy,
    load: Load,
    sizes: Sizes,
    mix: Mix,
    conduct: Conduct,
    /// Reads, writes.
    queued: [u32; 2],
    in_flight: u32,
    second: DiskSecond,
    /// When the next request of an open load arrives.
    arrival: Nanos,
    /// When a server of the reservation's rate would be free.
    ideal: Nanos,
    late: Vec<f64>,
    /// Of a load that thinks.
    thinkers: Option<Thinkers>,
    /// With a latency target: when requests completed, and what they took.
    took: Vec<(f64, f64)>,
    /// With limits of one direction: when something was sent.
    times: Vec<Sent>,
    sent: u64,
    rng: Rng,
}

impl Client {
    fn size(&mut self) -> Bytes {
        match self.sizes {
            Sizes::Fixed(size) => size,
            Sizes::Mixed(least, most) => {
                let octaves = (most.0 / least.0.max(1)).max(1).ilog2();
                Bytes(least.0 << self.rng.within(0, u64::from(octaves)))
            }
        }
    }

    fn queued(&self) -> u32 {
        self.queued[0] + self.queued[1]
    }

    /// What a closed load sends next; `None` while it has enough.
    fn lacks(&mut self) -> Option<Direction> {
        let lacks = match (self.load, self.mix) {
            (Load::Idle | Load::Open(_) | Load::Thinking { .. }, _) => false,
            (Load::Queued(depth), Mix::Apart(writes)) => {
                let writes = (f64::from(depth) * writes).round() as u32;
                let wanted = [depth - writes.min(depth), writes];
                return Direction::BOTH.into_iter().find(|&d| self.queued[at(d)] < wanted[at(d)]);
            }
            (Load::Queued(depth), _) => self.queued() < depth,
            (Load::Outstanding(depth), _) => self.queued() + self.in_flight < depth,
        };
        lacks.then(|| self.direction())
    }

    fn direction(&mut self) -> Direction {
        match self.mix {
            Mix::Reads => Direction::Read,
            Mix::Random(writes) | Mix::Apart(writes) if self.rng.chance(writes) => Direction::Write,
            Mix::Random(_) | Mix::Apart(_) => Direction::Read,
        }
    }

    /// What a second begins with.
    fn begin(&self) -> DiskSecond {
        DiskSecond { emptied: self.queued() == 0, ..DiskSecond::default() }
    }

    /// Counts time in which nothing changes.
    fn pass(&mut self, seconds: f64) {
        let [reads, writes, both] = &mut self.second.asking;
        match self.queued.map(|queued| queued > 0) {
            [true, true] => *both += seconds,
            [true, false] => *reads += seconds,
            [false, true] => *writes += seconds,
            [false, false] => {}
        }
    }

    /// Lets the next request of an open load arrive later.
    fn space(&mut self) {
        if let Load::Open(rate) = self.load {
            self.arrival += Nanos((self.rng.exponential(1.0 / rate) * 1e9) as u64);
        }
    }
}

/// Where a direction stands in pairs.
fn at(direction: Direction) -> usize {
    match direction {
        Direction::Read => 0,
        Direction::Write => 1,
    }
}

/// What all that have reservations would be owed if nobody else were served until it is paid.
#[derive(Default)]
struct Reserved {
    /// Of those with requests queued at the beginning of the second, in reference IOs per second.
    rate: f64,
    /// In reference IOs.
    owed: f64,
    at: Nanos,
    /// The most in this second, as time.
    latest: f64,
}

impl Reserved {
    fn advance(&mut self, now: Nanos) {
        let passed = now.since(self.at).as_secs_f64();
        // What is older is in the storage's debt no longer.
        self.owed = (self.owed + passed * self.rate).min(self.rate * MADE_GOOD);
        self.at = now;
        self.latest = self.latest.max(self.time());
    }

    fn time(&self) -> f64 {
        if self.rate > 0.0 { self.owed / self.rate } else { 0.0 }
    }

    fn serve(&mut self, now: Nanos, cost: f64) {
        self.advance(now);
        self.owed = (self.owed - cost).max(0.0);
    }

    /// In seconds.
    fn late(&mut self, now: Nanos) -> f64 {
        self.advance(now);
        self.time()
    }
}

/// A run under way.
struct Run<'a> {
    setup: &'a Setup,
    suspect: Suspect,
    now: Nanos,
    gate: Gate<Request>,
    storage: Storage,
    clients: Vec<Client>,
    inside: Vec<Request>,
    free: Vec<usize>,
    mischief: Nanos,
    has_open: bool,
    has_hostile: bool,
    has_writes: bool,
    idle: f64,
    /// When the gate last let a request through.
    last: Nanos,
    reserved: Reserved,
    record: Record,
}

/// Runs a set-up.
///
/// # Errors
/// The configuration is out of range, or the gate does not know a disk that it should know.
pub fn run(setup: &Setup, suspect: Suspect) -> Result<Record> {
    let first = setup.phases.first().context("a set-up has a phase")?;
    let mut run = Run::new(setup, suspect, first)?;
    for (number, phase) in setup.phases.iter().enumerate() {
        run.enter(phase)?;
        for into in 0..phase.seconds {
            run.second(number, into)?;
        }
    }
    for client in run.clients {
        run.record.late.push(client.late);
        run.record.took.push(client.took);
        run.record.sent.push(client.times);
    }
    Ok(run.record)
}

impl<'a> Run<'a> {
    fn new(setup: &'a Setup, suspect: Suspect, first: &Phase) -> Result<Run<'a>> {
        let scheduler = AnyScheduler::new(suspect.kind, suspect.config(setup.cost_model))?;
        let mut gate =
            Gate::new(Nanos::ZERO, scheduler, Slots::whole(suspect.window(setup.window)))
                .without_wait_times();
        let clients = setup
            .disks
            .iter()
            .zip(&first.disks)
            .enumerate()
            .map(|(number, (disk, &(policy, load)))| Client {
                id: gate.register(Nanos::ZERO, suspect.told(policy)),
                policy,
                load,
                sizes: disk.sizes,
                mix: disk.mix,
                conduct: disk.conduct,
                queued: [0; 2],
                in_flight: 0,
                second: DiskSecond::default(),
                arrival: Nanos::ZERO,
                ideal: Nanos::ZERO,
                late: Vec::new(),
                thinkers: thinkers(Nanos::ZERO, number, load, setup.seed),
                took: Vec::new(),
                times: Vec::new(),
                sent: 0,
                rng: Rng::new(&format!("client {number}"), setup.seed),
            })
            .collect();
        Ok(Run {
            setup,
            suspect,
            now: Nanos::ZERO,
            gate,
            storage: Storage::new(setup, first.rate),
            clients,
            inside: Vec::new(),
            free: Vec::new(),
            mischief: MISCHIEF,
            has_open: setup
                .phases
                .iter()
                .flat_map(|phase| &phase.disks)
                .any(|(_, load)| matches!(load, Load::Open(_) | Load::Thinking { .. })),
            has_hostile: setup.disks.iter().any(|disk| disk.conduct != Conduct::Honest),
            has_writes: setup.disks.iter().any(|disk| disk.mix != Mix::Reads),
            idle: 0.0,
            last: Nanos::ZERO,
            reserved: Reserved::default(),
            record: Record::default(),
        })
    }

    /// Begins a phase.
    fn enter(&mut self, phase: &Phase) -> Result<()> {
        self.storage.set_rate(self.now, phase.rate);
        for (number, &(policy, load)) in phase.disks.iter().enumerate() {
            let now = self.now;
            let Some(client) = self.clients.get_mut(number) else { continue };
            if client.policy != policy {
                client.policy = policy;
                self.gate.set_policy(now, client.id, self.suspect.told(policy))?;
            }
            if client.load != load {
                client.load = load;
                client.arrival = now;
                client.space();
                client.thinkers = thinkers(now, number, load, self.setup.seed);
            }
            self.fill(number)?;
        }
        Ok(())
    }

    /// Runs one second and writes it down.
    fn second(&mut self, phase: usize, into: usize) -> Result<()> {
        let (begin, end) = (self.now, Nanos(self.now.0 + 1_000_000_000));
        for client in &mut self.clients {
            client.second = client.begin();
        }
        self.idle = 0.0;
        self.reserved.rate = self
            .clients
            .iter()
            .filter(|client| client.queued() > 0)
            .filter_map(|client| client.policy.reservation())
            .map(|rate| rate.get() as f64)
            .sum();
        self.dispatch()?;
        loop {
            let at = self.next_event().map_or(end, |at| at.min(end));
            let passed = at.since(self.now).as_secs_f64();
            if self.has_writes {
                self.clients.iter_mut().for_each(|client| client.pass(passed));
            }
            if self.has_room() {
                self.record.chances.push(Chance {
                    at: self.now.as_secs_f64(),
                    until: at.as_secs_f64(),
                    cost: 0.0,
                });
            }
            if self.gate.in_flight() == 0 {
                self.idle += passed - self.setup.stalled(self.now, at);
            }
            self.now = at.max(self.now);
            if self.now >= end {
                break;
            }
            self.complete()?;
            if self.has_open {
                self.arrive()?;
            }
            if self.now >= self.mischief {
                self.mischief = self.now + MISCHIEF;
                self.make_mischief()?;
            }
            self.dispatch()?;
        }
        let disks = self.clients.iter().map(|client| client.second).collect();
        let stalled = self.setup.stalled(begin, end);
        let blocked = match self.gate.in_flight() >= self.setup.window {
            true => end.since(self.last).as_secs_f64(),
            false => 0.0,
        };
        let (idle, late) = (self.idle, self.reserved.late(end));
        let latest = std::mem::take(&mut self.reserved.latest);
        self.record.seconds.push(Second {
            phase,
            into,
            idle,
            stalled,
            blocked,
            late,
            latest,
            disks,
        });
        Ok(())
    }

    /// Whether the window lets more be sent.
    fn has_room(&self) -> bool {
        let has_slots = self.gate.in_flight() < self.setup.window;
        has_slots && self.gate.work_in_flight() < self.gate.work_window()
    }

    fn next_event(&self) -> Option<Nanos> {
        let arrival = |client: &Client| match client.load {
            Load::Open(_) => Some(client.arrival),
            Load::Thinking { .. } => client.thinkers.as_ref()?.next(),
            _ => None,
        };
        let arrivals = match self.has_open {
            true => self.clients.iter().filter_map(arrival).min(),
            false => None,
        };
        let mischief = self.has_hostile.then_some(self.mischief);
        let events = [self.storage.next_event(), self.gate.next_wake(), mischief, arrivals];
        events.into_iter().flatten().min()
    }

    fn complete(&mut self) -> Result<()> {
        while let Some(key) = self.storage.poll(self.now) {
            let key = key as usize;
            let request = *self.inside.get(key).context("the storage invented a request")?;
            self.free.push(key);
            let queued = request.dispatched.since(request.queued);
            let took = Took { queued, device: self.now.since(request.dispatched) };
            self.gate.measure(self.now, request.id, took, request.bytes);
            self.gate.complete(self.now, request.id, request.charged);
            let Some(client) = self.clients.get_mut(request.disk) else { continue };
            client.in_flight = client.in_flight.saturating_sub(1);
            if let Some(thinkers) = &mut client.thinkers {
                thinkers.answered(self.now);
            }
            if client.policy.latency_target().is_some() {
                let whole = self.now.since(request.queued);
                client.took.push((self.now.as_secs_f64(), whole.as_secs_f64()));
            }
            if let Some(deadline) = request.deadline {
                client.late.push(self.now.since(deadline).as_secs_f64());
            }
            self.fill(request.disk)?;
        }
        Ok(())
    }

    /// Open loads, and those that think.
    fn arrive(&mut self) -> Result<()> {
        for number in 0..self.clients.len() {
            while let Some(client) = self.clients.get_mut(number)
                && matches!(client.load, Load::Open(_))
                && client.arrival <= self.now
            {
                let rate = client.policy.reservation().map_or(1, Iops::get);
                client.ideal = client.ideal.max(client.arrival) + Nanos(1_000_000_000 / rate);
                let deadline = Some(client.ideal);
                client.space();
                let direction = client.direction();
                self.send(number, direction, deadline)?;
            }
            while let Some(client) = self.clients.get_mut(number)
                && let Some(thinkers) = &mut client.thinkers
                && thinkers.take(self.now).is_some()
            {
                let direction = client.direction();
                self.send(number, direction, None)?;
            }
        }
        Ok(())
    }

    /// Closed loads.
    fn fill(&mut self, disk: usize) -> Result<()> {
        while let Some(direction) = self.clients.get_mut(disk).and_then(Client::lacks) {
            self.send(disk, direction, None)?;
        }
        Ok(())
    }

    fn send(&mut self, disk: usize, direction: Direction, deadline: Option<Nanos>) -> Result<()> {
        let Some(client) = self.clients.get_mut(disk) else { return Ok(()) };
        let bytes = client.size();
        let priority = match client.conduct {
            Conduct::FloodsPriorities => Priority::new(client.sent % 254 + 1).ok(),
            _ => None,
        };
        client.sent += 1;
        client.queued[at(direction)] += 1;
        let kind = match direction {
            Direction::Read => IoKind::Read,
            Direction::Write => IoKind::Write,
        };
        let io = Io { bytes, priority, kind, ..Io::default() };
        let cost = self.setup.cost(bytes);
        let (id, queued) = (client.id, self.now);
        let (dispatched, charged) = (queued, Cost::default());
        let request =
            Request { disk, id, direction, bytes, cost, charged, deadline, queued, dispatched };
        self.gate.enqueue(self.now, client.id, io, request).map_err(|error| error.reason)?;
        Ok(())
    }

    fn dispatch(&mut self) -> Result<()> {
        while self.gate.is_due(self.now) {
            let Decision::Dispatch(dispatched) = self.gate.next(self.now) else { break };
            let (id, charged) = (dispatched.disk, dispatched.cost);
            let request = Request { id, charged, dispatched: self.now, ..dispatched.request };
            let key = self.free.pop().unwrap_or(self.inside.len());
            match self.inside.get_mut(key) {
                Some(place) => *place = request,
                None => self.inside.push(request),
            }
            let now = self.now.as_secs_f64();
            self.record.chances.push(Chance { at: now, until: now, cost: request.cost });
            self.last = self.now;
            self.reserved.serve(self.now, request.cost);
            self.storage.submit(self.now, key as u64, request.bytes, request.cost);
            let Some(client) = self.clients.get_mut(request.disk) else { continue };
            let lane = at(request.direction);
            if client.policy.limits_directions() {
                client.times.push(Sent { at: now, queued: client.queued });
            }
            client.queued[lane] = client.queued[lane].saturating_sub(1);
            client.in_flight += 1;
            client.second.cost += request.cost;
            client.second.lanes[lane] += request.cost;
            self.fill(request.disk)?;
            if let Some(client) = self.clients.get_mut(request.disk) {
                client.second.emptied |= client.queued() == 0;
            }
        }
        Ok(())
    }

    fn make_mischief(&mut self) -> Result<()> {
        for number in 0..self.clients.len() {
            let now = self.now;
            let Some(client) = self.clients.get_mut(number) else { continue };
            if client.load == Load::Idle {
                continue;
            }
            match client.conduct {
                Conduct::Honest | Conduct::FloodsPriorities => {}
                Conduct::Extracts => {
                    for request in self.gate.extract(now, client.id, &mut |_| true)? {
                        client.queued[at(request.direction)] -= 1;
                    }
                    self.fill(number)?;
                }
                Conduct::Registers => {
                    self.gate.unregister(now, client.id)?;
                    client.id = self.gate.register(now, self.suspect.told(client.policy));
                    client.queued = [0; 2];
                    client.second.registered += 1;
                    self.fill(number)?;
                }
                Conduct::SetsPolicy => {
                    let burst = if client.rng.chance(0.5) { Burst::NONE } else { Burst::MAX };
                    let policy = self.suspect.told(client.policy).with_burst(burst);
                    self.gate.set_policy(now, client.id, policy)?;
                }
                Conduct::Flaps => {
                    self.gate.extract(now, client.id, &mut |_| true)?;
                    client.queued = [0; 2];
                    client.second.emptied = true;
                    if client.rng.chance(0.7) {
                        self.fill(number)?;
                    }
                }
            }
        }
        Ok(())
    }
}
