//! The bound itself. Times are in nanoseconds, work in requests of the largest cost.

use super::input::{PromisedDisk, Storage};
use super::record::{ServiceRecord, Truncated};
use super::work::Work;
use alloc::vec::Vec;
use headgate_units::Iops;

/// Parts of all requests: times that more exceed are set apart in turn, and a disk's bursts may
/// exceed what is assumed of them as often.
const PARTS: [f64; 12] = [
    0.0, 0.000_1, 0.000_2, 0.000_4, 0.000_8, 0.001_6, 0.003_2, 0.006_4, 0.012_8, 0.025_6, 0.051_2,
    0.102_4,
];
/// η is tried from 2⁻⁴⁰ per nanosecond on, a fifth of an hour,
const LEAST_ETA: f64 = -40.0;
/// three steps to a doubling, to 2⁻⁴, 16 ns. They are the same whatever is recorded, so that
/// slower storage never has a better bound.
const ETAS: u32 = 108;

/// Storage that serves so much faster with more in it than one request after the other serves them
/// side by side or sorts them. What others add to the time of one request is then known only where
/// so many were in flight.
const SERIAL: f64 = 1.25;

/// What the records say, prepared for one largest cost.
pub(super) struct Service {
    etas: Vec<f64>,
    light: Vec<Truncated>,
    light_mean: f64,
    /// Requests at the rate of a busy record that a light one may have left out.
    unasked: f64,
    busy: Vec<Busy>,
    /// The largest cost in reference IOs.
    largest: f64,
}

/// A busy record.
struct Busy {
    in_flight: f64,
    mean: f64,
    /// How much faster the storage is than one request after the other.
    gain: f64,
    /// Each with the part of the time that the longest stall adds.
    all: Vec<(Truncated, f64)>,
}

/// What stands before a request, apart from the window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demand {
    /// What all reservations take in requests per nanosecond, the floor's part included.
    pub(super) claims: f64,
    /// Requests that others send first once the request is due.
    pub(super) ahead: f64,
}

/// What a bound is made of, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sum {
    pub(super) bound: f64,
    /// The window, in requests.
    pub(super) in_flight: u32,
    /// What the storage gives behind it, in reference IOs per second.
    pub(super) rate: f64,
    /// The disk's own requests before it, at the rate of its reservation.
    pub(super) burst: f64,
    /// Others' requests that go first.
    pub(super) ahead: f64,
    /// The requests in it, and the request itself.
    pub(super) window: f64,
}

/// How a disk's bursts count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bursts {
    AsRecorded,
    /// As if its requests came no faster than its reservation.
    None,
}

impl Service {
    /// `None` without any record.
    pub(super) fn new(storage: &Storage, largest: Work, exempt: f64) -> Option<Service> {
        let busiest = storage.busiest()?;
        let light = storage.light.as_ref().unwrap_or(busiest);
        let records = if storage.busy.is_empty() {
            core::slice::from_ref(busiest)
        } else {
            &storage.busy[..]
        };
        let largest = largest.as_f64().max(1.0);
        let scale = |record: &ServiceRecord| (largest / record.work()).max(1.0);
        let eta = |step| libm::exp2(LEAST_ETA + f64::from(step) / 3.0);
        let etas: Vec<f64> = (0..=ETAS).map(eta).collect();
        let all = |record: &ServiceRecord| -> Vec<(f64, Truncated)> {
            let bound = |&part: &f64| record.exceeded_by(part).unwrap_or(record.longest());
            let mut bounds: Vec<f64> =
                PARTS.iter().take_while(|&&part| part < exempt).map(bound).collect();
            bounds.dedup();
            let each = |at: f64| (at, record.truncate(at, scale(record), &etas));
            bounds.into_iter().map(each).collect()
        };
        // Busy storage stands still as often as storage that is not.
        let stalled = (storage.longest_stall.0 as f64).max(light.longest());
        let busy = |record: &ServiceRecord| {
            let stall = |at: f64| match stalled > record.longest() {
                true => ((stalled - at).max(0.0) / record.span()).min(1.0),
                false => 0.0,
            };
            Busy {
                in_flight: record.in_flight(),
                mean: record.mean() * scale(record),
                gain: light.mean() * record.in_flight() / record.mean(),
                all: all(record).into_iter().map(|(at, each)| (each, stall(at))).collect(),
            }
        };
        Some(Service {
            busy: records.iter().map(busy).collect(),
            light: all(light).into_iter().map(|(_, truncated)| truncated).collect(),
            light_mean: light.mean() * scale(light),
            unasked: light.unasked(),
            etas,
            largest,
        })
    }

