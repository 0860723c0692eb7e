//! Finding the latency threshold: the latency at which the storage does nearly all it can.
//!
//! More requests in flight make storage faster until it is saturated, and only slower to answer
//! from there on. The threshold belongs where that happens. [`Search`] says how many random reads
//! to keep in flight, is told what came of it, and takes the latency at which 90 % of the highest
//! throughput is reached, but no less than one and a half times the latency of a single request, so
//! that there is room to tell a busy device from an idle one.

use super::slots::{Fraction, ratio};
use alloc::vec::Vec;
use headgate_units::Nanos;
use thiserror::Error;

/// What is aimed at unless told otherwise: 90 % of the highest throughput.
pub const SHARE_OF_PEAK: Fraction = Fraction::percent(90);

/// A doubling that gains less than this does not count as one.
const GAIN: Fraction = Fraction::percent(5);

/// So many doublings without gain end the search.
const FLAT: usize = 2;

/// What came of keeping so many requests in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Requests kept in flight.
    pub outstanding: u32,
    /// Completions per second.
    pub iops: u64,
    /// Their mean latency, converted to the reference IO as [`LatencyMeter`](super::LatencyMeter)
    /// does.
    pub latency: Nanos,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Keep so many requests in flight, wait until the rate has settled, and
    /// [`record`](Search::record) what it was.
    Measure(u32),
    /// That is it.
    Found(Finding),
}

/// What the storage can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The latency threshold.
    pub threshold: Nanos,
    /// The highest throughput seen, in IOPS.
    pub peak: u64,
    /// The latency of a single request.
    pub unloaded: Nanos,
    /// Whether `peak` is what the storage can do.
    pub end: End,
}

/// How a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// More requests brought no more.
    Saturated,
    /// The most requests that may be kept in flight did not saturate the storage.
    DepthReached,
}

/// A search that cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SearchError {
    /// The share of the peak.
    #[error("the threshold is sought at 50 to 100 per cent of the highest throughput, not at {} millionths", .0.as_millionths())]
    Share(Fraction),
    /// The depth.
    #[error("the storage must be tried with at least 1 request in flight, not 0")]
    Depth,
    /// A sample of nothing, or one that was not asked for.
    #[error(
        "with {outstanding} requests in flight the storage did {iops} IOPS after {latency}; expected a sample of {expected} \
         requests with completions: is the storage there?"
    )]
    Sample {
        /// Requests kept in flight.
        outstanding: u32,
        /// Completions per second.
        iops: u64,
        /// Their mean latency.
        latency: Nanos,
        /// The depth that was asked for.
        expected: u32,
    },
}

/// A search for the threshold of one datastore. Depths are doubled, so there are at most a dozen or
/// so.
#[derive(Clone, Debug)]
pub struct Search {
    share: Fraction,
    deepest: u32,
    samples: Vec<Sample>,
}

impl Search {
    /// Starts with one request in flight and goes up to `deepest`; looks for the latency at this
    /// `share` of the peak.
    ///
    /// # Errors
    /// A share below a half, a depth of 0.
    pub fn new(share: Fraction, deepest: u32) -> Result<Search, SearchError> {
        if share < Fraction::percent(50) {
            return Err(SearchError::Share(share));
        }
        if deepest == 0 {
            return Err(SearchError::Depth);
        }
        Ok(Search { share, deepest, samples: Vec::new() })
    }

    /// What was measured so far.
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// What to do next. O(samples).
    pub fn next(&self) -> Step {
        let Some(last) = self.samples.last() else { return Step::Measure(1) };
        let gains =
            |pair: &[Sample]| pair[1].iops > pair[0].iops.saturating_add(GAIN.of(pair[0].iops));
        let flat = self.samples.windows(2).rev().take_while(|pair| !gains(pair)).count();
        if flat >= FLAT {
            return Step::Found(self.finding(End::Saturated));
        }
        if last.outstanding >= self.deepest {
            return Step::Found(self.finding(End::DepthReached));
        }
        Step::Measure(last.outstanding.saturating_mul(2).min(self.deepest))
    }

    /// What came of the depth that was asked for.
    ///
    /// # Errors
    /// When nothing completed, or another depth was asked for; the search can go on with a good
    /// sample.
    pub fn record(&mut self, sample: Sample) -> Result<(), SearchError> {
        let Sample { outstanding, iops, latency } = sample;
        let expected = match self.next() {
            Step::Measure(depth) => depth,
            Step::Found(_) => self.deepest,
        };
        if outstanding != expected || iops == 0 || latency == Nanos::ZERO {
            return Err(SearchError::Sample { outstanding, iops, latency, expected });
        }
        self.samples.push(sample);
        Ok(())
    }

