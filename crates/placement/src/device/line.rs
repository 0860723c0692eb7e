//! A straight line through points of which some are wrong.

use alloc::vec::Vec;

/// Points of which all pairs are taken. More are first put together in groups of neighbours, each
/// its medians.
const GROUPS: usize = 128;
/// Blocks of time, each left out once, to see how sure the slope is.
const BLOCKS: usize = 10;
/// Student's t for [`BLOCKS`] - 1 degrees of freedom, 95 % on both sides.
const T: f64 = 2.262;

/// y = base + slope · x, and how sure that is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Line {
    pub(super) slope: f64,
    pub(super) base: f64,
    /// Half the width of the interval in which the slope lies with 95 %.
    pub(super) error: f64,
    /// The part of the variance that the line explains, 0 to 1, of the groups.
    pub(super) explained: f64,
    /// The lowest y of a group.
    pub(super) floor: f64,
    /// The largest x/y of a group.
    pub(super) peak: f64,
}

/// The line through points in the order of time: the median of the slopes of all pairs, weighted by
/// their distance in x (Theil and Sen; weights after Scholz, so that pairs nearly above each other
/// count for nothing). A quarter of the points may be arbitrarily wrong.
///
/// How sure it is comes from leaving out a tenth of the time at a time (a block jackknife):
/// successive intervals are alike, and formulas that take them for independent are too sure of
/// themselves by far.
///
/// `None` when all points have one x. All must be finite. O(n log n + 128²·log 128·11).
pub(super) fn through(points: &[(f64, f64)]) -> Option<Line> {
    let groups = grouped(points.iter().copied());
    let slope = slope_of(&groups)?;
    let base = median(groups.iter().map(|&(x, y)| y - slope * x).collect());

    let blocks = BLOCKS.min(points.len());
    let left_out = |block: usize| {
        let (from, to) = (points.len() * block / blocks, points.len() * (block + 1) / blocks);
        let others = points.iter().enumerate().filter(|(index, _)| !(from..to).contains(index));
        slope_of(&grouped(others.map(|(_, &point)| point)))
    };
    let slopes: Vec<f64> = (0..blocks).filter_map(left_out).collect();
    // Less than all: one block has all there is to know, and nothing is sure.
    let error = if slopes.len() < blocks || blocks < BLOCKS {
        f64::INFINITY
    } else {
        let count = slopes.len() as f64;
        let mean = slopes.iter().sum::<f64>() / count;
        let squares: f64 = slopes.iter().map(|slope| (slope - mean) * (slope - mean)).sum();
        T * libm::sqrt(squares * (count - 1.0) / count)
    };

    let count = groups.len() as f64;
    let mean = groups.iter().map(|&(_, y)| y).sum::<f64>() / count;
    let total: f64 = groups.iter().map(|&(_, y)| (y - mean) * (y - mean)).sum();
    let rest: f64 = groups.iter().map(|&(x, y)| y - base - slope * x).map(|e| e * e).sum();
    Some(Line {
        slope,
        base,
        error,
        explained: if total > 0.0 { (1.0 - rest / total).clamp(0.0, 1.0) } else { 0.0 },
        floor: groups.iter().map(|&(_, y)| y).min_by(f64::total_cmp)?,
        peak: groups.iter().map(|&(x, y)| x / y).max_by(f64::total_cmp)?,
    })
}

fn grouped(points: impl Iterator<Item = (f64, f64)>) -> Vec<(f64, f64)> {
    let mut sorted: Vec<(f64, f64)> = points.collect();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let groups = GROUPS.min(sorted.len());
    (0..groups)
        .map(|group| {
            let part = &sorted[sorted.len() * group / groups..sorted.len() * (group + 1) / groups];
            (median(part.iter().map(|p| p.0).collect()), median(part.iter().map(|p| p.1).collect()))
        })
        .collect()
}

fn slope_of(points: &[(f64, f64)]) -> Option<f64> {
    let mut slopes = Vec::with_capacity(points.len() * points.len() / 2);
    for (index, &(x, y)) in points.iter().enumerate() {
        // Ascending in x.
        let apart = points[index + 1..].iter().filter(|&&(other, _)| other > x);
        slopes
            .extend(apart.map(|&(other_x, other_y)| ((other_y - y) / (other_x - x), other_x - x)));
    }
    clear_middle(&mut slopes).or_else(|| middle_of(&mut slopes))
}

/// A slope and its weight.
type Weighed = (f64, f64);

fn order(a: &Weighed, b: &Weighed) -> core::cmp::Ordering {
    a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1))
}

/// The slope up to which half of the weight lies, by adding up from the least on.
fn middle_of(slopes: &mut [Weighed]) -> Option<f64> {
    slopes.sort_by(order);
    let half = slopes.iter().map(|&(_, weight)| weight).sum::<f64>() / 2.0;
    let mut below = 0.0;
    slopes.iter().find_map(|&(slope, weight)| {
        below += weight;
        (below >= half).then_some(slope)
    })
}

