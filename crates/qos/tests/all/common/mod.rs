//! A closed loop in simulated time: clients that keep requests outstanding, a window, a device of
//! known rate.

pub mod cluster;
pub mod totals;

use headgate_qos::{
    AnyScheduler, Config, CostModel, Decision, DiskId, Io, IoKind, LimitMode, Phase, Policy,
    PriorityPolicy, PriorityScope, Scheduler, SchedulerKind,
};
use headgate_units::{Bytes, Iops, Nanos, Priority, Shares};
use proptest::test_runner::{Config as Cases, FileFailurePersistence};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

pub const SECOND: Nanos = Nanos(1_000_000_000);

pub fn secs(n: u64) -> Nanos {
    Nanos::from_secs(n)
}

pub fn millis(n: u64) -> Nanos {
    Nanos::from_millis(n)
}

/// Shares, reservation (0: none), limit (0: none).
pub fn policy(shares: u64, reservation: u64, limit: u64) -> Policy {
    Policy::shared(Shares::new(shares).unwrap())
        .with_limit(Iops::new(limit).ok())
        .unwrap()
        .with_reservation(Iops::new(reservation).ok())
        .unwrap()
}

/// Costs of one per request.
pub fn unit() -> Config {
    Config { cost_model: CostModel::Unit, ..Config::default() }
}

/// So many cases of a property, or as many as `PROPTEST_CASES` says. A failure prints its seed and
/// keeps it in a file beside the test, from which the next run replays it.
pub fn cases(few: u32) -> Cases {
    let said = std::env::var("PROPTEST_CASES").ok();
    let cases = said.map_or(few, |n| n.parse().expect("PROPTEST_CASES is a number"));
    let kept = FileFailurePersistence::WithSource("regressions");
    Cases { cases, failure_persistence: Some(Box::new(kept)), ..Cases::default() }
}

/// Knuth's MMIX generator; its upper bits are good.
#[derive(Clone, Copy, Debug)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        let mut dice = Dice(seed ^ 0x9e37_79b9_7f4a_7c15);
        dice.below(2);
        dice
    }

    /// One of 0 to n - 1.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((u128::from(self.0 >> 16) * u128::from(n)) >> 48) as u64
    }
}

impl Dice {
    /// Above 0, up to 1.
    pub fn part(&mut self) -> f64 {
        (self.below(1 << 40) + 1) as f64 / (1u64 << 40) as f64
    }
}

/// The most that any window of so long holds.
pub fn most_within(times: &[Nanos], window: Nanos) -> u64 {
    let (mut from, mut most) = (0, 0);
    for (to, end) in times.iter().enumerate() {
        while times[from] + window <= *end {
            from += 1;
        }
        most = most.max(to - from + 1);
    }
    most as u64
}

/// How a client asks.
#[derive(Clone, Copy, Debug)]
pub enum Client {
    /// Keeps so many requests outstanding.
    Closed { outstanding: usize },
    /// Sends so many requests at once, every so often.
    Bursts { requests: usize, every: Nanos },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Complete { client: usize, sent: Nanos },
    Burst { client: usize },
    Wake,
}

struct Load {
    disk: DiskId,
    client: Client,
    bytes: u64,
    kind: IoKind,
    priority: Option<Priority>,
    running: bool,
    outstanding: usize,
    served: u64,
    latency: Nanos,
    /// Times of all dispatches and completions.
    dispatches: Vec<Nanos>,
    completions: Vec<Nanos>,
    /// Those of the dispatches at which another disk that has no limit had requests queued.
    contested: Vec<Nanos>,
}

/// A request: who sent it and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tagged {
    client: usize,
    sent: Nanos,
}

/// How service times vary, where they do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Between nothing and twice the mean.
    Uniform,
    Exponential,
    /// Bounded, shape 1.5: up to some hundred times the mean.
    Pareto,
}

