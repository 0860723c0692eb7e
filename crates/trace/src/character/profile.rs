//! The traits, as they are reported.

use super::clocked::{Clocked, Shares};
pub use super::placed::Volume;
use super::placed::{PAGE, Placed};
use crate::outstanding::{Outstanding, Unknown};
use headgate_stats::{LatencyHistogram, Percentiles};
use headgate_units::{Bytes, Nanos};
use serde::Serialize;
use std::collections::BTreeMap;

/// A trace's workload.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Character {
    /// Shares are taken over intervals of this length.
    pub interval: Nanos,
    /// All disks together.
    pub whole: Profile,
    /// Each disk that has requests, in the order in which the trace names them.
    pub disks: Vec<DiskProfile>,
}

/// A disk and its traits.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DiskProfile {
    /// The disk's name.
    pub disk: String,
    /// Its traits.
    #[serde(flatten)]
    pub profile: Profile,
}

/// Sizes of requests; exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Sizes {
    /// The mean.
    pub mean: Bytes,
    /// Half are not larger.
    pub p50: Bytes,
    /// 90 % are not larger: what BASIL calls the IO size.
    pub p90: Bytes,
    /// 99 % are not larger.
    pub p99: Bytes,
    /// The largest.
    pub max: Bytes,
}

impl Sizes {
    fn of<'a>(counts: impl Iterator<Item = &'a BTreeMap<u64, u64>>) -> Option<Sizes> {
        let mut sizes = BTreeMap::new();
        for (&size, &count) in counts.flatten() {
            *sizes.entry(size).or_insert(0u64) += count;
        }
        let count: u128 = sizes.values().map(|&n| u128::from(n)).sum();
        let sum: u128 = sizes.iter().map(|(&size, &n)| u128::from(size) * u128::from(n)).sum();
        let mean = sum.checked_div(count)?;
        let at_permille = |permille: u128| {
            let rank = (count * permille).div_ceil(1_000).max(1);
            let mut below = 0;
            sizes.iter().find_map(|(&size, &n)| {
                below += u128::from(n);
                (below >= rank).then_some(Bytes(size))
            })
        };
        Some(Sizes {
            mean: Bytes(u64::try_from(mean).unwrap_or(u64::MAX)),
            p50: at_permille(500)?,
            p90: at_permille(900)?,
            p99: at_permille(990)?,
            max: at_permille(1_000)?,
        })
    }
}

/// A share in percent over intervals: so many of them did not exceed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Quantiles {
    /// 10 % of the intervals.
    pub p10: u8,
    /// Half of the intervals.
    pub p50: u8,
    /// 90 % of the intervals.
    pub p90: u8,
}

impl Quantiles {
    fn of(shares: &Shares) -> Option<Quantiles> {
        Some(Quantiles {
            p10: shares.at_permille(100)?,
            p50: shares.at_permille(500)?,
            p90: shares.at_permille(900)?,
        })
    }
}

/// The traits of a workload. Fractions are 0 to 1, `None` where there is nothing to take them of.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Profile {
    /// From the first request to the last.
    pub duration: Nanos,
    /// The first request.
    pub first: Nanos,
    /// Requests of all kinds.
    pub requests: u64,
    /// Reads.
    pub reads: Volume,
    /// Writes.
    pub writes: Volume,
    /// Flushes.
    pub flushes: u64,
    /// Discards.
    pub discards: Volume,
    /// Requests per second over the duration, `None` if it has no length.
    pub iops: Option<f64>,
    /// Most requests in one second.
    pub peak_iops: u64,
    /// Bytes read and written per second over the duration.
    pub bytes_per_sec: Option<f64>,
    /// Sizes of reads and writes.
    pub sizes: Option<Sizes>,
    /// Sizes of reads.
    pub read_sizes: Option<Sizes>,
    /// Sizes of writes.
    pub write_sizes: Option<Sizes>,
    /// Reads among reads and writes.
    pub read_fraction: Option<f64>,
    /// The same in percent, by interval.
    pub read_percent: Option<Quantiles>,
    /// Reads and writes that begin more than 1 MiB from the end of the one before on their disk.
    pub random_fraction: Option<f64>,
    /// The same in percent, by interval.
    pub random_percent: Option<Quantiles>,
    /// Reads and writes that continue one of the last 8 on their disk.
    pub sequential_fraction: Option<f64>,
    /// Distinct pages of 4 KiB read or written.
    pub footprint: Bytes,
    /// Distinct pages of 4 KiB written.
    pub written_footprint: Bytes,
    /// Requests outstanding, where the trace says.
    pub outstanding: Option<Outstanding>,
    /// Why it does not.
    pub outstanding_unknown: Option<Unknown>,
    /// Latencies of those reads that have one.
    pub read_latency: Option<Percentiles>,
    /// Latencies of those writes that have one.
    pub write_latency: Option<Percentiles>,
}

fn fraction(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

impl Profile {
    pub(super) fn of(placed: &Placed, clocked: &Clocked) -> Profile {
        let first = clocked.first.unwrap_or_default();
        let duration = clocked.last.since(first);
        let counts = &placed.counts;
        let per_second =
            |amount: u64| (duration.0 > 0).then(|| amount as f64 / duration.as_secs_f64());
        let (read_share, far_share) = clocked.shares();
        let streams = placed.streams();
        let outstanding = clocked.follower.finish();
        let latencies = |histogram: &Option<Box<LatencyHistogram>>| {
            histogram.as_ref().and_then(|histogram| Percentiles::of(&histogram.snapshot()))
        };
        Profile {
            duration,
            first,
            requests: clocked.requests,
            reads: counts.reads,
            writes: counts.writes,
            flushes: counts.flushes,
            discards: counts.discards,
            iops: per_second(clocked.requests),
            peak_iops: clocked.peak(),
            bytes_per_sec: per_second(counts.reads.bytes.saturating_add(counts.writes.bytes)),
            sizes: Sizes::of([&placed.read_sizes, &placed.write_sizes].into_iter()),
            read_sizes: Sizes::of(std::iter::once(&placed.read_sizes)),
            write_sizes: Sizes::of(std::iter::once(&placed.write_sizes)),
            read_fraction: fraction(
                counts.reads.requests,
                counts.reads.requests + counts.writes.requests,
            ),
            read_percent: Quantiles::of(&read_share),
            random_fraction: fraction(placed.far, placed.far + placed.near),
            random_percent: Quantiles::of(&far_share),
            sequential_fraction: fraction(streams.sequential, streams.seeks.count()),
            footprint: Bytes(placed.touched_pages.saturating_mul(PAGE)),
            written_footprint: Bytes(placed.written_pages.saturating_mul(PAGE)),
            outstanding: outstanding.as_ref().ok().copied(),
            outstanding_unknown: outstanding.err(),
            read_latency: latencies(&clocked.read_latency),
            write_latency: latencies(&clocked.write_latency),
        }
    }
}
