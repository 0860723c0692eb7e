//! What happens at the end of every period of one host's window at one datastore.

use super::board::{BoardView, Bound, HostReport};
use super::config::{Config, ConfigError};
use super::controller::{Controller, Update};
use super::demand::{Demand, DemandMeter, Usage};
use super::following::{Change, Following};
use super::latency::Observation;
use super::slots::Slots;
use crate::policy::Policy;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use headgate_units::Nanos;

/// How long the end of a period waits for the board to be read: a sixteenth of the period. The
/// update then goes by what the other hosts said last. By reports a period older the law rings at
/// smaller gains (`docs/decisions/0042-one-driver.md`).
pub const fn board_patience(period: Nanos) -> Nanos {
    Nanos(period.0 / 16)
}

/// What a disk has done at a datastore since it was opened there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskTotals<K> {
    /// The host's key of the disk. A later disk may have it again.
    pub key: K,
    /// The policy in force.
    pub policy: Policy,
    /// When this was read.
    pub at: Nanos,
    /// Requests that waited in the host's queue or were in flight, over time, in
    /// request-nanoseconds.
    pub outstanding_time: u128,
    /// Reads and writes that completed.
    pub ios: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// One host's window at one datastore, from period to period.
///
/// [`begin`](Periods::begin) begins the first period. At the end of each, give [`end`](Periods::end)
/// what the host saw and what its disks have done, hold the datastore to the window that it
/// returns, and tell the other hosts its report.
///
/// Shares are given to disks, so a disk here is what a virtual machine is in the paper.
#[derive(Clone, Debug)]
pub struct Periods<K> {
    controller: Controller,
    demand: DemandMeter,
    /// What each disk had done when the period began.
    before: BTreeMap<K, DiskTotals<K>>,
    /// What held the window at its last update.
    bound: Bound,
    /// As configured: the controller's threshold may be another since.
    given: Config,
    following: Option<Following>,
}

/// How a period ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// What the controller says. The report has the threshold from now on.
    pub update: Update,
    /// Whether the threshold is another.
    pub change: Option<Change>,
}

impl<K: Copy + Ord> Periods<K> {
    /// A window under this controller, with demands by this meter. Its first period has not begun.
    pub fn new(controller: Controller, demand: DemandMeter) -> Periods<K> {
        let given = *controller.config();
        let (before, bound, following) = (BTreeMap::new(), Bound::Free, None);
        let mut periods = Periods { controller, demand, before, bound, given, following };
        periods.follow_from(given.threshold);
        periods
    }

    /// A threshold that [follows](Config::follow) begins at `base`, where it was when it was last
    /// heard of. What it learned is forgotten. Nothing happens where it does not follow.
    pub fn follow_from(&mut self, base: Nanos) {
        let Config { follow, threshold, .. } = self.given;
        self.following = Following::of(follow, threshold, base);
        self.act(None);
    }

    /// The threshold that follows, where it does.
    pub fn following(&self) -> Option<&Following> {
        self.following.as_ref()
    }

    /// Has the controller act by the threshold that follows, or by another host's trial of it.
    fn act(&mut self, adopted: Option<Nanos>) {
        match &self.following {
            Some(following) => {
                let threshold = adopted.unwrap_or(following.threshold());
                self.controller.follow(threshold, following.base());
            }
            None => self.controller.follow_no_more(),
        }
    }

    /// The controller.
    pub fn controller(&self) -> &Controller {
        &self.controller
    }

    /// The length of a period.
    pub fn period(&self) -> Nanos {
        self.controller.config().period
    }

    /// The window in force: the controller's, cut to a maximum that was set since its last update.
    /// What reservations need is never cut.
    pub fn window(&self) -> Slots {
        let window = self.controller.window();
        match self.bound {
            Bound::Reservations => window,
            Bound::Free | Bound::Min | Bound::Max => window.min(self.controller.config().max),
        }
    }

    /// Changes the configuration. New bounds hold at once ([`Periods::window`]), all else from the
    /// next update on. A threshold that follows begins anew where it is given another, or another
    /// rest.
    ///
    /// # Errors
    /// The first value that is out of range; the configuration stays as it was then.
    pub fn configure(&mut self, config: Config) -> Result<(), ConfigError> {
        self.controller.configure(config)?;
        let of = |config: &Config| (config.threshold, config.follow);
        let is_same = of(&config) == of(&self.given);
        self.given = config;
        if is_same {
            self.act(None);
        } else {
            self.follow_from(config.threshold);
        }
        Ok(())
    }

    /// Begins a period: what the disks did until now belongs to none. O(n log n) for n disks.
    pub fn begin(&mut self, disks: impl IntoIterator<Item = DiskTotals<K>>) {
        self.before = disks.into_iter().map(|disk| (disk.key, disk)).collect();
    }

