//! How long requests were recorded to take at the storage.

use super::work::Work;
use crate::Outstanding;
use alloc::vec::Vec;
use headgate_units::Nanos;

/// What was in the storage when requests were recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// Each request was sent to storage that had been idle for some hundred times as long as a
    /// request takes, and none cost more than this. Only such a record can show that a target is
    /// impossible.
    Idle(Work),
    /// So many requests in the mean over all of the time, themselves included: the time that all
    /// took over the time of the record (Little's law).
    Mean(Outstanding),
}

/// A storage that is less busy than this was idle between requests.
const KEPT_BUSY: f64 = 0.9;

/// Times from dispatch to completion, and how many requests were in flight with them.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceRecord {
    /// At least one.
    in_flight: f64,
    beside: Beside,
    /// Mean cost in reference IOs, at least one.
    work: f64,
    /// Nanoseconds and the part of the requests that took so long, ascending.
    points: Vec<(f64, f64)>,
    counts: Vec<u64>,
    total: u64,
    mean: f64,
}

/// A record of which times above a bound are set apart.
#[derive(Clone, Debug)]
pub(super) struct Truncated {
    /// The part of the requests that took longer.
    pub(super) over: f64,
    /// The part of the time in which a slot of the window waited for what is beyond the bound.
    pub(super) beyond: f64,
    /// The mean of what is left, in nanoseconds.
    pub(super) mean: f64,
    /// The logarithm of its moment generating function at each η.
    pub(super) log_mgf: Vec<f64>,
    /// The same of what is left of such a time at any instant.
    pub(super) log_left: Vec<f64>,
}

/// The most that a part may be of which `seen` of `total` were counted: three standard errors, and
/// what may be where nothing was seen.
pub(super) fn upper(seen: u64, total: u64) -> f64 {
    if total == 0 {
        return 1.0;
    }
    let seen = seen as f64;
    ((seen + 3.0 * libm::sqrt(seen + 1.0) + 3.0) / total as f64).min(1.0)
}

/// The least that it may be.
fn lower(seen: u64, total: u64) -> f64 {
    let seen = seen as f64;
    ((seen - 3.0 * libm::sqrt(seen + 1.0) - 3.0) / (total.max(1)) as f64).max(0.0)
}

fn mean_of(beside: Beside) -> f64 {
    match beside {
        Beside::Idle(_) => 0.0,
        Beside::Mean(mean) => mean.as_f64(),
    }
}

/// A recorded time may be so much, and a microsecond, above what was measured: buckets of history
/// are a sixteenth of a doubling wide, those of statistics half of that.
const BUCKET: f64 = 1.1;

impl ServiceRecord {
    /// A record from pairs of a latency and how many requests took so long, such as
    /// `HistogramSnapshot::buckets`; `work` is their mean cost. `None` where no request is counted.
    pub fn new(
        beside: Beside,
        work: Work,
        times: impl IntoIterator<Item = (Nanos, u64)>,
    ) -> Option<ServiceRecord> {
        let mut pairs: Vec<(Nanos, u64)> =
            times.into_iter().filter(|&(_, count)| count > 0).collect();
        pairs.sort_unstable();
        let all: u128 = pairs.iter().map(|&(_, count)| u128::from(count)).sum();
        let points: Vec<(f64, f64)> =
            pairs.iter().map(|&(time, count)| (time.0 as f64, count as f64 / all as f64)).collect();
        if points.is_empty() {
            return None;
        }
        Some(ServiceRecord {
            in_flight: mean_of(beside).max(1.0),
            beside,
            work: work.as_f64().max(1.0),
            mean: points.iter().map(|&(time, part)| time * part).sum::<f64>().max(1.0),
            points,
            counts: pairs.iter().map(|&(_, count)| count).collect(),
            total: u64::try_from(all).unwrap_or(u64::MAX),
        })
    }

    /// Requests counted.
    pub fn requests(&self) -> u64 {
        self.total
    }

    pub(super) fn in_flight(&self) -> f64 {
        self.in_flight
    }

    /// Requests that the storage may have had time for between two of these, and was not asked.
    ///
    /// A request to storage that was idle says nothing of the next one at once: what limits a rate
    /// lets a single one pass.
    pub(super) fn unasked(&self) -> f64 {
        if mean_of(self.beside) < KEPT_BUSY { 1.0 } else { 0.0 }
    }

    pub(super) fn work(&self) -> f64 {
        self.work
    }

    /// In nanoseconds, at least one.
    pub(super) fn mean(&self) -> f64 {
        self.mean
    }

    /// For how long it was recorded, in nanoseconds, by Little's law.
    pub(super) fn span(&self) -> f64 {
        self.mean * self.total as f64 / self.in_flight
    }

    /// The longest time recorded, in nanoseconds.
    pub(super) fn longest(&self) -> f64 {
        self.points.last().map_or(0.0, |&(time, _)| time)
    }

    fn counted_over(&self, time: f64) -> u64 {
        let first = self.points.partition_point(|&(at, _)| at <= time);
        self.counts[first..].iter().fold(0, |sum, &count| sum.saturating_add(count))
    }

    /// The least time that surely no more than `part` of the requests exceeded, in nanoseconds.
    pub(super) fn exceeded_by(&self, part: f64) -> Option<f64> {
        let mut over = 0u64;
        let mut answer = None;
        for (&(time, _), &count) in self.points.iter().zip(&self.counts).rev() {
            if upper(over, self.total) > part {
                break;
            }
            answer = Some(time);
            over = over.saturating_add(count);
        }
        answer
    }

