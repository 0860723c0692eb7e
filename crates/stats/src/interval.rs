use crate::{COST_OF_ONE_IO, Counts, DirectionSnapshot, DiskSnapshot, HistogramSnapshot};
use headgate_units::{Bytes, Iops, Nanos};
use serde::{Deserialize, Serialize};

/// Latencies over an interval. Percentiles are never too low and at most 3.2 % or 1 us too high.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Percentiles {
    /// The mean, exact.
    pub mean: Nanos,
    /// The median.
    pub p50: Nanos,
    /// 90 % did not take longer.
    pub p90: Nanos,
    /// 99 % did not take longer.
    pub p99: Nanos,
    /// 99.9 % did not take longer.
    pub p999: Nanos,
}

impl Percentiles {
    /// `None` when nothing was counted.
    pub fn of(histogram: &HistogramSnapshot) -> Option<Percentiles> {
        Some(Percentiles {
            mean: histogram.mean()?,
            p50: histogram.at_permille(500)?,
            p90: histogram.at_permille(900)?,
            p99: histogram.at_permille(990)?,
            p999: histogram.at_permille(999)?,
        })
    }
}

/// Reads, or writes, over an interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Flow {
    /// Completions per second.
    pub iops: f64,
    /// Bytes per second.
    pub bytes_per_sec: f64,
    /// Mean size of what completed; zero when nothing did.
    pub mean_size: Bytes,
    /// 90 % of what arrived was not larger, rounded up to a power of two.
    pub size_p90: Option<Bytes>,
    /// Mean number at the device, by Little's law.
    pub at_device: f64,
    /// From arrival to dispatch.
    pub queue: Option<Percentiles>,
    /// From dispatch to completion.
    pub device: Option<Percentiles>,
    /// From arrival to completion.
    pub total: Option<Percentiles>,
}

impl Flow {
    const NOTHING: Flow = Flow {
        iops: 0.0,
        bytes_per_sec: 0.0,
        mean_size: Bytes(0),
        size_p90: None,
        at_device: 0.0,
        queue: None,
        device: None,
        total: None,
    };

    fn of(seconds: f64, difference: &DirectionSnapshot) -> Flow {
        Flow {
            iops: per(difference.counts.done as f64, seconds),
            bytes_per_sec: per(difference.counts.bytes as f64, seconds),
            mean_size: Bytes(
                difference.counts.bytes.checked_div(difference.counts.done).unwrap_or(0),
            ),
            size_p90: difference.size_at_permille(900),
            at_device: per(difference.device.sum() as f64 / 1e9, seconds),
            queue: Percentiles::of(&difference.queue),
            device: Percentiles::of(&difference.device),
            total: Percentiles::of(&difference.total),
        }
    }
}

/// What a disk did between two snapshots: figures for reports, in floating point where they are
/// rates.
///
/// An interval of no length has rates of zero. Fractions of nothing are `None`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// How long.
    pub length: Nanos,
    /// Completions per second, of every kind.
    pub iops: f64,
    /// Bytes read and written per second.
    pub bytes_per_sec: f64,
    /// Reads.
    pub reads: Flow,
    /// Writes.
    pub writes: Flow,
    /// Flushes per second.
    pub flushes_per_sec: f64,
    /// Discards per second.
    pub discards_per_sec: f64,
    /// Write-zeroes per second.
    pub write_zeroes_per_sec: f64,
    /// Requests of any kind that failed.
    pub errors: u64,
    /// Mean number of requests outstanding, queued ones included.
    pub outstanding: f64,
    /// Reads among reads and writes, 0 to 1.
    pub read_fraction: Option<f64>,
    /// Reads and writes that continue a stream, 0 to 1.
    pub sequential_fraction: Option<f64>,
    /// Requests per second dispatched by reservation.
    pub reservation_iops: f64,
    /// Requests per second dispatched by weight.
    pub weight_iops: f64,
    /// Normalised IOs per second dispatched, in either phase: what reservation and limit are
    /// measured in.
    pub normalised_iops: f64,
}

impl Interval {
    /// A time in which the disk did nothing, and nothing waited.
    pub const fn still(length: Nanos) -> Interval {
        Interval {
            length,
            iops: 0.0,
            bytes_per_sec: 0.0,
            reads: Flow::NOTHING,
            writes: Flow::NOTHING,
            flushes_per_sec: 0.0,
            discards_per_sec: 0.0,
            write_zeroes_per_sec: 0.0,
            errors: 0,
            outstanding: 0.0,
            read_fraction: None,
            sequential_fraction: None,
            reservation_iops: 0.0,
            weight_iops: 0.0,
            normalised_iops: 0.0,
        }
    }

