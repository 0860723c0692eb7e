//! Constants of the workload model from measurements.
//!
//! Two ways: the published one, pair by pair, which wants measurements that differ in one trait
//! only; and least squares over all traits at once, for measurements as they come. There each
//! squared error counts in relation to the latency: with absolute errors, the slowest measurements
//! would be all that matters, with relative ones the fastest, which are writes into a cache.

use super::{Constants, Load, Outstanding, WorkloadProfile};
use crate::{Held, Permille};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use headgate_stats::{Flow, Interval};
use headgate_units::{Bytes, Nanos};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// One point: a workload, and how long its requests took.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measurement {
    /// What it did.
    pub profile: WorkloadProfile,
    /// Mean latency of its requests.
    pub latency: Nanos,
}

/// Fewer requests in an interval have a mean that is chance.
const LEAST_REQUESTS: f64 = 10.0;

impl Measurement {
    /// What an interval tells in which a workload was alone on its device; `None` where its mean is
    /// chance or not the device's: with fewer than 10 reads and writes, with errors, and where
    /// requests waited for something of ours.
    pub fn of(interval: &Interval, held: Held) -> Option<Measurement> {
        let flows = [&interval.reads, &interval.writes];
        let rate: f64 = flows.iter().map(|flow| flow.iops).sum();
        let requests = rate * interval.length.as_secs_f64();
        if held != Held::No || interval.errors > 0 || requests < LEAST_REQUESTS {
            return None;
        }
        let taken = |flow: &Flow| flow.iops * flow.total.map_or(0.0, |t| t.mean.as_secs_f64());
        let latency = flows.into_iter().map(taken).sum::<f64>() / rate;
        let profile = WorkloadProfile::of(interval, held)?;
        Some(Measurement { profile, latency: Nanos(libm::round(latency * 1e9) as u64) })
    }
}

/// The workload model of a device: K1 to K4, and K5.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fit {
    /// K1 to K4.
    pub constants: Constants,
    /// K5: the load whose requests take a millisecond. Twice the disks, twice as much.
    pub per_millisecond: Load,
}

impl Fit {
    /// Equation 1: how long requests of such a workload take. Saturates.
    pub fn latency(&self, profile: &WorkloadProfile) -> Nanos {
        let load = u128::from(self.constants.load(profile).0);
        let nanos = load * 1_000_000 / u128::from(self.per_millisecond.0.max(1));
        Nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// The same K1 to K4 on a device of which there are these measurements: K5 is the median of
    /// load over latency, so that half of the predictions are too high and half too low.
    /// O(measurements).
    ///
    /// # Errors
    /// [`FitError::TooFew`] when none has a latency and a load.
    pub fn with_constants(constants: Constants, measured: &[Measurement]) -> Result<Fit, FitError> {
        let busy = measured.iter().filter(|point| point.latency > Nanos::ZERO);
        let loads = busy.map(|point| (constants.load(&point.profile).0, point.latency.0));
        let mut rates: Vec<f64> = loads
            .filter(|&(load, _)| load > 0)
            .map(|(load, latency)| load as f64 / (latency as f64 / 1e6))
            .collect();
        if rates.is_empty() {
            return Err(FitError::TooFew { about: "load", have: 0, need: 1 });
        }
        let middle = rates.len() / 2;
        let (_, &mut median, _) = rates.select_nth_unstable_by(middle, f64::total_cmp);
        Ok(Fit { constants, per_millisecond: Load((libm::round(median) as u64).max(1)) })
    }
}

/// Why there are no constants.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FitError {
    /// Not enough to go by.
    #[error(
        "{have} measurements tell of {about}, {need} are needed: measure more values of it with all else equal"
    )]
    TooFew {
        /// The trait.
        about: &'static str,
        /// What there is.
        have: usize,
        /// What there must be.
        need: usize,
    },
}

