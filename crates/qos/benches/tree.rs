//! What a decision of a tree costs by depth and number of leaves, beside the flat scheduler in the
//! same run: `cargo bench -p headgate-qos --bench tree`, or in part `-- 1000`.
//!
//! One step is a dispatch, its completion and the next request of the same leaf, at 1,000,000 IOs
//! per simulated second. Times are this thread's CPU time. All rows of a size are measured in turn,
//! nine times: the median and the range.

use headgate_qos::{
    Config, Decision, DiskId, Io, MClock, MClockTree, NodeId, Policy, Scheduler, TreeDecision,
};
use headgate_units::{Bytes, Iops, Nanos, Shares};
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
const STEPS: u64 = 200_000;
const RATE: u64 = 1_000_000;
const QUEUED: usize = 4;

fn policy(shares: u64, reservation: u64, limit: u64) -> Policy {
    Policy::shared(Shares::new(shares).expect("in range"))
        .with_limit(Iops::new(limit).ok())
        .and_then(|policy| policy.with_reservation(Iops::new(reservation).ok()))
        .expect("the reservation is below the limit")
}

/// What leaves and groups have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Promises {
    Shares,
    /// Reservations of half of an even share at each level, and limits that do not bind.
    All,
    /// Limits of leaves bind.
    Limited,
}

impl Promises {
    /// Of a node that has so much of the storage if all have the same.
    fn of(self, number: usize, even: u64, is_leaf: bool) -> Policy {
        let shares = 1 + number as u64 % 7;
        match self {
            Promises::Shares => policy(shares, 0, 0),
            Promises::All => policy(shares, even.div_ceil(2), 1_000_000_000),
            Promises::Limited if is_leaf => policy(shares, even.div_ceil(4), even.max(2) * 4 / 5),
            Promises::Limited => policy(shares, even.div_ceil(4), 1_000_000_000),
        }
    }
}

fn io() -> Io {
    Io { bytes: Bytes(4_096), ..Io::default() }
}

trait Steps {
    fn steps(&mut self, steps: u64);
}

struct Flat {
    scheduler: MClock<u64>,
    now: Nanos,
}

impl Flat {
    fn new(leaves: usize, promises: Promises) -> Flat {
        let mut scheduler = MClock::new(Config::default()).expect("the defaults are valid");
        let now = Nanos::from_secs(1);
        let each = RATE / leaves as u64;
        let disks: Vec<DiskId> = (0..leaves)
            .map(|number| scheduler.register(now, promises.of(number, each, true)))
            .collect();
        for disk in disks {
            for _ in 0..QUEUED {
                scheduler.enqueue(now, disk, io(), 0).expect("the disk is registered");
            }
        }
        Flat { scheduler, now }
    }
}

impl Steps for Flat {
    fn steps(&mut self, steps: u64) {
        for _ in 0..steps {
            self.now += Nanos(1_000_000_000 / RATE);
            loop {
                match self.scheduler.dispatch(self.now) {
                    Decision::Dispatch(next) => {
                        self.scheduler.complete(self.now, next.disk);
                        let queued = self.scheduler.enqueue(
                            self.now,
                            next.disk,
                            io(),
                            black_box(next.request),
                        );
                        queued.expect("the disk is registered");
                        break;
                    }
                    Decision::WaitUntil(at) => self.now = at,
                    Decision::Idle => panic!("every disk has requests queued"),
                }
            }
        }
    }
}

struct Tree {
    scheduler: MClockTree<u64>,
    now: Nanos,
}

/// So many leaves at so many levels, as even as it goes: the width of each level.
fn widths(leaves: usize, depth: u32) -> Vec<usize> {
    let width = (leaves as f64).powf(1.0 / f64::from(depth)).round().max(1.0) as usize;
    let above = width.pow(depth - 1);
    let mut widths = vec![width; depth as usize - 1];
    widths.push(leaves.div_ceil(above));
    widths
}

impl Tree {
    fn build(leaves: usize, depth: u32, promises: Promises) -> (Tree, Vec<NodeId>) {
        let mut scheduler = MClockTree::new(Config::default()).expect("the defaults are valid");
        let now = Nanos::from_secs(1);
        let mut level = vec![NodeId::ROOT];
        let mut even = RATE;
        let widths = widths(leaves, depth);
        for (deep, width) in widths.iter().enumerate() {
            let is_leaf = deep + 1 == widths.len();
            even = (even / *width as u64).max(1);
            let mut next = Vec::new();
            for group in &level {
                for number in 0..*width {
                    let policy = promises.of(number, even, is_leaf);
                    let added = match is_leaf {
                        true => scheduler.add_leaf(now, *group, policy),
                        false => scheduler.add_group(now, *group, policy),
                    };
                    next.push(added.expect("what is promised fits"));
                }
            }
            level = next;
        }
        (Tree { scheduler, now }, level)
    }

