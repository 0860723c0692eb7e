use super::config::Alarm;
use super::slots::{Fraction, Slots};
use core::fmt;
use headgate_units::Nanos;

/// Latency is high although all windows are at their lower bounds: throttling does not help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unmanaged {
    /// The mean latency of all hosts.
    pub latency: Nanos,
    /// What it should be.
    pub threshold: Nanos,
    /// All windows together.
    pub windows: Slots,
    /// What is most likely the reason.
    pub cause: Cause,
}

/// Why throttling does not help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Something loads the storage that no host on the board answers for: another datastore on the
    /// same spindles, a backup, a rebuild.
    ForeignLoad,
    /// The latency has never been below the threshold: it is less than what the storage needs for a
    /// single IO, or there has been foreign load all along.
    NeverBelow {
        /// The lowest mean latency of a period so far.
        lowest: Nanos,
    },
    /// This host's window is as large as its reservations need: more is reserved than the storage
    /// can do now.
    Reservations,
}

/// A change that somebody should hear of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadEvent {
    /// Throttling does not help.
    Began(Unmanaged),
    /// It does again.
    Ended,
}

impl fmt::Display for Unmanaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Unmanaged { latency, threshold, windows, cause } = self;
        write!(
            f,
            "the storage answers after {latency} instead of {threshold} although the hosts keep only {windows} requests in \
             flight: "
        )?;
        match cause {
            Cause::ForeignLoad => f.write_str(
                "something else loads it (another datastore on the same devices, a backup, a rebuild); find that, or give it a \
                 window of its own",
            ),
            Cause::NeverBelow { lowest } => write!(
                f,
                "it has never done better than {lowest}; raise the threshold, unless something else has been loading it all \
                 along"
            ),
            Cause::Reservations => f.write_str(
                "that many are needed for what is reserved, which is more than the storage can do now; reserve less, or find \
                 what slows it down",
            ),
        }
    }
}

/// Notices load that no window controls.
#[derive(Clone, Debug)]
pub(super) struct Watch {
    /// Periods in a row that spoke against the present state.
    against: u8,
    state: Option<Unmanaged>,
    lowest: Option<Nanos>,
}

impl Watch {
    pub(super) fn new() -> Watch {
        Watch { against: 0, state: None, lowest: None }
    }

    pub(super) fn state(&self) -> Option<Unmanaged> {
        self.state
    }

    /// One period. `collapsed` is the sum of all windows if all are at their lower bounds.
    pub(super) fn observe(
        &mut self,
        alarm: Alarm,
        (latency, threshold): (Nanos, Nanos),
        collapsed: Option<Slots>,
        bound: super::Bound,
    ) -> Option<LoadEvent> {
        let lowest = self.lowest.map_or(latency, |lowest| lowest.min(latency));
        self.lowest = Some(lowest);
        let high = latency.0 > threshold.0.saturating_add(alarm.margin.of(threshold.0));
        let helpless = collapsed.filter(|_| high).map(|windows| {
            let cause = match bound {
                super::Bound::Reservations => Cause::Reservations,
                // Windows rest at the threshold, and may have come to it from above.
                _ if lowest.0 > threshold.0.saturating_add(threshold.0 / 64) => {
                    Cause::NeverBelow { lowest }
                }
                _ => Cause::ForeignLoad,
            };
            Unmanaged { latency, threshold, windows, cause }
        });
        if helpless.is_some() == self.state.is_some() {
            self.against = 0;
            self.state = helpless;
            return None;
        }
        self.against += 1;
        if self.against < alarm.patience {
            return None;
        }
        self.against = 0;
        self.state = helpless;
        Some(helpless.map_or(LoadEvent::Ended, LoadEvent::Began))
    }
}

impl Alarm {
    /// 25 per cent, 5 periods.
    pub const DEFAULT: Alarm = Alarm { margin: Fraction::percent(25), patience: 5 };
}

#[cfg(test)]
mod tests {
    use super::super::Bound;
    use super::*;

    const HIGH: (Nanos, Nanos) = (Nanos::from_millis(40), Nanos::from_millis(30));
    const LOW: (Nanos, Nanos) = (Nanos::from_millis(29), Nanos::from_millis(30));

    #[test]
    fn says_so_once_after_its_patience_and_takes_it_back_once() {
        let mut watch = Watch::new();
        let mut observe =
            |latency, collapsed| watch.observe(Alarm::DEFAULT, latency, collapsed, Bound::Min);
        let small = Some(Slots::whole(8));
        assert_eq!(observe(LOW, None), None);
        for _ in 0..4 {
            assert_eq!(observe(HIGH, small), None);
        }
        // One period in between starts the count anew.
        assert_eq!(observe(HIGH, None), None);
        for _ in 0..4 {
            assert_eq!(observe(HIGH, small), None);
        }
        let Some(LoadEvent::Began(what)) = observe(HIGH, small) else { panic!("nothing was said") };
        assert_eq!((what.cause, what.windows), (Cause::ForeignLoad, Slots::whole(8)));
        for _ in 0..20 {
            assert_eq!(observe(HIGH, small), None);
        }
        for _ in 0..4 {
            assert_eq!(observe(LOW, small), None);
        }
        assert_eq!(observe(LOW, small), Some(LoadEvent::Ended));
        assert_eq!(observe(LOW, small), None);
    }

    #[test]
    fn tells_causes_apart() {
        let cause = |bound| {
            let mut watch = Watch::new();
            let small = Some(Slots::whole(8));
            (0..5).find_map(|_| watch.observe(Alarm::DEFAULT, HIGH, small, bound))
        };
        let Some(LoadEvent::Began(what)) = cause(Bound::Min) else { panic!("nothing was said") };
        assert_eq!(what.cause, Cause::NeverBelow { lowest: HIGH.0 });
        assert!(
            what.to_string().contains("never done better than 40.00 ms; raise the threshold"),
            "{what}"
        );
        let Some(LoadEvent::Began(what)) = cause(Bound::Reservations) else {
            panic!("nothing was said")
        };
        assert_eq!(what.cause, Cause::Reservations);
    }
}
