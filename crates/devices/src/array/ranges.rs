use alloc::vec;
use alloc::vec::Vec;

/// Ranges within a row, disjoint, ascending, never touching; at least one.
///
/// Most rows have one, and there may be millions of rows: one takes no memory of its own.
#[derive(Clone, Debug)]
pub(super) enum Ranges {
    One([(u64, u64); 1]),
    Several(Vec<(u64, u64)>),
}

impl Ranges {
    pub(super) fn of(from: u64, to: u64) -> Ranges {
        Ranges::One([(from, to)])
    }

    #[inline]
    pub(super) fn as_slice(&self) -> &[(u64, u64)] {
        match self {
            Ranges::One(one) => one,
            Ranges::Several(several) => several,
        }
    }

    /// All bytes in them.
    pub(super) fn bytes(&self) -> u64 {
        self.as_slice().iter().map(|&(from, to)| to - from).sum()
    }

    /// How many bytes of a range are in them. O(log ranges + those that it meets).
    pub(super) fn overlap(&self, from: u64, to: u64) -> u64 {
        let all = self.as_slice();
        let met = all[all.partition_point(|&(_, end)| end <= from)..].iter();
        met.take_while(|&&(start, _)| start < to)
            .map(|&(start, end)| end.min(to) - start.max(from))
            .sum()
    }

    /// Whether all of a range is in them. O(log ranges).
    pub(super) fn cover(&self, from: u64, to: u64) -> bool {
        let all = self.as_slice();
        let reaches = all.get(all.partition_point(|&(_, end)| end < to));
        reaches.is_some_and(|&(start, _)| start <= from)
    }

    /// Adds a range, and merges what it touches. O(ranges).
    pub(super) fn add(&mut self, from: u64, to: u64) {
        match self {
            Ranges::One([(start, end)]) if from <= *end && *start <= to => {
                (*start, *end) = (from.min(*start), to.max(*end));
            }
            Ranges::One([one]) => {
                let (one, new) = (*one, (from, to));
                let several = if new < one { vec![new, one] } else { vec![one, new] };
                *self = Ranges::Several(several);
            }
            Ranges::Several(several) => add_to_several(several, from, to),
        }
    }
}

fn add_to_several(ranges: &mut Vec<(u64, u64)>, from: u64, to: u64) {
    let first = ranges.partition_point(|&(_, end)| end < from);
    let last = ranges.partition_point(|&(start, _)| start <= to);
    let (from, to) = ranges[first..last]
        .iter()
        .fold((from, to), |(from, to), &(start, end)| (from.min(start), to.max(end)));
    if last == first + 1 {
        ranges[first] = (from, to);
    } else {
        ranges.splice(first..last, [(from, to)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against a bit for each byte.
        #[test]
        fn ranges_are_what_was_added_and_never_touch(
            added in prop::collection::vec((0u64..60, 1u64..20), 1..12),
            (asked, length) in (0u64..60, 1u64..20),
        ) {
            let mut bytes = [false; 80];
            let mut ranges: Option<Ranges> = None;
            for (from, len) in added {
                let to = from + len;
                bytes[from as usize..to as usize].fill(true);
                match &mut ranges {
                    Some(ranges) => ranges.add(from, to),
                    None => ranges = Some(Ranges::of(from, to)),
                }
                let ranges = ranges.as_ref().unwrap();
                let all = ranges.as_slice();
                prop_assert!(all.windows(2).all(|pair| pair[0].1 < pair[1].0), "{:?}", all);
                let mut found = [false; 80];
                all.iter().for_each(|&(from, to)| found[from as usize..to as usize].fill(true));
                prop_assert_eq!(found, bytes);
                let dirty = |from: u64, to: u64| {
                    bytes[from as usize..to as usize].iter().filter(|&&byte| byte).count() as u64
                };
                prop_assert_eq!(ranges.bytes(), dirty(0, 80));
                let overlap = dirty(asked, asked + length);
                prop_assert_eq!(ranges.overlap(asked, asked + length), overlap);
                prop_assert_eq!(ranges.cover(asked, asked + length), overlap == length);
            }
        }
    }
}
