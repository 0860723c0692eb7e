//! One datastore's window.

use super::status::{BoardState, Host, Status};
use super::{Meeting, Setup};
use crate::control::{DataPlane, PlaneError};
use crate::name::Name;
use headgate_cluster::{Courier, News};
use headgate_engine::snapshot::{DiskUsage, Period};
use headgate_qos::window::{
    BoardView, Bound, Controller, Demand, DemandMeter, LatencyMeter, LoadEvent, Observation, Slots, Update,
    Usage,
};
use headgate_units::Nanos;
use std::collections::HashMap;

pub(super) struct Keeper {
    name: Name,
    setup: Setup,
    controller: Controller,
    demand: DemandMeter,
    courier: Option<Courier>,
    /// What each disk had done when the last period ended.
    before: HashMap<usize, DiskUsage>,
    last: Option<Update>,
    own: Option<Observation>,
    periods: u64,
    suspended: bool,
    /// Whether the log says that the board cannot be read.
    told: bool,
}

fn meter(setup: &Setup) -> Result<LatencyMeter, PlaneError> {
    LatencyMeter::new(setup.cost_model, setup.config.smoothing).map_err(PlaneError::new)
}

impl Keeper {
    pub(super) fn new(
        name: Name,
        setup: Setup,
        courier: Option<Courier>,
        plane: &dyn DataPlane,
    ) -> Result<Keeper, PlaneError> {
        let controller = Controller::new(setup.config).map_err(PlaneError::new)?;
        let demand = DemandMeter::new(setup.cost_model).map_err(PlaneError::new)?;
        plane.measure_latency(&name, Some(meter(&setup)?))?;
        plane.set_window(&name, controller.window())?;
        Ok(Keeper {
            name,
            setup,
            controller,
            demand,
            courier,
            before: HashMap::new(),
            last: None,
            own: None,
            periods: 0,
            suspended: false,
            told: false,
        })
    }

    pub(super) fn period(&self) -> Nanos {
        self.setup.config.period
    }

    /// Does it go on with this setup, or does it take another board or meter.
    pub(super) fn is_for(&self, setup: &Setup) -> bool {
        self.setup.meeting == setup.meeting
            && self.setup.cost_model == setup.cost_model
            && self.setup.config.smoothing == setup.config.smoothing
    }

    pub(super) fn configure(&mut self, setup: Setup, plane: &dyn DataPlane) -> Result<(), PlaneError> {
        self.controller.configure(setup.config).map_err(PlaneError::new)?;
        self.setup = setup;
        // New bounds hold at once, the new threshold from the next period on.
        let window = self.window();
        if self.suspended { Ok(()) } else { plane.set_window(&self.name, window) }
    }

    /// The controller's, but for a maximum that was set since it spoke. What reservations need is never cut.
    fn window(&self) -> Slots {
        let reserved = self.last.is_some_and(|last| last.bound == Bound::Reservations);
        let (window, max) = (self.controller.window(), self.controller.config().max);
        if reserved { window } else { window.min(max) }
    }

    pub(super) fn suspend(&mut self, window: Slots, plane: &dyn DataPlane) -> Result<(), PlaneError> {
        plane.set_window(&self.name, window)?;
        self.suspended = true;
        Ok(())
    }

    pub(super) fn resume(&mut self, plane: &dyn DataPlane) -> Result<(), PlaneError> {
        // What was seen meanwhile says nothing of the window.
        plane.measure_latency(&self.name, Some(meter(&self.setup)?))?;
        self.remember(&plane.end_period(&self.name)?);
        self.suspended = false;
        plane.set_window(&self.name, self.window())
    }

    pub(super) fn take_courier(&mut self) -> Option<Courier> {
        self.courier.take()
    }

    fn remember(&mut self, period: &Period) {
        self.before = period.disks.iter().map(|disk| (disk.key, *disk)).collect();
    }

