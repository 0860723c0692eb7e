//! Constants of the workload model for a pool: K1 to K4 are common to its devices, and each device
//! has its own K5 (BASIL, section 3.1, equation 1). They come from measurements as operation
//! brings them, so not every factor can be told; those that cannot stay as they are.

use super::fit::FACTORS;
use super::spread::{self, Untold};
use super::{Constants, Fit, Load, Measurement};
use crate::Permille;
use alloc::vec::Vec;
use core::fmt;
use headgate_units::Nanos;
use serde::{Deserialize, Serialize};

/// How far predictions of the model were off: the median over measurements of |predicted -
/// measured| over measured, each device with a K5 of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct PredictionError {
    /// Of the measurements that constants and K5 were fitted to.
    pub fitted: Permille,
    /// Of measurements that were held out: those of the even tenths of the time, by what was fitted
    /// to the odd ones, and the other way round.
    pub held_out: Permille,
}

/// Why fitted constants are no better than those that are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoGain {
    /// The measurements tell of no factor.
    NothingTold,
    /// They predict what was held out no better.
    NoBetter(PredictionError, PredictionError),
}

impl fmt::Display for NoGain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoGain::NothingTold => f.write_str("the intervals tell of no factor"),
            NoGain::NoBetter(before, after) => write!(
                f,
                "on intervals that were held out the fitted constants are off by {}, those that \
                 are by {}",
                after.held_out, before.held_out
            ),
        }
    }
}

/// What came of a fit.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolFit {
    /// K1 to K4: those that cannot be told are the ones before.
    pub constants: Constants,
    /// For each of K1 to K4, how many measurements tell of it, or why it is the one before.
    pub told: [Result<usize, Untold>; 4],
    /// K5 of each device with the new constants, in the order of the devices; `None` where nothing
    /// was measured.
    pub per_millisecond: Vec<Option<Load>>,
    /// With the constants before.
    pub before: PredictionError,
    /// With the new ones.
    pub after: PredictionError,
}

impl PoolFit {
    /// Whether the new constants are to be preferred: something was told, and what was held out is
    /// predicted better by a tenth at least: less is chance.
    ///
    /// # Errors
    /// [`NoGain`] says why not.
    pub fn gain(&self) -> Result<(), NoGain> {
        if self.told.iter().all(Result::is_err) {
            return Err(NoGain::NothingTold);
        }
        let (before, after) = (self.before.held_out.0, self.after.held_out.0);
        if u64::from(after) * 10 > u64::from(before) * 9 {
            return Err(NoGain::NoBetter(self.before, self.after));
        }
        Ok(())
    }
}

/// Measurements of all devices that are fitted to; of more, so many are picked evenly.
const MOST: usize = 20_000;
/// Rounds after which the constants no longer move by what matters.
const ROUNDS: usize = 200;
/// Parts of the time, of which every other one is held out.
const PARTS: usize = 10;

/// Fits K1 to K4 to what was measured on each device of a pool, in the order of time, beginning
/// with the constants that are. As [`fit_by_least_squares`](super::fit_by_least_squares) does, with
/// a scale for each device.
///
/// A factor is fitted if its trait differs on a device by twice as much (outstanding requests,
/// size) or by a quarter of all requests (reads, randomness) between the twentieth and the
/// nineteenth of twenty intervals, of 40 at least, and if the other traits do not explain nine
/// tenths of its variance. O(n log n) for n measurements, of which 20,000 are used.
pub fn fit_pool(now: &Constants, devices: &[Vec<Measurement>]) -> PoolFit {
    let most = MOST / devices.len().max(1);
    let devices: Vec<Vec<Measurement>> =
        devices.iter().map(|measured| usable(measured, most)).collect();
    let told = spread::told(&devices);
    let free: Vec<usize> = (0..4).filter(|&index| told[index].is_ok()).collect();
    let constants = squares(now, &free, &devices);
    let scale = |measured: &Vec<Measurement>| {
        let fit = Fit::with_constants(constants, measured);
        fit.ok().map(|fit| fit.per_millisecond)
    };
    let (mut held_out_before, mut held_out_after) = (Vec::new(), Vec::new());
    for kept in 0..2 {
        let (train, test) = split(&devices, kept);
        held_out_before.extend(errors(now, &train, &test));
        held_out_after.extend(errors(&squares(now, &free, &train), &train, &test));
    }
    let error = |constants: &Constants, held_out: Vec<f64>| PredictionError {
        fitted: median(errors(constants, &devices, &devices)),
        held_out: median(held_out),
    };
    PoolFit {
        constants,
        told,
        per_millisecond: devices.iter().map(scale).collect(),
        before: error(now, held_out_before),
        after: error(&constants, held_out_after),
    }
}

