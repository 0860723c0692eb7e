use headgate_qos::{Policy, water_fill};
use headgate_units::Iops;
use serde::Serialize;

/// The rule that decides a disk's rate at a capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Clamp {
    /// Its reservation, which is more than its share.
    Reservation,
    /// Its limit, which is less than its share.
    Limit,
    /// Its shares.
    Share,
    /// Reservations alone exceed the capacity: in proportion to them, less than it was promised.
    Shortage,
    /// As before, and it has no reservation: nothing is left.
    Starved,
}

/// The rate of one disk at one capacity.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub struct Allocation {
    /// Normalised IOs per second, exact to a millionth.
    pub iops: f64,
    /// The rule that decides it.
    pub clamp: Clamp,
}

/// What every disk gets at every capacity, when all always have requests queued: one row for each
/// capacity, with one entry for each policy, in their order.
///
/// This is what water-filling says ([`water_fill`]), the published rule. The scheduler keeps a
/// small part for disks without a reservation where the rule starves them: see
/// [`headgate_qos::Floor`].
pub fn explain(policies: &[Policy], capacities: &[Iops]) -> Vec<Vec<Allocation>> {
    capacities.iter().map(|&capacity| row(policies, capacity)).collect()
}

fn row(policies: &[Policy], capacity: Iops) -> Vec<Allocation> {
    let reserved: u128 =
        policies.iter().filter_map(Policy::reservation).map(|r| u128::from(r.get())).sum();
    let shortage = reserved > u128::from(capacity.get());
    let allocations = water_fill(policies, capacity);
    policies
        .iter()
        .zip(allocations)
        .map(|(policy, cost)| {
            // Rounded down to a millionth, so one more is never below the exact value.
            let millionths = u128::from(cost.as_millionths());
            let reaches = |rate: Iops| millionths + 1 >= u128::from(rate.get()) * 1_000_000;
            let exceeds = |rate: Iops| millionths > u128::from(rate.get()) * 1_000_000;
            let clamp = match (shortage, policy.reservation(), policy.highest()) {
                (true, None, _) => Clamp::Starved,
                (true, Some(_), _) => Clamp::Shortage,
                // A soft limit may be exceeded.
                (false, _, Some(limit)) if reaches(limit) && !exceeds(limit) => Clamp::Limit,
                (false, Some(reservation), _) if !exceeds(reservation) => Clamp::Reservation,
                (false, ..) if millionths == 0 => Clamp::Starved,
                (false, ..) => Clamp::Share,
            };
            Allocation { iops: millionths as f64 / 1e6, clamp }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use headgate_qos::LimitMode;
    use headgate_units::Shares;

    fn policy(shares: u64, reservation: u64, limit: u64) -> Policy {
        Policy::shared(Shares::new(shares).unwrap())
            .with_limit(Iops::new(limit).ok())
            .unwrap()
            .with_reservation(Iops::new(reservation).ok())
            .unwrap()
    }

    #[test]
    fn a_soft_limit_clamps_until_nobody_else_takes_the_rest() {
        let soft = policy(1, 100, 100).with_limit_mode(LimitMode::Soft);
        let disks = [soft, policy(1, 0, 300)];
        for (capacity, iops, clamp) in [(300, 100.0, Clamp::Limit), (600, 300.0, Clamp::Share)] {
            let row = explain(&disks, &[Iops::new(capacity).unwrap()]).remove(0);
            assert_eq!(row[0], Allocation { iops, clamp }, "of {capacity}");
        }
    }

    #[test]
    fn the_papers_example_with_its_break_points() {
        use Clamp::{Limit, Reservation, Share, Shortage, Starved};
        let disks = [policy(100, 250, 0), policy(200, 250, 0), policy(300, 0, 1000)];
        let third = 1.0 / 3.0;
        for (capacity, iops, clamps) in [
            (250, [125.0, 125.0, 0.0], [Shortage, Shortage, Starved]),
            (500, [250.0, 250.0, 0.0], [Reservation, Reservation, Starved]),
            (700, [250.0, 250.0, 200.0], [Reservation, Reservation, Share]),
            (875, [250.0, 250.0, 375.0], [Reservation, Reservation, Share]),
            (1200, [250.0, 380.0, 570.0], [Reservation, Share, Share]),
            (1500, [250.0, 500.0, 750.0], [Reservation, Share, Share]),
            (2000, [333.0 + third, 666.0 + 2.0 * third, 1000.0], [Share, Share, Limit]),
            (2500, [500.0, 1000.0, 1000.0], [Share, Share, Limit]),
            (3000, [666.0 + 2.0 * third, 1333.0 + third, 1000.0], [Share, Share, Limit]),
        ] {
            let rows = explain(&disks, &[Iops::new(capacity).unwrap()]);
            for (disk, got) in rows[0].iter().enumerate() {
                assert!((got.iops - iops[disk]).abs() <= 1e-6, "{capacity}: {got:?}");
                assert_eq!(got.clamp, clamps[disk], "disk {disk} at {capacity}");
            }
        }
    }

    #[test]
    fn limits_that_leave_storage_idle() {
        let rows = explain(&[policy(1, 0, 100), policy(2, 50, 50)], &[Iops::new(1000).unwrap()]);
        assert_eq!(
            rows[0].iter().map(|a| (a.iops, a.clamp)).collect::<Vec<_>>(),
            [(100.0, Clamp::Limit), (50.0, Clamp::Limit)]
        );
        assert!(explain(&[], &[Iops::MIN])[0].is_empty());
    }
}
