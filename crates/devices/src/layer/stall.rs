//! Storage that stands still now and then.

use crate::options::{parse_latency, write_latency};
use core::fmt;
use headgate_units::Nanos;

/// Storage that stands still at the end of each period, `TIME/PERIOD`: a failover of paths, a
/// scrub, or, where it is short, garbage collection.
///
/// Periods count from zero of the clock. Nothing begins and nothing completes during a stall. What
/// was under way completes in the stall and is told at its end, so at most as much as was under way
/// is served in a stall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    time: Nanos,
    period: Nanos,
}

impl Stall {
    pub(crate) const FORM: &str =
        "TIME/PERIOD, a time at the end of each period of up to 100s, such as 1s/5s";

    /// The longest period.
    pub const PERIOD_MAX: Nanos = Nanos::from_secs(100);

    /// `None` unless the time is above 0 and below the period, and the period at most
    /// [`Stall::PERIOD_MAX`].
    pub fn new(time: Nanos, period: Nanos) -> Option<Stall> {
        let fits = time > Nanos::ZERO && time < period && period <= Stall::PERIOD_MAX;
        fits.then_some(Stall { time, period })
    }

    /// How long it stands still in each period.
    pub fn time(self) -> Nanos {
        self.time
    }

    /// From the end of one stall to the end of the next.
    pub fn period(self) -> Nanos {
        self.period
    }

    /// The end of the stall that `now` is in; `now` if it is in none. O(1).
    pub fn end(self, now: Nanos) -> Nanos {
        let into = Nanos(now.0 % self.period.0);
        let left = self.period - into;
        if left <= self.time { now + left } else { now }
    }

    pub(crate) fn parse(text: &str) -> Option<Stall> {
        let (time, period) = text.split_once('/')?;
        Stall::new(parse_latency(time)?, parse_latency(period)?)
    }
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_latency(f, self.time)?;
        f.write_str("/")?;
        write_latency(f, self.period)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_stands_still_at_the_end_of_each_period() {
        let stall = Stall::parse("1s/5s").unwrap();
        let ms = Nanos::from_millis;
        for (now, end) in [
            (0, 0),
            (3_999, 3_999),
            (4_000, 5_000),
            (4_500, 5_000),
            (4_999, 5_000),
            (5_000, 5_000),
            (9_000, 10_000),
        ] {
            assert_eq!(stall.end(ms(now)), ms(end), "{now} ms");
        }
    }
}
