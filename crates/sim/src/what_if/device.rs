//! A device that takes as long as a datastore did.

use super::record::LoadRecord;
use headgate_placement::{DeviceModel, Evidence, Outstanding};
use headgate_units::Nanos;

/// How latency follows what is in flight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Curve {
    /// The line that was learnt for placement.
    Learnt(DeviceModel),
    /// Nothing was learnt: what the record itself shows. Storage with many requests in flight, or
    /// for which requests waited, is taken to do no more than it did, and the fewer are in flight
    /// the sooner each is done; other storage to take as long whatever is added.
    Recorded,
}

/// A curve with what the record shows of it, in nanoseconds over requests in flight.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape {
    Line(DeviceModel),
    /// As many per second whatever is in flight.
    Proportional {
        load: f64,
        time: f64,
        /// With more in flight each takes longer.
        rises: bool,
    },
}

/// Requests that waited for this part of their time at least show a storage that does what it can.
const BUSY: f64 = 0.05;
/// So do so many in flight.
const MANY: f64 = 4.0;

impl Shape {
    pub(super) fn of(record: &LoadRecord) -> Shape {
        let (load, time) = record.at_device_all().unwrap_or((1.0, 1e6));
        match record.device.curve {
            // Any other evidence says nothing of less load than there was.
            Curve::Learnt(model) if model.evidence == Evidence::Rise => Shape::Line(model),
            _ => Shape::Proportional {
                load: load.max(1.0),
                time,
                rises: record.queued_part() >= BUSY || load >= MANY,
            },
        }
    }

    /// The mean time of a request with so many in flight, in nanoseconds.
    pub(super) fn at(&self, in_flight: f64) -> f64 {
        let time = match *self {
            // A line with a knee crosses zero right of the origin, and left of the knee more would
            // be served than it ever can.
            Shape::Line(ref model) => {
                let saturated = in_flight * model.slope.as_picos() as f64 / 1e3;
                (model.latency(Outstanding::of(in_flight)).0 as f64).max(saturated)
            }
            Shape::Proportional { load, time, rises } => {
                let most = if rises { f64::INFINITY } else { time };
                (time * in_flight.max(1.0) / load).min(most)
            }
        };
        time.max(1.0)
    }
}

/// How times at the device are distributed: quantiles, relative to their mean.
#[derive(Clone, Debug, PartialEq)]
pub struct Spread(Vec<f64>);

impl Spread {
    /// How many quantiles are asked for: those of (2i + 1)/2n.
    pub const QUANTILES: u32 = 250;

    /// By what `quantile` says of a thousandth: the time that so many thousandths did not exceed.
    /// `None` when it knows of nothing.
    pub fn by(quantile: impl Fn(u32) -> Option<Nanos>) -> Option<Spread> {
        let step = 1_000 / Spread::QUANTILES;
        let times: Option<Vec<f64>> = (0..Spread::QUANTILES)
            .map(|n| Some(quantile(n * step + step / 2)?.0.max(1) as f64))
            .collect();
        Some(Spread(times?).normalised())
    }

    /// None: every request takes as long.
    pub fn none() -> Spread {
        Spread(vec![1.0])
    }

    /// The same spread, weaker or stronger: each quantile to the power of `strength`.
    pub(super) fn raised(&self, strength: f64) -> Spread {
        Spread(self.0.iter().map(|time| libm::pow(*time, strength)).collect()).normalised()
    }

    fn normalised(mut self) -> Spread {
        // Quantiles come in order from histograms; a curve that is none must not draw backwards.
        self.0.sort_by(f64::total_cmp);
        let mean = self.0.iter().sum::<f64>() / self.0.len().max(1) as f64;
        self.0.iter_mut().for_each(|time| *time /= mean.max(f64::MIN_POSITIVE));
        self
    }

    /// The time at `part` of the distribution, 0 to 1, as a multiple of the mean.
    #[inline]
    pub(super) fn at(&self, part: f64) -> f64 {
        let place = part * self.0.len() as f64 - 0.5;
        let low = place.max(0.0) as usize;
        let between = (place - low as f64).clamp(0.0, 1.0);
        let of = |index: usize| self.0.get(index).or(self.0.last()).copied().unwrap_or(1.0);
        of(low) + (of(low + 1) - of(low)) * between
    }
}

/// What is known of a datastore's storage.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceRecord {
    /// How latency follows what is in flight.
    pub curve: Curve,
    /// How times at the device were distributed around that time.
    pub spread: Spread,
}

/// A device as a run has it.
#[derive(Clone, Debug)]
pub(super) struct Device {
    pub(super) shape: Shape,
    pub(super) spread: Spread,
    /// By how much each period's times are above the curve.
    pub(super) scales: Vec<f64>,
    /// By how much each disk's are above those of all.
    pub(super) factors: Vec<f64>,
    /// What a request costs the scheduler on average, in millionths of a reference IO: work in
    /// flight is counted in such requests.
    pub(super) mean_cost: f64,
}

impl Device {
    /// By the record alone.
    pub(super) fn of(record: &LoadRecord) -> Device {
        let shape = Shape::of(record);
        let scale = |(load, time): (f64, f64)| time / shape.at(load);
        let usual = record.at_device_all();
        let scales = (0..record.periods.len())
            .map(|period| record.at_device(period).or(usual).map_or(1.0, scale))
            .collect();
        let (_, all) = usual.unwrap_or((0.0, 1.0));
        let factor = |time: Option<f64>| time.map_or(1.0, |time| (time / all).clamp(0.01, 100.0));
        let factors = record.disks.iter().map(|disk| factor(disk.device_time())).collect();
        Device { shape, spread: record.device.spread.clone(), scales, factors, mean_cost: 1e6 }
    }

    /// How long a request of a disk takes that is dispatched with so much work in flight, its own
    /// among it, where `part` of all take less.
    #[inline]
    pub(super) fn time(&self, period: usize, disk: usize, work: f64, part: f64) -> Nanos {
        let scale = self.scales.get(period).copied().unwrap_or(1.0);
        let factor = self.factors.get(disk).copied().unwrap_or(1.0);
        let mean = scale * factor * self.shape.at(work / self.mean_cost);
        Nanos(((mean * self.spread.at(part)) as u64).clamp(1, Nanos::from_secs(100).0))
    }
}
