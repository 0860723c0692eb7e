//! Clients that keep requests outstanding on an array, in virtual time, under the statistics that
//! the daemon keeps.

use headgate_devices::{ArraySpec, DeviceIo, DeviceModel, IoKind, SpindleArray};
use headgate_placement::{Outstanding, Permille, WorkloadProfile};
use headgate_stats::{DiskSnapshot, DiskStats, Interval, Latency, Op, Outcome};
use headgate_units::{Bytes, Nanos};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// A generator of scattered numbers.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0xA076_1D64_78BD_642F) ^ 0x5851_F42D_4C95_7F2D)
    }

    /// 0 to `n` - 1.
    pub fn roll(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % n
    }
}

/// What a client does, as Iometer has it: per cent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Work {
    pub outstanding: u32,
    pub kib: u32,
    pub read: u32,
    pub random: u32,
    /// From an answer to the next request in its stead.
    pub think: Nanos,
}

impl Work {
    pub fn profile(&self) -> WorkloadProfile {
        WorkloadProfile {
            outstanding: Outstanding::whole(self.outstanding),
            size: Bytes::from_kib(self.kib.into()),
            read: Permille(self.read * 10),
            random: Permille(self.random * 10),
        }
    }
}

struct Client {
    work: Work,
    /// First byte and length of its disk.
    extent: (u64, u64),
    cursor: u64,
    dice: Dice,
    in_flight: u32,
    stats: DiskStats,
}

struct InFlight {
    client: usize,
    op: Op,
    bytes: Bytes,
    since: Nanos,
}

/// An array with clients.
pub struct Rig {
    device: SpindleArray,
    clients: Vec<Client>,
    stats: DiskStats,
    in_flight: HashMap<u64, InFlight>,
    next_id: u64,
    now: Nanos,
    /// Clients that think, until when.
    thinking: BinaryHeap<Reverse<(Nanos, usize)>>,
}

pub const GIB: u64 = 1 << 30;
/// Of the arrays of the paper's rig.
pub const CAPACITY: u64 = 150 * GIB;

impl Rig {
    pub fn new(spec: &ArraySpec, capacity: u64) -> Rig {
        Rig {
            device: SpindleArray::new(spec, Bytes(capacity)),
            clients: Vec::new(),
            stats: DiskStats::new(Nanos::ZERO),
            in_flight: HashMap::new(),
            next_id: 0,
            now: Nanos::ZERO,
            thinking: BinaryHeap::new(),
        }
    }

    /// A client with a disk of its own.
    pub fn add(&mut self, work: Work, extent: (u64, u64), seed: u64) {
        self.clients.push(Client {
            work,
            extent,
            cursor: 0,
            dice: Dice::new(seed),
            in_flight: 0,
            stats: DiskStats::new(self.now),
        });
        self.top_up(self.clients.len() - 1);
    }

    /// From now on it keeps so many outstanding; those beyond complete.
    pub fn set_outstanding(&mut self, client: usize, outstanding: u32) {
        self.clients[client].work.outstanding = outstanding;
        self.top_up(client);
    }

    /// One request more than it keeps outstanding.
    pub fn issue_one(&mut self, client: usize) {
        self.issue(client);
    }

    fn top_up(&mut self, client: usize) {
        while self.clients[client].in_flight < self.clients[client].work.outstanding {
            self.issue(client);
        }
    }

    fn issue(&mut self, index: usize) {
        let client = &mut self.clients[index];
        let size = u64::from(client.work.kib) << 10;
        let places = client.extent.1 / size;
        let at = if client.dice.roll(100) < u64::from(client.work.random) {
            client.dice.roll(places)
        } else {
            client.cursor
        };
        client.cursor = (at + 1) % places;
        let offset = client.extent.0 + at * size;
        let read = client.dice.roll(100) < u64::from(client.work.read);
        let (kind, op) = if read { (IoKind::Read, Op::Read) } else { (IoKind::Write, Op::Write) };
        let bytes = Bytes(size);
        client.in_flight += 1;
        client.stats.on_arrival(self.now, op, offset, bytes);
        self.stats.on_arrival(self.now, op, offset, bytes);
        self.device.submit(self.now, self.next_id, DeviceIo { kind, offset, bytes });
        self.in_flight.insert(self.next_id, InFlight { client: index, op, bytes, since: self.now });
        self.next_id += 1;
    }

