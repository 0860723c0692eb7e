use crate::cost::Cost;
use crate::policy::{LimitMode, Policy};
use alloc::vec::Vec;
use headgate_units::Iops;

/// What each of these disks gets per second when all of them always have requests queued and the
/// storage delivers `capacity` (paper section 2.2, equations 1 and 2).
///
/// Finds the level x with `Σ min(l, max(r, x·w)) = capacity`. When the reservations alone exceed
/// the capacity, it is divided in proportion to them; when the limits together stay below it, every
/// disk gets its limit, and what they leave goes to those with soft limits by shares, so that none
/// gets less than its limit. A disk whose reads and writes are both limited has their sum as its
/// limit, if that is less. A limit of one direction alone, and limits in bytes per second, are
/// left out: they mean nothing without a mix and sizes. Rounded down to a millionth of an IO.
/// O(n log n).
pub fn water_fill(policies: &[Policy], capacity: Iops) -> Vec<Cost> {
    let capacity_given = capacity;
    let capacity = u128::from(capacity.get());
    let reservation = |p: &Policy| p.reservation().map_or(0, |r| u128::from(r.get()));
    let reserved: u128 = policies.iter().map(reservation).sum();
    if reserved > capacity {
        return policies.iter().map(|p| per_second(capacity * reservation(p), reserved)).collect();
    }
    if let Some(open) = without_soft_limits(policies, capacity) {
        return water_fill(&open, capacity_given);
    }
    let (level, weight) = level(policies, capacity, reserved);
    policies
        .iter()
        .map(|p| {
            let by_share = u128::from(p.shares().get()) * level;
            let least = by_share.max(reservation(p) * weight);
            let most = p.highest().map_or(least, |l| u128::from(l.get()) * weight);
            per_second(least.min(most), weight)
        })
        .collect()
}

/// Where limits leave capacity over that soft ones may use: every disk has its limit as its
/// reservation, and those with soft ones no limit.
fn without_soft_limits(policies: &[Policy], capacity: u128) -> Option<Vec<Policy>> {
    let limits = policies.iter().map(|p| p.highest().map(|l| u128::from(l.get())));
    let is_soft = |p: &Policy| p.limit_mode() == LimitMode::Soft;
    if limits.sum::<Option<u128>>()? >= capacity || !policies.iter().any(is_soft) {
        return None;
    }
    let open = policies.iter().map(|p| {
        let limit = if is_soft(p) { None } else { p.highest() };
        let open = p.with_checked_directions(Default::default());
        open.with_rates(p.highest(), limit).with_limit_mode(LimitMode::Strict)
    });
    Some(open.collect())
}

/// The level as a fraction, by a sweep over the levels at which a disk leaves its reservation or
/// reaches its limit.
fn level(policies: &[Policy], capacity: u128, reserved: u128) -> (u128, u128) {
    enum Edge {
        LeavesReservation(u128),
        ReachesLimit(u128),
    }
    let mut edges = Vec::new();
    for policy in policies {
        let weight = u128::from(policy.shares().get());
        edges.push((policy.reservation().map_or(0, |r| u128::from(r.get())), weight, true));
        if let Some(limit) = policy.highest() {
            edges.push((u128::from(limit.get()), weight, false));
        }
    }
    // At equal levels a disk first leaves its reservation, then reaches its limit.
    edges.sort_by(|a, b| (a.0 * b.1).cmp(&(b.0 * a.1)).then(b.2.cmp(&a.2)));
    let edges = edges.into_iter().map(|(rate, weight, leaves)| {
        (
            rate,
            weight,
            if leaves { Edge::LeavesReservation(rate) } else { Edge::ReachesLimit(rate) },
        )
    });
    let (mut fixed, mut sharing) = (reserved, 0u128);
    let mut highest = (0, 1);
    for (rate, weight, edge) in edges {
        // Is the capacity used up below this edge, that is fixed + sharing · rate/weight >=
        // capacity.
        if sharing > 0 && fixed * weight + sharing * rate >= capacity * weight {
            return (capacity - fixed, sharing);
        }
        highest = (rate, weight);
        match edge {
            Edge::LeavesReservation(rate) => {
                fixed -= rate;
                sharing += weight;
            }
            Edge::ReachesLimit(rate) => {
                fixed += rate;
                sharing -= weight;
            }
        }
    }
    if sharing > 0 { (capacity - fixed, sharing) } else { highest }
}

