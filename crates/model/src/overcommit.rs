//! How much of a file system may be promised to thin disks.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// How many times the room of its file system the disks of a datastore may be large together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overcommit {
    /// In hundredths, 10 to 100,000.
    Times(u32),
    /// As much as anybody wants.
    Unbounded,
}

/// A text that is no [`Overcommit`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "'{0}' is no over-commitment: write a number from 0.1 to 1000, such as 2.5, or 'none' for no bound"
)]
pub struct UnknownOvercommit(String);

impl Default for Overcommit {
    /// Ten times: see `docs/decisions/0063-trouble.md`.
    fn default() -> Overcommit {
        Overcommit::Times(1_000)
    }
}

impl Overcommit {
    /// The most that may be promised of so much room, in bytes; `None`: no bound.
    pub fn most(self, room: u64) -> Option<u64> {
        match self {
            Overcommit::Times(hundredths) => {
                let most = u128::from(room) * u128::from(hundredths) / 100;
                Some(u64::try_from(most).unwrap_or(u64::MAX))
            }
            Overcommit::Unbounded => None,
        }
    }
}

impl FromStr for Overcommit {
    type Err = UnknownOvercommit;

    fn from_str(text: &str) -> Result<Overcommit, UnknownOvercommit> {
        if text == "none" {
            return Ok(Overcommit::Unbounded);
        }
        let unknown = || UnknownOvercommit(text.to_owned());
        let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole) || !digits(part) || part.len() > 2 {
            return Err(unknown());
        }
        let hundredths = format!("{whole}{part:0<2}").parse().map_err(|_| unknown())?;
        let fits = (10..=100_000).contains(&hundredths);
        fits.then_some(Overcommit::Times(hundredths)).ok_or_else(unknown)
    }
}

impl fmt::Display for Overcommit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Overcommit::Unbounded => f.write_str("none"),
            Overcommit::Times(hundredths) => {
                write!(f, "{}", hundredths / 100)?;
                match hundredths % 100 {
                    0 => Ok(()),
                    part if part % 10 == 0 => write!(f, ".{}", part / 10),
                    part => write!(f, ".{part:02}"),
                }
            }
        }
    }
}

impl Serialize for Overcommit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Overcommit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Overcommit, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_read_as_they_are_written() {
        for text in ["0.1", "1", "2.5", "10", "1.05", "1000", "none"] {
            assert_eq!(text.parse::<Overcommit>().unwrap().to_string(), text);
        }
        for bad in ["", "0", "0.09", "1000.01", "1.234", "-1", "1x", ".5", "1.", "unlimited"] {
            let error = bad.parse::<Overcommit>().unwrap_err().to_string();
            assert!(error.contains("0.1 to 1000"), "{error}");
        }
    }

    #[test]
    fn a_bound_follows_the_room() {
        assert_eq!(Overcommit::Times(250).most(1_000), Some(2_500));
        assert_eq!(Overcommit::Times(100_000).most(u64::MAX), Some(u64::MAX));
        assert_eq!(Overcommit::Unbounded.most(0), None);
        assert_eq!(Overcommit::default().most(7), Some(70));
    }
}