/// A device that serves so many requests per second, one after another, each in its own time slot
/// of `1/rate`, with a window in front that lets `window` of them in.
pub struct Bench {
    pub scheduler: AnyScheduler<Tagged>,
    pub now: Nanos,
    loads: Vec<Load>,
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    sequence: u64,
    window: usize,
    /// Whether requests may wait for better ones.
    plugged: bool,
    in_flight: usize,
    rate: u64,
    /// When the device is free, in units of 1 / rate nanoseconds modulo, kept exact.
    device_free: Nanos,
    device_rest: u64,
    wake: Nanos,
    /// Varies service times, when they vary.
    jitter: Option<Dice>,
    service: Service,
    /// Timers are late by up to so much.
    late: Nanos,
    dice: Dice,
}

impl Bench {
    pub fn new(kind: SchedulerKind, config: Config, rate: u64) -> Bench {
        Bench {
            scheduler: AnyScheduler::new(kind, config).unwrap(),
            now: secs(1_000),
            loads: Vec::new(),
            events: BinaryHeap::new(),
            sequence: 0,
            window: 32,
            plugged: config.plug > Nanos::ZERO,
            in_flight: 0,
            rate,
            device_free: Nanos::ZERO,
            device_rest: 0,
            wake: Nanos::MAX,
            jitter: None,
            service: Service::Uniform,
            late: Nanos::ZERO,
            dice: Dice::new(0),
        }
    }

    pub fn mclock(rate: u64) -> Bench {
        Bench::new(SchedulerKind::MClock, unit(), rate)
    }

    pub fn window(mut self, window: usize) -> Bench {
        self.window = window;
        self
    }

    /// Service times between nothing and twice the mean, the same ones in every run.
    pub fn jitter(mut self) -> Bench {
        self.jitter = Some(Dice::new(1));
        self
    }

    /// Exponential service times.
    pub fn exponential(self) -> Bench {
        Bench { service: Service::Exponential, ..self.jitter() }
    }

    /// Service times with a heavy tail.
    pub fn pareto(self) -> Bench {
        Bench { service: Service::Pareto, ..self.jitter() }
    }

    /// One kind of service times, by its number: constant, uniform, exponential, or a heavy tail.
    pub fn varying(self, service: u8) -> Bench {
        match service {
            0 => self,
            1 => self.jitter(),
            2 => self.exponential(),
            _ => self.pareto(),
        }
    }

    /// Wake-ups come late, by anything up to so much.
    pub fn late(mut self, most: Nanos) -> Bench {
        self.late = most;
        self
    }

    /// A client that is not running yet, with requests of no bytes.
    pub fn add(&mut self, policy: Policy, client: Client) -> usize {
        let disk = self.scheduler.register(self.now, policy);
        self.load(disk, client, None)
    }

    /// Another client of the same disk, that asks with this priority, started.
    pub fn application(&mut self, of: usize, priority: u64, outstanding: usize) -> usize {
        let priority = Some(Priority::new(priority).unwrap());
        let client = self.load(self.loads[of].disk, Client::Closed { outstanding }, priority);
        self.start(client);
        client
    }

    /// A disk whose streams compete with those of others, and has no client of its own.
    pub fn across(&mut self, policy: Policy, max: u64) -> usize {
        let client = self.add(policy, Client::Closed { outstanding: 0 });
        let policy = PriorityPolicy {
            max: Priority::new(max).unwrap(),
            scope: PriorityScope::AcrossVms,
            ..PriorityPolicy::default()
        };
        self.scheduler.set_priorities(self.now, self.loads[client].disk, policy).unwrap();
        client
    }

    fn load(&mut self, disk: DiskId, client: Client, priority: Option<Priority>) -> usize {
        self.loads.push(Load {
            disk,
            client,
            bytes: 0,
            kind: IoKind::Read,
            priority,
            running: false,
            outstanding: 0,
            served: 0,
            latency: Nanos::ZERO,
            dispatches: Vec::new(),
            completions: Vec::new(),
            contested: Vec::new(),
        });
        self.loads.len() - 1
    }

    /// A client with 32 requests outstanding, started.
    pub fn busy(&mut self, policy: Policy) -> usize {
        self.deep(policy, 32)
    }

    /// A client with so many requests outstanding, started.
    pub fn deep(&mut self, policy: Policy, outstanding: usize) -> usize {
        let client = self.add(policy, Client::Closed { outstanding });
        self.start(client);
        client
    }

    pub fn size(&mut self, client: usize, bytes: u64) {
        self.loads[client].bytes = bytes;
    }

