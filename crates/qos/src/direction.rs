//! Limits of one direction of a disk.

use headgate_units::{BytesPerSec, Iops};

/// Whether a request reads or writes. What does not read counts as a write: a flush, a discard and
/// zeroes make the storage keep something, and come from who writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// Reads.
    Read,
    /// Writes, and all else.
    Write,
}

impl Direction {
    /// Both.
    pub const BOTH: [Direction; 2] = [Direction::Read, Direction::Write];

    /// The other one.
    pub const fn other(self) -> Direction {
        match self {
            Direction::Read => Direction::Write,
            Direction::Write => Direction::Read,
        }
    }

    /// Where it stands in [`Direction::BOTH`].
    #[inline]
    pub(crate) const fn index(self) -> usize {
        match self {
            Direction::Read => 0,
            Direction::Write => 1,
        }
    }
}

/// The most that a disk gets in one direction. The default is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DirectionLimits {
    /// In normalised IOs per second.
    pub iops: Option<Iops>,
    /// In bytes per second.
    pub bandwidth: Option<BytesPerSec>,
}

impl DirectionLimits {
    /// No limit.
    pub const NONE: DirectionLimits = DirectionLimits { iops: None, bandwidth: None };

    /// Whether neither is set.
    pub const fn is_none(&self) -> bool {
        self.iops.is_none() && self.bandwidth.is_none()
    }
}
