//! One recorded stream of events through the simulator's driver of a gate and through this one:
//! both make the same decisions at the same times.
//!
//! The simulator runs a scenario and records the events at its gate and what it decided.
//! [`Replay`] feeds the events to a [`Datastore`] with its tables, without a ring or a clock, and
//! compares every answer: which request goes, when, by which right, at which cost and priority, and
//! when the gate is to be asked again.

use super::datastore::Enqueued;
use super::testing::Rig;
use crate::request::{Durability, Op, Request};
use crate::tables::disk::ShardDisk;
use headgate_qos::ioprio::{Ioprio, IoprioMap};
use headgate_qos::window::LatencyMeter;
use headgate_qos::{DiskId, Io, IoKind, Phase, Policy, PriorityPolicy, Scheduler as _};
use headgate_sim::{GateRecord, GateStep, IssueWindow, Scenario, record_gate};
use headgate_units::{Nanos, Priority};
use std::collections::{HashMap, VecDeque};

/// Reservations, limits, bursts, priorities, requests of 4 KiB to 4 MiB, a device whose speed
/// varies and that stops for half a second, and changes of policy and queue depth.
const FIXED: &str = r#"
    name = "compare"
    title = "Everything that happens at a gate with a fixed window"
    duration = "6s"
    windows = { all = "0s..6s" }
    datastore = [{ name = "lun", device = "rate=3000,latency=700us", queue-depth = 8, plug = "200us", noise = { within = "30%", every = "50ms" } }]

    [[vm]]
    name = "reserved"
    disk = [{ reservation = 400, shares = 100 }]
    workload = [{ kind = "closed", outstanding = 4, size = "4K", read = "70%" }]

    [[vm]]
    name = "limited"
    disk = [{ limit = 150, limit-peak = 300, limit-peak-time = 2, burst = 20 }]
    workload = [{ kind = "open", rate = 140, size = "8K" }]

    [[vm]]
    name = "large"
    disk = [{ shares = 3000 }]
    workload = [{ kind = "closed", outstanding = 3, size = "4M", random = "0%" }]

    [[vm]]
    name = "applications"
    disk = [{ shares = 2000 }]
    workload = [
        { name = "high", kind = "closed", outstanding = 2, size = "16K", priority = 240, think = "3ms", times = "exponential" },
        { name = "low", kind = "closed", outstanding = 8, size = "64K", priority = 20 },
    ]

    [[event]]
    at = "1s"
    do = "policy"
    vm = "reserved"
    reservation = 900

    [[event]]
    at = "1500ms"
    do = "policy"
    vm = "limited"
    limit = 90
    limit-mode = "soft"

    [[event]]
    at = "2s"
    do = "queue-depth"
    queue-depth = 3

    [[event]]
    at = "2500ms"
    do = "fail"
    datastore = "lun"

    [[event]]
    at = "3s"
    do = "return"
    datastore = "lun"

    [[event]]
    at = "4s"
    do = "policy"
    vm = "limited"
    limit = 60
    limit-mode = "strict"
    limit-peak = "none"

    [[event]]
    at = "4500ms"
    do = "queue-depth"
    queue-depth = 16
"#;

/// A window that follows latency and is hardly ever whole, under a load that comes and goes.
const CONTROLLED: &str = r#"
    name = "compare-window"
    title = "A gate whose window follows latency"
    duration = "12s"
    windows = { all = "0s..12s" }
    datastore = [{ name = "lun", device = "rate=900,latency=1ms", noise = { within = "20%", every = "50ms" }, issue-window = { threshold = "6ms", period = "500ms", min = 1, max = 16 } }]

    [[vm]]
    name = "steady"
    disk = [{ shares = 500, reservation = 100 }]
    workload = [{ kind = "closed", outstanding = 6, size = "8K", read = "60%" }]

    [[vm]]
    name = "limited"
    disk = [{ limit = 50 }]
    workload = [{ kind = "closed", outstanding = 4, size = "32K" }]

    [[vm]]
    name = "comes-and-goes"
    start = "3s"
    stop = "8s"
    disk = [{ shares = 2000 }]
    workload = [{ kind = "closed", outstanding = 24, size = "1M" }]