/// Those that have a latency and a load, at most so many.
fn usable(measured: &[Measurement], most: usize) -> Vec<Measurement> {
    let is_usable = |point: &&Measurement| {
        point.latency > Nanos::ZERO && point.profile.outstanding.as_thousandths() > 0
    };
    let usable: Vec<Measurement> = measured.iter().filter(is_usable).copied().collect();
    let step = usable.len().div_ceil(most.max(1)).max(1);
    usable.into_iter().step_by(step).collect()
}

/// The even or the odd parts of the time of each device, and the others.
fn split(
    devices: &[Vec<Measurement>],
    kept: usize,
) -> (Vec<Vec<Measurement>>, Vec<Vec<Measurement>>) {
    let of = |parity: usize| {
        let parts = |measured: &Vec<Measurement>| {
            let length = measured.len().div_ceil(PARTS).max(1);
            let chunks = measured.chunks(length).skip(parity).step_by(2);
            chunks.flatten().copied().collect()
        };
        devices.iter().map(parts).collect()
    };
    (of(kept), of(1 - kept))
}

/// How far predictions are off, with each device's K5 fitted to its part of `train`.
fn errors(
    constants: &Constants,
    train: &[Vec<Measurement>],
    test: &[Vec<Measurement>],
) -> Vec<f64> {
    let mut all = Vec::new();
    for (train, test) in train.iter().zip(test) {
        let Ok(fit) = Fit::with_constants(*constants, train) else { continue };
        all.extend(test.iter().map(|point| {
            let (predicted, measured) = (fit.latency(&point.profile).0, point.latency.0);
            libm::fabs(predicted as f64 / measured as f64 - 1.0)
        }));
    }
    all
}

fn median(mut errors: Vec<f64>) -> Permille {
    if errors.is_empty() {
        return Permille(0);
    }
    let middle = errors.len() / 2;
    let (_, &mut median, _) = errors.select_nth_unstable_by(middle, f64::total_cmp);
    Permille::of_ratio(median)
}

/// A measurement as the sums need it.
struct Point {
    values: [f64; 4],
    /// In milliseconds.
    latency: f64,
    /// Of its error: each squared error counts in relation to the latency.
    weight: f64,
}

/// The constants with the least sum of squared errors over latencies. Those that are not `free`
/// stay.
fn squares(now: &Constants, free: &[usize], devices: &[Vec<Measurement>]) -> Constants {
    let point = |point: &Measurement| {
        let latency = point.latency.0 as f64 / 1e6;
        let values = core::array::from_fn(|index| (FACTORS[index].value)(&point.profile));
        Point { values, latency, weight: 1.0 / libm::sqrt(latency) }
    };
    let devices: Vec<Vec<Point>> =
        devices.iter().map(|measured| measured.iter().map(point).collect()).collect();
    let mut k: [f64; 4] = core::array::from_fn(|index| (FACTORS[index].get)(now));
    for _ in 0..ROUNDS {
        let before = k;
        for &index in free {
            let scales: Vec<f64> = devices.iter().map(|points| scale(&k, points)).collect();
            k[index] = best(index, &k, &devices, &scales);
        }
        let still = |(old, new): (&f64, &f64)| libm::fabs(new - old) <= 1e-7 * (1.0 + old);
        if before.iter().zip(&k).all(still) {
            break;
        }
    }
    let mut constants = *now;
    for &index in free {
        (FACTORS[index].set)(&mut constants, k[index]);
    }
    constants
}

/// The scale of a device, 1/K5, with the least squares.
fn scale(k: &[f64; 4], points: &[Point]) -> f64 {
    let (mut of_load, mut of_latency) = (0.0, 0.0);
    for point in points {
        let load: f64 = k.iter().zip(point.values).map(|(k, value)| k + value).product();
        let load = load * point.weight;
        of_load += load * load;
        of_latency += load * point.latency * point.weight;
    }
    if of_load > 0.0 { of_latency / of_load } else { 0.0 }
}

/// The constant of one factor with the least squares, all else held: the model is linear in the
/// factor, α·rest + β·x·rest, and K is α/β.
fn best(index: usize, k: &[f64; 4], devices: &[Vec<Point>], scales: &[f64]) -> f64 {
    let (mut uu, mut uv, mut vv, mut u1, mut v1) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for (points, scale) in devices.iter().zip(scales) {
        for point in points {
            let others = (0..4).filter(|&other| other != index);
            let rest: f64 = others.map(|other| k[other] + point.values[other]).product();
            let u = rest * scale * point.weight;
            let (v, latency) = (u * point.values[index], point.latency * point.weight);
            uu += u * u;
            uv += u * v;
            vv += v * v;
            u1 += u * latency;
            v1 += v * latency;
        }
    }
    // Cramer's rule; the determinant is common and positive.
    let (alpha, beta) = (u1 * vv - v1 * uv, uu * v1 - uv * u1);
    let flat = FACTORS[index].flat;
    match alpha / beta {
        value if beta > 0.0 && value.is_finite() => value.clamp(0.0, flat),
        _ => flat,
    }
}

#[cfg(test)]
#[path = "pooled_tests.rs"]
mod tests;
