//! A bound on the latency of most of a disk's requests.

use crate::Nanos;
use alloc::borrow::ToOwned;
use alloc::string::{String, ToString as _};
use core::fmt;
use core::num::NonZeroU32;
use core::str::FromStr;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The latency that so many of a disk's reads and writes are to stay within, from the queue to the
/// end: 10 us to 60 s, for 50 to 99.9 per cent of them.
///
/// Written `p99=5ms` or `p99.9=20ms`. `Display` writes what parses back to the same value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LatencyTarget {
    /// In thousandths of all requests.
    quantile: u16,
    micros: NonZeroU32,
}

/// The values or the text are no [`LatencyTarget`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LatencyTargetError {
    /// Too few requests, or all of them.
    #[error("a latency target is for 50 to 99.9 per cent of the requests: p50 to p99.9")]
    Quantile,
    /// Too short or too long.
    #[error("a latency target is from 10us to 60s, in whole microseconds, not {0}")]
    Latency(Nanos),
    /// It is not written as one.
    #[error(
        "'{0}' is no latency target; write pN=TIME, such as p99=5ms: N per cent of the requests are to take no longer"
    )]
    Text(String),
}

impl LatencyTarget {
    /// The shortest latency that can be asked for.
    pub const MIN: Nanos = Nanos::from_micros(10);
    /// The longest one.
    pub const MAX: Nanos = Nanos::from_secs(60);

    /// So many thousandths of the requests are to take no longer than this, in whole microseconds.
    ///
    /// # Errors
    /// [`LatencyTargetError::Quantile`] unless it is 500 to 999, [`LatencyTargetError::Latency`]
    /// outside [`MIN`](LatencyTarget::MIN) and [`MAX`](LatencyTarget::MAX).
    pub fn new(thousandths: u16, latency: Nanos) -> Result<LatencyTarget, LatencyTargetError> {
        if !(500..=999).contains(&thousandths) {
            return Err(LatencyTargetError::Quantile);
        }
        let fits = (LatencyTarget::MIN..=LatencyTarget::MAX).contains(&latency);
        let micros = u32::try_from(latency.0 / 1_000).ok().and_then(NonZeroU32::new);
        match micros.filter(|_| fits && latency.0.is_multiple_of(1_000)) {
            Some(micros) => Ok(LatencyTarget { quantile: thousandths, micros }),
            None => Err(LatencyTargetError::Latency(latency)),
        }
    }

    /// How many of the requests are to stay within the latency, in thousandths: 500 to 999.
    pub fn quantile(self) -> u16 {
        self.quantile
    }

    /// The latency.
    pub fn latency(self) -> Nanos {
        Nanos::from_micros(u64::from(self.micros.get()))
    }
}

impl FromStr for LatencyTarget {
    type Err = LatencyTargetError;
    fn from_str(text: &str) -> Result<LatencyTarget, LatencyTargetError> {
        let wrong = || LatencyTargetError::Text(text.to_owned());
        let (quantile, latency) =
            text.strip_prefix('p').and_then(|rest| rest.split_once('=')).ok_or_else(wrong)?;
        let (whole, tenths) = quantile.split_once('.').unwrap_or((quantile, "0"));
        let digits = |text: &str| (1..=2).contains(&text.len()) && is_number(text);
        if !digits(whole) || tenths.len() != 1 || !is_number(tenths) {
            return Err(wrong());
        }
        let number = |text: &str| text.parse::<u16>().map_err(|_| wrong());
        let thousandths = number(whole)? * 10 + number(tenths)?;
        LatencyTarget::new(thousandths, latency.parse().map_err(|_| wrong())?)
    }
}

impl TryFrom<String> for LatencyTarget {
    type Error = LatencyTargetError;
    fn try_from(text: String) -> Result<LatencyTarget, LatencyTargetError> {
        text.parse()
    }
}

impl From<LatencyTarget> for String {
    fn from(target: LatencyTarget) -> String {
        target.to_string()
    }
}

fn is_number(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

impl fmt::Display for LatencyTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, tenths) = (self.quantile / 10, self.quantile % 10);
        match tenths {
            0 => write!(f, "p{whole}=")?,
            _ => write!(f, "p{whole}.{tenths}=")?,
        }
        match self.micros.get() {
            micros if micros % 1_000_000 == 0 => write!(f, "{}s", micros / 1_000_000),
            micros if micros % 1_000 == 0 => write!(f, "{}ms", micros / 1_000),
            micros => write!(f, "{micros}us"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn what_is_printed_parses_back() {
        // Steps of 7 per cent, so that all kinds of endings come by.
        let latencies =
            core::iter::successors(Some(10u64), |micros| Some(micros + micros / 14 + 1));
        let latencies: alloc::vec::Vec<u64> =
            latencies.take_while(|&micros| micros <= 60_000_000).chain([1_000_000]).collect();
        for quantile in 500u16..=999 {
            for &micros in &latencies {
                let target = LatencyTarget::new(quantile, Nanos::from_micros(micros)).unwrap();
                assert_eq!(target.to_string().parse(), Ok(target));
                assert_eq!(target.latency(), Nanos::from_micros(micros));
                assert_eq!(target.quantile(), quantile);
            }
        }
    }

    #[test]
    fn targets_are_written_as_people_say_them() {
        for (text, quantile, micros) in [
            ("p99=5ms", 990, 5_000),
            ("p99.9=20ms", 999, 20_000),
            ("p50=10us", 500, 10),
            ("p95=60s", 950, 60_000_000),
            ("p97.5=1500us", 975, 1_500),
        ] {
            let target = LatencyTarget::new(quantile, Nanos::from_micros(micros)).unwrap();
            assert_eq!(text.parse(), Ok(target), "{text}");
            assert_eq!(target.to_string(), text);
        }
    }

    #[test]
    fn what_is_none_says_what_one_is() {
        for text in [
            "",
            "p",
            "p99",
            "99=5ms",
            "p99=",
            "p99=5",
            "p=5ms",
            "p99.=5ms",
            "p99.99=5ms",
            "p+9=5ms",
            "p099=5ms",
            "p100=5ms",
        ] {
            let error = text.parse::<LatencyTarget>().unwrap_err();
            assert_eq!(error, LatencyTargetError::Text(text.to_owned()), "{text}");
        }
        for text in ["p49.9=5ms", "p0=5ms", "p9=5ms"] {
            assert_eq!(text.parse::<LatencyTarget>(), Err(LatencyTargetError::Quantile), "{text}");
        }
        for text in ["p99=9us", "p99=61s", "p99=5000001ns", "p99=0ms"] {
            let error = text.parse::<LatencyTarget>().unwrap_err();
            assert!(matches!(error, LatencyTargetError::Latency(_)), "{text}: {error}");
        }
        let error = "p99".parse::<LatencyTarget>().unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "'p99' is no latency target; write pN=TIME, such as p99=5ms: {}",
                "N per cent of the requests are to take no longer"
            )
        );
    }
}
