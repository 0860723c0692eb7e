//! The sizes that a disk can have.

/// Disk sizes are multiples of this, so that an image fits storage of any block size.
pub const SIZE_STEP: u64 = 4096;

/// The largest disk, in bytes: what ext4 and XFS both store in one file.
pub const SIZE_MAX: u64 = 16 << 40;

/// Whether a new disk can have this size.
pub(crate) fn is_disk_size(size: u64) -> bool {
    (SIZE_STEP..=SIZE_MAX).contains(&size) && size.is_multiple_of(SIZE_STEP)
}