"#;

/// A window that is narrowed for a latency target, and opened when its disk asks for nothing.
const NARROWED: &str = r#"
    name = "compare-narrowed"
    title = "A gate whose window gives way to a latency target"
    duration = "40s"
    windows = { all = "0s..40s" }
    datastore = [{ name = "lun", device = "rate=1000", queue-depth = 32, noise = { within = "20%", every = "50ms" } }]

    [[vm]]
    name = "quick"
    stop = "25s"
    disk = [{ reservation = 400, latency-target = "p95=12ms" }]
    workload = [{ kind = "open", rate = 80, size = "4K", read = "50%" }]

    [[vm]]
    name = "deep"
    disk = [{}]
    workload = [{ kind = "closed", outstanding = 64, size = "4K" }]
"#;

/// The simulator's events, fed to a shard's datastore.
struct Replay {
    now: Nanos,
    rig: Rig,
    /// By the names that the simulator's gate has for them.
    disks: HashMap<DiskId, u32>,
    /// Keys of slots, by the simulator's keys of requests.
    requests: HashMap<u32, u32>,
    /// What the gate has answered and the simulator has not been heard to answer yet.
    answers: VecDeque<GateStep>,
}

/// How many answers of each kind were compared.
#[derive(Debug, Default, PartialEq, Eq)]
struct Compared {
    by_reservation: usize,
    by_weight: usize,
    wakes: usize,
    rests: usize,
    windows: usize,
    /// Windows that had become narrower when they were next looked at.
    narrowings: usize,
}

impl Replay {
    fn new(scenario: &Scenario) -> Replay {
        let store = &scenario.variant("default").unwrap().setup.datastores[0];
        let window = headgate_qos::window::Slots::whole(store.queue_depth);
        let meter = match &store.issue_window {
            Some(IssueWindow::Controlled(control)) => {
                let meter = LatencyMeter::new(store.config.cost_model, control.config.smoothing);
                Some(meter.unwrap())
            }
            _ => None,
        };
        Replay {
            now: Nanos::ZERO,
            rig: Rig::new(store.scheduler, store.config, window, meter),
            disks: HashMap::new(),
            requests: HashMap::new(),
            answers: VecDeque::new(),
        }
    }

    fn run(mut self, records: &[GateRecord]) -> Result<Compared, String> {
        let mut compared = Compared::default();
        for record in records {
            if let Some(wake) = self.rig.store.next_wake()
                && wake < record.at
            {
                return Err(format!("the simulator slept from {wake} to {}", record.at));
            }
            self.now = record.at;
            let window = self.rig.store.gate.window();
            self.step(&record.step, &mut compared)
                .map_err(|why| format!("{} {:?}: {why}", record.at, record.step))?;
            compared.narrowings += usize::from(self.rig.store.gate.window() < window);
        }
        Ok(compared)
    }

    fn step(&mut self, step: &GateStep, compared: &mut Compared) -> Result<(), String> {
        match *step {
            GateStep::Disk { disk, policy, priorities } => self.add_disk(disk, policy, priorities),
            GateStep::Arrived { disk, request, io } => {
                self.arrive(self.disks[&disk], request, io)?
            }
            GateStep::Completed { request } => {
                let key = self.requests.remove(&request).ok_or("it is not under way")?;
                self.rig.complete(self.now, key);
            }
            GateStep::Policy { disk, policy } => {
                let queue = self.rig.tables.disks[self.disks[&disk] as usize].queues.clients;
                self.rig
                    .store
                    .gate
                    .set_policy(self.now, queue, policy)
                    .map_err(|e| e.to_string())?;
            }
            GateStep::Window { window } => {
                compared.windows += 1;
                self.rig.store.gate.set_window(self.now, window);
            }
            GateStep::Latency { seen } => same(self.rig.store.gate.take_latency(), seen)?,
            GateStep::Asked => self.ask(),
            GateStep::Dispatched { phase, .. } => {
                match phase {
                    Phase::Reservation => compared.by_reservation += 1,
                    Phase::Weight => compared.by_weight += 1,
                }
                same(self.answers.pop_front().as_ref(), Some(step))?;
            }
            GateStep::Rests { wake } => {
                compared.rests += 1;
                compared.wakes += usize::from(wake.is_some());
                same(self.answers.pop_front(), None)?;
                same(self.rig.store.next_wake(), wake)?;
            }
        }
        Ok(())
    }