/// What [`middle_of`] finds, in O(n), where rounding cannot decide which one it is. Sums in another
/// order differ by n rounding errors at most, so what is further from half than
/// that is on the same side of it in any order.
fn clear_middle(slopes: &mut [Weighed]) -> Option<f64> {
    let sum = |part: &[Weighed]| part.iter().map(|&(_, weight)| weight).sum::<f64>();
    let all = sum(slopes);
    let (half, doubt) = (all / 2.0, all * f64::EPSILON * 4.0 * slopes.len() as f64);
    let (mut rest, mut below) = (slopes, 0.0);
    // All in front of the rest is lighter than half, and with the rest it is heavier.
    while rest.len() > 1 {
        let at = rest.len() / 2;
        rest.select_nth_unstable_by(at, order);
        let (left, right) = rest.split_at_mut(at);
        let with_left = below + sum(left);
        if with_left > half + doubt {
            rest = left;
        } else if with_left < half - doubt {
            (rest, below) = (right, with_left);
        } else {
            return None;
        }
    }
    rest.first().map(|&(slope, _)| slope)
}

fn median(mut values: Vec<f64>) -> f64 {
    let middle = values.len() / 2;
    let (_, &mut median, _) = values.select_nth_unstable_by(middle, f64::total_cmp);
    median
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn scattered(i: u32) -> f64 {
        f64::from(i.wrapping_mul(2_654_435_761) >> 8) / f64::from(1u32 << 24)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        #[test]
        fn a_quarter_of_wrong_points_does_not_bend_the_line(
            slope in 0.01f64..10.0, base in 0.0f64..10.0, count in 40u32..600, wild in -1e3f64..1e3,
        ) {
            let points: Vec<(f64, f64)> = (0..count)
                .map(|i| {
                    let x = 1.0 + 31.0 * scattered(i);
                    (x, if i % 5 == 0 { wild } else { base + slope * x })
                })
                .collect();
            let line = through(&points).unwrap();
            prop_assert!((line.slope / slope - 1.0).abs() < 0.3, "{line:?} instead of {slope}");
        }

        /// The truth is inside the interval nearly always: the error is not an ornament.
        #[test]
        fn the_error_covers_the_truth(slope in 0.1f64..5.0, seed in any::<u32>()) {
            let covered = (0..20u32).filter(|&run| {
                let points: Vec<(f64, f64)> = (0..200)
                    .map(|i| {
                        let at = seed.wrapping_add(run * 1_000 + i);
                        let x = 1.0 + 31.0 * scattered(at);
                        // Sum of four: nearly normal.
                        let noise: f64 = (1..5).map(|k| scattered(at.wrapping_mul(31) ^ (k << 20)) - 0.5).sum();
                        (x, 5.0 + slope * x + 4.0 * noise)
                    })
                    .collect();
                let line = through(&points).unwrap();
                (line.slope - slope).abs() <= line.error
            });
            prop_assert!(covered.count() >= 14);
        }
    }

    proptest! {
        /// Also of weights that add up to half exactly, and of equal slopes.
        #[test]
        fn the_middle_is_found_without_sorting_all(
            few in prop::collection::vec((0u8..6, 0u8..4), 0..40),
            many in prop::collection::vec((-1e9f64..1e9, 1e-6f64..1e6), 0..300),
        ) {
            let few = few.into_iter().map(|(slope, weight)| (f64::from(slope), f64::from(weight)));
            for mut slopes in [few.collect(), many] {
                let found = clear_middle(&mut slopes);
                let expected = middle_of(&mut slopes);
                prop_assert!(found.is_none() || found == expected, "{found:?} {expected:?}");
                if slopes.iter().any(|&(_, weight)| weight.fract() != 0.0) {
                    prop_assert!(found.is_some(), "rounding is no matter");
                }
            }
        }
    }

    #[test]
    fn clusters_do_not_hide_the_line_between_them() {
        // Four levels, unequally often, with noise in both directions within each.
        let points: Vec<(f64, f64)> = (0..1_000)
            .map(|i| {
                let level = [4.0, 4.0, 4.0, 4.0, 4.0, 8.0, 16.0, 32.0][i as usize % 8];
                (level * (0.98 + 0.04 * scattered(i)), 3.0 + 2.0 * level + scattered(i * 7 + 1))
            })
            .collect();
        let line = through(&points).unwrap();
        assert!(
            (line.slope - 2.0).abs() < 0.05 && line.error < 0.1 && line.explained > 0.99,
            "{line:?}"
        );
    }

    #[test]
    fn one_x_is_no_line() {
        assert_eq!(through(&[(1.0, 1.0), (1.0, 2.0)]), None);
        assert_eq!(through(&[]), None);
    }
}
