//! What memory of a guest must be, and why a piece of it cannot be used.

use core::ptr::NonNull;
use thiserror::Error;

/// Memory that stays mapped, readable and writable, at one place for as long as the value lives.
///
/// # Safety
/// `base` and `len` always answer the same; the range is valid for reads and writes until the value
/// is dropped; nothing in this process makes Rust references to its bytes (other processes may
/// write to it).
pub unsafe trait HostMapping: Send + Sync {
    /// First byte.
    fn base(&self) -> NonNull<u8>;
    /// Length in bytes.
    fn len(&self) -> usize;
    /// The words of rings in it.
    #[cfg(feature = "loom")]
    fn words(&self) -> &super::explored::Words;
    /// Is there no byte in it.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Why a piece of memory cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum MemoryError {
    /// Not inside guest memory, or (for a ring) not inside one region.
    #[error("the {len} bytes at {address:#x} are not in guest memory")]
    OutOfRange {
        /// First address.
        address: u64,
        /// Length in bytes.
        len: usize,
    },
    /// The address is not a multiple of what its use demands.
    #[error("address {address:#x} is not a multiple of {align}")]
    Misaligned {
        /// The address.
        address: u64,
        /// The demanded alignment.
        align: usize,
    },
    /// Two regions claim the same guest addresses.
    #[error("two memory regions overlap at guest address {0:#x}")]
    Overlap(u64),
    /// A region without bytes, or one that reaches past the end of the address space.
    #[error("the memory region at guest address {0:#x} is empty or wraps around")]
    BadRegion(u64),
}