    fn add_disk(&mut self, disk: DiskId, policy: Policy, priorities: PriorityPolicy) {
        let key = self.rig.add_disk(self.now, policy, priorities);
        assert_eq!(self.rig.add_port(key), key, "one port for each disk");
        self.disks.insert(disk, key);
    }

    fn arrive(&mut self, disk: u32, request: u32, io: Io) -> Result<(), String> {
        let op = match io.kind {
            IoKind::Read => Op::Read,
            IoKind::Write => Op::Write(Durability::Cached),
            IoKind::Journal | IoKind::Flush | IoKind::Discard => {
                return Err("not in this test".into());
            }
        };
        let asked = Request {
            op,
            offset: io.position,
            len: io.bytes.0,
            cookie: u64::from(request),
            ioprio: ioprio(io.priority),
        };
        same(self.rig.tables.disks[disk as usize].priorities.io(&asked), io)?;
        let (key, enqueued) = self.rig.arrive(self.now, disk, asked);
        same(enqueued, Enqueued::Queued)?;
        self.requests.insert(request, key);
        Ok(())
    }

    /// What a shard does in its turn, up to the backend.
    fn ask(&mut self) {
        if !self.rig.store.is_due(self.now) {
            return;
        }
        let counters = |replay: &Replay| -> Vec<(u64, u64)> {
            let scheduler = replay.rig.store.gate.scheduler();
            let of = |disk: &ShardDisk| scheduler.counters(disk.queues.clients).unwrap();
            let disks = replay.rig.tables.disks.iter().map(|(_, disk)| of(disk));
            disks.map(|c| (c.by_reservation, c.cost.as_millionths())).collect()
        };
        let mut before = counters(self);
        while let Some(key) = self.rig.store.next(self.now, &mut self.rig.tables) {
            let after = counters(self);
            let slot = &self.rig.tables.slots[key];
            let ((by, cost), (by_now, cost_now)) =
                (before[slot.disk as usize], after[slot.disk as usize]);
            let phase = if by_now > by { Phase::Reservation } else { Phase::Weight };
            self.answers.push_back(GateStep::Dispatched {
                request: slot.request.cookie as u32,
                phase,
                cost: headgate_qos::Cost::from_millionths(cost_now - cost),
                priority: slot.priority,
            });
            before = after;
        }
    }
}

/// A guest's field that is read as this priority.
fn ioprio(priority: Option<Priority>) -> u16 {
    let map = IoprioMap::default();
    (0..=u16::MAX).find(|&field| map.given(Ioprio(field)) == priority).expect("a priority's field")
}

fn same<T: PartialEq + std::fmt::Debug>(ours: T, theirs: T) -> Result<(), String> {
    if ours == theirs { Ok(()) } else { Err(format!("here {ours:?}, in the simulator {theirs:?}")) }
}

fn recorded(text: &str) -> (Scenario, Vec<GateRecord>) {
    let scenario = Scenario::parse("compare.toml", text).unwrap_or_else(|e| panic!("{e}"));
    let records = record_gate(&scenario, "default", 1).unwrap();
    (scenario, records)
}

#[test]
fn both_drivers_decide_alike_behind_a_fixed_window() {
    let (scenario, records) = recorded(FIXED);
    let compared = Replay::new(&scenario).run(&records).unwrap();
    assert!(compared.by_reservation > 1_000 && compared.by_weight > 1_000, "{compared:?}");
    assert!(compared.wakes > 20 && compared.windows == 3, "{compared:?}");
}

