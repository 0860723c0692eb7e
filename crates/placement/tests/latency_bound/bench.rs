//! Clients, the gate and storage in virtual time.

use crate::dice::Dice;
use crate::storage::{Kind, cost, read};
use headgate_devices::DeviceModel;
use headgate_placement::latency_bound::{BurstMeter, Work};
use headgate_qos::window::Slots;
use headgate_qos::{
    AnyScheduler, Config, Cost, CostModel, Decision, DiskId, Gate, Io, Narrow, Policy,
    SchedulerKind,
};
use headgate_units::{Bytes, Iops, Nanos, Shares};

/// What a client does.
#[derive(Clone, Copy, Debug)]
pub enum Load {
    /// Nothing.
    Idle,
    /// Keeps so many outstanding.
    Closed(u32),
    /// So many per second at random.
    Poisson(f64),
    /// So many per second, evenly.
    Even(f64),
    /// So many per second in batches of so many.
    Batches(f64, u32),
    /// At random at the first rate for a second, then at the second one, and so on.
    Tides(f64, f64),
    /// Keeps one outstanding for so long, then so many for as long as the last number says.
    Trickle(Nanos, u32, Nanos),
}

/// A disk of a set-up. Those without shares of their own have 1,000.
#[derive(Clone, Copy, Debug)]
pub struct Disk {
    pub reservation: Option<u64>,
    pub shares: u64,
    pub load: Load,
    pub bytes: Bytes,
}

impl Disk {
    fn policy(&self) -> Policy {
        let shares = Policy::default().with_shares(Shares::new(self.shares).unwrap());
        let reservation = self.reservation.map(|rate| Iops::new(rate).unwrap());
        shares.with_reservation(reservation).unwrap()
    }
}

/// Which window a run has.
#[derive(Clone, Copy, Debug)]
pub enum Window {
    Fixed(u32),
    /// Narrowed for reservations as hosts do.
    Narrowed(u32),
}

/// An open load's arrivals.
struct Arrivals {
    load: Load,
    at: Nanos,
    left: u32,
    dice: Dice,
}

impl Arrivals {
    fn new(load: Load, seed: u64) -> Arrivals {
        let mut arrivals = Arrivals { load, at: Nanos::ZERO, left: 0, dice: Dice::new(seed) };
        arrivals.step();
        arrivals
    }

    /// Moves on to the next arrival, if there are any.
    fn step(&mut self) {
        let even = |rate: f64| Nanos((1e9 / rate) as u64);
        self.at = match self.load {
            Load::Idle | Load::Closed(_) | Load::Trickle(..) => Nanos::MAX,
            Load::Poisson(rate) => self.at + self.dice.exponential(rate),
            Load::Even(rate) => self.at + even(rate),
            Load::Tides(low, high) => {
                let rate = if (self.at.0 / 1_000_000_000).is_multiple_of(2) { low } else { high };
                self.at + self.dice.exponential(rate)
            }
            Load::Batches(rate, size) => {
                self.left = self.left.checked_sub(1).unwrap_or(size - 1);
                let gap = self.dice.exponential(rate / f64::from(size));
                if self.left == size - 1 { self.at + gap } else { self.at }
            }
        };
    }
}

/// What is recorded of a disk's arrivals over so many requests; `None` for closed loads.
pub fn bursts(disk: &Disk, seed: u64, requests: u64) -> Option<BurstMeter> {
    let rate = Iops::new(disk.reservation?).unwrap();
    let mut arrivals = Arrivals::new(disk.load, seed);
    let mut meter = BurstMeter::new(Nanos::ZERO, rate);
    if arrivals.at == Nanos::MAX {
        return None;
    }
    for _ in 0..requests {
        meter.arrived(arrivals.at, Work::from_millionths((cost(disk.bytes) * 1e6) as u64));
        arrivals.step();
    }
    Some(meter)
}

#[derive(Clone, Copy)]
struct Request {
    disk: usize,
    arrived: Nanos,
    charged: Cost,
}

struct Client {
    id: DiskId,
    disk: Disk,
    arrivals: Arrivals,
    outstanding: u32,
}

/// A run under way.
pub struct Bench {
    now: Nanos,
    gate: Gate<Request>,
    device: Box<dyn DeviceModel>,
    clients: Vec<Client>,
    inside: Vec<Request>,
    free: Vec<usize>,
    dice: Dice,
    latencies: Vec<u64>,
}