/// Pairs for a trait below which its constant is chance.
const PAIRS: usize = 3;
/// Measurements alike in three traits, of which all pairs are taken; of more, so many are picked
/// evenly.
const ALIKE: usize = 64;

/// One of the four factors of equation 1.
pub(super) struct Factor {
    pub about: &'static str,
    /// The trait in its unit.
    pub value: fn(&WorkloadProfile) -> f64,
    /// The other three.
    others: fn(&WorkloadProfile) -> (u64, u64, u64),
    /// A constant that says that the trait does not matter.
    pub flat: f64,
    /// The constant in the unit of the trait.
    pub get: fn(&Constants) -> f64,
    pub set: fn(&mut Constants, f64),
}

pub(super) const FACTORS: [Factor; 4] = [
    Factor {
        about: "outstanding requests",
        value: |t| t.outstanding.as_f64(),
        others: |t| (t.size.0, t.read.0.into(), t.random.0.into()),
        flat: 1e4,
        get: |k| k.outstanding.as_f64(),
        set: |k, value| k.outstanding = Outstanding::of(value),
    },
    Factor {
        about: "request size",
        value: |t| t.size.0 as f64 / 1_024.0,
        others: |t| (t.outstanding.as_thousandths().into(), t.read.0.into(), t.random.0.into()),
        flat: 1e6,
        get: |k| k.size.0 as f64 / 1_024.0,
        set: |k, value| k.size = Bytes((value * 1_024.0) as u64),
    },
    Factor {
        about: "reads",
        value: |t| t.read.as_f64(),
        others: |t| (t.outstanding.as_thousandths().into(), t.size.0, t.random.0.into()),
        flat: 1e2,
        get: |k| k.read.as_f64(),
        set: |k, value| k.read = Permille::of_ratio(value),
    },
    Factor {
        about: "randomness",
        value: |t| t.random.as_f64(),
        others: |t| (t.outstanding.as_thousandths().into(), t.size.0, t.read.0.into()),
        flat: 1e2,
        get: |k| k.random.as_f64(),
        set: |k, value| k.random = Permille::of_ratio(value),
    },
];

/// K1 to K4 by the median over all pairs of measurements that differ in one trait only (equations 2
/// and 3), then K5.
///
/// Where latency does not grow with the trait, equation 3 has no positive solution. Such a pair is
/// not dropped, which would leave only those that say otherwise: it counts as an infinite constant,
/// and one that grows faster than in proportion as zero. A median without end becomes a constant so
/// large that the trait does not matter: reads on an array whose writes are as slow. O(n log n) for
/// n measurements, with 64 of those that are alike.
///
/// # Errors
/// [`FitError::TooFew`] names the trait that has fewer than three pairs.
pub fn fit_by_pairs(measured: &[Measurement]) -> Result<Fit, FitError> {
    let mut constants = Constants::default();
    for factor in &FACTORS {
        let mut alike: BTreeMap<(u64, u64, u64), Vec<(f64, f64)>> = BTreeMap::new();
        for point in measured.iter().filter(|point| point.latency > Nanos::ZERO) {
            let of = (factor.value)(&point.profile);
            alike
                .entry((factor.others)(&point.profile))
                .or_default()
                .push((of, point.latency.0 as f64));
        }
        let mut solutions = Vec::new();
        for points in alike.values() {
            let step = points.len().div_ceil(ALIKE);
            let picked: Vec<(f64, f64)> = points.iter().copied().step_by(step).collect();
            for (i, &first) in picked.iter().enumerate() {
                solutions.extend(picked[i + 1..].iter().filter_map(|&second| solve(first, second)));
            }
        }
        if solutions.len() < PAIRS {
            let have = solutions.len();
            return Err(FitError::TooFew { about: factor.about, have, need: PAIRS });
        }
        let middle = solutions.len() / 2;
        let (_, &mut median, _) = solutions.select_nth_unstable_by(middle, f64::total_cmp);
        (factor.set)(&mut constants, median.min(factor.flat));
    }
    Fit::with_constants(constants, measured)
}

