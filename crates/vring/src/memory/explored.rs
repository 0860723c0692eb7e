//! Words of rings that are loom's: it tries every order of the two sides' loads and stores that the
//! memory model admits. For `tests/races.rs` alone.
//!
//! A word stands for the place in memory where it would be, and is the mapping's that has the
//! place. What lies beside the rings (requests' headers, data, status bytes) stays in memory.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use core::ptr::NonNull;
use core::sync::atomic::Ordering;
pub(crate) use loom::sync::atomic::fence;
use std::sync::Mutex;

/// A word by its place.
pub(crate) trait Word: Sized {
    const BYTES: usize;
    type Ref<'a>;

    /// # Safety
    /// Always safe; `words.rs` asks for more.
    unsafe fn at<'a>(place: NonNull<u8>, words: &Words) -> Self::Ref<'a>;
}

#[derive(Clone)]
enum Kept {
    U8(AtomicU8),
    U16(AtomicU16),
    U32(AtomicU32),
    U64(AtomicU64),
}

/// The words of a mapping, by their addresses.
#[derive(Default)]
pub struct Words(Mutex<BTreeMap<usize, Kept>>);

macro_rules! explored {
    ($atomic:ident, $word:ident, $value:ty) => {
        #[derive(Clone)]
        pub(crate) struct $atomic(Arc<loom::sync::atomic::$atomic>);

        impl $atomic {
            pub(crate) fn load(&self, order: Ordering) -> $value {
                self.0.load(order)
            }
            pub(crate) fn store(&self, value: $value, order: Ordering) {
                self.0.store(value, order);
            }
        }

        impl Word for $atomic {
            const BYTES: usize = size_of::<$value>();
            type Ref<'a> = $atomic;

            unsafe fn at<'a>(place: NonNull<u8>, words: &Words) -> Self::Ref<'a> {
                let address = place.addr().get();
                let new = || $atomic(Arc::new(loom::sync::atomic::$atomic::new(0)));
                let mut words = words.0.lock().expect("nobody panics with it");
                match words.entry(address).or_insert_with(|| Kept::$word(new())) {
                    Kept::$word(word) => word.clone(),
                    _ => panic!("a word is always of one size"),
                }
            }
        }
    };
}

explored!(AtomicU8, U8, u8);
explored!(AtomicU16, U16, u16);
explored!(AtomicU32, U32, u32);
explored!(AtomicU64, U64, u64);
