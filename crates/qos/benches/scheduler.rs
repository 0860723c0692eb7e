//! What a decision costs: `cargo bench -p headgate-qos`, or in part `cargo bench -p headgate-qos --
//! 1000 binding`.
//!
//! One step is a dispatch, its completion and the next request of the same disk, at 1,000,000 IOs
//! per simulated second. Times are this thread's CPU time, the median of several runs and their
//! range.

use headgate_qos::{
    AnyScheduler, Config, Cost, CostModel, Decision, DirectionLimits, DiskId, Io, IoKind, MClock,
    Policy, PriorityPolicy, PriorityScope, Scheduler, SchedulerKind, ServedElsewhere,
};
use headgate_units::{Bytes, Iops, Nanos, Priority, Shares};
use rustix::time::{ClockId, clock_gettime};
use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static LIVE_BYTES: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system allocator unchanged; the counters do not touch the memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        LIVE_BYTES.fetch_add(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE_BYTES.fetch_sub(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller's promise that `pointer` came from `alloc` with `layout` is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn cpu_time() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

const RUNS: usize = 9;
const STEPS: u64 = 300_000;
const RATE: u64 = 1_000_000;
const QUEUED: usize = 4;

/// What a request is: its priority, so that the next one is of the same stream.
type Request = u64;

struct Driver {
    scheduler: AnyScheduler<Request>,
    disks: Vec<DiskId>,
    now: Nanos,
    /// What every request says of other servers.
    tell: ServedElsewhere,
    /// Of requests that are not of a stream: reads, or every other one a write.
    kinds: Kinds,
    sent: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kinds {
    Reads,
    Both,
}

impl Driver {
    fn new(
        kind: SchedulerKind,
        busy: usize,
        idle: usize,
        policy: impl Fn(usize) -> Policy,
    ) -> Driver {
        let config = Config { cost_model: CostModel::default(), ..Config::default() };
        let mut scheduler =
            AnyScheduler::new(kind, config).expect("the default configuration is valid");
        let now = Nanos::from_secs(1);
        for i in 0..idle {
            scheduler.register(now, policy(i));
        }
        let disks: Vec<DiskId> = (0..busy).map(|i| scheduler.register(now, policy(i))).collect();
        let (tell, kinds) = (ServedElsewhere::NONE, Kinds::Reads);
        let mut driver = Driver { scheduler, disks, now, tell, kinds, sent: 0 };
        for i in 0..busy {
            for _ in 0..QUEUED {
                driver.enqueue(driver.disks[i], 0);
            }
        }
        driver
    }

    /// One with requests of so many priorities per disk, as many of each as of none.
    fn with_streams(mut self, streams: u64, scope: PriorityScope) -> Driver {
        for i in 0..self.disks.len() {
            let disk = self.disks[i];
            let policy = PriorityPolicy { scope, ..PriorityPolicy::default() };
            self.scheduler.set_priorities(self.now, disk, policy).expect("the disk is registered");
            for stream in 1..streams {
                for _ in 0..QUEUED {
                    self.enqueue(disk, 254 * stream / streams);
                }
            }
        }
        self
    }

    fn enqueue(&mut self, disk: DiskId, request: Request) {
        let mut kind = IoKind::Read;
        if self.kinds == Kinds::Both {
            self.sent += 1;
            kind = if self.sent.is_multiple_of(2) { IoKind::Write } else { IoKind::Read };
        }
        let priority = Priority::new(request).ok();
        let io = Io { bytes: Bytes(4_096), priority, kind, ..Io::default() };
        let queued = if self.tell.is_none() {
            self.scheduler.enqueue(self.now, disk, io, request)
        } else {
            self.scheduler.enqueue_dmclock(self.now, disk, io, self.tell, request)
        };
        queued.expect("the disk is registered");
    }

    /// Makes `steps` decisions that dispatch.
    fn run(&mut self, steps: u64) {
        for _ in 0..steps {
            self.now += Nanos(1_000_000_000 / RATE);
            loop {
                match self.scheduler.dispatch(self.now) {
                    Decision::Dispatch(d) => {
                        self.scheduler.complete(self.now, d.disk);
                        self.enqueue(d.disk, black_box(d.request));
                        break;
                    }
                    Decision::WaitUntil(at) => self.now = at,
                    Decision::Idle => panic!("every disk has requests queued"),
                }
            }
        }
    }

    /// Nanoseconds per step, sorted, and allocations in all of them.
    fn measure(&mut self) -> (Vec<u64>, u64) {
        // Every tag has moved, every slot is in the slab.
        self.run((3 * self.disks.len() as u64).max(STEPS));
        let allocations = ALLOCATIONS.load(Ordering::Relaxed);
        let mut tenths: Vec<u64> = Vec::with_capacity(RUNS);
        let own = ALLOCATIONS.load(Ordering::Relaxed) - allocations;
        for _ in 0..RUNS {
            let start = cpu_time();
            self.run(STEPS);
            tenths.push((cpu_time() - start) * 10 / STEPS);
        }
        let allocations = ALLOCATIONS.load(Ordering::Relaxed) - allocations - own;
        tenths.sort_unstable();
        (tenths, allocations)
    }
}

fn policy(shares: u64, reservation: u64, limit: u64) -> Policy {
    Policy::shared(Shares::new(shares).expect("in range"))
        .with_limit(Iops::new(limit).ok())
        .and_then(|p| p.with_reservation(Iops::new(reservation).ok()))
        .expect("the reservation is below the limit")
}

fn row(
    name: &str,
    busy: usize,
    idle: usize,
    kind: SchedulerKind,
    policy: impl Fn(usize) -> Policy,
) {
    line(name, busy, || Driver::new(kind, busy, idle, policy));
}

fn line(name: &str, busy: usize, driver: impl FnOnce() -> Driver) {
    let is_word = |a: &String| !a.starts_with('-') && a.parse::<usize>().is_err();
    if std::env::args().skip(1).find(is_word).is_some_and(|word| !name.contains(&word)) {
        return;
    }
    let (tenths, allocations) = driver().measure();
    let show = |t: u64| format!("{}.{}", t / 10, t % 10);
    println!(
        "{name:<44} {busy:>7} {:>8}  {:>7} - {:<7} {:>11}",
        show(tenths[RUNS / 2]),
        show(tenths[0]),
        show(tenths[RUNS - 1]),
        allocations
    );
}

fn main() {
    println!(
        "{:<44} {:>7} {:>8}  {:^17} {:>11}",
        "ns per step, 4 queued per stream", "busy", "median", "range", "allocations"
    );
    let wanted: Vec<usize> = std::env::args().filter_map(|a| a.parse().ok()).collect();
    let sizes = [10usize, 100, 1_000, 10_000, 100_000];
    for busy in sizes.into_iter().filter(|n| wanted.is_empty() || wanted.contains(n)) {
        let each = RATE / busy as u64;
        let shares = |i: usize| 1 + i as u64 % 7;
        row("shares only", busy, 0, SchedulerKind::MClock, |i| policy(shares(i), 0, 0));
        row("all three, limits not binding", busy, 0, SchedulerKind::MClock, |i| {
            policy(shares(i), each.div_ceil(2), 1_000_000_000)
        });
        row("all three, limits binding", busy, 0, SchedulerKind::MClock, |i| {
            policy(shares(i), each.div_ceil(4), each.max(2) * 4 / 5)
        });
        for (name, part) in [("not binding", 1_000), ("of writes binding", 1)] {
            line(&format!("limits of reads and writes, {name}"), busy, || {
                let limit = |n: u64| DirectionLimits { iops: Iops::new(n).ok(), bandwidth: None };
                let write = (each * part).div_ceil(4);
                let policy = |i| {
                    policy(shares(i), each.div_ceil(4), 0)
                        .with_direction_limits(limit(each.max(2) * 1_000), limit(write))
                        .expect("the reservation is below the sum")
                };
                let mut driver = Driver::new(SchedulerKind::MClock, busy, 0, policy);
                driver.kinds = Kinds::Both;
                driver
            });
        }
        row("all three, shortage", busy, 0, SchedulerKind::MClock, |i| {
            policy(shares(i), each * 2, each * 100)
        });
        line("all three, two IOs told of other servers", busy, || {
            let policy = |i| policy(shares(i), each.div_ceil(2), 1_000_000_000);
            let tell = ServedElsewhere::new(Cost::from_ios(2), Cost::ONE, Bytes(8_192))
                .expect("rho is below delta");
            Driver { tell, ..Driver::new(SchedulerKind::MClock, busy, 0, policy) }
        });
        for streams in [1, 2, 8, 254] {
            for (name, scope) in
                [("within VMs", PriorityScope::WithinVm), ("across VMs", PriorityScope::AcrossVms)]
            {
                if streams as usize * busy > 300_000 {
                    continue;
                }
                line(&format!("shares, priorities {name}, {streams} per disk"), busy, || {
                    Driver::new(SchedulerKind::MClock, busy, 0, |i| policy(shares(i), 0, 0))
                        .with_streams(streams, scope)
                });
            }
        }
        row("sfq", busy, 0, SchedulerKind::Sfq, |i| policy(shares(i), 0, 0));
        row("fifo", busy, 0, SchedulerKind::Fifo, |i| policy(shares(i), 0, 0));
    }
    row("all three, beside 100,000 idle disks", 100, 100_000, SchedulerKind::MClock, |i| {
        policy(1 + i as u64 % 7, 5_000, 1_000_000_000)
    });

    let mut micros: Vec<u64> = (0..RUNS)
        .map(|_| {
            let mut scheduler = MClock::<Request>::new(Config::default())
                .expect("the default configuration is valid");
            let start = cpu_time();
            for i in 0..100_000 {
                black_box(scheduler.register(Nanos(i), policy(1 + i % 7, 10, 1_000)));
            }
            (cpu_time() - start) / 1_000
        })
        .collect();
    micros.sort_unstable();
    println!(
        "registering 100,000 disks: {} us (range {} - {})",
        micros[RUNS / 2],
        micros[0],
        micros[RUNS - 1]
    );

    let live = LIVE_BYTES.load(Ordering::Relaxed);
    let mut scheduler =
        MClock::<Request>::new(Config::default()).expect("the default configuration is valid");
    let disks: Vec<DiskId> =
        (0..1u64 << 16).map(|i| scheduler.register(Nanos(i), policy(1, 10, 1_000))).collect();
    let held =
        LIVE_BYTES.load(Ordering::Relaxed) - live - (disks.capacity() * size_of::<DiskId>()) as u64;
    println!("memory per idle disk: {} bytes", held >> 16);
    let live = LIVE_BYTES.load(Ordering::Relaxed);
    for disk in disks.iter().cycle().take(1 << 18) {
        scheduler.enqueue(Nanos(1 << 20), *disk, Io::default(), 0).expect("the disk is registered");
    }
    let held = LIVE_BYTES.load(Ordering::Relaxed) - live;
    println!(
        "memory per queued request of {} bytes, four per disk, seats of their disks included: {} bytes",
        size_of::<Request>(),
        held >> 18
    );
}
