//! Amounts of service.

use core::fmt;
use serde::{Deserialize, Serialize};

/// An amount of service, in millionths of a reference IO: the scheduler's costs.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Work(u64);

impl Work {
    /// Nothing.
    pub const ZERO: Work = Work(0);
    /// One reference IO.
    pub const ONE: Work = Work(1_000_000);

    /// So many millionths of a reference IO.
    pub const fn from_millionths(millionths: u64) -> Work {
        Work(millionths)
    }

    /// `ios` reference IOs; saturates.
    pub const fn from_ios(ios: u64) -> Work {
        Work(ios.saturating_mul(Work::ONE.0))
    }

    /// Millionths of a reference IO.
    pub const fn as_millionths(self) -> u64 {
        self.0
    }

    /// In reference IOs.
    pub fn as_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// The most that is not above so many reference IOs.
    pub(super) fn of(ios: f64) -> Work {
        // A cast saturates, and takes what is not a number for zero.
        Work((ios * 1e6) as u64)
    }
}

/// Prints reference IOs: `1.5`.
impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1}", self.as_f64())
    }
}