    /// What kind of requests a client sends.
    pub fn kind(&mut self, client: usize, kind: IoKind) {
        self.loads[client].kind = kind;
    }

    /// Another client of the same disk, that sends this kind, started.
    pub fn companion(&mut self, of: usize, kind: IoKind, outstanding: usize) -> usize {
        let client = self.load(self.loads[of].disk, Client::Closed { outstanding }, None);
        self.kind(client, kind);
        self.start(client);
        client
    }

    /// Keeps so many requests outstanding from now on.
    pub fn deepen(&mut self, client: usize, outstanding: usize) {
        self.loads[client].client = Client::Closed { outstanding };
        self.start(client);
    }

    pub fn disk(&self, client: usize) -> DiskId {
        self.loads[client].disk
    }

    pub fn set(&mut self, client: usize, policy: Policy) {
        self.scheduler.set_policy(self.now, self.loads[client].disk, policy).unwrap();
    }

    pub fn set_rate(&mut self, rate: u64) {
        self.rate = rate;
        self.device_rest = 0;
    }

    /// The device begins nothing for so long.
    pub fn stall(&mut self, time: Nanos) {
        self.device_free = self.device_free.max(self.now) + time;
    }

    pub fn start(&mut self, client: usize) {
        self.loads[client].running = true;
        match self.loads[client].client {
            Client::Closed { outstanding } => {
                while self.loads[client].outstanding < outstanding {
                    self.ask(client);
                }
            }
            Client::Bursts { .. } => self.push(self.now, Event::Burst { client }),
        }
    }

    /// Lets the client finish what it has outstanding and ask no more.
    pub fn stop(&mut self, client: usize) {
        self.loads[client].running = false;
    }