    /// What stands before a request of the disk at `index`.
    pub(super) fn demand(
        &self,
        storage: &Storage,
        disks: &[PromisedDisk<'_>],
        index: usize,
    ) -> Demand {
        let floor = 1.0 + storage.floor.map_or(0.0, |n| 1.0 / f64::from(n.get()));
        let rate = |disk: &PromisedDisk<'_>| disk.reservation.map_or(0.0, |r| r.get() as f64);
        let largest = |disk: &PromisedDisk<'_>| disk.largest.as_f64().max(1.0);
        let others = || disks.iter().enumerate().filter(|&(at, _)| at != index).map(|(_, d)| d);
        let turns: f64 = others()
            .filter(|disk| disk.reservation.is_some())
            .map(|disk| largest(disk) + rate(disk) * disk.late.as_secs_f64())
            .sum();
        let unreserved =
            others().filter(|disk| disk.reservation.is_none()).map(largest).fold(0.0, f64::max);
        let reserved: f64 = disks.iter().map(rate).sum();
        Demand {
            claims: floor * reserved / self.largest / 1e9,
            ahead: (floor * turns + unreserved) / self.largest,
        }
    }

    /// Requests of the largest cost that a rate is, per nanosecond.
    fn rate_of(&self, rate: Iops) -> f64 {
        rate.get() as f64 / self.largest / 1e9
    }

    /// The least bound on the latency of a disk behind a window, that no more than `exempt` of its
    /// requests exceed; `None` where there is none.
    pub(super) fn bound(
        &self,
        window: u32,
        demand: Demand,
        disk: &PromisedDisk<'_>,
        exempt: f64,
        bursts: Bursts,
    ) -> Option<Sum> {
        let waits = self.waits(disk, exempt, bursts)?;
        let mut best: Option<Sum> = None;
        let records = self.busy.iter();
        for (by, busy) in records.flat_map(|busy| self.ways(window, busy).map(move |by| (by, busy)))
        {
            for (truncated, stall) in &busy.all {
                let at = Behind::new(self, window, demand, by, (busy, truncated));
                let Some(apart) = at.apart(self, *stall) else { continue };
                if apart >= exempt {
                    continue;
                }
                let exponents = at.exponents(self);
                for &(given, burst) in &waits {
                    let rest = exempt - apart - given;
                    let Some(wait) = least_wait(&exponents, rest) else { continue };
                    if best.is_none_or(|best| burst + wait < best.bound) {
                        let ahead = at.block_mean * demand.ahead / at.window;
                        best = Some(Sum {
                            bound: burst + wait,
                            in_flight: window,
                            rate: at.window / at.block_mean * self.largest * 1e9,
                            burst,
                            ahead,
                            window: at.block_mean + at.slot_mean(),
                        });
                    }
                }
            }
        }
        best.filter(|sum| sum.bound.is_finite())
    }

    /// How the time in a window may be found: by the light record in each of its truncations, or
    /// by the busy one alone.
    fn ways(&self, window: u32, busy: &Busy) -> impl Iterator<Item = By<'_>> + use<'_> {
        let light = if window == 1 || busy.gain <= SERIAL { &self.light[..] } else { &[] };
        let by_busy = (f64::from(window) <= busy.in_flight).then_some(By::Busy);
        light.iter().map(By::Light).chain(by_busy)
    }

    /// The part of `exempt` that the disk's own bursts take, and what the others wait for their
    /// disk's own requests.
    fn waits(
        &self,
        disk: &PromisedDisk<'_>,
        exempt: f64,
        bursts: Bursts,
    ) -> Option<Vec<(f64, f64)>> {
        if bursts == Bursts::None {
            return Some(Vec::from([(0.0, 0.0)]));
        }
        let rate = disk.reservation?;
        let mut waits = Vec::new();
        if let Some(most) = disk.outstanding {
            let each = (disk.largest.as_f64().max(1.0)) / self.largest;
            waits.push((0.0, f64::from(most.get()) * each / self.rate_of(rate)));
        }
        if let Some(meter) = disk.bursts {
            let wait = |&part: &f64| {
                let ahead = meter.ahead(part)?.as_f64() / self.largest;
                Some((part, ahead / self.rate_of(rate)))
            };
            waits.extend(PARTS.iter().filter(|&&part| part < exempt).filter_map(wait));
        }
        if disk.outstanding.is_none() && disk.bursts.is_none() {
            waits.push((0.0, 0.0));
        }
        Some(waits)
    }

    /// The part of the time in which the storage takes longer than `latency` for what it usually
    /// does in less.
    pub(super) fn stalls(&self, latency: f64, storage: &Storage) -> f64 {
        let light = storage.light.as_ref().map(|light| light.beyond(latency));
        // Beside others a request waits for them as well.
        let busiest = storage.busiest();
        let busy = || busiest.map(|busy| busy.beyond(latency.max(4.0 * busy.mean())));
        let seen = light.or_else(busy).unwrap_or(0.0);
        let unseen = self.busy.iter().flat_map(|busy| busy.all.iter().map(|(_, stall)| *stall));
        unseen.fold(seen, f64::max)
    }
}

/// What the time in a window is found by.
#[derive(Clone, Copy, Debug)]
enum By<'a> {
    /// A request alone, and what it waits for the others at the rate of the busy record.
    Light(&'a Truncated),
    /// A request in a window that was at least as wide.
    Busy,
}

/// One window and one choice of what is set apart.
struct Behind<'a> {
    window: f64,
    demand: Demand,
    by: By<'a>,
    busy: &'a Truncated,
    busy_mean: f64,
    /// How much of a window of the busy record the other requests are, and those before a slot.
    rest: f64,
    slot_rest: f64,
    /// The mean time of a window of requests.
    block_mean: f64,
}

