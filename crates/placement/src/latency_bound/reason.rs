//! The verdict: what the bound is compared with, and why it is not met.

use super::bound::{Bursts, Demand, Service, Sum};
use super::exempt;
use super::input::{PromisedDisk, Storage};
use super::record::ServiceRecord;
use super::verdict::{Arrivals, Missing, Parts, Promise, Refusal, Verdict, Why};
use super::work::Work;
use alloc::vec::Vec;
use core::num::NonZeroU32;
use headgate_units::{Iops, LatencyTarget, Nanos};

/// Requests that a record needs for each that the target exempts.
const EVIDENCE: u64 = 50;
/// The widest window that is tried.
const WIDEST: u32 = 1_024;
/// Reservations that are tried, each an eighth above the one before.
const RESERVATIONS: u32 = 64;

/// Whether the target of the disk at `index` can be promised beside the others of `disks`, all that
/// are on the datastore. Targets of others that are kept without it are kept with it too.
pub fn judge(storage: &Storage, disks: &[PromisedDisk<'_>], index: usize) -> Verdict {
    let Some((disk, target)) = disks.get(index).and_then(|disk| Some((disk, disk.target?))) else {
        return Verdict::Unknown(Missing::Target);
    };
    let question = match Question::new(storage, disks, index, target) {
        Ok(question) => question,
        Err(missing) => return Verdict::Unknown(missing),
    };
    let latency = target.latency().0 as f64;
    // A disk that waits for its requests sends few of them while the storage is slow, so how many
    // of its requests would take longer is known only where all do.
    let part = match (disk.bursts, disk.outstanding) {
        (Some(_), None) => Some(exempt(target)),
        _ => None,
    };
    let impossible = storage.light.as_ref().filter(|light| light.always_over(latency, part));
    if let Some(light) = impossible {
        let alone = Nanos(light.surely_over(exempt(target)) as u64);
        let nearest = question.nearest(Bursts::AsRecorded);
        let why = Why::Storage { alone };
        return Verdict::Impossible(Refusal { target, why, nearest, reservation: None });
    }
    if disk.reservation.is_none() {
        let reservation = question.reservation();
        let why = Why::NoReservation;
        return Verdict::Unlikely(Refusal { target, why, nearest: None, reservation });
    }
    let kept: Vec<u32> = question.windows().filter(|&at| question.meets(at)).collect();
    let mut allowed = kept.clone();
    for (other, other_target) in question.others() {
        let Some(rival) = Question::before(storage, disks, index, other, other_target) else {
            continue;
        };
        let before = allowed.clone();
        allowed.retain(|&window| rival.meets(window));
        if !before.is_empty() && allowed.is_empty() {
            let why = Why::Target { disk: other };
            let nearest = question.nearest(Bursts::AsRecorded);
            return Verdict::Unlikely(Refusal { target, why, nearest, reservation: None });
        }
    }
    match allowed.last().and_then(|&window| question.promise(window)) {
        Some(promise) => Verdict::Kept(promise),
        None => Verdict::Unlikely(question.refusal()),
    }
}

/// One disk, and what its bound is found from.
struct Question<'a> {
    storage: &'a Storage,
    disk: &'a PromisedDisk<'a>,
    disks: &'a [PromisedDisk<'a>],
    index: usize,
    target: LatencyTarget,
    service: Service,
    demand: Demand,
}

