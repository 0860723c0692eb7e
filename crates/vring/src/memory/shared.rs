//! Loads and stores in memory that another process writes at the same time.

#[cfg(feature = "loom")]
use super::explored as words;
use super::mapping::{HostMapping, MemoryError};
#[cfg(not(feature = "loom"))]
use super::words;
use alloc::sync::Arc;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use words::Word;

/// A fixed piece of shared memory with its mapping: rings and in-flight regions. Offsets come from
/// indices that are masked to the size the area was made for, so the bounds checks below never
/// fail; they are there to keep a mistake in this crate from becoming a write outside the area.
pub(crate) struct SharedArea {
    base: NonNull<u8>,
    len: usize,
    _mapping: Arc<dyn HostMapping>,
}

// SAFETY: `base` points into the mapping, which is `Send + Sync` and held beside it; all access is
// atomic.
unsafe impl Send for SharedArea {}

macro_rules! access {
    ($load:ident, $store:ident, $atomic:ident, $value:ty) => {
        #[inline]
        pub(crate) fn $load(&self, offset: usize) -> $value {
            self.word::<words::$atomic>(offset).load(Ordering::Relaxed)
        }
        #[inline]
        pub(crate) fn $store(&self, offset: usize, value: $value) {
            if !stores_are_cut() {
                self.word::<words::$atomic>(offset).store(value, Ordering::Relaxed);
            }
        }
    };
}

impl SharedArea {
    /// `len` bytes of `mapping` from `offset`, whose host address must be aligned to `align`.
    pub(crate) fn new(
        mapping: Arc<dyn HostMapping>,
        offset: usize,
        len: usize,
        align: usize,
    ) -> Result<SharedArea, MemoryError> {
        if offset.checked_add(len).is_none_or(|end| end > mapping.len()) {
            return Err(MemoryError::OutOfRange { address: offset as u64, len });
        }
        // SAFETY: `offset + len` is inside the mapping.
        let base = unsafe { mapping.base().add(offset) };
        if !base.as_ptr().addr().is_multiple_of(align) {
            return Err(MemoryError::Misaligned { address: offset as u64, align });
        }
        Ok(SharedArea { base, len, _mapping: mapping })
    }

    #[inline]
    fn word<W: Word>(&self, offset: usize) -> W::Ref<'_> {
        assert!(
            offset.is_multiple_of(W::BYTES) && offset + W::BYTES <= self.len,
            "offsets are computed from masked indices"
        );
        // SAFETY: in bounds and aligned (offset is a multiple of the size; the base is aligned to
        // at least the largest type used on this area, or the debug assertion fires), and the
        // mapping lives as long as `self`.
        unsafe {
            let at = self.base.add(offset);
            debug_assert!(at.addr().get().is_multiple_of(W::BYTES));
            #[cfg(feature = "loom")]
            return W::at(at, self._mapping.words());
            #[cfg(not(feature = "loom"))]
            W::at(at)
        }
    }

    access!(load_u8, store_u8, AtomicU8, u8);
    access!(load_u16, store_u16, AtomicU16, u16);
    access!(load_u32, store_u32, AtomicU32, u32);
    access!(load_u64, store_u64, AtomicU64, u64);

    #[inline]
    pub(crate) fn load_u16_acquire(&self, offset: usize) -> u16 {
        self.word::<words::AtomicU16>(offset).load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn store_u8_release(&self, offset: usize, value: u8) {
        if !stores_are_cut() {
            self.word::<words::AtomicU8>(offset).store(value, Ordering::Release);
        }
    }

    #[inline]
    pub(crate) fn store_u16_release(&self, offset: usize, value: u16) {
        if !stores_are_cut() {
            self.word::<words::AtomicU16>(offset).store(value, Ordering::Release);
        }
    }
}

/// Orders what was stored before it against what is loaded after it, as each side of a ring does
/// between telling the other something and looking what it told.
#[inline]
pub(crate) fn full_fence() {
    words::fence(Ordering::SeqCst);
}

/// Copies bytes that another process may be writing.
///
/// # Safety
/// `from` is valid for `into.len()` bytes, which nobody holds a Rust reference to.
#[inline]
pub(super) unsafe fn read_shared(from: NonNull<u8>, into: &mut [u8]) {
    let mut at = from.as_ptr();
    // Headers and descriptors are aligned in practice: whole words then.
    let words = if at.addr().is_multiple_of(8) { into.len() / 8 } else { 0 };
    let (head, tail) = into.split_at_mut(words * 8);
    for word in head.chunks_exact_mut(8) {
        // SAFETY: inside the range, aligned to 8.
        let value = unsafe { AtomicU64::from_ptr(at.cast()) }.load(Ordering::Relaxed);
        word.copy_from_slice(&value.to_ne_bytes());
        at = at.wrapping_add(8);
    }
    for byte in tail {
        // SAFETY: inside the range.
        *byte = unsafe { AtomicU8::from_ptr(at) }.load(Ordering::Relaxed);
        at = at.wrapping_add(1);
    }
}

/// The counterpart of [`read_shared`].
///
/// # Safety
/// As there.
pub(super) unsafe fn write_shared(into: NonNull<u8>, from: &[u8]) {
    if stores_are_cut() {
        return;
    }
    let mut at = into.as_ptr();
    let words = if at.addr().is_multiple_of(8) { from.len() / 8 } else { 0 };
    let (head, tail) = from.split_at(words * 8);
    for word in head.chunks_exact(8) {
        let mut value = [0; 8];
        value.copy_from_slice(word);
        // SAFETY: inside the range, aligned to 8.
        unsafe { AtomicU64::from_ptr(at.cast()) }
            .store(u64::from_ne_bytes(value), Ordering::Relaxed);
        at = at.wrapping_add(8);
    }
    for byte in tail {
        // SAFETY: inside the range.
        unsafe { AtomicU8::from_ptr(at) }.store(*byte, Ordering::Relaxed);
        at = at.wrapping_add(1);
    }
}

/// In this crate's tests a process can "die" after any number of stores: later ones have no effect.
/// See `tests::crash`.
#[cfg(not(test))]
#[inline(always)]
pub(super) fn stores_are_cut() -> bool {
    false
}

#[cfg(test)]
pub(super) use crash_point::stores_are_cut;

#[cfg(test)]
pub(crate) mod crash_point {
    use core::cell::Cell;

    thread_local! {
        static STORES_LEFT: Cell<Option<u32>> = const { Cell::new(None) };
    }

    /// Lets `stores` more stores through, or all of them.
    pub(crate) fn set(stores: Option<u32>) {
        STORES_LEFT.set(stores);
    }

    /// How many stores are left, when they are counted.
    pub(crate) fn left() -> Option<u32> {
        STORES_LEFT.get()
    }

    pub(crate) fn stores_are_cut() -> bool {
        match STORES_LEFT.get() {
            None => false,
            Some(0) => true,
            Some(n) => {
                STORES_LEFT.set(Some(n - 1));
                false
            }
        }
    }
}
