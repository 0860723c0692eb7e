/// So many new ranges, and half as many as there are merged ones, are collected before they are
/// merged.
const COLLECTED: usize = 1 << 12;

/// A set of pages, kept as ranges.
///
/// New ranges are collected, sorted and merged now and then, so that adding one costs O(log n)
/// comparisons in memory that is read in order: several times as fast as a tree. 16 bytes for each
/// range that does not touch another.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extents {
    /// First page, and the page after the last: ascending, none touch.
    merged: Vec<(u64, u64)>,
    new: Vec<(u64, u64)>,
}

impl Extents {
    /// Adds the pages from `start` up to, not including, `end`.
    pub(crate) fn add(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        // Requests in a row are one range from the beginning.
        if let Some(last) = self.new.last_mut()
            && start <= last.1
            && end >= last.0
        {
            *last = (last.0.min(start), last.1.max(end));
            return;
        }
        if self.new.len() >= COLLECTED.max(self.merged.len() / 2) {
            self.merge();
        }
        self.new.push((start, end));
    }

    fn merge(&mut self) {
        self.new.sort_unstable();
        let old = std::mem::take(&mut self.merged);
        self.merged = Vec::with_capacity(old.len() + self.new.len());
        let (mut left, mut right) = (old.into_iter().peekable(), self.new.drain(..).peekable());
        loop {
            let next = match (left.peek(), right.peek()) {
                (Some(l), Some(r)) if l <= r => left.next(),
                (_, Some(_)) => right.next(),
                (Some(_), None) => left.next(),
                (None, None) => None,
            };
            let Some((start, end)) = next else { break };
            match self.merged.last_mut() {
                Some(last) if start <= last.1 => last.1 = last.1.max(end),
                _ => self.merged.push((start, end)),
            }
        }
    }

    /// How many pages are in the set. O(n log n) in the ranges added since the last merge.
    pub(crate) fn pages(&mut self) -> u64 {
        self.merge();
        self.merged.iter().map(|(start, end)| end - start).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn counts_as_a_set_of_pages_does(
            rounds in prop::collection::vec(prop::collection::vec((0u64..60, 0u64..9), 0..20), 0..5),
        ) {
            let (mut extents, mut naive) = (Extents::default(), BTreeSet::new());
            for ranges in rounds {
                for (start, length) in ranges {
                    extents.add(start, start + length);
                    naive.extend(start..start + length);
                }
                prop_assert_eq!(extents.pages(), naive.len() as u64);
                prop_assert!(extents.merged.windows(2).all(|pair| pair[0].1 < pair[1].0));
            }
        }
    }

    #[test]
    fn many_ranges_are_merged_on_the_way() {
        let mut extents = Extents::default();
        for i in 0..100_000u64 {
            let page = i * 7_919 % 100_000;
            extents.add(page * 2, page * 2 + 1);
        }
        assert!(extents.new.len() <= COLLECTED.max(extents.merged.len() / 2));
        assert_eq!(extents.pages(), 100_000);
        extents.add(5, 9);
        extents.add(0, u64::MAX);
        assert_eq!(extents.pages(), u64::MAX);
        assert_eq!(extents.merged.len(), 1);
    }
}
