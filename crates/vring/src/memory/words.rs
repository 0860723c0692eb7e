//! Words of rings: atomics at a place in memory. `explored.rs` has the same for tests of races.

use core::ptr::NonNull;
pub(crate) use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, fence};

/// A word that any bits in shared memory are a value of.
///
/// # Safety
/// Valid for every bit pattern, and free of data races when other processes write.
pub(crate) unsafe trait Word: Sized {
    const BYTES: usize;
    type Ref<'a>;

    /// The word at a place.
    ///
    /// # Safety
    /// The place is aligned to the word's size, and valid for reads and writes for `'a`.
    unsafe fn at<'a>(place: NonNull<u8>) -> Self::Ref<'a>;
}

macro_rules! word {
    ($atomic:ident) => {
        // SAFETY: an atomic of an integer.
        unsafe impl Word for $atomic {
            const BYTES: usize = size_of::<$atomic>();
            type Ref<'a> = &'a $atomic;

            #[inline]
            unsafe fn at<'a>(place: NonNull<u8>) -> Self::Ref<'a> {
                // SAFETY: the caller's.
                unsafe { place.cast().as_ref() }
            }
        }
    };
}

word!(AtomicU8);
word!(AtomicU16);
word!(AtomicU32);
word!(AtomicU64);
