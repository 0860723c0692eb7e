//! How the service times of a device vary.

use crate::rng::SplitMix64;
use core::fmt;

/// What the times between two completions of a busy device are drawn from. Their mean is 1/rate for
/// each of them.
///
/// | text | times | squared coefficient of variation |
/// |---|---|---|
/// | `constant` | all alike | 0 |
/// | `exponential` | exponential, at most 37 means: a queue M/M/1 | 1 |
/// | `pareto` | bounded Pareto of shape 1.5 from 0.34 to 344 means: a heavy tail | 10 |
///
/// Source of the bounded Pareto: M. Harchol-Balter, *Performance Modeling and Design of Computer
/// Systems*, section 20.4.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServiceTime {
    /// Each time is 1/rate.
    #[default]
    Constant,
    /// Exponential times.
    Exponential {
        /// Of the random sequence.
        seed: u64,
    },
    /// Heavy-tailed times.
    Pareto {
        /// Of the random sequence.
        seed: u64,
    },
}

impl ServiceTime {
    /// The seed of a text without one.
    pub(crate) const DEFAULT_SEED: u64 = 1;

    /// By the name in a device model's text; constant times have no seed.
    pub(crate) fn named(name: &str, seed: u64) -> Option<ServiceTime> {
        match name {
            "constant" => Some(ServiceTime::Constant),
            "exponential" => Some(ServiceTime::Exponential { seed }),
            "pareto" => Some(ServiceTime::Pareto { seed }),
            _ => None,
        }
    }
}

/// Prints what stands behind `service=`.
impl fmt::Display for ServiceTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServiceTime::Constant => f.write_str("constant"),
            ServiceTime::Exponential { seed } => write!(f, "exponential,seed={seed}"),
            ServiceTime::Pareto { seed } => write!(f, "pareto,seed={seed}"),
        }
    }
}

/// One mean service time in units of a [`Sampler`].
pub(crate) const MEAN: u64 = 1 << 32;

/// Draws service times in units of their mean.
#[derive(Clone, Debug)]
pub(crate) enum Sampler {
    Constant,
    Exponential(SplitMix64),
    Pareto(SplitMix64),
}

impl Sampler {
    pub(crate) fn new(service: ServiceTime) -> Sampler {
        match service {
            ServiceTime::Constant => Sampler::Constant,
            ServiceTime::Exponential { seed } => Sampler::Exponential(SplitMix64::new(seed)),
            ServiceTime::Pareto { seed } => Sampler::Pareto(SplitMix64::new(seed)),
        }
    }

    /// The next service time, in parts of [`MEAN`]; below 2⁴¹.
    pub(crate) fn draw(&mut self) -> u64 {
        let times = match self {
            Sampler::Constant => return MEAN,
            Sampler::Exponential(random) => -libm::log(unit(random)),
            Sampler::Pareto(random) => pareto(unit(random)),
        };
        (times * MEAN as f64) as u64
    }
}

/// Uniform over (0, 1].
fn unit(random: &mut SplitMix64) -> f64 {
    ((random.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64
}

/// The shape of the Pareto distribution: a finite mean, and no variance if it had no bound.
const SHAPE: f64 = 1.5;

/// Its upper bound over its lower bound.
const SPREAD: f64 = 1_000.0;

/// Bounded Pareto of mean 1, by inversion.
fn pareto(unit: f64) -> f64 {
    let tail = libm::pow(SPREAD, -SHAPE);
    let mean = SHAPE / (SHAPE - 1.0) * (1.0 - libm::pow(SPREAD, 1.0 - SHAPE)) / (1.0 - tail);
    libm::pow(tail + unit * (1.0 - tail), -1.0 / SHAPE) / mean
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(service: ServiceTime) -> (f64, f64, f64) {
        let mut sampler = Sampler::new(service);
        let count = 2_000_000;
        let (mut sum, mut squares, mut most) = (0.0, 0.0, 0.0f64);
        for _ in 0..count {
            let times = sampler.draw() as f64 / MEAN as f64;
            sum += times;
            squares += times * times;
            most = most.max(times);
        }
        let mean = sum / f64::from(count);
        (mean, squares / f64::from(count) - mean * mean, most)
    }

    #[test]
    fn every_distribution_has_the_mean_and_variance_that_it_says() {
        assert_eq!(moments(ServiceTime::Constant), (1.0, 0.0, 1.0));
        for (service, variance, bound) in [
            (ServiceTime::Exponential { seed: 3 }, 1.0, 37.0),
            (ServiceTime::Pareto { seed: 3 }, 10.0, 345.0),
        ] {
            let (mean, got, most) = moments(service);
            assert!((mean - 1.0).abs() < 0.01, "{service}: mean {mean}");
            assert!((got / variance - 1.0).abs() < 0.1, "{service}: variance {got}");
            assert!(most < bound && most > bound / 4.0, "{service}: at most {most}");
        }
    }

    #[test]
    fn a_seed_repeats_its_sequence() {
        let first = |seed| {
            let mut sampler = Sampler::new(ServiceTime::Pareto { seed });
            (0..9).map(|_| sampler.draw()).collect::<Vec<u64>>()
        };
        assert_eq!(first(5), first(5));
        assert_ne!(first(5), first(6));
    }
}