    fn push(&mut self, at: Nanos, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((at, self.sequence, event)));
    }

    fn ask(&mut self, client: usize) {
        let load = &mut self.loads[client];
        load.outstanding += 1;
        let (bytes, priority, kind) = (Bytes(load.bytes), load.priority, load.kind);
        let io = Io { bytes, priority, kind, ..Io::default() };
        self.scheduler.enqueue(self.now, load.disk, io, Tagged { client, sent: self.now }).unwrap();
    }

    /// Runs for `time` and returns requests completed per client.
    pub fn run(&mut self, time: Nanos) -> Vec<u64> {
        let before: Vec<u64> = self.loads.iter().map(|l| l.served).collect();
        let end = self.now + time;
        self.dispatch();
        while let Some(Reverse((at, _, _))) = self.events.peek() {
            if *at > end {
                break;
            }
            self.now = *at;
            // All that happens at one instant, then the decisions.
            while let Some(Reverse((at, _, event))) = self.events.peek().copied() {
                if at > self.now {
                    break;
                }
                self.events.pop();
                self.handle(event);
            }
            self.dispatch();
        }
        self.now = end;
        self.loads.iter().zip(before).map(|(l, b)| l.served - b).collect()
    }

    /// Runs for `seconds` and returns requests per second and client, rounded.
    pub fn rates(&mut self, seconds: u64) -> Vec<u64> {
        self.run(secs(seconds)).into_iter().map(|n| (n + seconds / 2) / seconds).collect()
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Wake => {}
            Event::Burst { client } => {
                if let Client::Bursts { requests, every } = self.loads[client].client
                    && self.loads[client].running
                {
                    for _ in 0..requests {
                        self.ask(client);
                    }
                    self.push(self.now + every, Event::Burst { client });
                }
            }
            Event::Complete { client, sent } => {
                self.in_flight -= 1;
                let load = &mut self.loads[client];
                load.served += 1;
                load.completions.push(self.now);
                load.outstanding -= 1;
                load.latency += self.now - sent;
                self.scheduler.complete(self.now, load.disk);
                if load.running && matches!(load.client, Client::Closed { .. }) {
                    self.ask(client);
                }
            }
        }
    }

    fn dispatch(&mut self) {
        while self.in_flight < self.window {
            match self.scheduler.dispatch(self.now) {
                Decision::Idle => {
                    assert_eq!(self.scheduler.queued(), 0, "idle while requests wait");
                    break;
                }
                Decision::WaitUntil(at) => {
                    assert!(at > self.now, "a wake-up in the past would spin");
                    for load in self.loads.iter().filter(|_| !self.plugged) {
                        let policy = self.scheduler.policy(load.disk).unwrap();
                        let limited =
                            is_limited(&policy) && policy.limit_mode() == LimitMode::Strict;
                        assert!(
                            limited || self.scheduler.queued_of(load.disk) == 0,
                            "waits without a limit"
                        );
                    }
                    if at != self.wake {
                        self.wake = at;
                        let late = Nanos(self.dice.below(self.late.0 + 1));
                        self.push(at + late, Event::Wake);
                    }
                    break;
                }
                Decision::Dispatch(d) => {
                    let contested = self.others_could_go(d.disk);
                    self.in_flight += 1;
                    let load = &mut self.loads[d.request.client];
                    assert_eq!(load.disk, d.disk);
                    load.dispatches.push(self.now);
                    load.contested.extend(contested.then_some(self.now));
                    let done = self.serve();
                    self.push(
                        done,
                        Event::Complete { client: d.request.client, sent: d.request.sent },
                    );
                }
            }
        }
    }

    /// Whether a disk without a limit has requests queued, beside this one.
    fn others_could_go(&self, than: DiskId) -> bool {
        self.loads.iter().any(|load| {
            load.disk != than
                && self.scheduler.queued_of(load.disk) > 0
                && !is_limited(&self.scheduler.policy(load.disk).unwrap())
        })
    }

    fn serve(&mut self) -> Nanos {
        if self.device_free < self.now {
            self.device_free = self.now;
            self.device_rest = 0;
        }
        let time = match &mut self.jitter {
            None => 1_000_000_000,
            Some(dice) => match self.service {
                Service::Uniform => dice.below(2_000_000_000),
                Service::Exponential => (dice.part().ln() * -1e9) as u64,
                // The mean of the unbounded one is three times the least.
                Service::Pareto => (dice.part().powf(-1.0 / 1.5).min(1_000.0) * 1e9 / 3.0) as u64,
            },
        };
        let numerator = time + self.device_rest;
        self.device_free += Nanos(numerator / self.rate);
        self.device_rest = numerator % self.rate;
        self.device_free
    }

    /// Mean time from asking to completion since the last call.
    pub fn take_latency(&mut self, client: usize, served: u64) -> Nanos {
        let load = &mut self.loads[client];
        let mean = Nanos(load.latency.0 / served.max(1));
        load.latency = Nanos::ZERO;
        mean
    }

    /// Times of the client's completions since the last call.
    pub fn take_completions(&mut self, client: usize) -> Vec<Nanos> {
        std::mem::take(&mut self.loads[client].completions)
    }

    /// Times of the client's dispatches since the last call at which another disk that has no limit
    /// had requests queued.
    pub fn take_contested(&mut self, client: usize) -> Vec<Nanos> {
        std::mem::take(&mut self.loads[client].contested)
    }

    /// Times of the client's dispatches in the 2 s after it sent nothing for 40 s.
    pub fn dispatches_after_idling(&mut self, client: usize) -> Vec<Nanos> {
        self.run(secs(3));
        self.stop(client);
        self.run(secs(40));
        self.take_dispatches(client);
        self.start(client);
        self.run(secs(2));
        self.take_dispatches(client)
    }

    /// Times of the client's dispatches since the last call.
    pub fn take_dispatches(&mut self, client: usize) -> Vec<Nanos> {
        std::mem::take(&mut self.loads[client].dispatches)
    }
}

fn is_limited(policy: &Policy) -> bool {
    policy.limit().is_some() || policy.limit_bandwidth().is_some() || policy.limits_directions()
}

/// Fails unless every rate is within `percent` of what is expected, or within one.
#[track_caller]
pub fn assert_rates(got: &[u64], expected: &[u64], percent: u64) {
    assert_eq!(got.len(), expected.len());
    for (g, e) in got.iter().zip(expected) {
        let slack = (e * percent).div_ceil(100).max(1);
        assert!(g.abs_diff(*e) <= slack, "got {got:?}, expected {expected:?} within {percent} %");
    }
}
