//! The subset-sum of the balancing step.

use alloc::vec::Vec;

/// Indices of items, given in descending order, whose sum comes as near to `most` as the quadratic
/// greedy finds, and not above: for each beginning, take whatever still fits from there on
/// (Martello and Toth, 1984). At least 3/4 of the best.
///
/// Runs of items that all fit are taken at once by their sums, so a beginning costs O(runs · log
/// n), O(n) at worst.
pub(crate) fn subset(items: &[u64], most: u64) -> Vec<usize> {
    // prefix[i] is the sum of the first i.
    let mut prefix = Vec::with_capacity(items.len() + 1);
    prefix.push(0u128);
    for &item in items {
        prefix.push(prefix[prefix.len() - 1] + u128::from(item));
    }
    let mut best: (u128, Vec<(usize, usize)>) = (0, Vec::new());
    for start in 0..items.len() {
        if prefix[items.len()] - prefix[start] <= best.0 {
            break;
        }
        let runs = greedy(items, &prefix, start, u128::from(most));
        let sum: u128 = runs.iter().map(|&(from, to)| prefix[to] - prefix[from]).sum();
        if sum > best.0 {
            best = (sum, runs);
        }
        if best.0 == u128::from(most) {
            break;
        }
    }
    best.1.into_iter().flat_map(|(from, to)| from..to).collect()
}

fn greedy(items: &[u64], prefix: &[u128], start: usize, most: u128) -> Vec<(usize, usize)> {
    let (mut runs, mut left, mut at) = (Vec::new(), most, start);
    loop {
        at += items[at..].partition_point(|&item| u128::from(item) > left);
        if at == items.len() {
            return runs;
        }
        // The longest run from here on that fits.
        let end = at + prefix[at + 1..].partition_point(|&sum| sum - prefix[at] <= left);
        left -= prefix[end] - prefix[at];
        runs.push((at, end));
        at = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn best_of_all(items: &[u64], most: u64) -> u64 {
        (0u32..1 << items.len())
            .map(|chosen| {
                items
                    .iter()
                    .enumerate()
                    .filter(|(i, _)| chosen >> i & 1 == 1)
                    .map(|(_, &item)| item)
                    .sum()
            })
            .filter(|&sum: &u64| sum <= most)
            .max()
            .unwrap_or(0)
    }

    proptest! {
        /// BA-16.
        #[test]
        fn three_quarters_of_the_best_at_least(
            mut items in prop::collection::vec(1u64..1_000, 0..15), most in 0u64..4_000,
        ) {
            items.sort_unstable_by(|a, b| b.cmp(a));
            let chosen = subset(&items, most);
            let sum: u64 = chosen.iter().map(|&index| items[index]).sum();
            prop_assert!(chosen.windows(2).all(|pair| pair[0] < pair[1]));
            prop_assert!(sum <= most);
            prop_assert!(4 * sum >= 3 * best_of_all(&items, most), "{:?}: {}", items, sum);
        }
    }

    #[test]
    fn on_average_nearly_the_best() {
        let (mut ours, mut best) = (0, 0);
        for round in 0..200u64 {
            let mut items: Vec<u64> = (0..12)
                .map(|i| 1 + ((round * 12 + i).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 54))
                .collect();
            items.sort_unstable_by(|a, b| b.cmp(a));
            let most = items.iter().sum::<u64>() / 3;
            ours += subset(&items, most).iter().map(|&index| items[index]).sum::<u64>();
            best += best_of_all(&items, most);
        }
        assert!(100 * ours >= 97 * best, "{ours} of {best}");
    }

    #[test]
    fn large_items_and_none() {
        assert_eq!(subset(&[u64::MAX, u64::MAX, 1], u64::MAX), [0]);
        assert_eq!(subset(&[u64::MAX, 5], 4), [2usize; 0]);
        assert_eq!(subset(&[], 4), [0usize; 0]);
    }
}
