use crate::{HistogramSnapshot, Interval, Rates, Sparse};
use headgate_units::{Bytes, Nanos};
use serde::Serialize;

/// The unit of cost: a request of one normalised IO costs so much.
pub const COST_OF_ONE_IO: u64 = 1_000_000;

/// Requests of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Completed without error.
    pub done: u64,
    /// Bytes of their ranges.
    pub bytes: u64,
    /// Completed with an error.
    pub errors: u64,
}

impl Counts {
    pub(crate) fn merge(&mut self, other: &Counts) {
        self.done += other.done;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.errors += other.errors;
    }

    pub(crate) fn since(&self, earlier: &Counts) -> Counts {
        Counts {
            done: self.done.saturating_sub(earlier.done),
            bytes: self.bytes.saturating_sub(earlier.bytes),
            errors: self.errors.saturating_sub(earlier.errors),
        }
    }
}

/// What the scheduler dispatched, by what paid for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Served {
    /// Requests by reservation.
    pub reservation_ios: u64,
    /// Requests by weight.
    pub weight_ios: u64,
    /// Cost by reservation, in units of [`COST_OF_ONE_IO`](crate::COST_OF_ONE_IO).
    pub reservation_cost: u128,
    /// Cost by weight, in the same units.
    pub weight_cost: u128,
}

impl Served {
    fn merge(&mut self, other: &Served) {
        self.reservation_ios += other.reservation_ios;
        self.weight_ios += other.weight_ios;
        self.reservation_cost += other.reservation_cost;
        self.weight_cost += other.weight_cost;
    }

    pub(crate) fn since(&self, earlier: &Served) -> Served {
        Served {
            reservation_ios: self.reservation_ios.saturating_sub(earlier.reservation_ios),
            weight_ios: self.weight_ios.saturating_sub(earlier.weight_ios),
            reservation_cost: self.reservation_cost.saturating_sub(earlier.reservation_cost),
            weight_cost: self.weight_cost.saturating_sub(earlier.weight_cost),
        }
    }
}

/// Reads, or writes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DirectionSnapshot {
    /// Completions.
    #[serde(flatten)]
    pub counts: Counts,
    /// Sizes at arrival: bucket b holds sizes above 2^(b-1) and up to 2^b bytes.
    pub sizes: Sparse<u8>,
    /// From arrival to dispatch.
    pub queue: HistogramSnapshot,
    /// From dispatch to completion.
    pub device: HistogramSnapshot,
    /// From arrival to completion.
    pub total: HistogramSnapshot,
}

impl DirectionSnapshot {
    /// The size that `permille` (0 to 1,000) of the requests did not exceed, rounded up to a power
    /// of two.
    pub fn size_at_permille(&self, permille: u32) -> Option<Bytes> {
        self.sizes.at_permille(permille).map(|bucket| Bytes(1 << bucket))
    }

    fn merge(&mut self, other: &DirectionSnapshot) {
        self.counts.merge(&other.counts);
        self.sizes.merge(&other.sizes);
        self.queue.merge(&other.queue);
        self.device.merge(&other.device);
        self.total.merge(&other.total);
    }

    fn since(&self, earlier: &DirectionSnapshot) -> DirectionSnapshot {
        DirectionSnapshot {
            counts: self.counts.since(&earlier.counts),
            sizes: self.sizes.since(&earlier.sizes),
            queue: self.queue.since(&earlier.queue),
            device: self.device.since(&earlier.device),
            total: self.total.since(&earlier.total),
        }
    }
}

