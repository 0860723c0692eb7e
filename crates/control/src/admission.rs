//! Admission control: whether a reservation fits on a datastore.
//!
//! A datastore's reservable rate is its capacity (worst-case random IO, `papers`: USENIX OSDI 2010,
//! "mClock", §3.4 on admission) times the reservable percentage, 100 by default: the capacity is
//! the worst case already. The sum of the reservations on it must not exceed that.

use headgate_model::Name;
use headgate_model::{Capacity, Scheduler};
use headgate_units::Iops;

/// A datastore as admission sees it.
#[derive(Clone, Debug)]
pub struct ReservableRate {
    /// Its name.
    pub name: Name,
    /// Sum of the reservations on it, in IOPS.
    pub reserved: u64,
    /// Rate that it can promise in IOPS; `None` while its capacity is unknown.
    pub reservable: Option<u64>,
    /// Its scheduler; only mClock keeps reservations.
    pub scheduler: Scheduler,
}

impl ReservableRate {
    /// IOPS that can still be promised; `None` while the capacity is unknown.
    pub fn free(&self) -> Option<u64> {
        self.reservable.map(|r| r.saturating_sub(self.reserved))
    }

    /// IOPS promised beyond what the datastore can keep.
    pub fn overbooked(&self) -> u64 {
        self.reservable.map_or(0, |r| self.reserved.saturating_sub(r))
    }
}

/// Rate that a datastore of this capacity can promise, in IOPS.
pub fn reservable(capacity: Option<&Capacity>, percent: u32) -> Option<u64> {
    capacity.map(|c| c.iops.get().saturating_mul(u64::from(percent)) / 100)
}

/// The answer to a reservation that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It fits.
    Fits,
    /// The capacity is unknown, so nothing is checked.
    Unchecked,
    /// It does not fit.
    Refused {
        /// IOPS missing.
        shortfall: u64,
        /// The other datastore with the most room, if it is enough, and that room in IOPS.
        better: Option<(Name, u64)>,
    },
}

/// Checks `asked` on `target`, whose `reserved` excludes what the same disk held before. Linear in
/// `others`.
pub fn admit<'a>(
    target: &ReservableRate,
    asked: Iops,
    others: impl IntoIterator<Item = &'a ReservableRate>,
) -> Admission {
    let Some(free) = target.free() else { return Admission::Unchecked };
    let asked = asked.get();
    if asked <= free {
        return Admission::Fits;
    }
    let better = others
        .into_iter()
        .filter(|other| other.name != target.name && other.scheduler == Scheduler::Mclock)
        .filter_map(|other| {
            other.free().filter(|&free| free >= asked).map(|free| (other.name.clone(), free))
        })
        .max_by_key(|(_, free)| *free);
    Admission::Refused { shortfall: asked - free, better }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rate(name: &str, reserved: u64, reservable: Option<u64>) -> ReservableRate {
        ReservableRate {
            name: name.parse().unwrap(),
            reserved,
            reservable,
            scheduler: Scheduler::Mclock,
        }
    }

    fn iops(n: u64) -> Iops {
        Iops::new(n).unwrap()
    }

    #[test]
    fn the_shortfall_and_the_best_other_datastore_are_named() {
        let others =
            [rate("small", 0, Some(300)), rate("big", 100, Some(900)), rate("unknown", 0, None)];
        let answer = admit(&rate("ds", 1_500, Some(1_600)), iops(400), &others);
        assert_eq!(
            answer,
            Admission::Refused { shortfall: 300, better: Some(("big".parse().unwrap(), 800)) }
        );
        let nobody = admit(&rate("ds", 1_500, Some(1_600)), iops(1_000), &others);
        assert_eq!(nobody, Admission::Refused { shortfall: 900, better: None });
    }

    #[test]
    fn a_datastore_whose_scheduler_ignores_reservations_is_not_advised() {
        let sfq = ReservableRate { scheduler: Scheduler::Sfq, ..rate("sfq", 0, Some(9_000)) };
        let answer = admit(&rate("ds", 0, Some(100)), iops(200), &[sfq]);
        assert_eq!(answer, Admission::Refused { shortfall: 100, better: None });
    }

    #[test]
    fn an_unknown_capacity_is_not_guessed() {
        assert_eq!(admit(&rate("ds", 9_999, None), iops(1), &[]), Admission::Unchecked);
    }

    proptest! {
        #[test]
        fn what_fits_never_overbooks(reserved in 0u64..10_000, capacity in 0u64..10_000, asked in 1u64..10_000) {
            let target = rate("ds", reserved, Some(capacity));
            let fits = admit(&target, iops(asked), &[]) == Admission::Fits;
            let after = ReservableRate { reserved: reserved + asked, ..target };
            prop_assert_eq!(fits, after.overbooked() == 0);
        }
    }
}
