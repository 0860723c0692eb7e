use headgate_qos::Policy;
use headgate_units::Iops;
use serde::Serialize;

/// Between which capacities a disk gets its share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Breaks {
    /// Below this capacity its reservation is more than its share.
    pub reservation_below: Option<f64>,
    /// From this capacity on its limit is less than its share.
    pub limit_from: Option<f64>,
}

/// Where each disk's reservation and limit begin to bind, as the capacity rises. O(n²).
///
/// Water-filling gives disk i `min(limit, max(reservation, x · shares))` at a level x that the
/// capacity decides. A disk leaves its reservation at `x = reservation / shares` and meets its
/// limit at `x = limit / shares`; the capacities are what all disks together get at these levels. A
/// disk's share never meets its limit when others without shares to spare cannot be satisfied
/// first; then the capacity is still finite, for every disk has a level at which it takes what it
/// may.
pub fn breaks(policies: &[Policy]) -> Vec<Breaks> {
    let rate = |iops: Iops| iops.get() as f64;
    let level = |policy: &Policy, iops: Iops| rate(iops) / policy.shares().get() as f64;
    let capacity_at = |level: f64| -> f64 {
        let gets = |policy: &Policy| {
            let share = level * policy.shares().get() as f64;
            let at_least = policy.reservation().map_or(share, |r| share.max(rate(r)));
            policy.limit().map_or(at_least, |l| at_least.min(rate(l)))
        };
        policies.iter().map(gets).sum()
    };
    policies
        .iter()
        .map(|policy| Breaks {
            reservation_below: policy.reservation().map(|r| capacity_at(level(policy, r))),
            limit_from: policy.limit().map(|l| capacity_at(level(policy, l))),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use headgate_qos::water_fill;
    use headgate_units::Shares;

    fn policy(shares: u64, reservation: u64, limit: u64) -> Policy {
        let shared = Policy::shared(Shares::new(shares).unwrap());
        shared
            .with_limit(Iops::new(limit).ok())
            .unwrap()
            .with_reservation(Iops::new(reservation).ok())
            .unwrap()
    }

    #[test]
    fn the_break_points_of_the_papers_example() {
        let all = breaks(&[policy(100, 250, 0), policy(200, 250, 0), policy(300, 0, 1_000)]);
        assert_eq!(all[0], Breaks { reservation_below: Some(1_500.0), limit_from: None });
        assert_eq!(all[1], Breaks { reservation_below: Some(875.0), limit_from: None });
        assert_eq!(all[2], Breaks { reservation_below: None, limit_from: Some(2_000.0) });
    }

    #[test]
    fn water_filling_bends_there() {
        let policies =
            [policy(3, 70, 900), policy(5, 0, 400), policy(1, 120, 0), policy(7, 10, 333)];
        let gets = |capacity: f64, disk: usize| {
            let capacity = Iops::new(capacity as u64).unwrap();
            water_fill(&policies, capacity)[disk].as_millionths() as f64 / 1e6
        };
        for (disk, found) in breaks(&policies).into_iter().enumerate() {
            if let (Some(at), Some(reservation)) =
                (found.reservation_below, policies[disk].reservation())
            {
                let reservation = reservation.get() as f64;
                assert!((gets(at.floor() - 1.0, disk) - reservation).abs() < 1e-3, "disk {disk}");
                assert!(gets(at.ceil() + 5.0, disk) > reservation, "disk {disk}");
            }
            if let (Some(at), Some(limit)) = (found.limit_from, policies[disk].limit()) {
                let limit = limit.get() as f64;
                assert!((gets(at.ceil() + 1.0, disk) - limit).abs() < 1e-3, "disk {disk}");
                assert!(gets(at.floor() - 5.0, disk) < limit, "disk {disk}");
            }
        }
    }
}
