use super::slots::{MILLION, Slots, little, ratio};
use headgate_units::{Iops, Nanos, Shares};
use std::fmt;
use std::ops::{Add, AddAssign};

/// What a VM was promised at a datastore, and what it had outstanding there in the last period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Its shares.
    pub shares: Shares,
    /// Its reservation.
    pub reservation: Option<Iops>,
    /// The mean number of its requests that waited in the host's queue or were in flight, over the period. What its own
    /// limit holds back does not count: it could use no slot.
    pub outstanding: Slots,
}

/// The shares that count: those of VMs that use their slots, in millionths of a share.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ActiveShares(u64);

impl ActiveShares {
    /// None.
    pub const ZERO: ActiveShares = ActiveShares(0);

    /// Millionths of a share.
    pub const fn from_millionths(millionths: u64) -> ActiveShares {
        ActiveShares(millionths)
    }

    /// Millionths of a share.
    pub const fn as_millionths(self) -> u64 {
        self.0
    }

    /// Of the VMs of a host whose window was `window` (section 3.4, equation 4).
    ///
    /// A VM is entitled to its part by shares of the window; if it had less outstanding, its shares count in
    /// proportion. So the slots of an idle VM go to all hosts, not to its neighbours. O(n).
    pub fn of(vms: &[Demand], window: Slots) -> ActiveShares {
        let all: u64 = vms.iter().map(|vm| vm.shares.get()).fold(0, u64::saturating_add);
        vms.iter()
            .map(|vm| {
                let shares = vm.shares.get();
                let entitled = window.scaled(shares, all);
                let used = vm.outstanding.min(entitled);
                ActiveShares(ratio(shares * MILLION, used.as_millionths(), entitled.as_millionths()))
            })
            .fold(ActiveShares::ZERO, ActiveShares::add)
    }
}

impl Add for ActiveShares {
    type Output = ActiveShares;
    fn add(self, other: ActiveShares) -> ActiveShares {
        ActiveShares(self.0.saturating_add(other.0))
    }
}

impl AddAssign for ActiveShares {
    fn add_assign(&mut self, other: ActiveShares) {
        *self = *self + other;
    }
}

/// Prints whole shares: `1500`.
impl fmt::Display for ActiveShares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&(self.0.saturating_add(MILLION / 2) / MILLION), f)
    }
}

impl fmt::Debug for ActiveShares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The slots without which the reservations cannot be had at this latency: their sum times the latency.
pub(super) fn reserved(vms: &[Demand], latency: Nanos) -> Slots {
    let reservations = vms.iter().filter_map(|vm| vm.reservation).map(Iops::get);
    little(reservations.fold(0, u64::saturating_add).saturating_mul(MILLION), latency)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vm(shares: u64, outstanding: u32) -> Demand {
        let shares = Shares::new(shares).unwrap();
        Demand { shares, reservation: None, outstanding: Slots::whole(outstanding) }
    }

    #[test]
    fn shares_count_as_far_as_slots_are_used() {
        let of = |vms: &[Demand], window| ActiveShares::of(vms, Slots::whole(window)).as_millionths();
        assert_eq!(of(&[vm(20, 100), vm(10, 100)], 30), 30_000_000);
        // Half of its 10 slots.
        assert_eq!(of(&[vm(20, 100), vm(10, 5)], 30), 25_000_000);
        assert_eq!(of(&[vm(20, 0), vm(10, 100)], 30), 10_000_000);
        assert_eq!(of(&[], 30), 0);
        assert_eq!(of(&[vm(1, 0)], 0), 0);
    }

    #[test]
    fn reservations_need_slots_by_littles_law() {
        let reservation = Iops::new(320).ok();
        let vms = [Demand { reservation, ..vm(1, 0) }, vm(1, 0), Demand { reservation, ..vm(1, 0) }];
        assert_eq!(reserved(&vms, Nanos::from_millis(25)), Slots::whole(16));
    }
}