    /// What the disks could have used in the period that ends. A disk is one to the law, as a virtual machine is in the paper:
    /// shares are given to disks.
    fn demands(&self, period: &Period) -> Vec<Demand> {
        let latency = period.latency.map(|own| own.latency);
        let demand = |now: &DiskUsage| {
            let same = |old: &&DiskUsage| old.outstanding_time <= now.outstanding_time && old.ios <= now.ios;
            let old = self.before.get(&now.key).filter(same);
            let length = old.map_or(self.period(), |old| now.at.since(old.at)).0.max(1);
            let time = now.outstanding_time - old.map_or(0, |old| old.outstanding_time);
            let mean = time.saturating_mul(1_000_000) / u128::from(length);
            let usage = Usage {
                outstanding: Slots::from_millionths(u64::try_from(mean).unwrap_or(u64::MAX)),
                ios: now.ios - old.map_or(0, |old| old.ios),
                bytes: now.bytes.saturating_sub(old.map_or(0, |old| old.bytes)),
            };
            self.demand.demand(&now.policy, usage, latency)
        };
        period.disks.iter().map(demand).collect()
    }

    pub(super) fn end_period(&mut self, now: Nanos, plane: &dyn DataPlane) {
        if self.suspended {
            return;
        }
        let period = match plane.end_period(&self.name) {
            Ok(period) => period,
            // It is being removed, or the daemon ends.
            Err(e) => return tracing::debug!(datastore = %self.name, error = %e, "no period"),
        };
        let demands = self.demands(&period);
        self.remember(&period);
        let news = self.courier.as_ref().map(|courier| courier.news(now, self.period()));
        let view = match &news {
            None => BoardView::Alone,
            Some(News { peers: Some(peers), .. }) => BoardView::Shared(peers),
            Some(News { peers: None, .. }) => BoardView::Unreachable,
        };
        let update = self.controller.update(period.latency, &demands, view);
        if let Some(courier) = &self.courier {
            courier.post(update.report);
        }
        if let Err(e) = plane.set_window(&self.name, update.window) {
            tracing::debug!(datastore = %self.name, error = %e, "no window");
        }
        self.own = period.latency;
        self.last = Some(update);
        self.periods += 1;
        self.tell(&update, news.as_ref());
    }

    fn tell(&mut self, update: &Update, news: Option<&News>) {
        let datastore = &self.name;
        match update.event {
            Some(LoadEvent::Began(what)) => {
                tracing::warn!(%datastore, "load that no window controls: {what}");
            }
            Some(LoadEvent::Ended) => {
                tracing::info!(%datastore, "the storage answers within its threshold again");
            }
            None => {}
        }
        let error = news.and_then(|news| news.error.as_ref());
        match error {
            Some(error) if !self.told => {
                tracing::warn!(%datastore, %error, "the congestion board cannot be used: the window stays as it is");
            }
            None if self.told => tracing::info!(%datastore, "the congestion board can be used again"),
            _ => {}
        }
        self.told = error.is_some();
    }

