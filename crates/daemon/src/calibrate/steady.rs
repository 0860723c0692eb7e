//! Decides when a measured rate has settled: the pure part of calibration.
//!
//! The first samples are warm-up and are discarded (caches fill, an array's elevator finds its
//! order). After that the rate has settled when the last [`WINDOW`] samples, but for the fastest
//! and the slowest, lie within 5 % of their median: one hiccup of a busy host is none of the
//! device's. A device that never settles is judged by its last window when the time is up.

use headgate_model::Confidence;

/// Samples that are discarded.
pub(super) const WARM_UP: usize = 4;

/// Samples that the judgement rests on.
pub(super) const WINDOW: usize = 8;

/// Within this distance, in per cent of the median, samples agree.
const AGREE_PERCENT: u64 = 5;

/// Up to this distance the median still means something.
const NEAR_PERCENT: u64 = 20;

/// The result of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    /// The rate that the device reliably reaches, in IOPS.
    pub(super) iops: u64,
    /// Distance of the second fastest and the second slowest sample, in per cent of the median.
    pub(super) spread_percent: u32,
    /// How sure that is.
    pub(super) confidence: Confidence,
}

/// The rates so far.
#[derive(Clone, Debug)]
pub(super) struct Steadiness {
    rates: Vec<u64>,
    most: usize,
}

impl Steadiness {
    /// After `most` samples it is judged as it is.
    pub(super) fn new(most: usize) -> Steadiness {
        Steadiness { rates: Vec::new(), most }
    }

    /// Takes the rate of one more sample; answers once the rate has settled or the time is up.
    pub(super) fn on_sample(&mut self, iops: u64) -> Option<Finding> {
        self.rates.push(iops);
        let window = self.rates.get(WARM_UP..)?.last_chunk::<WINDOW>()?;
        let finding = judge(*window);
        (finding.confidence == Confidence::High || self.rates.len() >= self.most).then_some(finding)
    }

    /// How far it is at least, 0 to 1,000.
    pub(super) fn permille(&self) -> u64 {
        let (done, least) = (self.rates.len() as u64, (WARM_UP + WINDOW) as u64);
        // Past the earliest end the way to the latest is shown in the last tenth.
        match done.checked_sub(least) {
            None => done * 900 / least,
            Some(more) => (900 + more.saturating_mul(100) / (self.most as u64).max(1)).min(1_000),
        }
    }
}

/// The median where samples are near each other; else the second slowest, for a promise is made of
/// it.
fn judge(window: [u64; WINDOW]) -> Finding {
    let mut sorted = window;
    sorted.sort_unstable();
    let (slowest, median, fastest) = (sorted[1], sorted[WINDOW / 2], sorted[WINDOW - 2]);
    let spread = (fastest - slowest).saturating_mul(100).div_ceil(median.max(1));
    let confidence = match spread {
        0..=AGREE_PERCENT => Confidence::High,
        n if n <= NEAR_PERCENT => Confidence::Medium,
        _ => Confidence::Low,
    };
    let iops = if confidence == Confidence::Low { slowest } else { median };
    Finding { iops, spread_percent: u32::try_from(spread).unwrap_or(u32::MAX), confidence }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 60;

    fn run(rates: impl IntoIterator<Item = u64>) -> (usize, Option<Finding>) {
        let mut steadiness = Steadiness::new(MOST);
        for (n, rate) in rates.into_iter().enumerate() {
            if let Some(finding) = steadiness.on_sample(rate) {
                return (n + 1, Some(finding));
            }
        }
        (0, None)
    }

    #[test]
    fn a_steady_device_is_known_after_the_shortest_time() {
        let (samples, finding) =
            run([9_000, 5_000, 2_000, 1_700].into_iter().chain(std::iter::repeat(1_600)));
        assert_eq!(samples, WARM_UP + WINDOW);
        assert_eq!(
            finding,
            Some(Finding { iops: 1_600, spread_percent: 0, confidence: Confidence::High })
        );
    }

    #[test]
    fn a_burst_at_the_beginning_is_waited_out() {
        let burst = std::iter::repeat_n(9_000, 5)
            .chain(std::iter::repeat_n(4_000, 5))
            .chain(std::iter::repeat(1_000));
        let (samples, finding) = run(burst);
        assert_eq!((samples, finding.unwrap().iops), (9 + WINDOW, 1_000));
    }

    #[test]
    fn a_device_that_never_settles_is_trusted_with_its_slowest() {
        let (samples, finding) = run((0..).map(|n| if n % 2 == 0 { 500 } else { 1_500 }));
        let finding = finding.unwrap();
        assert_eq!((samples, finding.iops, finding.confidence), (MOST, 500, Confidence::Low));
    }

    #[test]
    fn one_hiccup_of_the_host_does_not_count() {
        let (samples, finding) = run((0..).map(|n| if n == 9 { 20 } else { 1_600 }));
        assert_eq!(samples, WARM_UP + WINDOW);
        assert_eq!(finding.unwrap().confidence, Confidence::High);
    }

    #[test]
    fn progress_only_grows() {
        let mut steadiness = Steadiness::new(MOST);
        let mut last = 0;
        for n in 0..MOST as u64 {
            assert!(steadiness.permille() >= last && steadiness.permille() <= 1_000);
            last = steadiness.permille();
            steadiness.on_sample(n * 100);
        }
    }

    #[test]
    fn a_device_that_does_nothing_is_no_division_by_zero() {
        assert_eq!(run(std::iter::repeat(0)).1.unwrap().iops, 0);
    }
}
