//! What is copied: runs of data and of zeroes.

use crate::ImageError;
use headgate_units::Bytes;

/// What a range of a disk holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// It may hold anything.
    Data,
    /// It reads as zeroes.
    Zeroes,
}

/// So many bytes of one content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Length in bytes; at least 1.
    pub len: u64,
    /// What they are.
    pub content: Content,
}

/// Where content comes from. Several threads ask at once.
pub trait Source: Sync {
    /// Size in bytes. It never changes.
    fn size(&self) -> Bytes;

    /// The unit of requests in bytes: a power of two. Ranges begin at multiples of it, and end at
    /// one or at the end of the source.
    fn granule(&self) -> u64 {
        1
    }

    /// What the range of `len` bytes (at least 1) from byte `offset` on holds: runs one after the
    /// other from there on, at least one. They may end before the range does, or behind it.
    ///
    /// # Errors
    /// The storage fails, or the source is not what it should be.
    fn status(&self, offset: u64, len: u64) -> Result<Vec<Run>, ImageError>;

    /// Reads the range that begins at byte `offset`, all of it.
    ///
    /// # Errors
    /// The storage fails, or the source is not what it should be.
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), ImageError>;
}

/// Where content goes. Several threads write at once, to ranges that are apart.
pub trait Sink: Sync {
    /// Size in bytes. It never changes.
    fn size(&self) -> Bytes;

    /// Writes the range that begins at byte `offset`, all of it.
    ///
    /// # Errors
    /// The storage fails.
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), ImageError>;

    /// Has `len` bytes (at most [`u32::MAX`]) from byte `offset` on read as zeroes. Takes no space
    /// for them where the storage can do without.
    ///
    /// # Errors
    /// The storage fails.
    fn zero(&self, offset: u64, len: u64) -> Result<(), ImageError>;

    /// Returns when all that was written is durable.
    ///
    /// # Errors
    /// The storage fails. What was written may be lost.
    fn flush(&self) -> Result<(), ImageError>;
}