    pub(super) fn status(&self, now: Nanos) -> Status {
        let news = self.courier.as_ref().map(|courier| courier.news(now, self.period()));
        let board = match &news {
            None => BoardState::Alone,
            Some(News { error: Some(error), .. }) => BoardState::Unreachable(error.clone()),
            Some(News { peers: None, exchanges, .. }) if *exchanges > 0 && self.periods > 3 => {
                BoardState::Unreachable("it has not answered for two periods".into())
            }
            Some(News { peers: None, .. }) => BoardState::Starting,
            Some(News { peers: Some(_), .. }) => BoardState::Read,
        };
        let view = news.as_ref().map(|news| &news.view);
        let hosts = view.map_or_else(Vec::new, |view| view.peers.iter().map(Host::of).collect());
        let config = *self.controller.config();
        Status {
            suspended: self.suspended,
            config,
            window: self.window(),
            last: self.last,
            own: self.own,
            unmanaged: self.controller.unmanaged(),
            periods: self.periods,
            place: match &self.setup.meeting {
                Meeting::Alone => None,
                Meeting::Directory(path) => Some(path.display().to_string()),
                Meeting::Etcd(name) => Some(format!("etcd={name}")),
            },
            board,
            exchanges: news.as_ref().map_or(0, |news| news.exchanges),
            unreadable: view.map_or(0, |view| view.unreadable),
            duplicate: view.and_then(|view| view.duplicate.as_ref()).map(|twin| twin.name.to_string()),
            hosts,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::testing::MemoryPlane;
    use headgate_qos::window::Config;
    use headgate_qos::{CostModel, Policy};
    use headgate_units::{Iops, Shares};

    const PERIOD: Nanos = Nanos::from_secs(4);

    fn keeper(plane: &MemoryPlane) -> Keeper {
        plane.put_datastore("array");
        let config = Config { threshold: Nanos::from_millis(30), period: PERIOD, ..Config::default() };
        let setup = Setup { config, cost_model: CostModel::Unit, meeting: Meeting::Alone };
        Keeper::new("array".parse().unwrap(), setup, None, plane).unwrap()
    }

    /// A disk that kept `outstanding` requests for `seconds`, and did `ios`.
    fn usage(key: usize, seconds: u64, outstanding: u128, ios: u64, policy: Policy) -> DiskUsage {
        let at = Nanos::from_secs(seconds);
        let outstanding_time = outstanding * u128::from(at.0);
        DiskUsage { key, policy, at, outstanding_time, ios, bytes: ios * 4096 }
    }

    fn seen(millis: u64, ios: u64) -> Option<Observation> {
        Some(Observation { latency: Nanos::from_millis(millis), ios })
    }

    #[test]
    fn the_shard_is_told_what_the_law_says() {
        let plane = MemoryPlane::default();
        let mut keeper = keeper(&plane);
        assert_eq!(plane.window("array"), (Some(Slots::whole(32)), true));
        let busy = |seconds| vec![usage(0, seconds, 64, seconds * 800, Policy::default())];
        plane.put_period(Period { latency: seen(60, 3_200), disks: busy(4) });
        keeper.end_period(PERIOD, &plane);
        // A fifth of what it was, and four fifths of half of it less a fifth, plus a fifth of the slots in use (48).
        let window = plane.window("array").0.unwrap();
        assert!(window < Slots::whole(32) && window > Slots::whole(16), "{window}");
        assert_eq!(keeper.status(PERIOD).window, window);
        plane.put_period(Period { latency: seen(5, 3_200), disks: busy(8) });
        keeper.end_period(Nanos::from_secs(8), &plane);
        assert_eq!(plane.window("array").0, Some(Slots::whole(64)));
        assert_eq!(keeper.last.unwrap().bound, Bound::Max);
        // Nothing to go by: it stays.
        keeper.end_period(Nanos::from_secs(12), &plane);
        assert_eq!(plane.window("array").0, Some(Slots::whole(64)));
        assert_eq!(keeper.status(PERIOD).periods, 3);
    }

    #[test]
    fn disks_want_what_they_had_outstanding_in_the_period_and_no_more_than_their_limit_lets_them() {
        let plane = MemoryPlane::default();
        let mut keeper = keeper(&plane);
        let policy = Policy::shared(Shares::new(100).unwrap());
        let limited = policy.with_limit(Some(Iops::new(100).unwrap())).unwrap();
        let first = Period {
            latency: seen(20, 100),
            disks: vec![usage(0, 4, 8, 100, policy), usage(1, 4, 64, 400, limited)],
        };
        let wanted = |keeper: &Keeper, period: &Period| -> Vec<Slots> {
            keeper.demands(period).iter().map(|demand| demand.outstanding).collect()
        };
        assert_eq!(wanted(&keeper, &first), [Slots::whole(8), Slots::whole(2)]);
        keeper.remember(&first);
        // The first was idle since; the second's number is another disk's now.
        let mut idle = usage(0, 4, 8, 100, policy);
        idle.at = Nanos::from_secs(8);
        let second = Period { latency: None, disks: vec![idle, usage(1, 4, 3, 10, policy)] };
        assert_eq!(wanted(&keeper, &second), [Slots::ZERO, Slots::whole(3)]);
    }

    #[test]
    fn a_measurement_sets_it_aside() {
        let plane = MemoryPlane::default();
        let mut keeper = keeper(&plane);
        keeper.suspend(Slots::whole(7), &plane).unwrap();
        plane.put_period(Period { latency: seen(60, 100), disks: Vec::new() });
        keeper.end_period(PERIOD, &plane);
        assert_eq!(plane.window("array").0, Some(Slots::whole(7)));
        keeper.resume(&plane).unwrap();
        assert_eq!(plane.window("array"), (Some(Slots::whole(32)), true));
    }
}
