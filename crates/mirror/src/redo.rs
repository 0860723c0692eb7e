//! What was copied and has to be copied again.

use crate::extent::Extent;
use alloc::vec::Vec;
use headgate_units::Bytes;

/// A bounded list of extents. Where it is full it grows coarser: to copy more than must be is
/// right, to forget something is not.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Redo {
    extents: Vec<Extent>,
    most: usize,
}

impl Redo {
    pub(crate) fn with_room(most: usize) -> Redo {
        Redo { extents: Vec::with_capacity(most), most }
    }

    pub(crate) fn add(&mut self, extent: Extent) {
        if self.extents.len() < self.most {
            self.extents.push(extent);
        } else if let Some(last) = self.extents.last_mut() {
            *last = last.hull(extent);
        }
    }

    /// Takes up to `len` bytes of it.
    pub(crate) fn take(&mut self, len: Bytes) -> Option<Extent> {
        let (first, rest) = self.extents.pop()?.cut(len);
        if let Some(rest) = rest {
            self.add(rest);
        }
        Some(first)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.extents.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.extents.clear();
    }

    /// How much it is at most: extents may overlap.
    pub(crate) fn len(&self) -> Bytes {
        Bytes(self.extents.iter().map(|extent| extent.len().0).fold(0, u64::saturating_add))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(start: u64, len: u64) -> Extent {
        Extent::new(Bytes(start), Bytes(len)).unwrap()
    }

    #[test]
    fn a_full_list_forgets_nothing() {
        let mut redo = Redo::with_room(2);
        for start in [10, 50, 30, 90] {
            redo.add(extent(start, 5));
        }
        let mut left = Vec::new();
        while let Some(one) = redo.take(Bytes(1000)) {
            left.push(one);
        }
        assert_eq!(left, [extent(30, 65), extent(10, 5)]);
    }

    #[test]
    fn what_is_not_taken_stays() {
        let mut redo = Redo::with_room(1);
        redo.add(extent(10, 5));
        assert_eq!(redo.take(Bytes(2)), Some(extent(10, 2)));
        assert_eq!(redo.len(), Bytes(3));
        assert_eq!(redo.take(Bytes(9)), Some(extent(12, 3)));
        assert!(redo.is_empty());
    }
}
