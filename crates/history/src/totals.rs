//! Hourly totals of a datastore, which are kept longer than its intervals.

use headgate_placement::{Coarse, LeftOut, Outstanding, Totals};
use headgate_stats::{DiskSnapshot, HistogramSnapshot, Interval};
use headgate_units::{Bytes, Nanos};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Buckets in each doubling, as a power of two: 16.
const SPLIT: u32 = 4;

/// Latencies of requests to within 6.3 %, from 1 us on. Its size is that of its occupied buckets,
/// some tens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Latencies(BTreeMap<u16, u64>);

impl Latencies {
    pub(crate) fn add(&mut self, seen: &HistogramSnapshot) {
        for (latency, count) in seen.buckets() {
            let micros = latency.0.div_ceil(1_000).max(1);
            let octave = micros.ilog2();
            let within = if octave < SPLIT {
                micros << (SPLIT - octave)
            } else {
                micros >> (octave - SPLIT)
            };
            let within = within as u16 & ((1 << SPLIT) - 1);
            let mine = self.0.entry(((octave as u16) << SPLIT) + within).or_default();
            *mine = mine.saturating_add(count);
        }
    }

    pub(crate) fn merge(&mut self, other: &Latencies) {
        for (&bucket, &count) in &other.0 {
            let mine = self.0.entry(bucket).or_default();
            *mine = mine.saturating_add(count);
        }
    }

    /// The latency that `permille` thousandths of the requests did not exceed: never too low, and
    /// at most a tenth or 1 us too high. `None` without requests.
    pub fn at_permille(&self, permille: u32) -> Option<Nanos> {
        let count: u128 = self.0.values().map(|&count| u128::from(count)).sum();
        let rank = (count * u128::from(permille.min(1_000))).div_ceil(1_000).max(1);
        let mut below = 0;
        let bucket = self.0.iter().find_map(|(&bucket, &count)| {
            below += u128::from(count);
            (below >= rank).then_some(bucket)
        })?;
        // A damaged bucket must not panic.
        let (octave, within) =
            (u32::from(bucket >> SPLIT).min(40), u64::from(bucket & ((1 << SPLIT) - 1)));
        let lowest = (1 << SPLIT) + within;
        let highest = match octave.checked_sub(SPLIT) {
            Some(shift) => ((lowest + 1) << shift) - 1,
            None => lowest >> (SPLIT - octave),
        };
        Some(Nanos(highest * 1_000))
    }
}

/// Requests of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// How many.
    pub count: u64,
    /// Their bytes.
    pub bytes: Bytes,
}

impl Done {
    pub(crate) fn merge(&mut self, other: &Done) {
        self.add(other.count, other.bytes.0);
    }

    fn add(&mut self, count: u64, bytes: u64) {
        self.count = self.count.saturating_add(count);
        self.bytes = Bytes(self.bytes.0.saturating_add(bytes));
    }
}

/// A datastore's hour.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreHour {
    /// How much of it was seen: a daemon that did not run saw nothing.
    pub seen: Nanos,
    /// Reads that completed.
    pub reads: Done,
    /// Writes that completed.
    pub writes: Done,
    /// Requests that failed.
    pub errors: u64,
    /// Requests outstanding, integrated over time, in request-milliseconds.
    pub outstanding: u64,
    /// The most that were outstanding on average in one interval.
    pub peak: Outstanding,
    /// Of reads and writes, from dispatch to completion.
    pub device: Latencies,
    /// From arrival to completion.
    pub total: Latencies,
    /// Intervals by what they say of the device.
    pub totals: Totals,
    /// A few points in the place of those intervals.
    pub points: Coarse,
}

impl StoreHour {
    /// Counts an interval: the difference of two snapshots, the same in rates, and why it is no
    /// good point of the model.
    pub fn count(&mut self, difference: &DiskSnapshot, interval: &Interval, why: Option<LeftOut>) {
        self.seen = Nanos(self.seen.0.saturating_add(interval.length.0));
        self.reads.add(difference.reads.counts.done, difference.reads.counts.bytes);
        self.writes.add(difference.writes.counts.done, difference.writes.counts.bytes);
        self.errors = self.errors.saturating_add(interval.errors);
        let outstanding =
            u64::try_from(difference.outstanding_time / 1_000_000).unwrap_or(u64::MAX);
        self.outstanding = self.outstanding.saturating_add(outstanding);
        self.peak = self.peak.max(Outstanding::of(interval.outstanding));
        for direction in [&difference.reads, &difference.writes] {
            self.device.add(&direction.device);
            self.total.add(&direction.total);
        }
        self.totals.count_why(why);
    }

    /// Adds what was seen at other times of the hour; its points become those of the other, which
    /// are made anew of the whole hour.
    pub fn merge(&mut self, other: &StoreHour) {
        self.seen = Nanos(self.seen.0.saturating_add(other.seen.0));
        self.reads.add(other.reads.count, other.reads.bytes.0);
        self.writes.add(other.writes.count, other.writes.bytes.0);
        self.errors = self.errors.saturating_add(other.errors);
        self.outstanding = self.outstanding.saturating_add(other.outstanding);
        self.peak = self.peak.max(other.peak);
        self.device.merge(&other.device);
        self.total.merge(&other.total);
        self.totals.merge(&other.totals);
        self.points = other.points.clone();
    }

    /// Mean number of requests outstanding while it was seen.
    pub fn mean_outstanding(&self) -> f64 {
        self.per_second(self.outstanding) / 1e3
    }

    /// A count as a rate per second.
    pub fn per_second(&self, count: u64) -> f64 {
        if self.seen > Nanos::ZERO { count as f64 / self.seen.as_secs_f64() } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headgate_stats::LatencyHistogram;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn percentiles_are_never_too_low_and_a_tenth_too_high_at_most(
            micros in prop::collection::vec(1u64..100_000_000, 1..60), permille in 0u32..=1_000,
        ) {
            let mut histogram = LatencyHistogram::new();
            micros.iter().for_each(|&micros| histogram.record(Nanos::from_micros(micros)));
            let (mut once, mut twice) = (Latencies::default(), Latencies::default());
            once.add(&histogram.snapshot());
            let mut sorted = micros.clone();
            sorted.sort_unstable();
            let rank = (sorted.len() * permille as usize).div_ceil(1_000).max(1);
            let (truth, found) = (sorted[rank - 1], once.at_permille(permille).unwrap().0 / 1_000);
            prop_assert!(found >= truth && found <= truth + truth / 10 + 2, "{} instead of {}", found, truth);
            twice.merge(&once);
            twice.merge(&once);
            prop_assert_eq!(twice.at_permille(permille), once.at_permille(permille));
        }

        #[test]
        fn no_bucket_hurts(buckets: BTreeMap<u16, u64>) {
            let latencies = Latencies(buckets);
            prop_assert_eq!(latencies.at_permille(990).is_none(), latencies.0.is_empty() || latencies.0.values().all(|&n| n == 0));
        }
    }
}
