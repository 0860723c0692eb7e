use crate::parse::{ParseUnitError, parse_scaled};
use core::fmt;
use core::str::FromStr;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A number outside the range of its type.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{what} must be {min} to {max}, not {given}")]
pub struct OutOfRange {
    pub(crate) what: &'static str,
    pub(crate) min: u64,
    pub(crate) max: u64,
    pub(crate) given: u64,
}

macro_rules! ranged {
    ($name:ident, $what:literal, $min:expr, $max:expr) => {
        impl $name {
            /// The smallest value.
            pub const MIN: $name = $name($min);
            /// The largest value.
            pub const MAX: $name = $name($max);

            /// Checks the range.
            ///
            /// # Errors
            /// [`OutOfRange`] names the range and what was given.
            pub const fn new(value: u64) -> Result<$name, OutOfRange> {
                if value < $min || value > $max {
                    return Err(OutOfRange { what: $what, min: $min, max: $max, given: value });
                }
                Ok($name(value))
            }

            /// The number.
            pub const fn get(self) -> u64 {
                self.0
            }
        }

        impl TryFrom<u64> for $name {
            type Error = OutOfRange;
            fn try_from(value: u64) -> Result<$name, OutOfRange> {
                $name::new(value)
            }
        }

        impl From<$name> for u64 {
            fn from(value: $name) -> u64 {
                value.0
            }
        }
    };
}

/// A rate in normalised IOs per second (a request of the reference size costs one), 1 to 10⁹.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct Iops(u64);
ranged!(Iops, "a rate in IOPS", 1, 1_000_000_000);

/// A rate in bytes per second, 1 to 2⁶³.
///
/// Parses as [`Bytes`](crate::Bytes) does: `50M` is 52,428,800 bytes per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct BytesPerSec(u64);
ranged!(BytesPerSec, "a bandwidth in bytes per second", 1, 1 << 63);

/// A disk's weight relative to the others on its datastore, 1 to 1,000,000. Only ratios matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct Shares(u64);
ranged!(Shares, "shares", 1, 1_000_000);

impl Default for Shares {
    /// 1,000: what other hypervisors call normal.
    fn default() -> Shares {
        Shares(1_000)
    }
}

impl FromStr for BytesPerSec {
    type Err = ParseUnitError;
    fn from_str(s: &str) -> Result<BytesPerSec, ParseUnitError> {
        const EXPECTED: &str = "a bandwidth in bytes per second from 1 to 8E, such as 50M or 1.5G";
        let value = parse_scaled(s, EXPECTED)?;
        BytesPerSec::new(value).map_err(|_| ParseUnitError::new(s, EXPECTED))
    }
}

macro_rules! whole_number {
    ($name:ident, $expected:literal) => {
        impl FromStr for $name {
            type Err = ParseUnitError;
            fn from_str(s: &str) -> Result<$name, ParseUnitError> {
                let wrong = || ParseUnitError::new(s, $expected);
                $name::new(s.parse().map_err(|_| wrong())?).map_err(|_| wrong())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

whole_number!(Iops, "a rate in IOPS, a whole number from 1 to 1000000000");
whole_number!(Shares, "a number of shares, a whole number from 1 to 1000000");

/// Prints as a size per second: `50 MiB/s`.
impl fmt::Display for BytesPerSec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/s", crate::Bytes(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_enforced_and_named() {
        assert_eq!(
            Iops::new(0).unwrap_err().to_string(),
            "a rate in IOPS must be 1 to 1000000000, not 0"
        );
        assert!("0".parse::<Shares>().is_err());
        assert_eq!("50M".parse::<BytesPerSec>().map(BytesPerSec::get), Ok(50 << 20));
        assert!("0".parse::<BytesPerSec>().is_err());
    }
}
