use crate::LatencyHistogram;
use crate::buckets::Buckets;
use crate::seek::Seeks;
use crate::snapshot::{Counts, DirectionSnapshot, DiskSnapshot, Served};
use alloc::boxed::Box;
use headgate_units::{Bytes, Nanos};

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Data from the disk.
    Read,
    /// Data to the disk.
    Write,
    /// Completed writes to stable storage.
    Flush,
    /// A range is not needed.
    Discard,
    /// A range becomes zeroes.
    WriteZeroes,
    /// Questions and advice.
    Other,
}

/// Which of a disk's promises paid for a dispatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Its reservation.
    Reservation,
    /// Its shares.
    Weight,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Done.
    Done,
    /// Failed.
    Failed,
}

/// How long a request took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latency {
    /// From dispatch to completion.
    pub device: Nanos,
    /// From arrival to completion.
    pub total: Nanos,
}

/// Online statistics of one disk, or of all disks of a datastore together.
///
/// Every request is announced by [`DiskStats::on_arrival`], then [`DiskStats::on_dispatch`] if it
/// gets so far, and finally [`DiskStats::on_complete`], however it ends, or
/// [`DiskStats::on_withdraw`], if its client took it back unserved. 1.5 KB, and 21 KB more from the
/// first read and the first write on; nothing is allocated after that.
#[derive(Clone, Debug)]
pub struct DiskStats {
    outstanding: u64,
    /// `outstanding` integrated over time up to `seen`, in request-nanoseconds.
    outstanding_time: u128,
    /// Requests that are held for the storage's trouble, and the same of them.
    held: u64,
    held_time: u128,
    seen: Nanos,
    reads: Direction,
    writes: Direction,
    flushes: Counts,
    discards: Counts,
    write_zeroes: Counts,
    others: Counts,
    served: Served,
    seeks: Seeks,
}

impl DiskStats {
    /// Nothing counted yet.
    pub fn new(now: Nanos) -> DiskStats {
        DiskStats {
            outstanding: 0,
            outstanding_time: 0,
            held: 0,
            held_time: 0,
            seen: now,
            reads: Direction::default(),
            writes: Direction::default(),
            flushes: Counts::default(),
            discards: Counts::default(),
            write_zeroes: Counts::default(),
            others: Counts::default(),
            served: Served::default(),
            seeks: Seeks::new(),
        }
    }

    /// A request came in. `offset` and `bytes` are its range. O(1).
    #[inline]
    pub fn on_arrival(&mut self, now: Nanos, op: Op, offset: u64, bytes: Bytes) {
        self.integrate(now);
        self.outstanding += 1;
        let direction = match op {
            Op::Read => &mut self.reads,
            Op::Write => &mut self.writes,
            Op::Flush | Op::Discard | Op::WriteZeroes | Op::Other => return,
        };
        direction.sizes.add(size_bucket(bytes));
        self.seeks.record(offset, offset.saturating_add(bytes.0));
    }

    /// The scheduler let the request go after `queue_time`, at the expense of `phase`. `cost` is in
    /// units of [`COST_OF_ONE_IO`](crate::COST_OF_ONE_IO). O(1).
    #[inline]
    pub fn on_dispatch(&mut self, _now: Nanos, op: Op, queue_time: Nanos, phase: Phase, cost: u64) {
        match phase {
            Phase::Reservation => {
                self.served.reservation_ios += 1;
                self.served.reservation_cost += u128::from(cost);
            }
            Phase::Weight => {
                self.served.weight_ios += 1;
                self.served.weight_cost += u128::from(cost);
            }
        }
        match op {
            Op::Read => self.reads.latencies().queue.record(queue_time),
            Op::Write => self.writes.latencies().queue.record(queue_time),
            Op::Flush | Op::Discard | Op::WriteZeroes | Op::Other => {}
        }
    }

    /// The client took a request of this length back before it was dispatched, and may send it
    /// again. O(1).
    pub fn on_withdraw(&mut self, now: Nanos, op: Op, bytes: Bytes) {
        self.integrate(now);
        self.outstanding = self.outstanding.saturating_sub(1);
        let direction = match op {
            Op::Read => &mut self.reads,
            Op::Write => &mut self.writes,
            Op::Flush | Op::Discard | Op::WriteZeroes | Op::Other => return,
        };
        direction.sizes.take(size_bucket(bytes));
    }

    /// The disk holds a request because its storage is in trouble: what waits for that says nothing
    /// of the load that its client makes. O(1).
    pub fn on_hold(&mut self, now: Nanos) {
        self.integrate(now);
        self.outstanding = self.outstanding.saturating_sub(1);
        self.held += 1;
    }

    /// A request that was held goes on. O(1).
    pub fn on_resume(&mut self, now: Nanos) {
        self.on_held_withdraw(now);
        self.outstanding += 1;
    }

    /// The client took a request back that was held. O(1).
    pub fn on_held_withdraw(&mut self, now: Nanos) {
        self.integrate(now);
        self.held = self.held.saturating_sub(1);
    }

