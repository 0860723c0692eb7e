//! When limits end.

use alloc::collections::BinaryHeap;
use core::cmp::Reverse;
use headgate_units::Nanos;

/// Instants, the earliest first, each with a disk's slot.
#[derive(Clone, Default)]
pub(super) struct Ends(BinaryHeap<Reverse<(Nanos, u32)>>);

impl Ends {
    pub(super) fn reserve(&mut self, most: usize) {
        self.0.reserve(most.saturating_sub(self.0.len()));
    }

    #[inline]
    pub(super) fn first(&self) -> Option<(Nanos, u32)> {
        self.0.peek().map(|Reverse(first)| *first)
    }

    pub(super) fn pop(&mut self) {
        self.0.pop();
    }

    pub(super) fn push(&mut self, end: Nanos, slot: u32) {
        self.0.push(Reverse((end, slot)));
    }
}