/// The K for which (K + x1) / (K + x2) = L1 / L2, held to zero and infinity; `None` when the trait
/// is the same.
fn solve(first: (f64, f64), second: (f64, f64)) -> Option<f64> {
    let ((large, slow), (small, fast)) =
        if first.0 > second.0 { (first, second) } else { (second, first) };
    if large <= small {
        return None;
    }
    let ratio = slow / fast;
    if ratio <= 1.0 {
        return Some(f64::INFINITY);
    }
    Some(((large - small * ratio) / (ratio - 1.0)).max(0.0))
}

/// Rounds after which the constants no longer move by what matters.
const ROUNDS: usize = 60;

/// K1 to K4 with the least sum of squared errors over latencies, one factor after the other: with
/// three held, the model is linear in the fourth, α·rest + β·x·rest, and K is α/β. Then K5. No
/// measurements need be alike. O(measurements).
///
/// # Errors
/// [`FitError::TooFew`] names a trait of which fewer than two values occur, or says that there are
/// fewer than eight measurements.
pub fn fit_by_least_squares(measured: &[Measurement]) -> Result<Fit, FitError> {
    let points: Vec<&Measurement> =
        measured.iter().filter(|point| point.latency > Nanos::ZERO).collect();
    if points.len() < 8 {
        return Err(FitError::TooFew { about: "a workload", have: points.len(), need: 8 });
    }
    for factor in &FACTORS {
        let first = (factor.value)(&points[0].profile);
        if points.iter().all(|point| (factor.value)(&point.profile) == first) {
            return Err(FitError::TooFew { about: factor.about, have: 1, need: 2 });
        }
    }
    let mut k = [1.3, 51.0, 1.4, 0.7];
    for _ in 0..ROUNDS {
        for (index, factor) in FACTORS.iter().enumerate() {
            let (mut uu, mut uv, mut vv, mut u1, mut v1) = (0.0, 0.0, 0.0, 0.0, 0.0);
            for point in &points {
                let latency = point.latency.0 as f64 / 1e6;
                let weight = 1.0 / libm::sqrt(latency);
                let mut rest = weight;
                for (other, factor) in
                    FACTORS.iter().enumerate().filter(|&(other, _)| other != index)
                {
                    rest *= k[other] + (factor.value)(&point.profile);
                }
                let (u, v) = (rest, rest * (factor.value)(&point.profile));
                uu += u * u;
                uv += u * v;
                vv += v * v;
                u1 += u * latency * weight;
                v1 += v * latency * weight;
            }
            // Cramer's rule for α·uu + β·uv = u1, α·uv + β·vv = v1; the determinant is common and
            // positive.
            let (alpha, beta) = (u1 * vv - v1 * uv, uu * v1 - uv * u1);
            k[index] = match alpha / beta {
                value if beta > 0.0 && value.is_finite() => value.clamp(0.0, factor.flat),
                _ => factor.flat,
            };
        }
    }
    let mut constants = Constants::default();
    FACTORS.iter().zip(k).for_each(|(factor, value)| (factor.set)(&mut constants, value));
    Fit::with_constants(constants, measured)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Whatever numbers there are: also those that nothing measures.
    pub(in crate::workload) fn any_measurement() -> impl Strategy<Value = Measurement> {
        any::<(u32, u64, u32, u32, u64)>().prop_map(|(outstanding, size, read, random, latency)| {
            Measurement {
                profile: WorkloadProfile {
                    outstanding: Outstanding::from_thousandths(outstanding),
                    size: Bytes(size),
                    read: Permille(read),
                    random: Permille(random),
                },
                latency: Nanos(latency),
            }
        })
    }

    fn grid(latency: impl Fn(&WorkloadProfile) -> f64) -> Vec<Measurement> {
        let mut points = Vec::new();
        for outstanding in [4, 8, 16, 32, 64] {
            for size in [8, 16, 32, 128, 256, 512] {
                for read in [0, 250, 500, 750, 1_000] {
                    for random in [0, 250, 500, 750, 1_000] {
                        let profile = WorkloadProfile {
                            outstanding: Outstanding::whole(outstanding),
                            size: Bytes::from_kib(size),
                            read: Permille(read),
                            random: Permille(random),
                        };
                        points.push(Measurement {
                            profile,
                            latency: Nanos(latency(&profile) as u64),
                        });
                    }
                }
            }
        }
        points
    }

    fn near(got: f64, wanted: f64) -> bool {
        (got - wanted).abs() <= 0.02 * wanted + 2e-3
    }

    proptest! {
        /// Both ways find the constants that made the measurements.
        #[test]
        fn known_constants_are_found(
            outstanding in 100u32..5_000, size in 1u64..200, read in 100u32..5_000, random in 100u32..5_000,
            scale in 1_000u64..1_000_000,
        ) {
            let constants = Constants {
                outstanding: Outstanding::from_thousandths(outstanding),
                size: Bytes::from_kib(size),
                read: Permille(read),
                random: Permille(random),
            };
            let truth = Fit { constants, per_millisecond: Load(scale) };
            let points = grid(|profile| truth.latency(profile).0 as f64);
            prop_assert_eq!(points.len(), 750);
            for fit in [fit_by_pairs(&points).unwrap(), fit_by_least_squares(&points).unwrap()] {
                let got = fit.constants;
                prop_assert!(near(got.outstanding.as_f64(), constants.outstanding.as_f64()), "{fit:?} {truth:?}");
                prop_assert!(near(got.size.0 as f64, constants.size.0 as f64), "{fit:?} {truth:?}");
                prop_assert!(near(got.read.as_f64(), constants.read.as_f64()), "{fit:?} {truth:?}");
                prop_assert!(near(got.random.as_f64(), constants.random.as_f64()), "{fit:?} {truth:?}");
                prop_assert!(near(fit.per_millisecond.0 as f64, scale as f64), "{fit:?} {truth:?}");
            }
        }

        #[test]
        fn any_measurements_are_survived(
            points in prop::collection::vec(any_measurement(), 0..40),
        ) {
            for fit in [fit_by_pairs(&points), fit_by_least_squares(&points)].into_iter().flatten() {
                prop_assert!(fit.per_millisecond > Load::ZERO);
            }
        }
    }

    #[test]
    fn traits_that_do_not_matter_get_large_constants() {
        // Writes as slow as reads, or slower; a third of the measurements with an error of a tenth
        // either way.
        for against in [0.0, 0.2] {
            let points = grid(|t| {
                let noise =
                    [1.0, 0.9, 1.1][(t.size.0 as usize / 8_192 + t.random.0 as usize / 250) % 3];
                (1.3 + t.outstanding.as_f64()) * (1.0 - against * t.read.as_f64()) * noise * 1e6
            });
            for fit in [fit_by_pairs(&points).unwrap(), fit_by_least_squares(&points).unwrap()] {
                assert!(fit.constants.read >= Permille(20_000), "{fit:?}");
                assert!(near(fit.constants.outstanding.as_f64(), 1.3), "{fit:?}");
            }
        }
    }

    #[test]
    fn what_was_not_varied_is_named() {
        let mut points = grid(|t| t.outstanding.as_f64() * 1e6);
        points.retain(|point| point.profile.read == Permille(1_000));
        for error in [fit_by_pairs(&points), fit_by_least_squares(&points)] {
            let text = error.unwrap_err().to_string();
            assert!(text.contains("tell of reads"), "{text}");
        }
        assert!(fit_by_pairs(&[]).is_err() && fit_by_least_squares(&[]).is_err());
    }
}
