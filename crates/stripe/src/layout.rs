use crate::ranges::{DATA_AT, Parts, Runs};
use core::fmt;
use core::ops::Range;
use headgate_units::Bytes;
use thiserror::Error;

/// The most members of a disk.
pub const MEMBERS_MAX: u16 = 64;

/// The smallest unit.
pub const UNIT_MIN: Bytes = Bytes::from_kib(4);

/// The largest unit.
pub const UNIT_MAX: Bytes = Bytes::from_mib(64);

/// Sizes of disks are multiples of this.
pub const SIZE_STEP: Bytes = Bytes::from_kib(4);

/// The largest disk, 4 EiB. The one export of such a disk still ends before 2⁶³ bytes, where
/// offsets of files do.
pub const SIZE_MAX: Bytes = Bytes(1 << 62);

/// How a disk is laid out over its members.
///
/// Prints as `units of 64 KiB on 3 members, 10737418240 bytes in all`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    unit: Bytes,
    members: u16,
    size: Bytes,
}

/// Why there is no such layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LayoutError {
    /// The unit is no power of two, or out of range.
    #[error("a unit of {} bytes: expected a power of two from {UNIT_MIN} to {UNIT_MAX}", .0.0)]
    Unit(Bytes),
    /// So many members.
    #[error("{0} members: expected 1 to {MEMBERS_MAX}")]
    Members(u16),
    /// The size is no multiple of [`SIZE_STEP`], or out of range.
    #[error("a disk of {} bytes: expected a multiple of {} from {SIZE_STEP} to {SIZE_MAX}",
        .0.0, SIZE_STEP.0)]
    Size(Bytes),
}

impl Layout {
    /// A disk of `size` in units of `unit`, on so many members.
    ///
    /// # Errors
    /// When the unit is no power of two from [`UNIT_MIN`] to [`UNIT_MAX`], when there are no
    /// members or more than [`MEMBERS_MAX`], and when the size is 0, more than [`SIZE_MAX`] or no
    /// multiple of [`SIZE_STEP`].
    pub fn new(unit: Bytes, members: u16, size: Bytes) -> Result<Layout, LayoutError> {
        if !unit.0.is_power_of_two() || !(UNIT_MIN..=UNIT_MAX).contains(&unit) {
            return Err(LayoutError::Unit(unit));
        }
        if !(1..=MEMBERS_MAX).contains(&members) {
            return Err(LayoutError::Members(members));
        }
        if !size.0.is_multiple_of(SIZE_STEP.0) || !(SIZE_STEP..=SIZE_MAX).contains(&size) {
            return Err(LayoutError::Size(size));
        }
        Ok(Layout { unit, members, size })
    }

    /// How many bytes in a row go to one member.
    #[must_use]
    pub fn unit(&self) -> Bytes {
        self.unit
    }

    /// How many members there are: 1 to [`MEMBERS_MAX`].
    #[must_use]
    pub fn members(&self) -> u16 {
        self.members
    }

    /// The size of the disk.
    #[must_use]
    pub fn size(&self) -> Bytes {
        self.size
    }

    /// What each export needs at least, with the label. Less than 2⁶³. All members need the same,
    /// so that they may change places before they are labelled: up to a unit of it stays unused.
    #[must_use]
    pub fn member_size(&self) -> Bytes {
        let row = self.unit.0 * u64::from(self.members);
        Bytes(DATA_AT.0 + self.size.0.div_ceil(row) * self.unit.0)
    }

    /// The parts of a range of the disk, in bytes, by member: at most one each, in the order of the
    /// members. They are as long together as the range. What of it lies beyond the disk is left
    /// out. O(members), and O(members of the range) where that is shorter than a unit of each.
    #[must_use]
    pub fn parts(&self, offset: u64, len: u64) -> Parts {
        Parts::new(self.unit, self.members, self.clip(offset, len))
    }

    /// The runs of a range of the disk, in bytes, in the order of the disk. The first begins at 0
    /// and each where the one before it ends. The runs of one member, one behind the other, are its
    /// part. What of the range lies beyond the disk is left out. O(1) for each run.
    #[must_use]
    pub fn runs(&self, offset: u64, len: u64) -> Runs {
        Runs::new(self.unit, self.members, self.clip(offset, len))
    }

    /// The byte of the disk that a member holds at an offset of its export. `None`: the label's
    /// area, or beyond the data, or there is no such member. O(1).
    #[must_use]
    pub fn disk_offset(&self, member: u16, export_offset: u64) -> Option<u64> {
        if member >= self.members {
            return None;
        }
        let at = export_offset.checked_sub(DATA_AT.0)?;
        let before = (at / self.unit.0).checked_mul(u64::from(self.members))?;
        let strip = before.checked_add(u64::from(member))?;
        let offset = strip.checked_mul(self.unit.0)?.checked_add(at % self.unit.0)?;
        (offset < self.size.0).then_some(offset)
    }

    fn clip(&self, offset: u64, len: u64) -> Range<u64> {
        let end = offset.saturating_add(len).min(self.size.0);
        offset.min(end)..end
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Layout { unit, members, size } = self;
        // In bytes: sizes that differ by a block would read the same in GiB.
        let word = if *members == 1 { "member" } else { "members" };
        write!(f, "units of {unit} on {members} {word}, {} bytes in all", size.0)
    }
}

#[cfg(test)]
#[path = "layout_tests.rs"]
mod tests;