#[test]
fn both_drivers_decide_alike_behind_a_window_that_follows_latency() {
    let (scenario, records) = recorded(CONTROLLED);
    let compared = Replay::new(&scenario).run(&records).unwrap();
    assert!(compared.by_weight > 1_000 && compared.wakes > 100, "{compared:?}");
    assert!(compared.windows > 20, "{compared:?}");
}

#[test]
fn both_drivers_decide_alike_behind_a_window_that_is_narrowed() {
    let (scenario, records) = recorded(NARROWED);
    let compared = Replay::new(&scenario).run(&records).unwrap();
    assert!(compared.by_reservation > 1_000 && compared.by_weight > 1_000, "{compared:?}");
    assert!(compared.narrowings > 0 && compared.windows == 1, "{compared:?}");
}

/// A driver that strays is found out, whichever way it strays.
#[test]
fn a_driver_that_strays_is_found_out() {
    type Mutation = fn(&mut Vec<GateRecord>);
    let mutations: [(&str, Mutation); 6] = [
        ("a timer that never rings", |records| {
            let rests = |r: &GateRecord| matches!(r.step, GateStep::Rests { wake: Some(_) });
            let timed = |n: &usize| {
                rests(&records[*n])
                    && records.get(n + 1).is_some_and(|next| next.step == GateStep::Asked)
            };
            let from = (0..records.len()).find(timed).expect("a timer that rang") + 1;
            let rest = |r: &GateRecord| matches!(r.step, GateStep::Rests { .. });
            let to = from + records[from..].iter().position(rest).unwrap();
            records.drain(from..=to);
        }),
        ("no timer is set", |records| {
            let timer = records.iter_mut().find_map(|record| match &mut record.step {
                GateStep::Rests { wake } if wake.is_some() => Some(wake),
                _ => None,
            });
            *timer.expect("a timer") = None;
        }),
        ("a completion that is told too late", |records| {
            let from = records.len() / 2;
            let done = |r: &GateRecord| matches!(r.step, GateStep::Completed { .. });
            let at = from + records[from..].iter().position(done).unwrap();
            let rest = |r: &GateRecord| matches!(r.step, GateStep::Rests { .. });
            let to = at + records[at..].iter().position(rest).unwrap();
            records[at..=to].rotate_left(1);
        }),
        ("a completion that is lost", |records| {
            let from = records.len() / 2;
            let done = |r: &GateRecord| matches!(r.step, GateStep::Completed { .. });
            records.remove(from + records[from..].iter().position(done).unwrap());
        }),
        ("a window that is never changed", |records| {
            let mut seen = 0;
            records.retain(|record| {
                let window = matches!(record.step, GateStep::Window { .. });
                seen += usize::from(window);
                !window || seen == 1
            });
        }),
        ("two arrivals that change places", |records| {
            let arrived = |r: &GateRecord| matches!(r.step, GateStep::Arrived { .. });
            let both = (0..records.len() - 1)
                .find(|&n| arrived(&records[n]) && arrived(&records[n + 1]))
                .or_else(|| {
                    let arrivals = (0..records.len()).filter(|&n| arrived(&records[n]));
                    arrivals.collect::<Vec<_>>().windows(2).map(|two| two[0]).next()
                })
                .expect("arrivals");
            let other = both + 1 + records[both + 1..].iter().position(arrived).unwrap();
            let (one, two) = (records[both].step.clone(), records[other].step.clone());
            (records[both].step, records[other].step) = (two, one);
        }),
    ];
    for text in [FIXED, CONTROLLED] {
        let (scenario, records) = recorded(text);
        for (name, mutate) in &mutations {
            let mut changed = records.clone();
            mutate(&mut changed);
            let found = Replay::new(&scenario).run(&changed);
            assert!(found.is_err(), "{name}: {found:?}");
        }
    }
}
