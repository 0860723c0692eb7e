//! How far back history is read.

use headgate_units::Nanos;
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// How far back history is read: one minute to 30 days.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lookback(Nanos);

/// The text is no [`Lookback`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("'{0}' is no window: a time of 1 min to 30 d, such as 90min, 24h or 7d")]
pub struct UnknownLookback(String);

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

impl Lookback {
    /// 24 hours.
    pub const DAY: Lookback = Lookback(Nanos::from_secs(DAY));

    /// 7 days.
    pub const WEEK: Lookback = Lookback(Nanos::from_secs(7 * DAY));

    /// 30 days, the longest.
    pub const MONTH: Lookback = Lookback(Nanos::from_secs(30 * DAY));

    /// How long it is.
    pub const fn nanos(self) -> Nanos {
        self.0
    }

    /// Where it begins, seen from `now`; both in nanoseconds since 1970.
    pub fn from(self, now: Nanos) -> Nanos {
        Nanos(now.0.saturating_sub(self.0.0))
    }

    /// Whether it is short enough (below 3 h) to read single intervals instead of whole hours.
    pub fn is_fine(self) -> bool {
        self.0 < Nanos::from_secs(3 * HOUR)
    }
}

impl Default for Lookback {
    fn default() -> Lookback {
        Lookback::DAY
    }
}

impl FromStr for Lookback {
    type Err = UnknownLookback;
    fn from_str(text: &str) -> Result<Lookback, UnknownLookback> {
        let unknown = || UnknownLookback(text.to_owned());
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, unit) = text.split_at(digits);
        let number: u64 = number.parse().map_err(|_| unknown())?;
        let unit = match unit.trim_start() {
            "min" => MINUTE,
            "h" => HOUR,
            "d" => DAY,
            _ => return Err(unknown()),
        };
        let seconds = number
            .checked_mul(unit)
            .filter(|s| (MINUTE..=30 * DAY).contains(s))
            .ok_or_else(unknown)?;
        Ok(Lookback(Nanos::from_secs(seconds)))
    }
}

/// As it is written: `24h`.
impl fmt::Display for Lookback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.0 / 1_000_000_000 {
            seconds if seconds % DAY == 0 && seconds > DAY => write!(f, "{}d", seconds / DAY),
            seconds if seconds % HOUR == 0 => write!(f, "{}h", seconds / HOUR),
            seconds => write!(f, "{}min", seconds / MINUTE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lookbacks_are_written_as_they_are_read() {
        for text in ["1min", "90min", "24h", "7d", "30d"] {
            assert_eq!(text.parse::<Lookback>().unwrap().to_string(), text);
        }
        for bad in ["", "0min", "31d", "24", "h", "1 week", "-1h", "99999999999999999999d"] {
            let error = bad.parse::<Lookback>().unwrap_err().to_string();
            assert!(error.contains("such as 90min, 24h or 7d"), "{error}");
        }
        assert_eq!(Lookback::default(), "1d".parse().unwrap());
    }
}