impl<'a> Question<'a> {
    fn new(
        storage: &'a Storage,
        disks: &'a [PromisedDisk<'a>],
        index: usize,
        target: LatencyTarget,
    ) -> Result<Question<'a>, Missing> {
        let disk = disks.get(index).ok_or(Missing::Target)?;
        let largest = disks.iter().map(|disk| disk.largest).max().unwrap_or(Work::ONE);
        let need = EVIDENCE * 1_000 / u64::from(1_000 - target.quantile());
        let records = storage.light.iter().chain(&storage.busy);
        let have = records.map(ServiceRecord::requests).min();
        match have {
            None => return Err(Missing::Times),
            Some(have) if have < need => return Err(Missing::Requests { have, need }),
            Some(_) => {}
        }
        if let (Some(meter), None) = (disk.bursts, disk.outstanding)
            && meter.requests() < need
        {
            return Err(Missing::Arrivals { have: meter.requests(), need });
        }
        let service = Service::new(storage, largest, exempt(target)).ok_or(Missing::Times)?;
        let demand = service.demand(storage, disks, index);
        Ok(Question { storage, disk, disks, index, target, service, demand })
    }

    /// The question of another disk's target, if it is kept without the disk at `newcomer`.
    fn before(
        storage: &'a Storage,
        disks: &'a [PromisedDisk<'a>],
        newcomer: usize,
        index: usize,
        target: LatencyTarget,
    ) -> Option<Question<'a>> {
        let question = Question::new(storage, disks, index, target).ok()?;
        let rest: Vec<PromisedDisk<'_>> = disks
            .iter()
            .enumerate()
            .filter(|&(at, _)| at != newcomer)
            .map(|(_, disk)| *disk)
            .collect();
        let place = index - usize::from(index > newcomer);
        let alone = Question::new(storage, &rest, place, target).ok()?;
        alone.windows().any(|window| alone.meets(window)).then_some(question)
    }

    fn reservations(&self) -> impl Iterator<Item = Iops> {
        self.disks.iter().filter_map(|disk| disk.reservation)
    }

    fn others(&self) -> impl Iterator<Item = (usize, LatencyTarget)> {
        let others = self.disks.iter().enumerate().filter(|&(at, _)| at != self.index);
        others.filter_map(|(at, disk)| Some((at, disk.target?)))
    }

    /// The windows that there may be, ascending. None where reservations exceed what the storage
    /// is known to sustain.
    fn windows(&self) -> impl Iterator<Item = u32> + use<> {
        let windows = self.all_windows();
        let fits = fits(self.storage, self.reservations());
        windows.filter(move |_| fits)
    }

    fn all_windows(&self) -> impl Iterator<Item = u32> + use<> {
        let least = self.storage.least_window.get().min(self.storage.window.get());
        least..=self.storage.window.get().min(WIDEST.max(least))
    }

    fn keeps(&self, sum: &Sum) -> bool {
        libm::ceil(sum.bound) <= self.target.latency().0 as f64
    }

    fn at(&self, window: u32) -> Option<Sum> {
        let exempt = exempt(self.target);
        self.service.bound(window, self.demand, self.disk, exempt, Bursts::AsRecorded)
    }

    fn meets(&self, window: u32) -> bool {
        self.at(window).is_some_and(|sum| self.keeps(&sum))
    }

    /// The least bound over all windows with another demand.
    fn least(&self, demand: Demand, bursts: Bursts) -> Option<Sum> {
        let exempt = exempt(self.target);
        self.windows()
            .filter_map(|window| self.service.bound(window, demand, self.disk, exempt, bursts))
            .min_by(|a, b| a.bound.total_cmp(&b.bound))
    }

    fn nearest(&self, bursts: Bursts) -> Option<LatencyTarget> {
        let sum = self.least(self.demand, bursts)?;
        // Targets are in whole microseconds, 10 at least; of more than a minute there are none.
        let micros = nanos(libm::ceil(sum.bound)).0.div_ceil(1_000);
        let latency = Nanos::from_micros(micros).max(LatencyTarget::MIN);
        LatencyTarget::new(self.target.quantile(), latency).ok()
    }

    fn promise(&self, window: u32) -> Option<Promise> {
        let sum = self.at(window)?;
        let known = self.disk.bursts.is_some() || self.disk.outstanding.is_some();
        let left = self.target.latency().0 as f64 - sum.bound + sum.burst;
        let rate = self.disk.reservation?.get() as f64;
        Some(Promise {
            target: self.target,
            bound: nanos(libm::ceil(sum.bound)),
            window: NonZeroU32::new(window)?,
            parts: Parts {
                burst: nanos(sum.burst),
                others: nanos(sum.ahead),
                window: nanos(sum.window),
                variation: nanos(sum.bound - sum.burst - sum.ahead - sum.window),
            },
            room: Work::of(left * rate / 1e9),
            arrivals: if known { Arrivals::Recorded } else { Arrivals::Assumed },
        })
    }

    /// The least reservation that keeps the target, from the disk's own on.
    fn reservation(&self) -> Option<Iops> {
        let mut asked = self.disk.reservation.map_or(1, |rate| rate.get().saturating_add(1));
        for _ in 0..RESERVATIONS {
            let reservation = Iops::new(asked).ok()?;
            let mut disks = self.disks.to_vec();
            disks.get_mut(self.index)?.reservation = Some(reservation);
            let demand = self.service.demand(self.storage, &disks, self.index);
            let reserved = disks.iter().filter_map(|disk| disk.reservation);
            if !fits(self.storage, reserved) {
                return None;
            }
            let disk = disks.get(self.index)?;
            let keeps = |window| {
                let exempt = exempt(self.target);
                let sum = self.service.bound(window, demand, disk, exempt, Bursts::AsRecorded);
                sum.is_some_and(|sum| self.keeps(&sum))
            };
            if self.all_windows().any(keeps) {
                return Some(reservation);
            }
            asked = asked.saturating_add(asked / 8).saturating_add(1);
        }
        None
    }

    /// Why the target is not kept: the first thing without which it would be, from the storage on.
    fn refusal(&self) -> Refusal {
        let nearest = self.nearest(Bursts::AsRecorded);
        let (why, reservation) = self.why();
        Refusal { target: self.target, why, nearest, reservation }
    }

    fn why(&self) -> (Why, Option<Iops>) {
        let keeps = |sum: &Sum| self.keeps(sum);
        let own = self.disk.reservation.map_or(0.0, |rate| rate.get() as f64);
        let part = own / reserved(self.storage, self.reservations()).max(1.0);
        let alone = Demand { ahead: 0.0, claims: self.demand.claims * part };
        let bare = self.least(alone, Bursts::None);
        let Some(busy) = self.storage.busiest() else {
            return (Why::NoReservation, None);
        };
        if !fits(self.storage, self.reservations()) {
            return (self.no_slack(bare, busy), None);
        }
        if bare.is_none_or(|sum| !keeps(&sum)) {
            return (self.alone(bare, busy), None);
        }
        if self.least(self.demand, Bursts::None).is_some_and(|sum| keeps(&sum)) {
            let wait = self.least(self.demand, Bursts::AsRecorded).map_or(0.0, |sum| sum.burst);
            return (Why::Burst { wait: nanos(wait) }, self.reservation());
        }
        let first = Demand { ahead: 0.0, ..self.demand };
        if self.least(first, Bursts::None).is_none_or(|sum| !keeps(&sum)) {
            return (self.no_slack(bare, busy), None);
        }
        let ahead = self.least(self.demand, Bursts::None).map_or(0.0, |sum| sum.ahead);
        let punctual: Vec<PromisedDisk<'_>> =
            self.disks.iter().map(|disk| PromisedDisk { late: Nanos::ZERO, ..*disk }).collect();
        let punctual = self.service.demand(self.storage, &punctual, self.index);
        if self.least(punctual, Bursts::None).is_some_and(|sum| keeps(&sum)) {
            return (Why::Late { wait: nanos(ahead) }, None);
        }
        (Why::Others { wait: nanos(ahead) }, None)
    }

    /// Why the target is not kept even with nobody else there.
    fn alone(&self, bare: Option<Sum>, busy: &ServiceRecord) -> Why {
        let (latency, exempt) = (self.target.latency().0 as f64, exempt(self.target));
        let light = self.storage.light.as_ref().unwrap_or(busy);
        let alone = light.exceeded_by(exempt).unwrap_or(light.longest());
        if self.storage.light.is_some() && alone > latency {
            return Why::Storage { alone: nanos(alone) };
        }
        let stalled = self.service.stalls(latency, self.storage);
        if stalled > exempt {
            let longest = nanos(light.longest().max(busy.longest()));
            let longest = longest.max(self.storage.longest_stall);
            let millionths = |part: f64| (part * 1e6) as u32;
            return Why::Stalls { part: millionths(stalled), exempt: millionths(exempt), longest };
        }
        match bare {
            Some(sum) => Why::Window { least: sum.in_flight, wait: nanos(sum.bound) },
            None => self.no_slack(bare, busy),
        }
    }

    /// The storage gives too little behind the window that would be the best for the disk alone.
    fn no_slack(&self, bare: Option<Sum>, busy: &ServiceRecord) -> Why {
        let seen = busy.in_flight() * busy.work() / busy.mean() * 1e9;
        let (gives, window) =
            bare.map_or((seen, busy.in_flight() as u32), |sum| (sum.rate, sum.in_flight));
        let rate = self.storage.rate.map_or(gives, |rate| gives.min(rate.get() as f64)) as u64;
        let reserved = libm::ceil(reserved(self.storage, self.reservations())) as u64;
        Why::NoSlack { reserved, rate, window }
    }
}

/// A cast saturates, and takes what is not a number for zero.
fn nanos(time: f64) -> Nanos {
    Nanos(time as u64)
}

/// What these reservations and the floor take in reference IOs per second.
fn reserved(storage: &Storage, rates: impl Iterator<Item = Iops>) -> f64 {
    let floor = 1.0 + storage.floor.map_or(0.0, |n| 1.0 / f64::from(n.get()));
    floor * rates.map(|rate| rate.get() as f64).sum::<f64>()
}

fn fits(storage: &Storage, rates: impl Iterator<Item = Iops>) -> bool {
    storage.rate.is_none_or(|rate| reserved(storage, rates) <= rate.get() as f64)
}