    pub fn run(&mut self, length: Nanos) {
        let end = self.now + length;
        loop {
            let thought = self.thinking.peek().map(|Reverse((until, _))| *until);
            let next = self.device.next_event().into_iter().chain(thought).min();
            let Some(next) = next.filter(|&next| next <= end) else { break };
            self.now = self.now.max(next);
            while let Some(&Reverse((_, client))) =
                self.thinking.peek().filter(|Reverse((until, _))| *until <= self.now)
            {
                self.thinking.pop();
                self.clients[client].in_flight -= 1;
                self.top_up(client);
            }
            while let Some(id) = self.device.poll(self.now) {
                let InFlight { client, op, bytes, since } =
                    self.in_flight.remove(&id).expect("was submitted");
                let took = self.now - since;
                let latency = Latency { device: took, total: took };
                self.clients[client].stats.on_complete(self.now, op, bytes, latency, Outcome::Done);
                self.stats.on_complete(self.now, op, bytes, latency, Outcome::Done);
                let think = self.clients[client].work.think;
                if think > Nanos::ZERO {
                    let part = self.clients[client].dice.roll(2 * think.0);
                    self.thinking.push(Reverse((self.now + Nanos(part), client)));
                } else {
                    self.clients[client].in_flight -= 1;
                    self.top_up(client);
                }
            }
        }
        self.now = end;
    }

    pub fn snapshot(&self) -> DiskSnapshot {
        self.stats.snapshot(self.now)
    }

    pub fn client_snapshot(&self, client: usize) -> DiskSnapshot {
        self.clients[client].stats.snapshot(self.now)
    }

    /// What the array did in so much time.
    pub fn measure(&mut self, length: Nanos) -> Interval {
        let before = self.snapshot();
        self.run(length);
        self.snapshot().since(&before)
    }
}

/// Mean latency of reads and writes, weighted by requests.
pub fn mean_latency(interval: &Interval) -> f64 {
    let of = |flow: &headgate_stats::Flow| {
        flow.device.map_or(0.0, |latency| latency.mean.0 as f64) * flow.iops
    };
    (of(&interval.reads) + of(&interval.writes)) / (interval.reads.iops + interval.writes.iops)
}

/// One client alone on an array: its mean latency, after it has run for a second.
pub fn alone(spec: &ArraySpec, work: Work, extent: u64, length: Nanos) -> Interval {
    let mut rig = Rig::new(spec, CAPACITY);
    rig.add(work, (0, extent), 1);
    rig.run(Nanos::from_secs(1));
    rig.measure(length)
}

/// Least squares: slope, and the part of the variance that the line explains.
pub fn line(points: &[(f64, f64)]) -> (f64, f64) {
    let n = points.len() as f64;
    let (x, y) =
        (points.iter().map(|p| p.0).sum::<f64>() / n, points.iter().map(|p| p.1).sum::<f64>() / n);
    let sum = |f: fn(f64, f64) -> f64| points.iter().map(|p| f(p.0 - x, p.1 - y)).sum::<f64>();
    let (xx, xy, yy) = (sum(|x, _| x * x), sum(|x, y| x * y), sum(|_, y| y * y));
    (xy / xx, xy * xy / xx / yy)
}

pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The value below which so many per cent are.
pub fn percentile(values: &[f64], percent: usize) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[(sorted.len() * percent / 100).min(sorted.len() - 1)]
}
