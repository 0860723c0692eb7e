use crate::parse::ParseUnitError;
use crate::rate::OutOfRange;
use core::fmt;
use core::str::FromStr;
use serde::{Deserialize, Serialize};

/// An application's IO priority on the host, 1 to 254; more is more service, in proportion.
///
/// 0 and 255 are reserved, as in the tag scheduler report: a request that was given none has no
/// `Priority` at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct Priority(u8);

impl Priority {
    /// The smallest value.
    pub const MIN: Priority = Priority(1);
    /// The largest value.
    pub const MAX: Priority = Priority(254);

    /// Checks the range.
    ///
    /// # Errors
    /// [`OutOfRange`] names the range and what was given.
    pub const fn new(value: u64) -> Result<Priority, OutOfRange> {
        if value < Priority::MIN.0 as u64 || value > Priority::MAX.0 as u64 {
            return Err(OutOfRange { what: "a priority", min: 1, max: 254, given: value });
        }
        Ok(Priority(value as u8))
    }

    /// The number.
    pub const fn get(self) -> u8 {
        self.0
    }
}

impl TryFrom<u64> for Priority {
    type Error = OutOfRange;
    fn try_from(value: u64) -> Result<Priority, OutOfRange> {
        Priority::new(value)
    }
}

impl From<Priority> for u64 {
    fn from(value: Priority) -> u64 {
        u64::from(value.0)
    }
}

impl FromStr for Priority {
    type Err = ParseUnitError;
    fn from_str(s: &str) -> Result<Priority, ParseUnitError> {
        let wrong = || ParseUnitError::new(s, "a priority, a whole number from 1 to 254");
        Priority::new(s.parse().map_err(|_| wrong())?).map_err(|_| wrong())
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_and_255_are_reserved() {
        for wrong in ["0", "255", "256", "-1", "1.5", ""] {
            let error = wrong.parse::<Priority>().unwrap_err().to_string();
            assert!(error.contains("from 1 to 254"), "{error}");
        }
        assert_eq!("254".parse::<Priority>(), Ok(Priority::MAX));
        assert_eq!(Priority::new(0).unwrap_err().to_string(), "a priority must be 1 to 254, not 0");
        assert_eq!(Priority::try_from(1), Ok(Priority::MIN));
    }
}
