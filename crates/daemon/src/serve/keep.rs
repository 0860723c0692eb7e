//! How long the content of removed disks is kept, and the thread that ends that.

use headgate_control::Control;
use headgate_control::leases::Ticker;
use serde::Deserialize;
use std::io;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// The longest time, in seconds.
const LONGEST: u64 = 365 * DAY;

/// How often one looks whether a disk's time is over.
const LOOK: Duration = Duration::from_secs(15);

/// How long the content of removed disks is kept: 0 to 365 days.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct KeepRemoved(Duration);

/// The text is no such time.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("'{0}' is no time to keep disks for: 0, or up to 365d, such as 30s, 90min, 12h or 7d")]
pub struct UnknownKeepRemoved(String);

impl KeepRemoved {
    pub(super) fn duration(self) -> Duration {
        self.0
    }
}

impl FromStr for KeepRemoved {
    type Err = UnknownKeepRemoved;
    fn from_str(text: &str) -> Result<KeepRemoved, UnknownKeepRemoved> {
        let unknown = || UnknownKeepRemoved(text.chars().take(40).collect());
        if text == "0" {
            return Ok(KeepRemoved(Duration::ZERO));
        }
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, unit) = text.split_at(digits);
        let unit = match unit {
            "s" => 1,
            "min" => MINUTE,
            "h" => HOUR,
            "d" => DAY,
            _ => return Err(unknown()),
        };
        let seconds = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
        let seconds = seconds.filter(|seconds| *seconds <= LONGEST).ok_or_else(unknown)?;
        Ok(KeepRemoved(Duration::from_secs(seconds)))
    }
}

impl TryFrom<String> for KeepRemoved {
    type Error = UnknownKeepRemoved;
    fn try_from(text: String) -> Result<KeepRemoved, UnknownKeepRemoved> {
        text.parse()
    }
}

/// Starts the thread that purges removed disks whose time is over.
pub(super) fn start(control: Arc<Control>) -> io::Result<Ticker> {
    Ticker::start("headgate-purge", move || {
        control.purge_expired();
        LOOK
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_their_units_and_within_a_year() {
        let seconds = |text: &str| text.parse::<KeepRemoved>().unwrap().duration().as_secs();
        assert_eq!(
            ["0", "0d", "45s", "90min", "12h", "7d", "365d"].map(seconds),
            [0, 0, 45, 5_400, 43_200, 604_800, 31_536_000]
        );
        for bad in ["", "1", "366d", "1w", "1 d", "-1d", "99999999999999999999d", "d"] {
            let error = bad.parse::<KeepRemoved>().unwrap_err().to_string();
            assert!(error.contains("such as 30s"), "{error}");
        }
    }
}
