//! Which bytes of a read have come: a server may send them in pieces and in any order, each once.

use alloc::vec::Vec;
use core::ops::Range;

/// The most pieces that others lie between. A server that leaves more of them open is no server.
const MAX_GAPS: usize = 64;

/// The bytes that have come. Pieces in their order take no memory.
#[derive(Debug, Default)]
pub(super) struct Coverage {
    /// From the first byte on.
    front: u32,
    /// Behind that, by their beginning, with gaps before each.
    behind: Vec<Range<u32>>,
}

/// A piece that has come before, is empty, or leaves too many gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unfit;

impl Coverage {
    pub(super) fn clear(&mut self) {
        self.front = 0;
        self.behind.clear();
    }

    /// How many bytes from the first on have come, and no others.
    pub(super) fn whole(&self) -> Option<u32> {
        self.behind.is_empty().then_some(self.front)
    }

    /// A piece comes. O(gaps).
    pub(super) fn add(&mut self, piece: Range<u32>) -> Result<(), Unfit> {
        let next = self.behind.partition_point(|known| known.start < piece.start);
        let before = match next {
            0 => self.front,
            next => self.behind[next - 1].end,
        };
        let after = self.behind.get(next).map_or(u32::MAX, |known| known.start);
        if piece.is_empty() || piece.start < before || piece.end > after {
            return Err(Unfit);
        }
        if piece.start == self.front {
            self.front = piece.end;
        } else if next > 0 && piece.start == before {
            self.behind[next - 1].end = piece.end;
        } else if piece.end == after && next < self.behind.len() {
            self.behind[next].start = piece.start;
        } else if self.behind.len() == MAX_GAPS {
            return Err(Unfit);
        } else {
            self.behind.insert(next, piece);
        }
        self.close(next);
        Ok(())
    }

    /// Joins what has no gap before it any more.
    fn close(&mut self, near: usize) {
        if self.behind.first().is_some_and(|first| first.start == self.front) {
            self.front = self.behind.remove(0).end;
        }
        for at in [near.saturating_sub(1), near] {
            if let (Some(one), Some(next)) = (self.behind.get(at), self.behind.get(at + 1))
                && one.end == next.start
            {
                self.behind[at].end = next.end;
                self.behind.remove(at + 1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against a byte of memory for each byte.
        #[test]
        fn each_byte_comes_once(pieces in prop::collection::vec((0u32..60, 0u32..12), 0..60)) {
            let (mut coverage, mut bytes) = (Coverage::default(), [false; 80]);
            for (start, len) in pieces {
                let range = start as usize..(start + len) as usize;
                let fits = len > 0 && bytes[range.clone()].iter().all(|came| !came);
                prop_assert_eq!(coverage.add(start..start + len), if fits { Ok(()) } else { Err(Unfit) });
                if fits {
                    bytes[range].fill(true);
                }
                let front = bytes.iter().take_while(|came| **came).count();
                let rest = bytes[front..].iter().any(|came| *came);
                prop_assert_eq!(coverage.whole(), (!rest).then_some(front as u32));
                prop_assert!(coverage.behind.windows(2).all(|pair| pair[0].end < pair[1].start));
            }
        }
    }

    #[test]
    fn gaps_are_bounded() {
        let mut coverage = Coverage::default();
        for n in 0..MAX_GAPS as u32 {
            assert_eq!(coverage.add(2 * n + 1..2 * n + 2), Ok(()));
        }
        assert_eq!(coverage.add(1000..1001), Err(Unfit));
        assert_eq!(coverage.add(0..1), Ok(()));
        assert_eq!(coverage.add(1000..1001), Ok(()));
    }
}
