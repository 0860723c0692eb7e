//! Records of a datastore from its statistics.

use super::record::{Beside, ServiceRecord};
use super::work::Work;
use crate::Outstanding;
use headgate_stats::{COST_OF_ONE_IO, DiskSnapshot, HistogramSnapshot};
use headgate_units::Nanos;

/// Intervals with no more requests in flight than this, in the mean, are light.
const LIGHT: f64 = 1.5;

/// Gathers a light and a busy [`ServiceRecord`] from intervals of a datastore's statistics.
///
/// An interval is light if no more than 1.5 requests were in flight in the mean, by Little's law.
/// One in which nothing completed and something was outstanding belongs to what was before it: a
/// stall is told by the requests that end after it. It should cover what comes again and again,
/// such as stalls and the hours of a day. O(buckets) for each interval.
#[derive(Clone, Debug, Default)]
pub struct ServiceMeter {
    light: Gathered,
    busy: Gathered,
    last: Class,
}

#[derive(Clone, Copy, Debug, Default)]
enum Class {
    #[default]
    Light,
    Busy,
}

#[derive(Clone, Debug, Default)]
struct Gathered {
    times: HistogramSnapshot,
    length: u128,
    cost: u128,
    requests: u128,
}

impl ServiceMeter {
    /// Nothing is recorded yet.
    pub fn new() -> ServiceMeter {
        ServiceMeter::default()
    }

    /// Adds what was counted in an interval of this length: the difference of two snapshots of the
    /// datastore. Requests of a kind whose times are not counted are left out.
    pub fn record(&mut self, length: Nanos, counted: &DiskSnapshot) {
        let mut times = counted.reads.device.clone();
        times.merge(&counted.writes.device);
        if times.count() > 0 {
            let in_flight = times.sum() as f64 / length.0.max(1) as f64;
            self.last = if in_flight <= LIGHT { Class::Light } else { Class::Busy };
        } else if counted.outstanding == 0 {
            self.last = Class::Light;
        }
        let gathered = match self.last {
            Class::Light => &mut self.light,
            Class::Busy => &mut self.busy,
        };
        let served = &counted.served;
        gathered.times.merge(&times);
        gathered.length += u128::from(length.0);
        gathered.cost += served.reservation_cost + served.weight_cost;
        gathered.requests += u128::from(served.reservation_ios) + u128::from(served.weight_ios);
    }

    /// Requests beside few others; `None` before the first.
    pub fn light(&self) -> Option<ServiceRecord> {
        self.light.record()
    }

    /// Requests beside many others.
    pub fn busy(&self) -> Option<ServiceRecord> {
        self.busy.record()
    }
}

impl Gathered {
    fn record(&self) -> Option<ServiceRecord> {
        let in_flight = Outstanding::of(self.times.sum() as f64 / self.length.max(1) as f64);
        let cost = self.cost.checked_div(self.requests).unwrap_or(COST_OF_ONE_IO.into());
        let work = Work::from_millionths(u64::try_from(cost).unwrap_or(u64::MAX));
        ServiceRecord::new(Beside::Mean(in_flight), work, self.times.buckets())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headgate_stats::{DiskStats, Latency, Op, Outcome, Phase};
    use headgate_units::Bytes;

    const SECOND: Nanos = Nanos::from_secs(1);

    /// Seconds in each of which so many requests end that took so long.
    fn meter(seconds: &[(u64, Nanos)]) -> ServiceMeter {
        let (mut meter, mut stats) = (ServiceMeter::new(), DiskStats::new(Nanos::ZERO));
        let mut before = stats.snapshot(Nanos::ZERO);
        let mut now = Nanos::ZERO;
        // One that never ends.
        stats.on_arrival(now, Op::Read, 0, Bytes(4_096));
        for &(requests, device) in seconds {
            now += SECOND;
            for _ in 0..requests {
                stats.on_arrival(now, Op::Read, 0, Bytes(4_096));
                stats.on_dispatch(now, Op::Read, Nanos::ZERO, Phase::Weight, 2_000_000);
                let latency = Latency { device, total: device };
                stats.on_complete(now, Op::Read, Bytes(4_096), latency, Outcome::Done);
            }
            let snapshot = stats.snapshot(now);
            meter.record(SECOND, &snapshot.difference(&before));
            before = snapshot;
        }
        meter
    }

    #[test]
    fn intervals_are_light_or_busy() {
        let meter = meter(&[(100, Nanos::from_millis(5)), (1_000, Nanos::from_millis(8))]);
        let (light, busy) = (meter.light().unwrap(), meter.busy().unwrap());
        assert_eq!((light.requests(), busy.requests()), (100, 1_000));
        assert!((busy.in_flight() - 8.0).abs() < 0.01 && (busy.work() - 2.0).abs() < 1e-6);
        assert!(light.in_flight() == 1.0 && light.unasked() == 1.0, "half of the time it was idle");
    }

    #[test]
    fn a_stall_belongs_to_what_was_before_it() {
        let ms = Nanos::from_millis;
        let meter =
            meter(&[(1_000, ms(8)), (0, ms(0)), (0, ms(0)), (8, ms(2_000)), (1_000, ms(8))]);
        let busy = meter.busy().unwrap();
        // 8 requests in flight for 5 s, less the time in which the last ones were told.
        assert!((busy.in_flight() - 32.0 / 5.0).abs() < 0.01, "{}", busy.in_flight());
        let beyond = busy.truncate(8.3e6, 1.0, &[]).beyond;
        assert!(beyond > 0.4, "two seconds of five: {beyond}");
        assert!(meter.light().is_none());
    }
}
