//! What the intervals of a datastore say of its device.

use super::point::{DeviceInterval, Filters};
use crate::{Held, Limits};
use headgate_stats::Interval;
use headgate_units::Nanos;

/// A window that did not change for this long does not follow latency.
const STEADY: Nanos = Nanos::from_secs(60);

/// Sorts the intervals of one datastore, one after the other.
///
/// `W` is whatever tells one state of its window, or windows, from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatastoreJudge<W> {
    /// The window, and since when it is what it is.
    window: Option<(W, Nanos)>,
}

impl<W> Default for DatastoreJudge<W> {
    fn default() -> DatastoreJudge<W> {
        DatastoreJudge { window: None }
    }
}

impl<W: PartialEq> DatastoreJudge<W> {
    /// What an interval that ended `at` says of the device. `window` is the window then; `disks`
    /// are the intervals of the disks, each with its limits. O(disks).
    ///
    /// What waited for a window counts only after the window was the same for a minute. A window
    /// that follows latency is small while the device is slow, and would bias the model.
    pub fn judge<'a>(
        &mut self,
        at: Nanos,
        window: W,
        interval: &Interval,
        disks: impl IntoIterator<Item = (&'a Interval, Limits)>,
    ) -> DeviceInterval {
        let held = Held::of_datastore(interval, disks);
        let sorted = DeviceInterval::of(interval, held, &Filters::default());
        if self.is_steady(at, window) { sorted } else { sorted.without_windowed() }
    }

    fn is_steady(&mut self, at: Nanos, window: W) -> bool {
        match &self.window {
            Some((known, since)) if *known == window => at.since(*since) >= STEADY,
            _ => {
                self.window = Some((window, at));
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LeftOut, WorkloadProfile};
    use headgate_stats::{COST_OF_ONE_IO, DiskStats, Latency, Op, Outcome, Phase};
    use headgate_units::{Bytes, BytesPerSec, Iops};

    /// Reads of a second, a thousand of them: each waits for us and then takes two milliseconds.
    fn second(waits: Nanos) -> Interval {
        second_on(waits, Nanos::from_millis(2))
    }

    /// The same on a device that takes so long.
    fn second_on(waits: Nanos, device: Nanos) -> Interval {
        let mut stats = DiskStats::new(Nanos::ZERO);
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

    fn limits(limit: Option<u64>) -> Limits {
        Limits { iops: limit.map(|limit| Iops::new(limit).unwrap()), bandwidth: None }
    }

    /// What it says of a device whose window has been the same for long.
    fn sorted(interval: &Interval, limits: Limits) -> DeviceInterval {
        let mut judge = DatastoreJudge::default();
        let mut at = |at| judge.judge(at, 32, interval, [(interval, limits)]);
        at(Nanos::ZERO);
        at(STEADY)
    }

    #[test]
    fn the_time_to_pass_is_no_wait() {
        let interval = second(Nanos::from_micros(15));
        assert_eq!(Held::of_disk(&interval, &limits(Some(1_000))), Held::No);
        let DeviceInterval::Point(point) = sorted(&interval, limits(None)) else {
            panic!("it was not held back");
        };
        assert_eq!(point.latency, Nanos::from_millis(2));
        assert!((point.outstanding.as_f64() - 2.0).abs() < 0.05, "{point:?}");
        // On a fast device it is a large part of what was outstanding, and still no wait.
        let fast = |waits| {
            let interval = second_on(Nanos::from_micros(waits), Nanos::from_micros(50));
            Held::of_disk(&interval, &limits(Some(1_000)))
        };
        assert_eq!([fast(15), fast(25)], [Held::No, Held::ByLimit]);
    }

    #[test]
    fn who_waits_at_its_limit_waits_for_it_and_who_does_not_for_the_window() {
        let interval = second(Nanos::from_millis(3));
        assert_eq!(Held::of_disk(&interval, &limits(Some(1_000))), Held::ByLimit);
        assert_eq!(Held::of_disk(&interval, &limits(Some(2_000))), Held::ByWindow);
        assert_eq!(Held::of_disk(&interval, &limits(None)), Held::ByWindow);
        for (limit, why) in [(Some(1_000), LeftOut::Limited), (None, LeftOut::Windowed)] {
            let DeviceInterval::Doubtful(point, found) = sorted(&interval, limits(limit)) else {
                panic!("the device was seen at what was let through");
            };
            assert_eq!((found, point.latency), (why, Nanos::from_millis(2)));
            assert!((point.outstanding.as_f64() - 2.0).abs() < 0.05, "not what waited: {point:?}");
        }
    }

    #[test]
    fn what_waited_for_a_limit_is_no_demand() {
        let interval = second(Nanos::from_millis(3));
        let profile = |limit| {
            let held = Held::of_disk(&interval, &limits(limit));
            WorkloadProfile::of(&interval, held).unwrap()
        };
        let outstanding = |limit| profile(limit).outstanding.as_f64();
        assert!((outstanding(None) - 5.0).abs() < 0.05);
        assert!((outstanding(Some(1_000)) - 2.0).abs() < 0.05);
        let idle = Interval { read_fraction: None, ..interval };
        assert_eq!(WorkloadProfile::of(&idle, Held::of_disk(&idle, &limits(None))), None);
    }

    /// A datastore of two disks, one of which is at its limit: what held its interval back is what
    /// most requests waited for.
    #[test]
    fn a_datastore_is_held_by_what_most_of_its_requests_wait_for() {
        let (long, short) = (second(Nanos::from_millis(9)), second(Nanos::from_millis(3)));
        let whole = second(Nanos::from_millis(12));
        let held = |of_long, of_short| {
            Held::of_datastore(&whole, [(&long, limits(of_long)), (&short, limits(of_short))])
        };
        assert_eq!(held(Some(1_000), None), Held::ByLimit);
        assert_eq!(held(None, Some(1_000)), Held::ByWindow);
        assert_eq!(held(Some(1_000), Some(1_000)), Held::ByLimit);
        assert_eq!(held(Some(1_100), Some(1_100)), Held::ByWindow, "neither has reached it");
    }

    #[test]
    fn a_limit_of_bytes_holds_back_as_one_of_ios_does() {
        let interval = second(Nanos::from_millis(3));
        let limits = |bytes| Limits { iops: None, bandwidth: BytesPerSec::new(bytes).ok() };
        assert_eq!(Held::of_disk(&interval, &limits(4_096_000)), Held::ByLimit);
        assert_eq!(Held::of_disk(&interval, &limits(5_000_000)), Held::ByWindow);
    }

    #[test]
    fn what_waits_for_a_window_that_moves_says_nothing() {
        let interval = second(Nanos::from_millis(3));
        let mut judge = DatastoreJudge::default();
        let mut at = |s, window| {
            let limits = limits(None);
            judge.judge(Nanos::from_secs(s), window, &interval, [(&interval, limits)])
        };
        let nothing = DeviceInterval::Nothing(LeftOut::Windowed);
        assert_eq!(at(1, 32), nothing, "nobody knows yet whether it moves");
        assert_eq!(at(59, 32), nothing);
        assert!(matches!(at(61, 32), DeviceInterval::Doubtful(_, LeftOut::Windowed)));
        assert_eq!(at(66, 31), nothing);
        assert_eq!(at(71, 32), nothing, "it came back, but it moves");
        assert!(matches!(at(131, 32), DeviceInterval::Doubtful(_, LeftOut::Windowed)));
    }
}
