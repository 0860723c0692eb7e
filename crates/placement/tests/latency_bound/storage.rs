//! Storage in virtual time, and what is recorded of it.

use crate::dice::Dice;
use headgate_devices::{DEFAULT_CAPACITY, DeviceIo, DeviceModel, IoKind, ModelSpec};
use headgate_placement::Outstanding;
use headgate_placement::latency_bound::{Beside, ServiceMeter, ServiceRecord, Work};
use headgate_stats::{DiskStats, Latency, LatencyHistogram, Op, Outcome, Phase};
use headgate_units::{Bytes, Nanos};
use std::collections::{HashMap, VecDeque};

/// Storage as a set-up has it.
#[derive(Clone, Debug)]
pub enum Kind {
    /// A device model's text, without its seed.
    Model(String),
    /// One server that takes as long as a request costs: so many reference IOs per second.
    Sized(u64),
}

impl Kind {
    pub fn build(&self, seed: u64) -> Box<dyn DeviceModel> {
        match self {
            Kind::Model(text) => {
                let seeded = text.replace("SEED", &seed.to_string());
                seeded.parse::<ModelSpec>().unwrap().build(DEFAULT_CAPACITY)
            }
            Kind::Sized(rate) => Box::new(Sized::new(*rate)),
        }
    }
}

impl Kind {
    /// From one stall to the next; nothing where there are none.
    pub fn period(&self) -> Nanos {
        let Kind::Model(text) = self else { return Nanos::ZERO };
        let stall = text.split_once("stall=").and_then(|(_, stall)| stall.split_once('/'));
        stall.map_or(Nanos::ZERO, |(_, period)| period.parse().unwrap())
    }
}

/// One server, first come, first served; a request of 4 KiB is one reference IO.
struct Sized {
    rate: u64,
    free: Nanos,
    inside: VecDeque<(Nanos, u64)>,
}

impl Sized {
    fn new(rate: u64) -> Sized {
        Sized { rate, free: Nanos::ZERO, inside: VecDeque::new() }
    }
}

/// What a request of this size costs, in reference IOs: chunks of 4 KiB.
pub fn cost(bytes: Bytes) -> f64 {
    (bytes.0 as f64 / 4_096.0).max(1.0)
}

impl DeviceModel for Sized {
    fn submit(&mut self, now: Nanos, id: u64, io: DeviceIo) {
        let time = cost(io.bytes) / self.rate as f64 * 1e9;
        self.free = self.free.max(now) + Nanos(time as u64);
        self.inside.push_back((self.free, id));
    }

    fn next_event(&self) -> Option<Nanos> {
        self.inside.front().map(|&(at, _)| at)
    }

    fn poll(&mut self, now: Nanos) -> Option<u64> {
        self.next_event().filter(|&at| at <= now)?;
        self.inside.pop_front().map(|(_, id)| id)
    }

    fn in_flight(&self) -> usize {
        self.inside.len()
    }
}

/// A read of so many bytes anywhere.
pub fn read(dice: &mut Dice, bytes: Bytes) -> DeviceIo {
    let offset = dice.within(0, DEFAULT_CAPACITY.0 / 8_192) * 4_096;
    DeviceIo { kind: IoKind::Read, offset, bytes }
}

/// How requests come to storage that is recorded.
#[derive(Clone, Copy, Debug)]
pub enum Asked {
    /// So many are kept in it.
    Kept(u64),
    /// One after a pause, again and again: pauses of this time to twice as much.
    Paused(Nanos),
}

/// What a datastore's statistics, taken once a second, make of a time in which the storage was
/// asked now and then at random, and of one in which so many requests were kept in it.
pub fn metered(kind: &Kind, seed: u64, depth: u64, requests: u64, rate: f64) -> ServiceMeter {
    let (mut device, mut dice) = (kind.build(seed), Dice::new(seed));
    let mut stats = DiskStats::new(Nanos::ZERO);
    let mut meter = ServiceMeter::new();
    let mut inside: HashMap<u64, Nanos> = HashMap::new();
    let (mut now, mut next) = (Nanos::ZERO, 0);
    let (mut arrival, mut second) = (Nanos::ZERO, Nanos::from_secs(1));
    let mut before = stats.snapshot(now);
    while next < 2 * requests {
        let light = next < requests;
        let waits = if light { arrival <= now } else { inside.len() < depth as usize };
        if waits {
            let io = read(&mut dice, Bytes(4_096));
            stats.on_arrival(now, Op::Read, io.offset, io.bytes);
            stats.on_dispatch(now, Op::Read, Nanos::ZERO, Phase::Weight, 1_000_000);
            device.submit(now, next, io);
            inside.insert(next, now);
            next += 1;
            arrival = now + dice.exponential(rate);
            continue;
        }
        let arrives = light.then_some(arrival);
        let events = [device.next_event(), arrives, Some(second)];
        now = events.into_iter().flatten().min().unwrap().max(now);
        while let Some(id) = device.poll(now) {
            let device = now.since(inside.remove(&id).unwrap());
            let latency = Latency { device, total: device };
            stats.on_complete(now, Op::Read, Bytes(4_096), latency, Outcome::Done);
        }
        if now >= second {
            let snapshot = stats.snapshot(now);
            meter.record(Nanos::from_secs(1), &snapshot.difference(&before));
            (before, second) = (snapshot, second + Nanos::from_secs(1));
        }
    }
    meter
}

/// Records so many requests. They are of the sizes given, in turn.
pub fn record(
    kind: &Kind,
    seed: u64,
    asked: Asked,
    requests: u64,
    sizes: &[Bytes],
) -> ServiceRecord {
    let (mut device, mut dice) = (kind.build(seed), Dice::new(seed));
    let mut times = LatencyHistogram::new();
    let mut inside: HashMap<u64, Nanos> = HashMap::new();
    let (mut now, mut next, mut work) = (Nanos::ZERO, 0, 0.0);
    let depth = match asked {
        Asked::Kept(depth) => depth,
        Asked::Paused(_) => 1,
    };
    while next < requests {
        while inside.len() < depth as usize {
            if let Asked::Paused(pause) = asked {
                now += Nanos(dice.within(pause.0, 2 * pause.0));
            }
            let bytes = sizes[next as usize % sizes.len()];
            work += cost(bytes);
            device.submit(now, next, read(&mut dice, bytes));
            inside.insert(next, now);
            next += 1;
        }
        now = device.next_event().unwrap().max(now);
        while let Some(id) = device.poll(now) {
            times.record(now.since(inside.remove(&id).unwrap()));
        }
    }
    let beside = match asked {
        Asked::Kept(depth) => Beside::Mean(Outstanding::whole(depth as u32)),
        Asked::Paused(_) => {
            let largest = sizes.iter().map(|&bytes| cost(bytes)).fold(0.0, f64::max);
            Beside::Idle(Work::from_millionths((largest * 1e6) as u64))
        }
    };
    let mean = Work::from_millionths((work / next as f64 * 1e6) as u64);
    ServiceRecord::new(beside, mean, times.snapshot().buckets()).unwrap()
}
