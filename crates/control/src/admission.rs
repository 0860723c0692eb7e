//! Admission control: whether a reservation fits on a datastore.
//!
//! A datastore's reservable rate is its capacity (worst-case random IO, `papers`: USENIX OSDI 2010,
//! "mClock", §3.4 on admission) times the reservable percentage, 100 by default: the capacity is
//! the worst case already. The sum of the reservations on it must not exceed that, nor what its
//! layers let through.

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
    /// Rate that it cannot exceed in IOPS, known or not what it can promise; `None`: no bound.
    pub most: Option<u64>,
    /// Its scheduler; only mClock keeps reservations.
    pub scheduler: Scheduler,
}

impl ReservableRate {
    /// IOPS that can still be promised; `None` while the capacity is unknown.
    pub fn free(&self) -> Option<u64> {
        self.reservable.map(|r| r.saturating_sub(self.reserved))
    }

    /// IOPS that no more can be promised than.
    pub fn bound(&self) -> Option<u64> {
        [self.reservable, self.most].into_iter().flatten().min()
    }

    /// IOPS promised beyond what the datastore can keep.
    pub fn overbooked(&self) -> u64 {
        self.bound().map_or(0, |bound| self.reserved.saturating_sub(bound))
    }
}

/// Rate that a datastore can promise, in IOPS: this part of its capacity, or of what its layers let
/// through if that is less.
pub fn reservable(capacity: Option<&Capacity>, most: Option<u64>, percent: u32) -> Option<u64> {
    let capacity = capacity?.iops.get();
    let sustained = most.map_or(capacity, |most| most.min(capacity));
    Some(sustained.saturating_mul(u64::from(percent)) / 100)
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
    let Some(bound) = target.bound() else { return Admission::Unchecked };
    let (asked, free) = (asked.get(), bound.saturating_sub(target.reserved));
    if asked <= free {
        return if target.reservable.is_some() { Admission::Fits } else { Admission::Unchecked };
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
    use headgate_model::CapacitySource;
    use proptest::prelude::*;

    fn rate(name: &str, reserved: u64, reservable: Option<u64>) -> ReservableRate {
        ReservableRate {
            name: name.parse().unwrap(),
            reserved,
            reservable,
            most: None,
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

    #[test]
    fn what_its_layers_let_through_bounds_an_unknown_capacity_too() {
        let unknown = ReservableRate { most: Some(1_000), ..rate("ds", 600, None) };
        assert_eq!(admit(&unknown, iops(400), &[]), Admission::Unchecked);
        assert_eq!(
            admit(&unknown, iops(500), &[]),
            Admission::Refused { shortfall: 100, better: None }
        );
        let over = ReservableRate { reserved: 1_200, ..unknown };
        assert_eq!((over.overbooked(), over.free()), (200, None));
    }

    #[test]
    fn a_capacity_counts_as_far_as_layers_let_it_through() {
        let capacity = Capacity { iops: iops(2_000), source: CapacitySource::Set };
        let of = |most, percent| reservable(Some(&capacity), most, percent);
        assert_eq!(
            (of(None, 100), of(Some(700), 100), of(Some(9_000), 90)),
            (Some(2_000), Some(700), Some(1_800))
        );
        assert_eq!(reservable(None, Some(700), 100), None);
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
