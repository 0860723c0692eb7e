use super::config::Smoothing;
use super::slots::{Fraction, MILLION, ratio};
use crate::config::ConfigError;
use crate::cost::{CostMeter, CostModel, clamp_bytes};
use headgate_units::{Bytes, Nanos};

/// Latencies count as nine minutes at most: what takes longer has hung.
const LONGEST: u64 = 1 << 39;

/// The mean latency is kept with so many binary digits of a nanosecond.
const DIGITS: u32 = 16;

/// The size of the reference IO that latencies are expressed for.
pub(super) const REFERENCE: Bytes = Bytes::from_kib(8);

/// What one host saw of a datastore in one period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observation {
    /// Mean latency of an IO of 8 KiB, smoothed.
    pub latency: Nanos,
    /// IOs that completed, at least one.
    pub ios: u64,
    /// What they cost, in millionths of an IO of 8 KiB.
    pub work: u64,
}

/// Turns the latencies of one host's IOs at one datastore into one number per period (section 3.1,
/// equation 1).
///
/// A large IO takes longer without the storage being congested, so each latency is converted to
/// that of 8 KiB by the datastore's [`CostModel`]: `latency · cost(8 KiB) / cost(size)`. A
/// datastore whose model is `unit` converts nothing.
#[derive(Clone, Debug)]
pub struct LatencyMeter {
    cost: CostMeter,
    reference: u64,
    smoothing: Smoothing,
    /// In 2⁻¹⁶ ns.
    mean: Option<u64>,
    /// Of the period under way.
    sum: u64,
    ios: u64,
    /// What they cost, in millionths.
    cost_sum: u64,
}

impl LatencyMeter {
    /// A meter that saw nothing yet.
    ///
    /// # Errors
    /// When the cost model is out of range.
    pub fn new(model: CostModel, smoothing: Smoothing) -> Result<LatencyMeter, ConfigError> {
        let cost = CostMeter::new(model)?;
        let reference = cost.cost(clamp_bytes(REFERENCE)).as_millionths();
        Ok(LatencyMeter { cost, reference, smoothing, mean: None, sum: 0, ios: 0, cost_sum: 0 })
    }

    /// A read or write of so many bytes took so long at the device, from issue to completion: not
    /// the time it waited in our own queue. Flushes and discards are left out, and so is what
    /// failed. O(1).
    #[inline]
    pub fn record(&mut self, latency: Nanos, bytes: Bytes) {
        // Both factors are below 2^39 and 2^25.
        let cost = self.cost.cost(clamp_bytes(bytes)).as_millionths();
        let latency = latency.0.min(LONGEST) * self.reference / cost;
        self.sum = self.sum.saturating_add(latency);
        self.ios += 1;
        self.cost_sum = self.cost_sum.saturating_add(cost);
        if let Smoothing::PerIo { new } = self.smoothing {
            self.smooth(latency << DIGITS, new.rest());
        }
    }

    /// `mean ← (1 - past) · value + past · mean`.
    fn smooth(&mut self, value: u64, past: Fraction) {
        let past_millionths = u64::from(past.as_millionths());
        self.mean = Some(match self.mean {
            None => value,
            Some(mean) => {
                ratio(mean, past_millionths, MILLION)
                    + ratio(value, MILLION - past_millionths, MILLION)
            }
        });
    }

    /// Ends the period: what was seen in it, `None` when nothing completed. O(1).
    pub fn take(&mut self) -> Option<Observation> {
        let (sum, ios) = (core::mem::take(&mut self.sum), core::mem::take(&mut self.ios));
        let cost = core::mem::take(&mut self.cost_sum);
        let mean = sum.checked_div(ios)?;
        if let Smoothing::PerPeriod { past } = self.smoothing {
            self.smooth(mean << DIGITS, past);
        }
        let latency = self.mean.unwrap_or(mean << DIGITS) >> DIGITS;
        let work = ratio(cost, MILLION, self.reference);
        Some(Observation { latency: Nanos(latency.max(1)), ios, work })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meter(model: CostModel, smoothing: Smoothing) -> LatencyMeter {
        LatencyMeter::new(model, smoothing).unwrap()
    }

    #[test]
    fn a_period_without_ios_says_nothing_and_forgets_nothing() {
        let past = Fraction::percent(50);
        let mut meter = meter(CostModel::Unit, Smoothing::PerPeriod { past });
        assert_eq!(meter.take(), None);
        meter.record(Nanos(100), Bytes(4096));
        meter.record(Nanos(300), Bytes(4096));
        assert_eq!(
            meter.take(),
            Some(Observation { latency: Nanos(200), ios: 2, work: 2_000_000 })
        );
        assert_eq!(meter.take(), None);
        meter.record(Nanos(400), Bytes(4096));
        assert_eq!(
            meter.take(),
            Some(Observation { latency: Nanos(300), ios: 1, work: 1_000_000 })
        );
    }

    /// Section 3.2.2 of the mClock paper, equation 5: the costs of 8 and 64 KiB are 1.027 and
    /// 1.213.
    #[test]
    fn large_ios_do_not_look_like_congestion() {
        let mut meter = meter(CostModel::default(), Smoothing::PUBLISHED);
        let seen = |meter: &mut LatencyMeter, latency, kib| {
            meter.record(Nanos::from_micros(latency), Bytes::from_kib(kib));
            meter.take().unwrap().latency.0
        };
        assert_eq!(seen(&mut meter, 10_000, 8), 10_000_000);
        let large = seen(&mut meter, 11_818, 64);
        assert!(large.abs_diff(10_000_000) < 10_000, "{large}");
    }

    /// By the same equation: 1.213 / 1.027.
    #[test]
    fn large_ios_are_more_work() {
        let mut meter = meter(CostModel::default(), Smoothing::PUBLISHED);
        [8, 64].iter().for_each(|&kib| meter.record(Nanos(1), Bytes::from_kib(kib)));
        let work = meter.take().unwrap().work;
        assert!(work.abs_diff(2_181_800) < 100, "{work}");
    }

    #[test]
    fn per_io_the_horizon_is_500_ios() {
        let mut meter = meter(CostModel::Unit, Smoothing::PER_IO);
        meter.record(Nanos::ZERO, Bytes(512));
        for _ in 0..500 {
            meter.record(Nanos::from_millis(1), Bytes(512));
        }
        let latency = meter.take().unwrap().latency;
        // 1 - 1/e of a millisecond.
        assert!(latency.0.abs_diff(632_000) < 2_000, "{latency}");
    }

    #[test]
    fn no_latency_overflows() {
        for model in [
            CostModel::Affine { reference: Bytes(512) },
            CostModel::Chunks { reference: Bytes(512) },
        ] {
            for smoothing in [Smoothing::PUBLISHED, Smoothing::PER_IO] {
                let mut meter = meter(model, smoothing);
                for bytes in [0, 512, 4096, u64::MAX] {
                    meter.record(Nanos::MAX, Bytes(bytes));
                    meter.record(Nanos::ZERO, Bytes(bytes));
                }
                assert!(meter.take().unwrap().latency > Nanos::ZERO);
            }
        }
    }
}
