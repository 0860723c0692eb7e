use crate::parse::ParseUnitError;
use core::fmt;
use core::ops::{Add, AddAssign, Sub};
use core::str::FromStr;
use core::time::Duration;
use serde::{Deserialize, Serialize};

/// Time in integer nanoseconds: an instant on the caller's monotonic clock, or the distance of two
/// instants.
///
/// Sums saturate and differences stop at zero, so a clock that stands still or steps back cannot
/// panic or wrap. The origin is the caller's choice.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Nanos(pub u64);

impl Nanos {
    /// The clock's origin, and the empty duration.
    pub const ZERO: Nanos = Nanos(0);
    /// Later than any instant a clock shows.
    pub const MAX: Nanos = Nanos(u64::MAX);

    /// `n` microseconds; saturates.
    pub const fn from_micros(n: u64) -> Nanos {
        Nanos(n.saturating_mul(1_000))
    }

    /// `n` milliseconds; saturates.
    pub const fn from_millis(n: u64) -> Nanos {
        Nanos(n.saturating_mul(1_000_000))
    }

    /// `n` seconds; saturates.
    pub const fn from_secs(n: u64) -> Nanos {
        Nanos(n.saturating_mul(1_000_000_000))
    }

    /// Seconds as a float, for reports only.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The time from `earlier` to `self`, zero when `earlier` is later.
    pub const fn since(self, earlier: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add for Nanos {
    type Output = Nanos;
    #[inline]
    fn add(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Nanos {
    #[inline]
    fn add_assign(&mut self, other: Nanos) {
        *self = *self + other;
    }
}

impl Sub for Nanos {
    type Output = Nanos;
    #[inline]
    fn sub(self, other: Nanos) -> Nanos {
        self.since(other)
    }
}

impl From<Duration> for Nanos {
    fn from(d: Duration) -> Nanos {
        Nanos(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Nanos> for Duration {
    fn from(n: Nanos) -> Duration {
        Duration::from_nanos(n.0)
    }
}

impl fmt::Debug for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

const UNITS: [(&str, u64); 4] = [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];

/// Parses a whole number with its unit: `350ns`, `100us`, `30ms`, `4s`.
impl FromStr for Nanos {
    type Err = ParseUnitError;
    fn from_str(s: &str) -> Result<Nanos, ParseUnitError> {
        let wrong =
            || ParseUnitError::new(s, "a time, a whole number with ns, us, ms or s, such as 100us");
        let (number, unit) = s.split_at(s.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?);
        let &(_, nanos) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?;
        let number: u64 = number.parse().map_err(|_| wrong())?;
        number.checked_mul(nanos).map(Nanos).ok_or_else(wrong)
    }
}

/// Prints with the largest unit that keeps the value at or above one: `350 ns`, `4.20 ms`, `12.00
/// s`.
impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = self.0 as f64;
        match self.0 {
            0..1_000 => write!(f, "{} ns", self.0),
            1_000..1_000_000 => write!(f, "{:.2} us", n / 1e3),
            1_000_000..1_000_000_000 => write!(f, "{:.2} ms", n / 1e6),
            _ => write!(f, "{:.2} s", n / 1e9),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_whole_numbers_with_a_unit() {
        for (text, time) in [
            ("0us", 0),
            ("350ns", 350),
            ("100us", 100_000),
            ("30ms", 30_000_000),
            ("4s", 4_000_000_000),
        ] {
            assert_eq!(text.parse(), Ok(Nanos(time)));
        }
        for wrong in [
            "",
            "100",
            "us",
            "1.5ms",
            "-1us",
            "1 ms",
            "1m",
            "99999999999999999999s",
            "18446744074s",
        ] {
            let error = wrong.parse::<Nanos>().unwrap_err().to_string();
            assert!(error.contains("such as 100us"), "{error}");
        }
    }

    #[test]
    fn arithmetic_never_wraps() {
        assert_eq!(Nanos::MAX + Nanos(1), Nanos::MAX);
        assert_eq!(Nanos(1) - Nanos(2), Nanos::ZERO);
        assert_eq!(Nanos::from_secs(u64::MAX), Nanos::MAX);
    }

    #[test]
    fn display_picks_the_unit() {
        assert_eq!(Nanos(350).to_string(), "350 ns");
        assert_eq!(Nanos::from_micros(4_200).to_string(), "4.20 ms");
        assert_eq!(Nanos::from_secs(12).to_string(), "12.00 s");
    }
}
