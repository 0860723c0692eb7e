//! What an interval of counters says: whether something of ours held requests back, and what a disk's or a datastore's interval is then.

use crate::catalog::PolicyRecord;
use headgate_placement::{DeviceInterval, Filters, Held, Traits};
use headgate_stats::{Flow, Interval};

/// Requests were held back when more than this part of what was outstanding waited in our queue,
const WAITED: f64 = 0.05;
/// and each for longer than this on average: less is the time that a request takes to pass.
const PASSING: f64 = 20e-6;
/// A disk that did this part of its limit is held by it.
const AT_LIMIT: f64 = 0.95;

/// Requests of an interval that waited for us and those at the device, on average.
struct Waiting {
    queued: f64,
    at_device: f64,
    each: f64,
}

impl Waiting {
    fn of(interval: &Interval) -> Waiting {
        let queued = |flow: &Flow| flow.iops * flow.queue.map_or(0.0, |queue| queue.mean.as_secs_f64());
        let queued = queued(&interval.reads) + queued(&interval.writes);
        let rate = interval.reads.iops + interval.writes.iops;
        Waiting {
            queued,
            at_device: interval.reads.at_device + interval.writes.at_device,
            each: if rate > 0.0 { queued / rate } else { 0.0 },
        }
    }

    fn was_held(&self) -> bool {
        self.queued > WAITED * (self.queued + self.at_device) && self.each > PASSING
    }
}

fn at_limit(interval: &Interval, policy: &PolicyRecord) -> bool {
    let reached = |done: f64, limit: Option<u64>| limit.is_some_and(|limit| done >= AT_LIMIT * limit as f64);
    reached(interval.normalised_iops, policy.limit.map(|limit| limit.get()))
        || reached(interval.bytes_per_sec, policy.limit_bandwidth.map(|limit| limit.get()))
}

/// By what a disk's requests were held back. Whoever waits and is not at its limit waits for the datastore's window: nothing else of ours
/// makes requests wait.
fn held(interval: &Interval, policy: &PolicyRecord) -> Held {
    match Waiting::of(interval) {
        waiting if !waiting.was_held() => Held::No,
        _ if at_limit(interval, policy) => Held::ByLimit,
        _ => Held::ByWindow,
    }
}

/// A disk's interval: `None` when it neither read nor wrote.
pub(super) fn disk(interval: &Interval, policy: &PolicyRecord) -> Option<Traits> {
    Traits::of(interval, held(interval, policy))
}

/// A datastore's interval, with those of its disks: a point of its model, or why it is none or not as good as others.
pub(super) fn datastore<'a>(
    interval: &Interval,
    disks: impl Iterator<Item = (&'a Interval, &'a PolicyRecord)>,
) -> DeviceInterval {
    let waiting = Waiting::of(interval);
    let held = if waiting.was_held() {
        let limited: f64 = disks
            .filter(|(interval, policy)| at_limit(interval, policy))
            .map(|(interval, _)| Waiting::of(interval).queued)
            .sum();
        if limited * 2.0 > waiting.queued { Held::ByLimit } else { Held::ByWindow }
    } else {
        Held::No
    };
    DeviceInterval::of(interval, held, &Filters::default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use headgate_placement::LeftOut;
    use headgate_stats::{COST_OF_ONE_IO, DiskStats, Latency, Op, Outcome, Phase};
    use headgate_units::{Bytes, Iops, Nanos, Shares};

    /// Reads of a second, a thousand of them: each waits for us and then takes two milliseconds.
    fn second(waits: Nanos) -> Interval {
        let mut stats = DiskStats::new(Nanos::ZERO);
        let device = Nanos::from_millis(2);
        let mut events: Vec<(Nanos, u8, u64)> = (0..1_000)
            .flat_map(|n| {
                let at = Nanos::from_millis(n);
                [(at, 0, n), (at + waits, 1, n), (at + waits + device, 2, n)]
            })
            .collect();
        events.sort_unstable();
        for (at, step, n) in events.into_iter().filter(|(at, ..)| *at < Nanos::from_secs(1)) {
            match step {
                // Not in order, so none continues another.
                0 => stats.on_arrival(at, Op::Read, n * 7919 % 1_000 * (1 << 20), Bytes(4096)),
                1 => stats.on_dispatch(at, Op::Read, waits, Phase::Weight, COST_OF_ONE_IO),
                _ => {
                    let latency = Latency { device, total: waits + device };
                    stats.on_complete(at, Op::Read, Bytes(4096), latency, Outcome::Done);
                }
            }
        }
        stats.snapshot(Nanos::from_secs(1)).since_start(Nanos::ZERO)
    }

    fn policy(limit: Option<u64>) -> PolicyRecord {
        let limit = limit.map(|limit| Iops::new(limit).unwrap());
        PolicyRecord { reservation: None, limit, limit_bandwidth: None, shares: Shares::default(), burst: 1 }
    }

    #[test]
    fn the_time_to_pass_is_no_wait() {
        let interval = second(Nanos::from_micros(15));
        assert_eq!(held(&interval, &policy(Some(1_000))), Held::No);
        let DeviceInterval::Point(point) = datastore(&interval, [(&interval, &policy(None))].into_iter())
        else {
            panic!("it was not held back");
        };
        assert_eq!(point.latency, Nanos::from_millis(2));
        assert!((point.outstanding.as_f64() - 2.0).abs() < 0.05, "{point:?}");
    }

    #[test]
    fn who_waits_at_its_limit_waits_for_it_and_who_does_not_for_the_window() {
        let interval = second(Nanos::from_millis(3));
        assert_eq!(held(&interval, &policy(Some(1_000))), Held::ByLimit);
        assert_eq!(held(&interval, &policy(Some(2_000))), Held::ByWindow);
        assert_eq!(held(&interval, &policy(None)), Held::ByWindow);
        let of = |policy: PolicyRecord| datastore(&interval, [(&interval, &policy)].into_iter());
        for (limit, why) in [(Some(1_000), LeftOut::Limited), (None, LeftOut::Windowed)] {
            let DeviceInterval::Doubtful(point, found) = of(policy(limit)) else {
                panic!("the device was seen at what was let through");
            };
            assert_eq!((found, point.latency), (why, Nanos::from_millis(2)));
            assert!((point.outstanding.as_f64() - 2.0).abs() < 0.05, "not what waited: {point:?}");
        }
    }

    #[test]
    fn what_waited_for_a_limit_is_no_demand() {
        let interval = second(Nanos::from_millis(3));
        let outstanding = |limit| disk(&interval, &policy(limit)).unwrap().outstanding.as_f64();
        assert!((outstanding(None) - 5.0).abs() < 0.05);
        assert!((outstanding(Some(1_000)) - 2.0).abs() < 0.05);
        assert_eq!(disk(&Interval { read_fraction: None, ..interval }, &policy(None)), None, "idle");
    }
}