impl<'a> Behind<'a> {
    fn new(
        service: &Service,
        window: u32,
        demand: Demand,
        by: By<'a>,
        (record, busy): (&'a Busy, &'a Truncated),
    ) -> Behind<'a> {
        let window = f64::from(window);
        let others = (window - 1.0) * record.gain.max(1.0);
        let rest = (others + service.unasked) / record.in_flight;
        let slot_rest = service.unasked / record.in_flight;
        let block_mean = match by {
            By::Light(light) => light.mean + rest * busy.mean,
            By::Busy => busy.mean,
        };
        Behind { window, demand, by, busy, busy_mean: record.mean, rest, slot_rest, block_mean }
    }

    fn slot_mean(&self) -> f64 {
        match self.by {
            By::Light(light) => light.mean + self.slot_rest * self.busy.mean,
            By::Busy => self.busy.mean,
        }
    }

    /// The part of the requests that meet a time that was set apart, or what is left of one;
    /// `None` where reservations leave no time to catch up.
    fn apart(&self, service: &Service, stall: f64) -> Option<f64> {
        let span = self.slot_mean() + (1.0 + self.demand.ahead / self.window) * self.block_mean;
        // Of the requests of a window of one, all are alone.
        let busy = match (self.by, self.rest) {
            (By::Light(_), 0.0) => 0.0,
            _ => 1.0,
        };
        let mut lost = busy * self.busy.beyond + stall;
        let mut met = busy * self.busy.over * span / self.busy_mean;
        let mut own = 0.0;
        if let By::Light(light) = self.by {
            lost += light.beyond;
            met += light.over * span / service.light_mean;
            own = light.over;
        }
        let left = 1.0 - self.demand.claims * self.block_mean / self.window - lost;
        (left > 0.0).then(|| (lost + met) / left + own)
    }

    /// A window of requests takes so long: the logarithm of the moment generating function.
    fn block(&self, step: usize) -> f64 {
        match self.by {
            By::Light(light) => light.log_mgf[step] + self.rest * self.busy.log_mgf[step],
            By::Busy => self.busy.log_mgf[step],
        }
    }

    /// What is left of a request when another is due, likewise.
    fn slot(&self, step: usize) -> f64 {
        match self.by {
            By::Light(light) => light.log_left[step] + self.slot_rest * self.busy.log_mgf[step],
            By::Busy => self.busy.log_left[step],
        }
    }

    /// Each η that may be taken, and the logarithm of what stands before `e^(-ηx)` in the bound.
    fn exponents(&self, service: &Service) -> Vec<(f64, f64)> {
        let blocks = 1.0 + self.demand.ahead / self.window;
        let steps = service.etas.iter().enumerate();
        let blocks_of = steps.map(|(step, &eta)| (step, eta, self.block(step)));
        // Beyond such an η a backlog of reservations may grow without end.
        let stable =
            |&(_, eta, block): &(usize, f64, f64)| block * self.demand.claims <= eta * self.window;
        let all = |(step, eta, block): (usize, f64, f64)| (eta, self.slot(step) + blocks * block);
        blocks_of.take_while(stable).map(all).collect()
    }
}

/// What no more than `part` wait from when they are due until they are done.
fn least_wait(exponents: &[(f64, f64)], part: f64) -> Option<f64> {
    if part <= 0.0 {
        return None;
    }
    let log_part = libm::log(1.0 / part);
    let waits = exponents.iter().map(|&(eta, exponent)| (exponent + log_part) / eta);
    waits.min_by(f64::total_cmp)
}
