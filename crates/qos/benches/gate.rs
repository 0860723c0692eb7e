//! What a request costs in the gate, with all that stands around the scheduler: `cargo bench -p
//! headgate-qos --bench gate`.
//!
//! One step is a dispatch, its completion, and the next request of the same disk, at 1,000,000 IOs
//! per simulated second. Times are this thread's CPU time, the median of several runs and their
//! range.

use headgate_qos::window::Slots;
use headgate_qos::{AnyScheduler, Config, Cost, Decision, DiskId, Gate, Io, Policy, SchedulerKind};
use headgate_qos::{Group, GroupId, Groups};
use headgate_units::{Bytes, Iops, Nanos};
use rustix::time::{ClockId, clock_gettime};
use std::collections::VecDeque;
use std::hint::black_box;

const RUNS: usize = 15;
const STEPS: u64 = 300_000;
const QUEUED: usize = 4;

fn cpu_time() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// A gate with disks that always have requests queued, in front of storage that serves them in
/// their order.
struct Rig {
    gate: Gate<()>,
    disks: Vec<DiskId>,
    in_flight: VecDeque<(DiskId, Cost)>,
    now: Nanos,
}

const IO: Io =
    Io { bytes: Bytes(4_096), position: 0, priority: None, kind: headgate_qos::IoKind::Read };

/// The groups that disks are in.
#[derive(Clone, Copy)]
enum Form {
    Flat,
    /// Of ten disks.
    Machines,
    /// The same, in tenants of ten machines. `Some`: tenants have this limit together.
    Tenants(Option<u64>),
}

fn groups(form: Form, disks: &[DiskId]) -> Groups {
    let shared = |id, parent| Group { id: GroupId(id), parent, policy: Policy::default() };
    let (machines, first) = (disks.len().div_ceil(10) as u32, 1_000_000);
    let tenants = machines.div_ceil(10);
    let mut groups = Vec::new();
    if let Form::Tenants(limit) = form {
        let limit = limit.map(|all| Iops::new(all / u64::from(tenants)).expect("in range"));
        let policy = Policy::default().with_limit(limit).expect("no reservation is above it");
        let tenant = |id| Group { policy, ..shared(first + id, None) };
        groups.extend((0..tenants).map(tenant));
    }
    let parent = |machine| match form {
        Form::Tenants(_) => Some(GroupId(first + machine / 10)),
        Form::Flat | Form::Machines => None,
    };
    groups.extend((0..machines).map(|machine| shared(machine, parent(machine))));
    let members = disks.iter().enumerate().map(|(at, disk)| (*disk, GroupId(at as u32 / 10)));
    match form {
        Form::Flat => Groups::default(),
        Form::Machines | Form::Tenants(_) => Groups { groups, members: members.collect() },
    }
}

impl Rig {
    fn new(disks: usize, limit: Option<u64>, form: Form) -> Rig {
        let scheduler = AnyScheduler::<()>::new(SchedulerKind::MClock, Config::default())
            .expect("the default configuration is valid");
        let now = Nanos::from_secs(1);
        let mut gate = Gate::new(now, scheduler, Slots::whole(32));
        let limit = limit.map(|iops| Iops::new(iops).expect("in range"));
        let policy = Policy::default().with_limit(limit).expect("no reservation is above it");
        let disks: Vec<DiskId> = (0..disks).map(|_| gate.register(now, policy)).collect();
        gate.set_groups(now, &groups(form, &disks)).expect("they are listed in order");
        for &disk in disks.iter().cycle().take(QUEUED * disks.len()) {
            gate.enqueue(now, disk, IO, ()).expect("it is registered");
        }
        let mut rig = Rig { gate, disks, in_flight: VecDeque::new(), now };
        rig.steps();
        rig
    }

    fn steps(&mut self) {
        for _ in 0..STEPS {
            self.now += Nanos(1_000);
            while let Decision::Dispatch(sent) = self.gate.next(self.now) {
                self.in_flight.push_back((sent.disk, sent.cost));
            }
            if let Some((disk, cost)) = self.in_flight.pop_front() {
                self.gate.complete(self.now, disk, cost);
                self.gate.enqueue(self.now, disk, IO, ()).expect("it is registered");
            }
        }
    }
}

fn report(what: &str, disks: usize, unit: &str, mut runs: Vec<f64>) {
    runs.sort_by(f64::total_cmp);
    let (least, most) = (runs[0], runs[RUNS - 1]);
    let median = runs[RUNS / 2];
    println!("{what:<40} {disks:>6} disks {median:8.1} {unit} ({least:.1} to {most:.1})");
}

fn line(what: &str, disks: usize, limit: Option<u64>, form: Form) {
    let mut rig = Rig::new(disks, limit, form);
    let run = |_| {
        let start = cpu_time();
        rig.steps();
        (cpu_time() - start) as f64 / STEPS as f64
    };
    report(what, disks, "ns", (0..RUNS).map(run).collect());
}

/// What the observer asks of a shard once a second: all disks' times, each with its neighbours.
fn reading(disks: usize) {
    let mut rig = Rig::new(disks, None, Form::Flat);
    let run = |_| {
        rig.steps();
        let (gate, now) = (&mut rig.gate, rig.now);
        let start = cpu_time();
        let times = rig.disks.iter().filter_map(|disk| gate.wait_times(now, *disk));
        black_box(times.map(|times| times.named.len()).sum::<usize>());
        (cpu_time() - start) as f64 / 1e3
    };
    report("reading all disks' times", disks, "us", (0..RUNS).map(run).collect());
}

fn main() {
    reading(1_000);
    for disks in [1, 10, 100, 1_000, 10_000] {
        line("a request through the gate", disks, None, Form::Flat);
    }
    for disks in [10, 1_000] {
        line("the same, of machines", disks, None, Form::Machines);
        line("the same, of tenants", disks, None, Form::Tenants(None));
        line("the same, of tenants at their limits", disks, None, Form::Tenants(Some(900_000)));
    }
    for disks in [10, 1_000] {
        let limit = Some(900_000 / disks as u64);
        line("the same, at limits that bind", disks, limit, Form::Flat);
    }
}
