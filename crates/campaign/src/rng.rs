//! Random numbers of a set-up.

use rand_core::{Rng as _, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// xoshiro256++, seeded by a name and a number: what one thing draws depends on nothing else. The
/// same numbers come on every machine.
#[derive(Clone, Debug)]
pub struct Rng(Xoshiro256PlusPlus);

impl Rng {
    /// The sequence of this name and seed.
    pub fn new(name: &str, seed: u64) -> Rng {
        // FNV-1a.
        let hash = name.bytes().fold(0xCBF2_9CE4_8422_2325u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3)
        });
        Rng(Xoshiro256PlusPlus::seed_from_u64(hash ^ seed))
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Uniform over [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.number() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform from `low` to `high`, both possible.
    pub fn within(&mut self, low: u64, high: u64) -> u64 {
        low + (self.unit() * (high.saturating_sub(low) + 1) as f64) as u64
    }

    /// Uniform from `low` to below `high`.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + self.unit() * (high - low)
    }

    /// Log-uniform from `low` to `high`: as often in each octave.
    pub fn scale(&mut self, low: f64, high: f64) -> f64 {
        low * libm::pow(high / low, self.unit())
    }

    /// Exponential of this mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * libm::log(1.0 - self.unit())
    }

    /// True with this probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// One of several.
    pub fn one_of<T: Copy>(&mut self, choices: &[T]) -> Option<T> {
        choices.get(self.within(0, choices.len().saturating_sub(1) as u64) as usize).copied()
    }
}
