use super::latency::REFERENCE;
use super::slots::{MILLION, Slots, little, ratio};
use crate::config::ConfigError;
use crate::cost::{CostMeter, CostModel, clamp_bytes};
use crate::direction::Direction;
use crate::policy::Policy;
use core::fmt;
use core::ops::{Add, AddAssign};
use headgate_units::{Bytes, Iops, Nanos, Shares};

/// What a VM was promised at a datastore, and what it had outstanding there in the last period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Its shares.
    pub shares: Shares,
    /// Its reservation.
    pub reservation: Option<Iops>,
    /// The mean number of its requests that waited in the host's queue or were in flight, over the
    /// period. What its own limit holds back does not count: it could use no slot.
    pub outstanding: Slots,
}

/// What a disk did at a datastore in one period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The mean number of its requests that waited in the host's queue or were in flight.
    pub outstanding: Slots,
    /// Reads and writes that completed.
    pub ios: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Tells from what a disk did what it could have used.
#[derive(Clone, Debug)]
pub struct DemandMeter {
    cost: CostMeter,
    reference: u64,
}

impl DemandMeter {
    /// For a datastore with this cost model.
    ///
    /// # Errors
    /// When the cost model is out of range.
    pub fn new(model: CostModel) -> Result<DemandMeter, ConfigError> {
        let cost = CostMeter::new(model)?;
        let reference = cost.cost(clamp_bytes(REFERENCE)).as_millionths();
        Ok(DemandMeter { cost, reference })
    }

    /// The demand of a disk. What waits because of the disk's own limit could use no slot: at a
    /// limit, or peak, of l requests per second that take `latency` each (that of a reference IO,
    /// as this host saw it) no more than `l · latency` can be in flight (Little's law). Limits of
    /// reads and of writes in IOs count where both are set, as their sum. Without a latency nothing
    /// is known of that, and everything counts. O(1).
    pub fn demand(&self, policy: &Policy, usage: Usage, latency: Option<Nanos>) -> Demand {
        let mut outstanding = usage.outstanding;
        if let Some(latency) = latency {
            // A reference IO costs `reference` millionths and takes `latency`; latency grows as the
            // cost does.
            let [read, write] = Direction::BOTH.map(|d| policy.direction_limits(d));
            let both = read.iops.zip(write.iops);
            let limit = policy.peak().or(policy.limit()).map(Iops::get);
            let sum = both.map(|(r, w)| r.get().saturating_add(w.get()));
            let by_limit = [limit, sum].into_iter().flatten().min();
            let by_limit = by_limit.map(|limit| ratio(limit, MILLION * MILLION, self.reference));
            let bandwidth = policy.peak_bandwidth().or(policy.limit_bandwidth());
            let by_bandwidth = bandwidth.and_then(|limit| {
                let size = usage.bytes.checked_div(usage.ios).filter(|&size| size > 0)?;
                let cost = self.cost.cost(clamp_bytes(Bytes(size))).as_millionths();
                let rate = ratio(limit.get(), MILLION, size);
                Some(ratio(rate, cost, self.reference))
            });
            for rate in by_limit.into_iter().chain(by_bandwidth) {
                outstanding = outstanding.min(little(rate, latency));
            }
        }
        Demand { shares: policy.shares(), reservation: policy.reservation(), outstanding }
    }
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
    /// A VM is entitled to its part by shares of the window; if it had less outstanding, its shares
    /// count in proportion. So the slots of an idle VM go to all hosts, not to its neighbours.
    /// O(n).
    pub fn of(vms: &[Demand], window: Slots) -> ActiveShares {
        let all: u64 = vms.iter().map(|vm| vm.shares.get()).fold(0, u64::saturating_add);
        vms.iter()
            .map(|vm| {
                let shares = vm.shares.get();
                let entitled = window.scaled(shares, all);
                let used = vm.outstanding.min(entitled);
                ActiveShares(ratio(
                    shares * MILLION,
                    used.as_millionths(),
                    entitled.as_millionths(),
                ))
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

/// The slots without which the reservations cannot be had at this latency: their sum times the
/// latency.
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
        let of =
            |vms: &[Demand], window| ActiveShares::of(vms, Slots::whole(window)).as_millionths();
        assert_eq!(of(&[vm(20, 100), vm(10, 100)], 30), 30_000_000);
        // Half of its 10 slots.
        assert_eq!(of(&[vm(20, 100), vm(10, 5)], 30), 25_000_000);
        assert_eq!(of(&[vm(20, 0), vm(10, 100)], 30), 10_000_000);
        assert_eq!(of(&[], 30), 0);
        assert_eq!(of(&[vm(1, 0)], 0), 0);
    }

    #[test]
    fn what_a_limit_holds_back_could_use_no_slot() {
        use crate::direction::DirectionLimits;
        use headgate_units::BytesPerSec;
        let outstanding = Slots::whole(32);
        let usage = Usage { outstanding, ios: 1_000, bytes: 1_000 * 64 * 1024 };
        let latency = Some(Nanos::from_millis(20));
        let shares = Shares::new(100).unwrap();
        let policy = Policy::shared(shares);
        let unit = DemandMeter::new(CostModel::Unit).unwrap();
        assert_eq!(
            unit.demand(&policy, usage, latency),
            Demand { shares, reservation: None, outstanding }
        );
        let limited = policy.with_limit(Some(Iops::new(200).unwrap())).unwrap();
        assert_eq!(unit.demand(&limited, usage, latency).outstanding, Slots::whole(4));
        assert_eq!(unit.demand(&limited, usage, None).outstanding, outstanding);
        let half = DirectionLimits { iops: Iops::new(100).ok(), bandwidth: None };
        let directed = policy.with_direction_limits(half, half).unwrap();
        assert_eq!(unit.demand(&directed, usage, latency).outstanding, Slots::whole(4));
        let writes = policy.with_direction_limits(DirectionLimits::NONE, half).unwrap();
        assert_eq!(unit.demand(&writes, usage, latency).outstanding, outstanding);
        // 6.4 MB/s in requests of 64 KiB: 97.66 per second, 20 ms each.
        let narrow = policy.with_limit_bandwidth(Some(BytesPerSec::new(6_400_000).unwrap()));
        assert_eq!(
            unit.demand(&narrow, usage, latency).outstanding,
            Slots::from_millionths(1_953_125)
        );
        // By size each of them takes (1 + 64/300) / (1 + 8/300) times as long.
        let affine = DemandMeter::new(CostModel::default()).unwrap();
        let slots = affine.demand(&narrow, usage, latency).outstanding.as_f64();
        assert!((slots - 2.308).abs() < 0.001, "{slots}");
    }

    #[test]
    fn reservations_need_slots_by_littles_law() {
        let reservation = Iops::new(320).ok();
        let vms =
            [Demand { reservation, ..vm(1, 0) }, vm(1, 0), Demand { reservation, ..vm(1, 0) }];
        assert_eq!(reserved(&vms, Nanos::from_millis(25)), Slots::whole(16));
    }
}
