use crate::Sparse;
use crate::buckets::Buckets;
use headgate_units::Nanos;
use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};

/// Buckets in each octave (doubling) of the range, as a power of two: 32, each 3.1 % of its lower
/// edge wide at most.
const SPLIT: u32 = 5;
/// Below 2¹⁰ ns, about 1 us, everything is one bucket.
const LOWEST: u32 = 10;
/// From 2³⁷ ns, 137 s, on, everything is one bucket.
const HIGHEST: u32 = 37;
const BUCKETS: usize = (((HIGHEST - LOWEST) << SPLIT) + 2) as usize;
const WORDS: usize = BUCKETS.div_ceil(64);

/// Latencies in log-linear buckets: a value is known to within 3.2 %, from 1 us to 137 s. 7 KB.
///
/// Recording is a few instructions on three cache lines and takes no memory.
#[derive(Clone, Debug)]
pub struct LatencyHistogram {
    buckets: Buckets<BUCKETS, WORDS>,
    sum: u128,
}

impl LatencyHistogram {
    /// An empty histogram.
    pub const fn new() -> LatencyHistogram {
        LatencyHistogram { buckets: Buckets::new(), sum: 0 }
    }

    /// Counts a latency. O(1).
    #[inline]
    pub fn record(&mut self, latency: Nanos) {
        self.buckets.add(bucket_of(latency));
        self.sum += u128::from(latency.0);
    }

    /// The state now. O(occupied buckets).
    pub fn snapshot(&self) -> HistogramSnapshot {
        HistogramSnapshot { buckets: self.buckets.snapshot(|bucket| bucket as u16), sum: self.sum }
    }
}

impl Default for LatencyHistogram {
    fn default() -> LatencyHistogram {
        LatencyHistogram::new()
    }
}

#[inline]
fn bucket_of(latency: Nanos) -> usize {
    let octave = (latency.0 | 1).ilog2();
    if octave < LOWEST {
        0
    } else if octave >= HIGHEST {
        BUCKETS - 1
    } else {
        let within = (latency.0 >> (octave - SPLIT)) as usize & ((1 << SPLIT) - 1);
        1 + (((octave - LOWEST) as usize) << SPLIT) + within
    }
}

/// The largest latency that falls into the bucket; for the last bucket, which has no end, its lower
/// edge.
fn highest_of(bucket: u16) -> Nanos {
    let Some(index) = u64::from(bucket).checked_sub(1) else { return Nanos((1 << LOWEST) - 1) };
    let octave = LOWEST + (index >> SPLIT) as u32;
    if octave >= HIGHEST {
        return Nanos(1 << HIGHEST);
    }
    let within = index & ((1 << SPLIT) - 1);
    Nanos((((1 << SPLIT) + within + 1) << (octave - SPLIT)) - 1)
}

/// A [`LatencyHistogram`] at one instant, or the difference of two. Its size is that of its
/// occupied buckets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistogramSnapshot {
    buckets: Sparse<u16>,
    sum: u128,
}

impl HistogramSnapshot {
    /// Latencies counted. O(buckets).
    pub fn count(&self) -> u64 {
        self.buckets.count()
    }

    /// Sum of all latencies, exact, in nanoseconds. Over an interval, sum / length is the mean
    /// number outstanding in that stage (Little's law).
    pub fn sum(&self) -> u128 {
        self.sum
    }

    /// The mean, exact; `None` when nothing was counted.
    pub fn mean(&self) -> Option<Nanos> {
        let mean = self.sum.checked_div(u128::from(self.count()))?;
        Some(Nanos(u64::try_from(mean).unwrap_or(u64::MAX)))
    }

    /// The latency that `permille` (0 to 1,000) of all did not exceed; `None` when nothing was
    /// counted. Never too low, and at most 3.2 % or 1 us too high; from 137 s on it says 137 s.
    /// O(buckets).
    pub fn at_permille(&self, permille: u32) -> Option<Nanos> {
        self.buckets.at_permille(permille).map(highest_of)
    }

    /// Occupied buckets, ascending: the largest latency each holds, and its count.
    pub fn buckets(&self) -> impl Iterator<Item = (Nanos, u64)> + '_ {
        self.buckets.iter().map(|(bucket, count)| (highest_of(bucket), count))
    }

    /// Adds what `other` counted.
    pub fn merge(&mut self, other: &HistogramSnapshot) {
        self.buckets.merge(&other.buckets);
        self.sum += other.sum;
    }

    /// What was counted since `earlier`, an earlier snapshot of the same histogram.
    pub fn since(&self, earlier: &HistogramSnapshot) -> HistogramSnapshot {
        HistogramSnapshot {
            buckets: self.buckets.since(&earlier.buckets),
            sum: self.sum.saturating_sub(earlier.sum),
        }
    }
}

/// As a list of pairs: the largest latency of a bucket in nanoseconds, and its count.
impl Serialize for HistogramSnapshot {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut pairs = serializer.serialize_seq(None)?;
        for pair in self.buckets() {
            pairs.serialize_element(&pair)?;
        }
        pairs.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn buckets_tile_the_range_in_order() {
        for bucket in 0..BUCKETS as u16 - 1 {
            let last = highest_of(bucket);
            assert_eq!(bucket_of(last), usize::from(bucket));
            assert_eq!(bucket_of(last + Nanos(1)), usize::from(bucket) + 1);
        }
        assert_eq!(bucket_of(Nanos::ZERO), 0);
        assert_eq!(bucket_of(Nanos::MAX), BUCKETS - 1);
        assert_eq!(highest_of(BUCKETS as u16 - 1), Nanos(1 << HIGHEST));
    }

    proptest! {
        #[test]
        fn percentiles_agree_with_hdrhistogram(
            values in prop::collection::vec((1_024u64..2_000_000_000, 0u32..20), 1..300),
        ) {
            let mut ours = LatencyHistogram::new();
            let mut reference = hdrhistogram::Histogram::<u64>::new_with_bounds(1, 100_000_000_000, 3).unwrap();
            for (value, shift) in values {
                let latency = (value >> shift).max(1_024);
                ours.record(Nanos(latency));
                reference.record(latency).unwrap();
            }
            let ours = ours.snapshot();
            prop_assert_eq!(ours.count(), reference.len());
            for permille in [500, 900, 990, 999, 1_000] {
                let expected = reference.value_at_quantile(f64::from(permille) / 1_000.0) as f64;
                let got = ours.at_permille(permille).unwrap().0 as f64;
                // The reference itself is exact to 0.1 %.
                prop_assert!(got >= expected * 0.998 && got <= expected * 1.034, "{got} and {expected}");
            }
        }
    }
}