    pub(crate) fn of(earlier: &DiskSnapshot, now: &DiskSnapshot, length: Nanos) -> Interval {
        let rates = Rates::of(earlier, now, length);
        let (seconds, difference) = (rates.length.as_secs_f64(), now.difference(earlier));
        Interval {
            length: rates.length,
            iops: rates.iops,
            bytes_per_sec: rates.bytes_per_sec,
            reads: Flow::of(seconds, &difference.reads),
            writes: Flow::of(seconds, &difference.writes),
            flushes_per_sec: per(difference.flushes.done as f64, seconds),
            discards_per_sec: per(difference.discards.done as f64, seconds),
            write_zeroes_per_sec: per(difference.write_zeroes.done as f64, seconds),
            errors: rates.errors,
            outstanding: rates.outstanding,
            read_fraction: rates.read_fraction,
            sequential_fraction: fraction(difference.sequential, difference.seeks.count()),
            reservation_iops: per(difference.served.reservation_ios as f64, seconds),
            weight_iops: per(difference.served.weight_ios as f64, seconds),
            normalised_iops: rates.normalised_iops,
        }
    }
}

/// What a disk did between two snapshots, without what needs its histograms: what is asked each
/// second of each of a thousand disks.
///
/// An interval of no length has rates of zero. Fractions of nothing are `None`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// How long.
    pub length: Nanos,
    /// Completions per second, of every kind.
    pub iops: f64,
    /// Bytes read and written per second.
    pub bytes_per_sec: f64,
    /// Requests of any kind that failed.
    pub errors: u64,
    /// Mean number of requests outstanding, queued ones included.
    pub outstanding: f64,
    /// Reads among reads and writes, 0 to 1.
    pub read_fraction: Option<f64>,
    /// Normalised IOs per second dispatched, in either phase: what reservation and limit are
    /// measured in.
    pub normalised_iops: f64,
}

impl Rates {
    /// A time in which the disk did nothing, and nothing waited.
    pub const fn still(length: Nanos) -> Rates {
        Rates {
            length,
            iops: 0.0,
            bytes_per_sec: 0.0,
            errors: 0,
            outstanding: 0.0,
            read_fraction: None,
            normalised_iops: 0.0,
        }
    }

    pub(crate) fn of(earlier: &DiskSnapshot, now: &DiskSnapshot, length: Nanos) -> Rates {
        let seconds = length.as_secs_f64();
        let kinds = now.kinds().zip(earlier.kinds()).map(|(now, earlier)| now.since(earlier));
        let mut all = Counts::default();
        kinds.for_each(|kind| all.merge(&kind));
        let reads = now.reads.counts.since(&earlier.reads.counts);
        let writes = now.writes.counts.since(&earlier.writes.counts);
        let served = now.served.since(&earlier.served);
        let cost = served.reservation_cost + served.weight_cost;
        let outstanding = now.outstanding_time.saturating_sub(earlier.outstanding_time);
        Rates {
            length,
            iops: per(all.done as f64, seconds),
            bytes_per_sec: per(reads.bytes.saturating_add(writes.bytes) as f64, seconds),
            errors: all.errors,
            outstanding: per(outstanding as f64 / 1e9, seconds),
            read_fraction: fraction(reads.done, reads.done + writes.done),
            normalised_iops: per(cost as f64 / COST_OF_ONE_IO as f64, seconds),
        }
    }

    /// Served / reserved. At least 1 for a disk that asked for its reservation and got it; below 1
    /// also when it asked for less, so look at [`Rates::outstanding`] with it.
    pub fn achieved_reservation(&self, reservation: Iops) -> f64 {
        self.normalised_iops / reservation.get() as f64
    }

    /// The part of the datastore's service that the disk got, relative to the part `due` that
    /// shares give it among those that compete, 0 to 1: 1 is exactly its share. `None` when nobody
    /// was served.
    pub fn achieved_share(&self, due: f64, datastore: &Rates) -> Option<f64> {
        let got = self.normalised_iops / datastore.normalised_iops;
        Some(got / due).filter(|relative| relative.is_finite())
    }
}

fn per(amount: f64, seconds: f64) -> f64 {
    if seconds > 0.0 { amount / seconds } else { 0.0 }
}

fn fraction(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}