fn per_second(ios: u128, of: u128) -> Cost {
    Cost::from_millionths(
        (ios * u128::from(Cost::ONE.as_millionths()) / of).min(u128::from(u64::MAX)) as u64,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::direction::DirectionLimits;
    use headgate_units::Shares;
    use proptest::prelude::*;

    fn policy(shares: u64, reservation: u64, limit: u64) -> Policy {
        let iops = |n| Iops::new(n).ok();
        Policy::shared(Shares::new(shares).unwrap()).with_rates(iops(reservation), iops(limit))
    }

    fn whole(policies: &[Policy], capacity: u64) -> Vec<u64> {
        water_fill(policies, Iops::new(capacity).unwrap())
            .into_iter()
            .map(|c| c.as_millionths() / 1_000_000)
            .collect()
    }

    #[test]
    fn soft_limits_divide_what_limits_leave() {
        let soft = |shares, limit| policy(shares, 0, limit).with_limit_mode(LimitMode::Soft);
        let disks = [soft(1, 300), soft(3, 50), policy(9, 0, 150)];
        for (capacity, expected) in [
            (400, [200, 50, 150]),
            (500, [300, 50, 150]),
            (800, [300, 350, 150]),
            (2_150, [500, 1_500, 150]),
        ] {
            assert_eq!(whole(&disks, capacity), expected, "of {capacity}");
        }
        // Beside a disk without a limit nothing is left over.
        assert_eq!(whole(&[soft(1, 300), policy(1, 0, 0)], 1_000), [300, 700]);
    }

    #[test]
    fn limits_of_both_directions_add_up() {
        let iops = |n| DirectionLimits { iops: Iops::new(n).ok(), bandwidth: None };
        let directed = |limit, read, write| {
            policy(1, 0, limit).with_direction_limits(iops(read), iops(write)).unwrap()
        };
        let disks = [directed(0, 100, 50), directed(80, 100, 50), directed(0, 100, 0)];
        assert_eq!(whole(&disks, 1_000), [150, 80, 770]);
        let soft = disks.map(|disk| disk.with_limit_mode(LimitMode::Soft));
        assert_eq!(whole(&soft[..2], 400), [200, 200]);
    }

    #[test]
    fn the_papers_example() {
        let disks = [policy(100, 250, 0), policy(200, 250, 0), policy(300, 0, 1000)];
        for (capacity, expected) in [
            (250, [125, 125, 0]),
            (500, [250, 250, 0]),
            (700, [250, 250, 200]),
            (875, [250, 250, 375]),
            (1200, [250, 380, 570]),
            (1500, [250, 500, 750]),
            (2000, [333, 666, 1000]),
            (2500, [500, 1000, 1000]),
            (3000, [666, 1333, 1000]),
        ] {
            assert_eq!(whole(&disks, capacity), expected, "at {capacity}");
        }
    }

    #[test]
    fn limits_below_capacity_leave_storage_idle() {
        assert_eq!(whole(&[policy(1, 0, 100), policy(2, 50, 50)], 1000), [100, 50]);
        assert_eq!(whole(&[], 1000), [0u64; 0]);
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_the_level_is_one(
            disks in prop::collection::vec((1u64..1000, 0u64..1000, 0u64..2000), 1..8),
            capacity in 1u64..10_000,
        ) {
            let disks: Vec<Policy> = disks
                .into_iter()
                .map(|(w, r, extra)| policy(w, r, if extra == 0 { 0 } else { r + extra }))
                .collect();
            let got = water_fill(&disks, Iops::new(capacity).unwrap());
            let reserved: u64 = disks.iter().filter_map(Policy::reservation).map(Iops::get).sum();
            let limited = disks.iter().map(|d| d.limit().map(Iops::get)).try_fold(0, |sum, l| Some(sum + l?));
            let total: u64 = got.iter().map(|c| c.as_millionths()).sum();
            let expected = limited.unwrap_or(u64::MAX).min(capacity) * 1_000_000;
            prop_assert!(total <= expected && expected - total <= disks.len() as u64, "{} of {}", total, expected);
            if reserved > capacity {
                return Ok(());
            }
            for (a, x) in disks.iter().zip(&got) {
                let x = x.as_millionths() + 1;
                prop_assert!(x >= a.reservation().map_or(0, Iops::get) * 1_000_000);
                prop_assert!(a.limit().is_none_or(|l| x <= l.get() * 1_000_000 + 1));
                for (b, y) in disks.iter().zip(&got) {
                    // A disk that could get more has no less per share than any disk above its
                    // reservation.
                    let y = y.as_millionths();
                    let b_pressed = b.reservation().is_some_and(|r| y <= r.get() * 1_000_000);
                    let a_full = a.limit().is_some_and(|l| x >= l.get() * 1_000_000);
                    if !b_pressed && !a_full {
                        let (x, y) = (u128::from(x) * u128::from(b.shares().get()), u128::from(y) * u128::from(a.shares().get()));
                        prop_assert!(x + 1_000 >= y, "{:?} {:?}", a, b);
                    }
                }
            }
        }
    }
}