    /// Ends a period and begins the next: `own` is what this host saw in it, `disks` what its disks
    /// have done, `board` what the other hosts say. O(n log n) for n disks, O(m) for m hosts.
    pub fn end(
        &mut self,
        own: Option<Observation>,
        disks: &[DiskTotals<K>],
        board: BoardView<'_>,
    ) -> Ended {
        let demands = self.demands(own, disks);
        self.begin(disks.iter().copied());
        let update = self.controller.update(own, &demands, board);
        self.bound = update.bound;
        let Some(following) = &mut self.following else { return Ended { update, change: None } };
        let change = following.period(&update, board);
        let (base, adopted) = (following.base(), following.adopted(board, self.given.period));
        self.act(adopted);
        let threshold = self.controller.config().threshold;
        let report = HostReport { threshold, follows: Some(base), ..update.report };
        Ended { update: Update { report, ..update }, change }
    }

    /// What the disks could have used in the period that ends.
    fn demands(&self, own: Option<Observation>, disks: &[DiskTotals<K>]) -> Vec<Demand> {
        let latency = own.map(|own| own.latency);
        let demand =
            |now: &DiskTotals<K>| self.demand.demand(&now.policy, self.usage(now), latency);
        disks.iter().map(demand).collect()
    }

    /// What a disk did in the period. Hosts read their disks one after the other, so each has its
    /// own length of the period. A disk that was opened in it did all that it ever did in it; so
    /// did one whose counters went back, which is another disk of the same key.
    fn usage(&self, now: &DiskTotals<K>) -> Usage {
        let is_same = |old: &&DiskTotals<K>| {
            let later = |of: fn(&DiskTotals<K>) -> u128| of(old) <= of(now);
            later(|disk| disk.outstanding_time)
                && later(|disk| disk.ios.into())
                && later(|disk| disk.bytes.into())
        };
        let old = self.before.get(&now.key).filter(is_same);
        let length = old.map_or(self.period(), |old| now.at.since(old.at)).0.max(1);
        let time = now.outstanding_time - old.map_or(0, |old| old.outstanding_time);
        let mean = time.saturating_mul(1_000_000) / u128::from(length);
        Usage {
            outstanding: Slots::from_millionths(u64::try_from(mean).unwrap_or(u64::MAX)),
            ios: now.ios - old.map_or(0, |old| old.ios),
            bytes: now.bytes - old.map_or(0, |old| old.bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::CostModel;
    use headgate_units::{Iops, Shares};
    use proptest::prelude::*;

    const PERIOD: Nanos = Nanos::from_secs(4);

    fn periods() -> Periods<u8> {
        let threshold = Nanos::from_millis(30);
        let config = Config { threshold, period: PERIOD, ..Config::default() };
        let demand = DemandMeter::new(CostModel::Unit).unwrap();
        Periods::new(Controller::new(config).unwrap(), demand)
    }

    /// A disk that since its opening at 0 s kept `outstanding` requests, and did `ios`.
    fn disk(key: u8, seconds: u64, outstanding: u128, ios: u64) -> DiskTotals<u8> {
        let at = Nanos::from_secs(seconds);
        DiskTotals {
            key,
            policy: Policy::shared(Shares::new(100).unwrap()),
            at,
            outstanding_time: outstanding * u128::from(at.0),
            ios,
            bytes: ios * 4096,
        }
    }

    fn seen(millis: u64, ios: u64) -> Option<Observation> {
        Some(Observation { latency: Nanos::from_millis(millis), ios, work: ios * 1_000_000 })
    }

    fn wanted(
        periods: &Periods<u8>,
        own: Option<Observation>,
        disks: &[DiskTotals<u8>],
    ) -> Vec<Slots> {
        periods.demands(own, disks).iter().map(|demand| demand.outstanding).collect()
    }

    #[test]
    fn what_a_disk_did_before_the_first_period_is_no_demand() {
        let mut periods = periods();
        periods.begin([disk(0, 400, 50, 9_000)]);
        let mut idle = disk(0, 400, 50, 9_000);
        idle.at = Nanos::from_secs(404);
        assert_eq!(wanted(&periods, None, &[idle]), [Slots::ZERO]);
        assert_eq!(periods.usage(&idle), Usage::default());
    }

    #[test]
    fn a_disk_that_is_opened_in_a_period_did_all_in_it() {
        let mut periods = periods();
        periods.begin([]);
        let opened = DiskTotals { at: Nanos::from_secs(90), ..disk(3, 4, 8, 100) };
        assert_eq!(wanted(&periods, None, &[opened]), [Slots::whole(8)]);
        assert_eq!(
            periods.usage(&opened),
            Usage { outstanding: Slots::whole(8), ios: 100, bytes: 409_600 }
        );
    }

    #[test]
    fn a_disk_of_the_same_key_is_another_when_its_counters_went_back() {
        let mut periods = periods();
        periods.begin([disk(1, 4, 64, 400)]);
        for went_back in [
            DiskTotals { at: Nanos::from_secs(8), ..disk(1, 4, 3, 500) },
            DiskTotals { at: Nanos::from_secs(8), ios: 399, ..disk(1, 4, 64, 400) },
            DiskTotals { at: Nanos::from_secs(8), bytes: 1, ..disk(1, 4, 64, 400) },
        ] {
            let all = periods.usage(&went_back);
            let of = (went_back.ios, went_back.bytes);
            assert_eq!((all.ios, all.bytes), of, "{went_back:?}");
            let mean = went_back.outstanding_time * 1_000_000 / u128::from(PERIOD.0);
            assert_eq!(u128::from(all.outstanding.as_millionths()), mean);
        }
    }

    #[test]
    fn each_disk_has_its_own_length_of_the_period() {
        let mut periods = periods();
        let mut late = disk(1, 4, 10, 100);
        late.at = Nanos::from_secs(5);
        periods.begin([disk(0, 4, 10, 100), late]);
        // Both kept 10 more requests until 8 s: four seconds of one and three of the other.
        let at = Nanos::from_secs(8);
        let more = |old: DiskTotals<u8>, seconds: u64| {
            let time = 10 * u128::from(Nanos::from_secs(seconds).0);
            DiskTotals { at, outstanding_time: old.outstanding_time + time, ..old }
        };
        let disks = [more(disk(0, 4, 10, 100), 4), more(late, 3)];
        assert_eq!(wanted(&periods, None, &disks), [Slots::whole(10); 2]);
    }

    #[test]
    fn a_disk_wants_no_more_than_its_limit_lets_it() {
        let mut periods = periods();
        periods.begin([]);
        let mut limited = disk(1, 4, 64, 400);
        limited.policy = limited.policy.with_limit(Some(Iops::new(100).unwrap())).unwrap();
        let disks = [disk(0, 4, 8, 100), limited];
        assert_eq!(wanted(&periods, seen(20, 100), &disks), [Slots::whole(8), Slots::whole(2)]);
    }

    #[test]
    fn a_smaller_maximum_holds_at_once_unless_reservations_need_more() {
        let mut free = periods();
        let narrow = Config { max: Slots::whole(4), ..*free.controller().config() };
        assert_eq!(free.window(), Slots::whole(32));
        free.configure(narrow).unwrap();
        assert_eq!(
            (free.window(), free.controller().window()),
            (Slots::whole(4), Slots::whole(32))
        );
        let mut reserved = periods();
        let mut disk = disk(0, 4, 1, 100);
        disk.policy = disk.policy.with_reservation(Some(Iops::new(1_000).unwrap())).unwrap();
        reserved.begin([]);
        let update = reserved.end(seen(60, 100), &[disk], BoardView::Alone).update;
        assert_eq!(update.bound, Bound::Reservations);
        reserved.configure(narrow).unwrap();
        assert_eq!(reserved.window(), update.window);
    }

    proptest! {
        /// Whatever happens to the counters, the usages of the periods of a disk that stays add up
        /// to what it did, and nothing panics.
        #[test]
        fn usages_add_up(
            steps in prop::collection::vec((1u64..10_000, 0u128..1 << 40, 0u64..1 << 30), 1..20),
        ) {
            let mut periods = periods();
            let mut totals = disk(7, 1, 1, 5);
            periods.begin([totals]);
            let (start, mut ios, mut time) = (totals, 0, 0u128);
            for (millis, outstanding_time, done) in steps {
                let length = Nanos::from_millis(millis);
                totals.at += length;
                totals.outstanding_time += outstanding_time;
                totals.ios += done;
                totals.bytes += done * 512;
                let usage = periods.usage(&totals);
                prop_assert_eq!(usage.bytes, usage.ios * 512);
                ios += usage.ios;
                time += u128::from(usage.outstanding.as_millionths()) * u128::from(length.0);
                let update = periods.end(None, &[totals], BoardView::Alone).update;
                prop_assert_eq!(update.window, periods.controller().window());
            }
            prop_assert_eq!(ios, totals.ios - start.ios);
            // Each period's mean is rounded down to a millionth.
            let exact = (totals.outstanding_time - start.outstanding_time) * 1_000_000;
            let rounding = u128::from(totals.at.since(start.at).0);
            prop_assert!(time <= exact && exact - time <= rounding, "{} of {}", time, exact);
        }

        #[test]
        fn no_totals_hurt(
            seen in prop::collection::vec(
                (0u8..3, any::<u64>(), any::<u128>(), any::<u64>(), any::<u64>()), 0..12),
        ) {
            let mut periods = periods();
            for (key, at, outstanding_time, ios, bytes) in seen {
                let policy = Policy::default();
                let disk = DiskTotals { key, policy, at: Nanos(at), outstanding_time, ios, bytes };
                let own = Observation { latency: Nanos(bytes), ios, work: bytes };
                periods.end(Some(own), &[disk], BoardView::Alone);
            }
        }
    }
}
