//! When a window gives way to reservations.

use alloc::borrow::ToOwned;
use alloc::string::String;
use core::fmt;
use core::str::FromStr;
use thiserror::Error;

/// Whether a window gives way to reservations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Narrow {
    /// Never: what is in flight is bounded by the window alone, as in the papers.
    #[default]
    Never,
    /// While a disk with a reservation keeps too few requests outstanding to get it behind a full
    /// window.
    ForReservations,
}

/// The text is no [`Narrow`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("'{0}' does not say when a window is narrowed: expected reservations or never")]
pub struct UnknownNarrow(String);

impl FromStr for Narrow {
    type Err = UnknownNarrow;
    fn from_str(name: &str) -> Result<Narrow, UnknownNarrow> {
        match name {
            "never" => Ok(Narrow::Never),
            "reservations" => Ok(Narrow::ForReservations),
            _ => Err(UnknownNarrow(name.to_owned())),
        }
    }
}

/// Prints the name that parses.
impl fmt::Display for Narrow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Narrow::Never => "never",
            Narrow::ForReservations => "reservations",
        })
    }
}
