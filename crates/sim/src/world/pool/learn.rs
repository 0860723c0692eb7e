//! Intervals of statistics become what is known of disks and datastores, as in the daemon.

use super::{Event, Pool, Store, World};
use crate::outcome::pool::PooledDatastore;
use headgate_placement::{DeviceModel, DevicePoint, Done, Filters, Held, Refusal, Tally};
use headgate_stats::{DiskSnapshot, Flow, Interval};
use headgate_units::Nanos;

/// Requests that waited for us for more than this part of the time that they took at the device were held.
const HELD: f64 = 0.1;

/// Whether requests waited for something of ours: for their disk's own limit, where there is one.
fn held(interval: &Interval, limited: bool) -> Held {
    let time = |flow: &Flow| {
        let of =
            |times: Option<headgate_stats::Percentiles>| times.map_or(0.0, |t| t.mean.0 as f64) * flow.iops;
        (of(flow.queue), of(flow.device))
    };
    let ((read_queue, read_device), (write_queue, write_device)) =
        (time(&interval.reads), time(&interval.writes));
    match read_queue + write_queue > HELD * (read_device + write_device) {
        false => Held::No,
        true if limited => Held::ByLimit,
        true => Held::ByWindow,
    }
}

impl World<'_> {
    /// An interval of statistics ends.
    pub(in crate::world) fn sample(&mut self) {
        let (setup, now) = (self.setup, self.now);
        let Some(pool) = &mut self.pool else { return };
        self.queue.push_first(now + pool.spec.sample, Event::Sample);
        let began = std::mem::replace(&mut pool.began, now);
        let mut of_stores: Vec<(DiskSnapshot, Held)> =
            vec![(DiskSnapshot::default(), Held::No); pool.stores.len()];
        for member in &mut pool.members {
            let disk = &setup.vms[member.vm].disks[member.index];
            let limited = disk.policy.limit().is_some() || disk.policy.limit_bandwidth().is_some();
            let mut own = DiskSnapshot { at: now, ..DiskSnapshot::default() };
            for (seat, (sum, worst)) in member.seats.iter_mut().zip(&mut of_stores) {
                let Some(seat) = seat else { continue };
                let snapshot = seat.stats.snapshot(now);
                let done = snapshot.difference(&seat.before);
                seat.before = snapshot;
                if done.outstanding_time == 0 {
                    continue;
                }
                let here = held(&done.since_start(began), limited);
                if here != Held::No {
                    *worst = here;
                }
                sum.merge(&done);
                own.merge(&done);
            }
            // A disk that is nowhere yet does nothing because it is not there.
            let vm = &self.vms[member.vm];
            if vm.running || member.meter.intervals() > 0 {
                let interval = own.since_start(began);
                member.meter.record(&interval, held(&interval, limited));
            }
        }
        let copied = pool.stores.iter().any(|store| store.copied);
        let mut did = Vec::new();
        for (store, (mut sum, held)) in pool.stores.iter_mut().zip(of_stores) {
            sum.at = now;
            let interval = sum.since_start(began);
            did.push(Done::of(&interval));
            store.learn_from(&interval, held);
        }
        if !copied && pool.spec.take_back.is_some() {
            pool.trials.saw(now, did);
        }
        pool.mark_copies();
    }
}

impl Store {
    fn learn_from(&mut self, interval: &Interval, held: Held) {
        // While a disk is copied the storage is busy with what is no guest's.
        if std::mem::take(&mut self.copied) {
            return;
        }
        let point = DevicePoint::of(interval, held, &Filters::default());
        self.tally.count(&point);
        self.points.extend(point);
        let (reads, writes) = (&interval.reads, &interval.writes);
        let outstanding = reads.at_device + writes.at_device;
        let iops = reads.iops + writes.iops;
        if iops > 0.0 && held == Held::No {
            // By Little's law.
            self.raw.push((outstanding, outstanding / iops * 1e9));
        }
    }
}

impl Pool<'_> {
    /// Models of all datastores from all that was seen; one that makes no sense leaves the one before.
    pub(super) fn learn(&mut self) {
        for store in &mut self.stores {
            match DeviceModel::learn(&store.points) {
                Ok(model) => {
                    store.model = Some(store.model.map_or(model, |known| known.renewed(model)));
                    store.refused = None;
                }
                Err(why) => store.refused = Some(why),
            }
        }
    }
}

/// Least squares through all requests, in picoseconds for each outstanding: what the published filters are for.
fn raw_slope(points: &[(f64, f64)]) -> Option<i64> {
    let n = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / n;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let (xx, xy) = points
        .iter()
        .fold((0.0, 0.0), |(xx, xy), &(px, py)| (xx + (px - x) * (px - x), xy + (px - x) * (py - y)));
    let slope = xy / xx;
    slope.is_finite().then_some((slope * 1e3) as i64)
}

pub(super) fn outcome(
    name: String,
    disks: u32,
    model: Option<DeviceModel>,
    refused: Option<Refusal>,
    tally: Tally,
    points: &[DevicePoint],
    raw: &[(f64, f64)],
) -> PooledDatastore {
    let points = points.iter().map(|point| (point.outstanding, point.latency)).collect();
    PooledDatastore { name, disks, model, refused, tally, raw_slope: raw_slope(raw), points }
}

/// Before this a disk is not known.
const LEAST_INTERVALS: u64 = 4;

impl super::Member {
    /// What the disk does, once that is known.
    pub(super) fn traits(&self) -> Option<headgate_placement::Traits> {
        if self.meter.intervals() < LEAST_INTERVALS { None } else { self.meter.traits() }
    }
}

/// The clock of pools: far from zero, so that nothing seems to have happened lately at the beginning.
pub(super) fn pool_time(now: Nanos) -> Nanos {
    now + Nanos::from_secs(100 * 86_400)
}