    /// The request ended. `bytes` is the length of its range. What failed is counted as an error
    /// and nowhere else. O(1).
    #[inline]
    pub fn on_complete(
        &mut self,
        now: Nanos,
        op: Op,
        bytes: Bytes,
        latency: Latency,
        outcome: Outcome,
    ) {
        self.integrate(now);
        self.outstanding = self.outstanding.saturating_sub(1);
        let counts = match op {
            Op::Read => &mut self.reads.counts,
            Op::Write => &mut self.writes.counts,
            Op::Flush => &mut self.flushes,
            Op::Discard => &mut self.discards,
            Op::WriteZeroes => &mut self.write_zeroes,
            Op::Other => &mut self.others,
        };
        if outcome == Outcome::Failed {
            counts.errors += 1;
            return;
        }
        counts.done += 1;
        counts.bytes = counts.bytes.saturating_add(bytes.0);
        let direction = match op {
            Op::Read => &mut self.reads,
            Op::Write => &mut self.writes,
            Op::Flush | Op::Discard | Op::WriteZeroes | Op::Other => return,
        };
        let latencies = direction.latencies();
        latencies.device.record(latency.device);
        latencies.total.record(latency.total);
    }

    /// Requests that arrived and have not completed.
    pub fn outstanding(&self) -> u64 {
        self.outstanding
    }

    /// Whether nothing is under way: without an event, a later snapshot differs in its time alone.
    pub fn is_still(&self) -> bool {
        self.outstanding == 0 && self.held == 0
    }

    /// Reads and writes that were done.
    pub fn transfers(&self) -> Counts {
        let mut both = self.reads.counts;
        both.merge(&self.writes.counts);
        both
    }

    /// [`DiskStats::outstanding`] integrated over time up to `now`, in request-nanoseconds.
    pub fn outstanding_time(&self, now: Nanos) -> u128 {
        self.outstanding_time + u128::from(self.outstanding) * u128::from(now.since(self.seen).0)
    }

    /// All counters at `now`. Takes a microsecond or two for a busy disk and a few hundred bytes to
    /// some KB.
    pub fn snapshot(&self, now: Nanos) -> DiskSnapshot {
        let at = now.max(self.seen);
        DiskSnapshot {
            at,
            reads: self.reads.snapshot(),
            writes: self.writes.snapshot(),
            flushes: self.flushes,
            discards: self.discards,
            write_zeroes: self.write_zeroes,
            others: self.others,
            outstanding: self.outstanding,
            outstanding_time: self.outstanding_time(at),
            held_time: self.held_time + u128::from(self.held) * u128::from(at.since(self.seen).0),
            served: self.served,
            sequential: self.seeks.sequential(),
            seeks: self.seeks.snapshot(),
        }
    }

    /// Bytes of memory this takes, allocations included.
    pub fn memory(&self) -> usize {
        let boxed = [&self.reads, &self.writes]
            .into_iter()
            .filter(|direction| direction.latencies.is_some())
            .count();
        size_of::<DiskStats>() + boxed * size_of::<Latencies>()
    }

    #[inline]
    fn integrate(&mut self, now: Nanos) {
        let passed = u128::from(now.since(self.seen).0);
        self.outstanding_time += u128::from(self.outstanding) * passed;
        self.held_time += u128::from(self.held) * passed;
        self.seen = self.seen.max(now);
    }
}

/// Sizes of 2^34 bytes and more are one bucket.
const SIZE_BUCKETS: usize = 35;

/// The power of two that the size does not exceed.
#[inline]
fn size_bucket(bytes: Bytes) -> usize {
    ((u64::BITS - bytes.0.saturating_sub(1).leading_zeros()) as usize).min(SIZE_BUCKETS - 1)
}

/// Reads, or writes.
#[derive(Clone, Debug)]
struct Direction {
    counts: Counts,
    sizes: Buckets<SIZE_BUCKETS, 1>,
    /// Made for the first request: most disks of a large host are idle, many only read or only
    /// write.
    latencies: Option<Box<Latencies>>,
}

#[derive(Clone, Debug, Default)]
struct Latencies {
    queue: LatencyHistogram,
    device: LatencyHistogram,
    total: LatencyHistogram,
}

impl Default for Direction {
    fn default() -> Direction {
        Direction { counts: Counts::default(), sizes: Buckets::new(), latencies: None }
    }
}

impl Direction {
    #[inline]
    fn latencies(&mut self) -> &mut Latencies {
        self.latencies.get_or_insert_with(Box::default)
    }

    fn snapshot(&self) -> DirectionSnapshot {
        let histograms = self.latencies.as_ref();
        let snapshot_of = |pick: fn(&Latencies) -> &LatencyHistogram| {
            histograms.map(|all| pick(all).snapshot()).unwrap_or_default()
        };
        DirectionSnapshot {
            counts: self.counts,
            sizes: self.sizes.snapshot(|bucket| bucket as u8),
            queue: snapshot_of(|all| &all.queue),
            device: snapshot_of(|all| &all.device),
            total: snapshot_of(|all| &all.total),
        }
    }
}
