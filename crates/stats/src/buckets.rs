use crate::Sparse;
use alloc::vec::Vec;

/// Counts of `N` buckets, and which of them were ever hit, so that a snapshot visits no others: `W`
/// words of 64 bits have a bit for each.
#[derive(Clone, Debug)]
pub(crate) struct Buckets<const N: usize, const W: usize> {
    counts: [u64; N],
    occupied: [u64; W],
}

impl<const N: usize, const W: usize> Buckets<N, W> {
    const ENOUGH: () = assert!(N <= 64 * W, "a bit for each bucket");

    pub(crate) const fn new() -> Buckets<N, W> {
        let () = Self::ENOUGH;
        Buckets { counts: [0; N], occupied: [0; W] }
    }

    /// Counts one more. O(1).
    #[inline]
    pub(crate) fn add(&mut self, bucket: usize) {
        self.counts[bucket] += 1;
        self.occupied[bucket / 64] |= 1 << (bucket % 64);
    }

    /// Counts one less, if there is one. O(1).
    pub(crate) fn take(&mut self, bucket: usize) {
        self.counts[bucket] = self.counts[bucket].saturating_sub(1);
    }

    /// The state now, each bucket under the key of its index; keys ascend as indices do. O(buckets
    /// that were ever hit).
    pub(crate) fn snapshot<K: Copy + Ord>(&self, key: impl Fn(usize) -> K) -> Sparse<K> {
        let hit = self.occupied.iter().map(|word| word.count_ones() as usize).sum();
        let mut buckets = Vec::with_capacity(hit);
        for (index, &word) in self.occupied.iter().enumerate() {
            let mut left = word;
            while left != 0 {
                let bucket = index * 64 + left.trailing_zeros() as usize;
                if self.counts[bucket] > 0 {
                    buckets.push((key(bucket), self.counts[bucket]));
                }
                left &= left - 1;
            }
        }
        Sparse::from_occupied(buckets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_snapshot_has_what_was_counted_and_nothing_else(
            steps in prop::collection::vec((0usize..130, prop::bool::weighted(0.7)), 0..300),
        ) {
            let mut ours = Buckets::<130, 3>::new();
            let mut counts = [0u64; 130];
            for (bucket, more) in steps {
                if more {
                    ours.add(bucket);
                    counts[bucket] += 1;
                } else {
                    ours.take(bucket);
                    counts[bucket] = counts[bucket].saturating_sub(1);
                }
            }
            let due: Vec<(usize, u64)> =
                counts.into_iter().enumerate().filter(|&(_, count)| count > 0).collect();
            prop_assert_eq!(ours.snapshot(|bucket| bucket).iter().collect::<Vec<_>>(), due);
        }
    }
}
