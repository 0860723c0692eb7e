use core::fmt;
use headgate_units::Bytes;

/// A stretch of a disk, never empty.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Extent {
    start: u64,
    end: u64,
}

impl Extent {
    /// `len` bytes from `start` on, unless that is nothing or reaches beyond 16 EiB.
    pub fn new(start: Bytes, len: Bytes) -> Option<Extent> {
        let end = start.0.checked_add(len.0)?;
        (end > start.0).then_some(Extent { start: start.0, end })
    }

    /// From one byte to before another, unless that is nothing.
    pub(crate) fn between(start: u64, end: u64) -> Option<Extent> {
        (start < end).then_some(Extent { start, end })
    }

    /// The first byte.
    pub fn start(self) -> Bytes {
        Bytes(self.start)
    }

    /// The byte behind the last.
    pub fn end(self) -> Bytes {
        Bytes(self.end)
    }

    /// How long it is.
    pub fn len(self) -> Bytes {
        Bytes(self.end - self.start)
    }

    /// Always false: there is no empty extent.
    pub fn is_empty(self) -> bool {
        false
    }

    /// Whether the two have a byte in common.
    pub fn overlaps(self, other: Extent) -> bool {
        self.start < other.end && other.start < self.end
    }

    /// What both have.
    pub(crate) fn common(self, other: Extent) -> Option<Extent> {
        Extent::between(self.start.max(other.start), self.end.min(other.end))
    }

    /// Its first `len` bytes and the rest. One byte is taken at least, and all at most.
    pub(crate) fn cut(self, len: Bytes) -> (Extent, Option<Extent>) {
        let at = self.start.saturating_add(len.0.max(1)).min(self.end);
        let rest = (at < self.end).then_some(Extent { start: at, end: self.end });
        (Extent { start: self.start, end: at }, rest)
    }

    /// The smallest extent that holds both.
    pub(crate) fn hull(self, other: Extent) -> Extent {
        Extent { start: self.start.min(other.start), end: self.end.max(other.end) }
    }
}

impl fmt::Debug for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.start, self.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(start: u64, len: u64) -> Extent {
        Extent::new(Bytes(start), Bytes(len)).unwrap()
    }

    #[test]
    fn nothing_and_too_much_are_no_extents() {
        assert_eq!(Extent::new(Bytes(7), Bytes(0)), None);
        assert_eq!(Extent::new(Bytes(u64::MAX), Bytes(1)), None);
        assert_eq!(extent(u64::MAX - 1, 1).end(), Bytes(u64::MAX));
    }

    #[test]
    fn neighbours_do_not_overlap() {
        let middle = extent(10, 10);
        for (start, len, overlaps) in
            [(0, 10, false), (0, 11, true), (12, 2, true), (19, 9, true), (20, 5, false)]
        {
            let other = extent(start, len);
            assert_eq!(middle.overlaps(other), overlaps, "{other:?}");
            assert_eq!(other.overlaps(middle), overlaps, "{other:?}");
        }
    }

    #[test]
    fn a_cut_loses_nothing() {
        let whole = extent(10, 10);
        for len in [0, 1, 9, 10, 11, u64::MAX] {
            let (first, rest) = whole.cut(Bytes(len));
            assert_eq!(first.start(), whole.start());
            assert_eq!(rest.map_or(first.end(), |r| r.end()), whole.end());
            assert!(rest.is_none_or(|r| r.start() == first.end()));
        }
    }
}