    fn new(leaves: usize, depth: u32, promises: Promises) -> Tree {
        let (mut tree, leaves) = Tree::build(leaves, depth, promises);
        for leaf in leaves {
            for _ in 0..QUEUED {
                tree.scheduler.enqueue(tree.now, leaf, io(), 0).expect("the leaf was added");
            }
        }
        tree
    }
}

impl Steps for Tree {
    fn steps(&mut self, steps: u64) {
        for _ in 0..steps {
            self.now += Nanos(1_000_000_000 / RATE);
            loop {
                match self.scheduler.dispatch(self.now) {
                    TreeDecision::Dispatch(next) => {
                        self.scheduler.complete(self.now, next.leaf);
                        let queued = self.scheduler.enqueue(
                            self.now,
                            next.leaf,
                            io(),
                            black_box(next.request),
                        );
                        queued.expect("the leaf was added");
                        break;
                    }
                    TreeDecision::WaitUntil(at) => self.now = at,
                    TreeDecision::Idle => panic!("every leaf has requests queued"),
                }
            }
        }
    }
}

/// One row: a scheduler, and tenths of nanoseconds per step of each run.
struct Row {
    name: String,
    steps: Box<dyn Steps>,
    tenths: Vec<u64>,
    allocations: u64,
}

fn compare(leaves: usize, promises: Promises, what: &str) {
    let mut rows = vec![Row {
        name: format!("{what}, flat"),
        steps: Box::new(Flat::new(leaves, promises)),
        tenths: Vec::new(),
        allocations: 0,
    }];
    for depth in 1..=4 {
        rows.push(Row {
            name: format!("{what}, tree of depth {depth}"),
            steps: Box::new(Tree::new(leaves, depth, promises)),
            tenths: Vec::new(),
            allocations: 0,
        });
    }
    for row in &mut rows {
        row.steps.steps((3 * leaves as u64).max(STEPS));
        row.tenths.reserve(RUNS);
    }
    for _ in 0..RUNS {
        for row in &mut rows {
            let (allocations, start) = (ALLOCATIONS.load(Ordering::Relaxed), cpu_time());
            row.steps.steps(STEPS);
            row.tenths.push((cpu_time() - start) * 10 / STEPS);
            row.allocations += ALLOCATIONS.load(Ordering::Relaxed) - allocations;
        }
    }
    for row in &mut rows {
        row.tenths.sort_unstable();
        let show = |tenths: u64| format!("{}.{}", tenths / 10, tenths % 10);
        println!(
            "{:<40} {leaves:>7} {:>8}  {:>7} - {:<7} {:>11}",
            row.name,
            show(row.tenths[RUNS / 2]),
            show(row.tenths[0]),
            show(row.tenths[RUNS - 1]),
            row.allocations
        );
    }
}

fn main() {
    println!(
        "{:<40} {:>7} {:>8}  {:^17} {:>11}",
        "ns per step, 4 queued per leaf", "leaves", "median", "range", "allocations"
    );
    let wanted: Vec<usize> = std::env::args().filter_map(|a| a.parse().ok()).collect();
    for leaves in [10, 1_000, 100_000] {
        if !wanted.is_empty() && !wanted.contains(&leaves) {
            continue;
        }
        compare(leaves, Promises::Shares, "shares");
        compare(leaves, Promises::All, "all three");
        compare(leaves, Promises::Limited, "limits bind");
    }
    for (promises, what) in [(Promises::Shares, "shares"), (Promises::All, "all three")] {
        let live = LIVE_BYTES.load(Ordering::Relaxed);
        let (tree, leaves) = Tree::build(100_000, 4, promises);
        let ids = (leaves.capacity() * size_of::<NodeId>()) as u64;
        let held = LIVE_BYTES.load(Ordering::Relaxed) - live - ids;
        println!(
            "memory per idle leaf of {} with {what}: {} bytes",
            leaves.len(),
            held / leaves.len() as u64
        );
        drop(tree);
    }
}
