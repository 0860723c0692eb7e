//! One datastore's window.

use super::status::{BoardState, Followed, Host, Status};
use super::{Meeting, Setup};
use headgate_cluster::{Courier, News};
use headgate_model::Name;
use headgate_model::{DataPlane, PlaneError};
use headgate_qos::window::{
    BoardView, Change, Controller, DemandMeter, Ended, LatencyMeter, LoadEvent, Observation,
    Periods, Slots, Update,
};
use headgate_units::Nanos;

pub(super) struct Keeper {
    name: Name,
    setup: Setup,
    window: Periods<usize>,
    courier: Option<Courier>,
    last: Option<Update>,
    last_change: Option<Change>,
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
        let mut window = Periods::new(controller, demand);
        if let Some(base) = setup.followed {
            window.follow_from(base);
        }
        plane.measure_latency(&name, Some(meter(&setup)?))?;
        window.begin(plane.end_period(&name)?.disks);
        plane.set_window(&name, window.window())?;
        Ok(Keeper {
            name,
            setup,
            window,
            courier,
            last: None,
            last_change: None,
            own: None,
            periods: 0,
            suspended: false,
            told: false,
        })
    }

    pub(super) fn period(&self) -> Nanos {
        self.window.period()
    }

    /// Whether this setup keeps the same board and meter.
    pub(super) fn is_for(&self, setup: &Setup) -> bool {
        self.setup.meeting == setup.meeting
            && self.setup.cost_model == setup.cost_model
            && self.setup.config.smoothing == setup.config.smoothing
    }

    pub(super) fn configure(
        &mut self,
        setup: Setup,
        plane: &dyn DataPlane,
    ) -> Result<(), PlaneError> {
        self.window.configure(setup.config).map_err(PlaneError::new)?;
        self.setup = setup;
        if self.suspended { Ok(()) } else { plane.set_window(&self.name, self.window.window()) }
    }

    pub(super) fn suspend(
        &mut self,
        window: Slots,
        plane: &dyn DataPlane,
    ) -> Result<(), PlaneError> {
        plane.set_window(&self.name, window)?;
        self.suspended = true;
        Ok(())
    }

    pub(super) fn resume(&mut self, plane: &dyn DataPlane) -> Result<(), PlaneError> {
        // What was seen meanwhile says nothing of the window.
        plane.measure_latency(&self.name, Some(meter(&self.setup)?))?;
        self.window.begin(plane.end_period(&self.name)?.disks);
        self.suspended = false;
        plane.set_window(&self.name, self.window.window())
    }

    pub(super) fn take_courier(&mut self) -> Option<Courier> {
        self.courier.take()
    }

    /// Has the board read, so that its news are fresh when the period ends.
    pub(super) fn refresh(&self) {
        if let Some(courier) = self.courier.as_ref().filter(|_| !self.suspended) {
            courier.refresh(self.period());
        }
    }

    /// Whether no reading of the board is under way.
    pub(super) fn is_refreshed(&self) -> bool {
        self.courier.as_ref().is_none_or(Courier::is_refreshed)
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
        let news = self.courier.as_ref().map(|courier| courier.news(now, self.period()));
        let view = match &news {
            None => BoardView::Alone,
            Some(News { peers: Some(peers), .. }) => BoardView::Shared(peers),
            Some(News { peers: None, .. }) => BoardView::Unreachable,
        };
        let Ended { update, change } = self.window.end(period.latency, &period.disks, view);
        if let Some(courier) = &self.courier {
            courier.post(update.report);
        }
        if let Err(e) = plane.set_window(&self.name, update.window) {
            tracing::debug!(datastore = %self.name, error = %e, "no window");
        }
        self.own = period.latency;
        self.last = Some(update);
        self.last_change = change.or(self.last_change);
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
            None if self.told => {
                tracing::info!(%datastore, "the congestion board can be used again")
            }
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
        let controller = self.window.controller();
        Status {
            suspended: self.suspended,
            config: *controller.config(),
            window: self.window.window(),
            last: self.last,
            following: self
                .window
                .following()
                .map(|following| Followed::of(following, self.last_change)),
            own: self.own,
            unmanaged: controller.unmanaged(),
            periods: self.periods,
            place: match &self.setup.meeting {
                Meeting::Alone => None,
                Meeting::Directory(path) => Some(path.display().to_string()),
                Meeting::Etcd(name) => Some(format!("etcd={name}")),
            },
            board,
            exchanges: news.as_ref().map_or(0, |news| news.exchanges),
            unreadable: view.map_or(0, |view| view.unreadable),
            duplicate: view
                .and_then(|view| view.duplicate.as_ref())
                .map(|twin| twin.name.to_string()),
            hosts,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::MemoryPlane;
    use headgate_model::Period;
    use headgate_qos::window::{ActiveShares, Bound, Config, DiskTotals, Follow};
    use headgate_qos::{CostModel, Policy};

    const PERIOD: Nanos = Nanos::from_secs(4);

    fn keeper(plane: &MemoryPlane) -> Keeper {
        plane.put_datastore("array");
        new_keeper(plane)
    }

    fn new_keeper(plane: &MemoryPlane) -> Keeper {
        let config =
            Config { threshold: Nanos::from_millis(30), period: PERIOD, ..Config::default() };
        let setup =
            Setup { config, cost_model: CostModel::Unit, meeting: Meeting::Alone, followed: None };
        Keeper::new("array".parse().unwrap(), setup, None, plane).unwrap()
    }

    /// A disk that kept `outstanding` requests for `seconds`, and did `ios`.
    fn usage(
        key: usize,
        seconds: u64,
        outstanding: u128,
        ios: u64,
        policy: Policy,
    ) -> DiskTotals<usize> {
        let at = Nanos::from_secs(seconds);
        let outstanding_time = outstanding * u128::from(at.0);
        DiskTotals { key, policy, at, outstanding_time, ios, bytes: ios * 4096 }
    }

    fn seen(millis: u64, ios: u64) -> Option<Observation> {
        Some(Observation { latency: Nanos::from_millis(millis), ios, work: ios * 1_000_000 })
    }

    #[test]
    fn the_shard_is_told_what_the_law_says() {
        let plane = MemoryPlane::default();
        let mut keeper = keeper(&plane);
        assert_eq!(plane.window("array"), (Some(Slots::whole(32)), true));
        let busy = |seconds| vec![usage(0, seconds, 64, seconds * 800, Policy::default())];
        plane.put_period(Period { latency: seen(60, 3_200), disks: busy(4) });
        keeper.end_period(PERIOD, &plane);
        // A fifth of what it was, and four fifths of half of it less a fifth, plus a fifth of the
        // slots in use (48).
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
    fn what_disks_did_before_the_window_was_controlled_is_no_demand() {
        let plane = MemoryPlane::default();
        plane.put_datastore("array");
        // Since it was opened 400 s ago it kept 64 requests; in the first period it does nothing.
        let before = usage(0, 400, 64, 80_000, Policy::default());
        plane.put_period(Period { latency: seen(20, 100), disks: vec![before] });
        let mut keeper = new_keeper(&plane);
        let mut idle = before;
        idle.at = Nanos::from_secs(404);
        plane.put_period(Period { latency: seen(20, 1), disks: vec![idle] });
        keeper.end_period(PERIOD, &plane);
        assert_eq!(keeper.last.unwrap().report.shares, ActiveShares::ZERO);
        // Nor is what it did while the window was set aside.
        keeper.suspend(Slots::whole(7), &plane).unwrap();
        let measured = usage(0, 500, 64, 90_000, Policy::default());
        plane.put_period(Period { latency: None, disks: vec![measured] });
        keeper.resume(&plane).unwrap();
        let mut idle = measured;
        idle.at = Nanos::from_secs(504);
        plane.put_period(Period { latency: seen(20, 1), disks: vec![idle] });
        keeper.end_period(Nanos::from_secs(8), &plane);
        assert_eq!(keeper.last.unwrap().report.shares, ActiveShares::ZERO);
    }

    /// Storage that does no more however high the latency, with full windows all the time.
    #[test]
    fn a_threshold_that_follows_is_seen_in_the_status_and_begins_where_it_was() {
        let plane = MemoryPlane::default();
        plane.put_datastore("array");
        let config =
            Config { threshold: Nanos::from_millis(30), period: PERIOD, ..Config::default() };
        let follow = Follow::Trials { rest: 1 };
        let setup = Setup {
            config: Config { follow, ..config },
            cost_model: CostModel::Unit,
            meeting: Meeting::Alone,
            followed: Some(Nanos::from_millis(20)),
        };
        let mut keeper = Keeper::new("array".parse().unwrap(), setup, None, &plane).unwrap();
        let followed = |keeper: &Keeper| keeper.status(PERIOD).following.unwrap();
        assert_eq!(followed(&keeper).base, Nanos::from_millis(20));
        for period in 1..=1_200 {
            // As much at any latency: the window goes where it holds that.
            let latency = keeper.status(PERIOD).config.threshold;
            let own = Some(Observation { latency, ios: 3_200, work: 3_200_000_000 });
            let busy = vec![usage(0, 4 * period, 64, 800 * period, Policy::default())];
            plane.put_period(Period { latency: own, disks: busy });
            keeper.end_period(Nanos(PERIOD.0 * period), &plane);
        }
        let now = followed(&keeper);
        let last = now.last.unwrap();
        assert!(now.changes >= 1 && last.to < last.from, "{now:?}");
        assert_eq!(now.base, last.to);
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
