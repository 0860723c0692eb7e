//! Intervals of statistics become what is known of disks and datastores, by the daemon's rules.

use super::state::{Member, Pool, Store};
use crate::outcome::pool::{PooledDatastore, ReadsOfInterval};
use crate::record::Recorder;
use crate::world::event::Event;
use crate::world::state::World;
use headgate_placement::{
    DeviceInterval, DeviceModel, Done, Held, LeftOut, Limits, Totals, WorkloadProfile,
};
use headgate_qos::LimitMode;
use headgate_qos::window::Slots;
use headgate_stats::{DiskSnapshot, Interval};
use headgate_units::Nanos;

/// What the disks of a datastore did there in an interval.
#[derive(Default)]
struct Sum {
    whole: DiskSnapshot,
    disks: Vec<(Interval, Limits)>,
}

impl World<'_> {
    /// An interval of statistics ends.
    pub(in crate::world) fn sample(&mut self) {
        let now = self.now;
        let Some(pool) = &mut self.pool else { return };
        self.queue.push_first(now + pool.spec.sample, Event::Sample);
        let began = std::mem::replace(&mut pool.began, now);
        let mut of_stores: Vec<Sum> = pool.stores.iter().map(|_| Sum::default()).collect();
        for member in &mut pool.members {
            let mut limits = Limits::default();
            let mut own = DiskSnapshot { at: now, ..DiskSnapshot::default() };
            for (placement, sum) in member.placements.iter_mut().zip(&mut of_stores) {
                let Some(placement) = placement else { continue };
                let snapshot = placement.stats.snapshot(now);
                let done = snapshot.difference(&placement.before);
                placement.before = snapshot;
                if done.outstanding_time == 0 {
                    continue;
                }
                let policy = self.gates[placement.gate as usize].policy(placement.id);
                limits = policy.map_or(limits, |policy| match policy.limit_mode() {
                    LimitMode::Strict => {
                        Limits { iops: policy.highest(), bandwidth: policy.limit_bandwidth() }
                    }
                    // Requests wait for them only while the datastore has others to serve.
                    LimitMode::Soft => Limits::default(),
                });
                sum.disks.push((done.since_start(began), limits));
                sum.whole.merge(&done);
                own.merge(&done);
            }
            // A disk that is nowhere yet does nothing because it is not there.
            let vm = &self.vms[member.vm];
            if vm.running || member.meter.intervals() > 0 {
                let interval = own.since_start(began);
                let held = Held::of_disk(&interval, &limits);
                member.meter.record_traits(WorkloadProfile::of(&interval, held));
            }
        }
        let copied = pool.stores.iter().any(|store| store.copied);
        let mut did = Vec::new();
        for (store, mut sum) in pool.stores.iter_mut().zip(of_stores) {
            sum.whole.at = now;
            let whole = sum.whole.since_start(began);
            did.push(Done::of(&whole));
            let windows =
                store.gates.iter().map(|&gate| self.gates[gate as usize].window()).collect();
            store.learn_from(now, windows, &whole, &sum.disks);
        }
        // Also where nothing is taken back, so that runs with and without are alike until then.
        if !copied {
            pool.trials.saw(now, did);
        }
        pool.mark_copies();
    }
}

impl Store {
    fn learn_from(
        &mut self,
        now: Nanos,
        windows: Vec<Slots>,
        whole: &Interval,
        disks: &[(Interval, Limits)],
    ) {
        let disks = disks.iter().map(|(interval, limits)| (interval, *limits));
        let interval = self.judge.judge(now, windows, whole, disks);
        // While a disk is copied the storage is busy with what is no guest's.
        if std::mem::take(&mut self.copied) {
            return;
        }
        self.intervals.push(interval);
        if let Some(latency) = whole.reads.device {
            let count = (whole.reads.iops * whole.length.as_secs_f64()).round() as u64;
            self.reads.push(ReadsOfInterval { until: now, count, latency: latency.mean });
        }
        let (reads, writes) = (&whole.reads, &whole.writes);
        let outstanding = reads.at_device + writes.at_device;
        let iops = reads.iops + writes.iops;
        let was_held = matches!(interval.why(), Some(LeftOut::Limited | LeftOut::Windowed));
        if iops > 0.0 && !was_held {
            // By Little's law.
            self.raw.push((outstanding, outstanding / iops * 1e9));
        }
    }
}

impl Pool<'_> {
    /// Models of all datastores from all that was seen; one that makes no sense leaves the one
    /// before.
    pub(super) fn learn(&mut self) {
        for store in &mut self.stores {
            let found = DeviceModel::learn_from(&store.intervals);
            store.totals = Totals::of(&store.intervals, found.as_ref().ok());
            match found {
                Ok(model) => {
                    store.model = Some(store.model.map_or(model, |known| known.renewed(model)));
                    store.refused = None;
                }
                Err(why) => store.refused = Some(why),
            }
        }
    }
}

/// Least squares through all requests, in picoseconds for each outstanding: what the published
/// filters are for.
fn raw_slope(points: &[(f64, f64)]) -> Option<i64> {
    let n = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / n;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let (xx, xy) = points.iter().fold((0.0, 0.0), |(xx, xy), &(px, py)| {
        (xx + (px - x) * (px - x), xy + (px - x) * (py - y))
    });
    let slope = xy / xx;
    slope.is_finite().then_some((slope * 1e3) as i64)
}

/// What became of a datastore that was called so, with so many disks at the end, and what was
/// recorded of it.
pub(super) fn outcome(name: String, disks: u32, store: Store) -> (PooledDatastore, Recorder) {
    let Store { recorder, intervals, raw, reads, totals, model, refused, .. } = store;
    let taken = intervals.iter().filter(|&interval| match &model {
        Some(model) => model.is_learnt_from(interval),
        None => interval.why().is_none(),
    });
    let points = taken
        .filter_map(DeviceInterval::any_point)
        .map(|point| (point.outstanding, point.latency))
        .collect();
    let raw_slope = raw_slope(&raw);
    let found = PooledDatastore { name, disks, model, refused, totals, raw_slope, points, reads };
    (found, recorder)
}

/// Before this a disk is not known.
const LEAST_INTERVALS: u64 = 4;

impl Member {
    /// What the disk does, once that is known.
    pub(super) fn profile(&self) -> Option<headgate_placement::WorkloadProfile> {
        if self.meter.intervals() < LEAST_INTERVALS { None } else { self.meter.profile() }
    }
}

/// The clock of pools: far from zero, so that nothing seems to have happened lately at the
/// beginning.
pub(super) fn pool_time(now: Nanos) -> Nanos {
    now + Nanos::from_secs(100 * 86_400)
}