/// All that a [`DiskStats`](crate::DiskStats) counted up to one instant: plain data, a few hundred
/// bytes to some KB.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DiskSnapshot {
    /// When.
    pub at: Nanos,
    /// Reads.
    pub reads: DirectionSnapshot,
    /// Writes.
    pub writes: DirectionSnapshot,
    /// Flushes. Their ranges mean nothing.
    pub flushes: Counts,
    /// Discards; bytes are what was discarded.
    pub discards: Counts,
    /// Write-zeroes; bytes are what was zeroed.
    pub write_zeroes: Counts,
    /// Questions and advice.
    pub others: Counts,
    /// Requests outstanding at `at`.
    pub outstanding: u64,
    /// Requests outstanding, integrated over time, in request-nanoseconds.
    pub outstanding_time: u128,
    /// Requests that were held for the storage's trouble, likewise. They are in nothing else here.
    pub held_time: u128,
    /// Dispatches.
    pub served: Served,
    /// Reads and writes that continued one of the last requests.
    pub sequential: u64,
    /// Distance of reads and writes to the nearest end of the last requests. Bucket 0: none; b > 0:
    /// forward by 2^(b-1) and more, below 2^b, sectors of 512 bytes; b < 0: backward by as much.
    pub seeks: Sparse<i8>,
}

impl DiskSnapshot {
    /// Adds another disk to this one: for the disks of a machine, or of a host. `at` becomes the
    /// later of the two.
    pub fn merge(&mut self, other: &DiskSnapshot) {
        self.at = self.at.max(other.at);
        self.reads.merge(&other.reads);
        self.writes.merge(&other.writes);
        self.flushes.merge(&other.flushes);
        self.discards.merge(&other.discards);
        self.write_zeroes.merge(&other.write_zeroes);
        self.others.merge(&other.others);
        self.outstanding += other.outstanding;
        self.outstanding_time += other.outstanding_time;
        self.held_time += other.held_time;
        self.served.merge(&other.served);
        self.sequential += other.sequential;
        self.seeks.merge(&other.seeks);
    }

    /// What happened from `earlier`, a snapshot of the same disk, to this one. Had the counters
    /// begun anew in between, what went down counts as zero. O(buckets).
    pub fn since(&self, earlier: &DiskSnapshot) -> Interval {
        self.since_over(earlier, self.at.since(earlier.at))
    }

    /// The same of a disk that did nothing for a part of the time, in which nobody looked: so long
    /// passed. O(buckets).
    pub fn since_over(&self, earlier: &DiskSnapshot, length: Nanos) -> Interval {
        Interval::of(earlier, self, length)
    }

    /// What [`DiskSnapshot::since`] says, without what needs histograms. O(1).
    pub fn rates_since(&self, earlier: &DiskSnapshot) -> Rates {
        self.rates_over(earlier, self.at.since(earlier.at))
    }

    /// What [`DiskSnapshot::since_over`] says, without what needs histograms. O(1).
    pub fn rates_over(&self, earlier: &DiskSnapshot, length: Nanos) -> Rates {
        Rates::of(earlier, self, length)
    }

    /// Requests by kind.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = &Counts> {
        let transfers = [&self.reads.counts, &self.writes.counts];
        let rest = [&self.flushes, &self.discards, &self.write_zeroes, &self.others];
        transfers.into_iter().chain(rest)
    }

    /// All that was counted from the beginning, which was at `start`.
    pub fn since_start(&self, start: Nanos) -> Interval {
        self.since(&DiskSnapshot { at: start, ..DiskSnapshot::default() })
    }

    /// This less `earlier`, counter by counter; `at` and `outstanding` are this one's.
    pub fn difference(&self, earlier: &DiskSnapshot) -> DiskSnapshot {
        DiskSnapshot {
            at: self.at,
            reads: self.reads.since(&earlier.reads),
            writes: self.writes.since(&earlier.writes),
            flushes: self.flushes.since(&earlier.flushes),
            discards: self.discards.since(&earlier.discards),
            write_zeroes: self.write_zeroes.since(&earlier.write_zeroes),
            others: self.others.since(&earlier.others),
            outstanding: self.outstanding,
            outstanding_time: self.outstanding_time.saturating_sub(earlier.outstanding_time),
            held_time: self.held_time.saturating_sub(earlier.held_time),
            served: self.served.since(&earlier.served),
            sequential: self.sequential.saturating_sub(earlier.sequential),
            seeks: self.seeks.since(&earlier.seeks),
        }
    }
}