    /// Whether more than a part of all requests surely take longer than `time` alone, whatever is
    /// done. `None`: whether next to all do.
    ///
    /// A request of one reference IO may take as much less than a recorded one as it costs less.
    pub(super) fn always_over(&self, time: f64, part: Option<f64>) -> bool {
        let Beside::Idle(largest) = self.beside else { return false };
        let longer = (time * BUCKET + 1e3) * largest.as_f64().max(1.0);
        let over = self.counted_over(longer);
        match part {
            Some(part) => lower(over, self.total) > part,
            None => self.total - over <= self.total / 1_000,
        }
    }

    /// The time that surely more than `part` of them exceed.
    pub(super) fn surely_over(&self, part: f64) -> f64 {
        let above = |&&(time, _): &&(f64, f64)| lower(self.counted_over(time), self.total) <= part;
        self.points.iter().find(above).map_or(0.0, |&(time, _)| time)
    }

    /// The part of the time in which a request that takes longer than `bound` nanoseconds waits for
    /// what is beyond it.
    pub(super) fn beyond(&self, bound: f64) -> f64 {
        self.excess(bound) / self.mean
    }

    fn excess(&self, bound: f64) -> f64 {
        self.points.iter().map(|&(time, part)| (time - bound).max(0.0) * part).sum()
    }

    /// Sets apart what takes longer than `bound` nanoseconds. Each time counts `scale` times as
    /// long, the bound too.
    pub(super) fn truncate(&self, bound: f64, scale: f64, etas: &[f64]) -> Truncated {
        let seen = self.counted_over(bound);
        let over = upper(seen, self.total);
        let excess = self.excess(bound);
        // What was not seen is taken to be as long as what was, or as the bound.
        let each =
            if seen > 0 { excess * self.total as f64 / seen as f64 } else { bound.max(self.mean) };
        let left = || self.points.iter().map(|&(time, part)| (time.min(bound) * scale, part));
        let longest = self.longest().min(bound) * scale;
        let log_mgf = |&eta: &f64| {
            let sum: f64 =
                left().map(|(time, part)| part * libm::exp(eta * (time - longest))).sum();
            eta * longest + libm::log(sum.max(f64::MIN_POSITIVE))
        };
        let mean: f64 = left().map(|(time, part)| time * part).sum();
        let log_mgf: Vec<f64> = etas.iter().map(log_mgf).collect();
        // The equilibrium distribution: (φ(η) - 1)/(η·mean). Where φ is near 1 that cancels, and
        // is no more than φ.
        let log_left = |(&eta, &log): (&f64, &f64)| {
            let left = log + libm::log(-libm::expm1(-log)) - libm::log(eta * mean);
            if log > 1e-6 { left.clamp(0.0, log) } else { log.max(0.0) }
        };
        Truncated {
            over,
            beyond: (over * each / self.mean).min(1.0),
            mean,
            log_left: etas.iter().zip(&log_mgf).map(log_left).collect(),
            log_mgf,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(pairs: &[(u64, u64)]) -> ServiceRecord {
        let times = pairs.iter().map(|&(ms, count)| (Nanos::from_millis(ms), count));
        let beside = Beside::Mean(Outstanding::whole(4));
        ServiceRecord::new(beside, Work::ONE, times).unwrap()
    }

    #[test]
    fn the_moment_generating_function_is_the_definitions() {
        let record = record(&[(1, 30), (4, 60), (9, 10)]);
        let etas = [1e-8, 1e-6, 1e-5];
        let truncated = record.truncate(5e6, 2.0, &etas);
        for (eta, found) in etas.iter().zip(&truncated.log_mgf) {
            let due: f64 = [(2e6, 0.3), (8e6, 0.6), (10e6, 0.1)]
                .iter()
                .map(|&(time, part): &(f64, f64)| part * (eta * time).exp())
                .sum();
            assert!((found - due.ln()).abs() < 1e-9 * due.ln().abs().max(1.0), "{found} {due}");
        }
        assert!((truncated.mean - 6.4e6).abs() < 1.0);
        assert!(record.truncate(5e6, 2.0, &[1.0]).log_mgf[0].is_finite());
    }

    #[test]
    fn time_beyond_a_bound_counts_by_time_and_not_by_requests() {
        // A stall of 1 s in each 5 s of storage that serves 1,000 per second, at 32 in flight.
        let pairs = [(Nanos::from_millis(32), 3_968_000), (Nanos::from_millis(1_032), 32_000)];
        let beside = Beside::Mean(Outstanding::whole(32));
        let record = ServiceRecord::new(beside, Work::ONE, pairs).unwrap();
        let truncated = record.truncate(32e6, 1.0, &[]);
        assert!((truncated.over - 0.008).abs() < 0.001, "{truncated:?}");
        assert!((truncated.beyond - 0.2).abs() < 0.01, "{truncated:?}");
    }

    #[test]
    fn quantiles_are_sure() {
        let record = record(&[(1, 9_000), (4, 900), (9, 100)]);
        assert_eq!(record.exceeded_by(0.2), Some(1e6));
        assert_eq!(record.exceeded_by(0.1), Some(4e6));
        assert_eq!(record.exceeded_by(0.01), Some(9e6));
        assert_eq!(record.exceeded_by(0.000_1), None);
        assert!(!record.always_over(1e5, Some(0.05)), "others were there");
    }
}