    fn finding(&self, end: End) -> Finding {
        let peak = self.samples.iter().map(|s| s.iops).max().unwrap_or(0);
        let unloaded = self.samples.first().map_or(Nanos::ZERO, |s| s.latency);
        let wanted = self.share.of(peak);
        let least = Nanos(unloaded.0.saturating_add(unloaded.0 / 2));
        let reached = self.samples.iter().position(|s| s.iops >= wanted).unwrap_or(0);
        let at = self.samples.get(reached).map_or(unloaded, |s| s.latency);
        let latency = match reached.checked_sub(1).and_then(|before| self.samples.get(before)) {
            // In a straight line between the two depths.
            Some(before) => {
                let (rise, run) =
                    (at.since(before.latency), self.samples[reached].iops - before.iops);
                before.latency + Nanos(ratio(rise.0, wanted - before.iops, run))
            }
            None => at,
        };
        let (lowest, highest) = (Nanos::from_micros(10), Nanos::from_secs(10));
        Finding { threshold: latency.max(least).clamp(lowest, highest), peak, unloaded, end }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A closed loop on `servers` of this service time behind a channel that does `peak` IOPS.
    fn search(service: Nanos, peak: u64, deepest: u32) -> Finding {
        let mut search = Search::new(SHARE_OF_PEAK, deepest).unwrap();
        loop {
            match search.next() {
                Step::Found(finding) => return finding,
                Step::Measure(outstanding) => {
                    let free = u64::from(outstanding) * 1_000_000_000 / service.0;
                    let iops = free.min(peak);
                    let latency = Nanos(u64::from(outstanding) * 1_000_000_000 / iops);
                    search.record(Sample { outstanding, iops, latency }).unwrap();
                }
            }
        }
    }

    #[test]
    fn arrays_in_milliseconds_and_flash_in_microseconds() {
        let array = search(Nanos::from_millis(5), 3_400, 256);
        assert_eq!((array.peak, array.end), (3_400, End::Saturated));
        assert_eq!(array.threshold, Nanos::from_micros(7_500));
        let flash = search(Nanos::from_micros(80), 500_000, 4_096);
        assert_eq!((flash.end, flash.threshold), (End::Saturated, Nanos::from_micros(120)));
    }

    /// Published for products of this kind: the latency at which 90 % of the peak is reached. Here
    /// the curve is that of one server with exponential times and a fixed way there and back, by
    /// mean value analysis.
    #[test]
    fn the_latency_at_nine_tenths_of_the_peak() {
        let (service, way) = (300.0, 5_000.0);
        let mut search = Search::new(SHARE_OF_PEAK, 1_024).unwrap();
        let found = loop {
            let depth = match search.next() {
                Step::Found(finding) => break finding,
                Step::Measure(depth) => depth,
            };
            let (mut queue, mut rate, mut time) = (0.0, 0.0, 0.0);
            for n in 1..=depth {
                time = service * (1.0 + queue) + way;
                rate = f64::from(n) / time;
                queue = rate * (time - way);
            }
            let latency = Nanos::from_micros(time as u64);
            search
                .record(Sample { outstanding: depth, iops: (rate * 1e6) as u64, latency })
                .unwrap();
        };
        // At 90 % of 1/300 us about 9 requests queue: 5 ms + 300 us * (1 + 5..9).
        assert!(
            (Nanos::from_micros(6_500)..Nanos::from_micros(8_500)).contains(&found.threshold),
            "{found:?}"
        );
        assert_eq!(found.end, End::Saturated);
        assert_eq!(found.unloaded, Nanos::from_micros(5_300));
    }

    #[test]
    fn storage_that_is_not_saturated_says_so() {
        assert_eq!(search(Nanos::from_millis(5), 1_000_000, 64).end, End::DepthReached);
    }

    #[test]
    fn storage_that_does_nothing_is_an_error() {
        let mut search = Search::new(SHARE_OF_PEAK, 64).unwrap();
        let nothing = Sample { outstanding: 1, iops: 0, latency: Nanos(5) };
        assert!(search.record(nothing).unwrap_err().to_string().contains("is the storage there?"));
        assert!(search.record(Sample { outstanding: 2, iops: 5, latency: Nanos(5) }).is_err());
        assert!(Search::new(Fraction::percent(49), 64).is_err());
        assert!(Search::new(SHARE_OF_PEAK, 0).is_err());
    }
}
