//! Disks that keep requests outstanding at a gate in front of a device whose costs are known.

use headgate_qos::window::Slots;
use headgate_qos::{
    AnyScheduler, Config, Cost, CostModel, Decision, DiskId, Gate, Io, IoKind, LearnedCosts,
    Policy, SchedulerKind,
};
use headgate_units::{Bytes, Nanos};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

pub const SECOND: u64 = 1_000_000_000;

/// A small random number generator: the tests' own.
pub struct Dice(pub u64);

impl Dice {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn unit(&mut self) -> f64 {
        ((self.next() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// Exponential with mean one.
    pub fn exponential(&mut self) -> f64 {
        -self.unit().ln()
    }
}

/// What a disk sends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    pub outstanding: u32,
    pub kib: u64,
    pub write: bool,
    pub sequential: bool,
}

impl Load {
    pub const fn reads(outstanding: u32, kib: u64) -> Load {
        Load { outstanding, kib, write: false, sequential: false }
    }

    pub const fn writes(outstanding: u32, kib: u64) -> Load {
        Load { write: true, ..Load::reads(outstanding, kib) }
    }

    pub const fn in_order(self) -> Load {
        Load { sequential: true, ..self }
    }
}

/// What a request is, and when it came.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub disk: usize,
    pub io: Io,
    pub sequential: bool,
    /// What it was charged.
    pub cost: Cost,
}

type Mean = dyn Fn(&Request, u64) -> f64;

/// Service times: the device is one server, first come, first served.
pub struct Device {
    /// Nanoseconds that a request takes on the average, as of now.
    pub mean: Box<Mean>,
    pub random: bool,
    /// It stands still for so long once in so many nanoseconds.
    pub stall: Option<(u64, u64)>,
    pub dice: Dice,
}

impl Device {
    pub fn new(mean: impl Fn(&Request, u64) -> f64 + 'static) -> Device {
        Device {
            mean: Box::new(mean),
            random: true,
            stall: None,
            dice: Dice(88_172_645_463_325_252),
        }
    }
}

pub fn is_write(request: &Request) -> bool {
    request.io.kind == IoKind::Write
}

/// Costs per class: microseconds for a request and for each KiB.
pub fn affine(read: (f64, f64), write: (f64, f64)) -> impl Fn(&Request, u64) -> f64 {
    move |request, _| {
        let (each, per_kib) = if is_write(request) { write } else { read };
        let each = if request.sequential { each / 20.0 } else { each };
        1_000.0 * (each + per_kib * request.io.bytes.0 as f64 / 1_024.0)
    }
}

pub struct Bench {
    pub gate: Gate<Request>,
    pub disks: Vec<DiskId>,
    pub loads: Vec<Load>,
    positions: Vec<u64>,
    device: Device,
    /// Waiting at the device.
    waiting: VecDeque<Request>,
    serving: Option<(Request, u64)>,
    pub now: u64,
    /// Device time that each disk got, in nanoseconds, and requests.
    pub got: Vec<u64>,
    pub done: Vec<u64>,
    outstanding: Vec<u32>,
    timers: BinaryHeap<Reverse<u64>>,
    stalled_until: u64,
    next_stall: u64,
}

impl Bench {
    pub fn new(model: &str, window: u32, device: Device, loads: &[Load]) -> Bench {
        let config = Config::for_hosts(model.parse::<CostModel>().unwrap());
        let scheduler = AnyScheduler::new(SchedulerKind::MClock, config).unwrap();
        let mut gate = Gate::new(Nanos::ZERO, scheduler, Slots::whole(window));
        let disks = loads.iter().map(|_| gate.register(Nanos::ZERO, Policy::default())).collect();
        let count = loads.len();
        let next_stall = device.stall.map_or(u64::MAX, |(_, every)| every);
        Bench {
            gate,
            disks,
            loads: loads.to_vec(),
            positions: vec![0; count],
            device,
            waiting: VecDeque::new(),
            serving: None,
            now: 0,
            got: vec![0; count],
            done: vec![0; count],
            outstanding: vec![0; count],
            timers: BinaryHeap::new(),
            stalled_until: 0,
            next_stall,
        }
    }

    fn fill(&mut self) {
        for disk in 0..self.loads.len() {
            while self.outstanding[disk] < self.loads[disk].outstanding {
                let load = self.loads[disk];
                let bytes = load.kib << 10;
                if load.sequential {
                    self.positions[disk] += bytes;
                } else {
                    self.positions[disk] = self.device.dice.next() >> 24 << 12;
                }
                let io = Io {
                    bytes: Bytes(bytes),
                    position: self.positions[disk],
                    kind: if load.write { IoKind::Write } else { IoKind::Read },
                    ..Io::default()
                };
                let sequential = load.sequential;
                let request = Request { disk, io, sequential, cost: Cost::default() };
                self.gate.enqueue(Nanos(self.now), self.disks[disk], io, request).unwrap();
                self.outstanding[disk] += 1;
            }
        }
    }

    fn ask(&mut self) {
        let now = Nanos(self.now);
        while self.gate.is_due(now) {
            match self.gate.next(now) {
                Decision::Dispatch(sent) => {
                    self.waiting.push_back(Request { cost: sent.cost, ..sent.request });
                }
                Decision::WaitUntil(at) => self.timers.push(Reverse(at.0)),
                Decision::Idle => {}
            }
        }
    }

    fn serve(&mut self) {
        if self.serving.is_some() {
            return;
        }
        let Some(request) = self.waiting.pop_front() else { return };
        let mean = (self.device.mean)(&request, self.now);
        let factor = if self.device.random { self.device.dice.exponential() } else { 1.0 };
        let takes = (mean * factor).max(1.0) as u64;
        self.got[request.disk] += takes;
        if self.now >= self.next_stall {
            let (long, every) = self.device.stall.unwrap();
            self.stalled_until = self.now + long;
            self.next_stall += every;
        }
        let start = self.now.max(self.stalled_until);
        self.serving = Some((request, start + takes));
    }

    /// Runs for so many seconds and returns what each disk got of the device's time in them, in
    /// thousandths.
    pub fn run(&mut self, seconds: u64) -> Vec<u64> {
        let before = self.got.clone();
        let end = self.now + seconds * SECOND;
        while self.now < end {
            self.fill();
            self.ask();
            self.serve();
            let timer = self.timers.peek().map_or(u64::MAX, |at| at.0);
            let done = self.serving.map_or(u64::MAX, |(_, at)| at);
            self.now = timer.min(done).max(self.now).min(end);
            while self.timers.peek().is_some_and(|at| at.0 <= self.now) {
                self.timers.pop();
            }
            if done <= self.now {
                let (request, _) = self.serving.take().unwrap();
                self.outstanding[request.disk] -= 1;
                self.done[request.disk] += 1;
                self.gate.complete(Nanos(self.now), self.disks[request.disk], request.cost);
            }
        }
        let got: Vec<u64> = self.got.iter().zip(&before).map(|(now, then)| now - then).collect();
        let all = got.iter().sum::<u64>().max(1);
        got.iter().map(|one| one * 1_000 / all).collect()
    }

    pub fn costs(&self) -> LearnedCosts {
        self.gate.learned_costs().unwrap()
    }
}
