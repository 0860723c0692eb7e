use alloc::vec::Vec;
use serde::{Serialize, Serializer};

/// The occupied buckets of a histogram, in ascending order: what a snapshot keeps of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sparse<K>(Vec<(K, u64)>);

impl<K: Copy + Ord> Sparse<K> {
    /// From buckets in ascending order, none of which is empty.
    pub(crate) fn from_occupied(buckets: Vec<(K, u64)>) -> Sparse<K> {
        debug_assert!(buckets.iter().all(|&(_, count)| count > 0));
        Sparse(buckets)
    }

    /// Buckets and their counts, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (K, u64)> + '_ {
        self.0.iter().copied()
    }

    /// Sum of all counts.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|&(_, count)| count).sum()
    }

    /// The bucket that holds the value at `permille` (0 to 1,000) of all, `None` when there is
    /// none. O(buckets).
    pub fn at_permille(&self, permille: u32) -> Option<K> {
        let count = self.count();
        let rank = (u128::from(count) * u128::from(permille))
            .div_ceil(1_000)
            .clamp(1, u128::from(count.max(1)));
        let mut below = 0u128;
        self.iter().find_map(|(bucket, count)| {
            below += u128::from(count);
            (below >= rank).then_some(bucket)
        })
    }

    /// Adds the counts of `other`. O(buckets of both).
    pub fn merge(&mut self, other: &Sparse<K>) {
        if other.0.is_empty() {
            return;
        }
        let mut all = Vec::with_capacity(self.0.len() + other.0.len());
        let mut rest = &other.0[..];
        for &(bucket, count) in &self.0 {
            while let Some((&next, behind)) = rest.split_first().filter(|(next, _)| next.0 < bucket)
            {
                all.push(next);
                rest = behind;
            }
            match rest.split_first() {
                Some((next, behind)) if next.0 == bucket => {
                    all.push((bucket, count.saturating_add(next.1)));
                    rest = behind;
                }
                _ => all.push((bucket, count)),
            }
        }
        all.extend_from_slice(rest);
        self.0 = all;
    }

    /// What was counted since `earlier`, which is an earlier state of the same histogram. O(buckets
    /// of both).
    pub fn since(&self, earlier: &Sparse<K>) -> Sparse<K> {
        let mut all = Vec::with_capacity(self.0.len());
        let mut rest = &earlier.0[..];
        for &(bucket, count) in &self.0 {
            let passed = rest.iter().take_while(|old| old.0 < bucket).count();
            rest = &rest[passed..];
            let before = rest.first().filter(|old| old.0 == bucket).map_or(0, |old| old.1);
            let left = count.saturating_sub(before);
            if left > 0 {
                all.push((bucket, left));
            }
        }
        Sparse(all)
    }
}

/// As a list of pairs, bucket and count.
impl<K: Copy + Serialize> Serialize for Sparse<K> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;

    fn sparse(buckets: &BTreeMap<i8, u64>) -> Sparse<i8> {
        let occupied = buckets.iter().filter(|&(_, &count)| count > 0);
        Sparse::from_occupied(occupied.map(|(&bucket, &count)| (bucket, count)).collect())
    }

    proptest! {
        #[test]
        fn merging_and_subtracting_are_inverse(
            a in prop::collection::btree_map(-5i8..5, 0u64..9, 0..8),
            b in prop::collection::btree_map(-5i8..5, 0u64..9, 0..8),
        ) {
            let (a, b) = (sparse(&a), sparse(&b));
            let mut sum = a.clone();
            sum.merge(&b);
            prop_assert_eq!(sum.count(), a.count() + b.count());
            prop_assert_eq!(sum.since(&b), a.clone());
            // Also of histograms that began anew.
            let left = |&(bucket, count): &(i8, u64)| {
                let before = b.iter().find(|old| old.0 == bucket).map_or(0, |old| old.1);
                (bucket, count.saturating_sub(before))
            };
            let expected: Vec<_> = a.0.iter().map(left).filter(|one| one.1 > 0).collect();
            prop_assert_eq!(a.since(&b).0, expected);
        }

        #[test]
        fn the_permille_is_that_of_the_sorted_values(
            values in prop::collection::vec(-5i8..5, 1..50),
            permille in 0u32..=1_000,
        ) {
            let mut buckets = BTreeMap::new();
            values.iter().for_each(|&v| *buckets.entry(v).or_insert(0) += 1);
            let mut sorted = values;
            sorted.sort_unstable();
            let rank = (sorted.len() * permille as usize).div_ceil(1_000).max(1);
            prop_assert_eq!(sparse(&buckets).at_permille(permille), Some(sorted[rank - 1]));
        }
    }
}