/// When a trickling client changes its mind, after `now`.
fn turn(load: Load, now: Nanos) -> Nanos {
    let Load::Trickle(quiet, _, burst) = load else { return Nanos::MAX };
    let whole = quiet.0 + burst.0;
    let into = now.0 % whole;
    Nanos(now.0 - into + if into < quiet.0 { quiet.0 } else { whole })
}

impl Bench {
    pub fn new(kind: &Kind, disks: &[Disk], window: Window, seed: u64) -> Bench {
        let (size, narrow) = match window {
            Window::Fixed(size) => (size, Narrow::Never),
            Window::Narrowed(size) => (size, Narrow::ForReservations),
        };
        let cost_model = CostModel::Chunks { reference: Bytes(4_096) };
        let config = Config { narrow, ..Config::for_hosts(cost_model) };
        let scheduler = AnyScheduler::new(SchedulerKind::MClock, config).unwrap();
        let mut gate = Gate::new(Nanos::ZERO, scheduler, Slots::whole(size));
        let clients = disks
            .iter()
            .enumerate()
            .map(|(number, disk)| Client {
                id: gate.register(Nanos::ZERO, disk.policy()),
                disk: *disk,
                arrivals: Arrivals::new(disk.load, seed + 1 + number as u64),
                outstanding: 0,
            })
            .collect();
        Bench {
            now: Nanos::ZERO,
            gate,
            device: kind.build(seed),
            clients,
            inside: Vec::new(),
            free: Vec::new(),
            dice: Dice::new(seed),
            latencies: Vec::new(),
        }
    }

    /// Latencies of disk 0 in the order of completion: of so many requests after the first
    /// fiftieth, and of this time at least. Fewer where two hours pass before.
    pub fn run(mut self, requests: usize, least: Nanos) -> Vec<u64> {
        let skipped = requests / 50;
        let end = Nanos::from_secs(7_200).max(least);
        (0..self.clients.len()).for_each(|number| self.fill(number));
        self.dispatch();
        while (self.latencies.len() < requests + skipped || self.now < least) && self.now < end {
            self.now = self.next_event().max(self.now);
            self.complete();
            self.arrive();
            self.dispatch();
        }
        self.latencies.split_off(skipped.min(self.latencies.len()))
    }

    fn next_event(&self) -> Nanos {
        let clients = self.clients.iter();
        let arrivals = clients.map(|c| c.arrivals.at.min(turn(c.disk.load, self.now)));
        let events = [self.device.next_event(), self.gate.next_wake(), arrivals.min()];
        events.into_iter().flatten().min().unwrap()
    }

    fn depth(&self, load: Load) -> u32 {
        match load {
            Load::Closed(depth) => depth,
            Load::Trickle(quiet, depth, burst) => {
                let into = self.now.0 % (quiet.0 + burst.0);
                if into < quiet.0 { 1 } else { depth }
            }
            _ => 0,
        }
    }

    fn fill(&mut self, number: usize) {
        while self.clients[number].outstanding < self.depth(self.clients[number].disk.load) {
            self.send(number);
        }
    }

    fn arrive(&mut self) {
        for number in 0..self.clients.len() {
            self.fill(number);
            while self.clients[number].arrivals.at <= self.now {
                self.send(number);
                self.clients[number].arrivals.step();
            }
        }
    }

    fn send(&mut self, number: usize) {
        let client = &mut self.clients[number];
        client.outstanding += 1;
        let io = Io { bytes: client.disk.bytes, ..Io::default() };
        let request = Request { disk: number, arrived: self.now, charged: Cost::default() };
        self.gate.enqueue(self.now, client.id, io, request).ok().unwrap();
    }

    fn complete(&mut self) {
        while let Some(key) = self.device.poll(self.now) {
            let request = self.inside[key as usize];
            self.free.push(key as usize);
            if request.disk == 0 {
                self.latencies.push(self.now.since(request.arrived).0);
            }
            self.clients[request.disk].outstanding -= 1;
            self.gate.complete(self.now, self.clients[request.disk].id, request.charged);
            self.fill(request.disk);
        }
    }

    fn dispatch(&mut self) {
        while self.gate.is_due(self.now) {
            let Decision::Dispatch(sent) = self.gate.next(self.now) else { break };
            let key = self.free.pop().unwrap_or(self.inside.len());
            let request = Request { charged: sent.cost, ..sent.request };
            match self.inside.get_mut(key) {
                Some(place) => *place = request,
                None => self.inside.push(request),
            }
            let bytes = self.clients[sent.request.disk].disk.bytes;
            let io = read(&mut self.dice, bytes);
            self.device.submit(self.now, key as u64, io);
        }
    }
}
