use crate::time::Nanos;
use core::sync::atomic::{AtomicU64, Ordering};

/// An instant that one thread moves and others read.
///
/// Who reads it sees what was written before it was moved.
#[derive(Debug, Default)]
pub struct AtomicNanos(AtomicU64);

impl AtomicNanos {
    /// Begins at `instant`.
    pub const fn new(instant: Nanos) -> AtomicNanos {
        AtomicNanos(AtomicU64::new(instant.0))
    }

    /// The instant as it is now.
    #[inline]
    pub fn get(&self) -> Nanos {
        Nanos(self.0.load(Ordering::Acquire))
    }

    /// Moves it.
    pub fn set(&self, instant: Nanos) {
        self.0.store(instant.0, Ordering::Release);
    }
}
