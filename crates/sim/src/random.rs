use headgate_units::Nanos;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// The random numbers of one thing in the simulation, such as a workload: xoshiro256++, whose
/// sequence is published and does not change between versions.
///
/// Seeded by the run's seed and by the thing's name. What one thing draws never depends on what
/// else there is.
#[derive(Clone)]
pub(crate) struct Stream(Xoshiro256PlusPlus);

impl Stream {
    pub(crate) fn new(seed: u64, name: &str) -> Stream {
        Stream(Xoshiro256PlusPlus::seed_from_u64(seed ^ fnv1a(name.as_bytes())))
    }

    /// Below `bound`, uniform but for a bias of `bound / 2^64`; 0 when the bound is 0.
    #[inline]
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.0.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// One of several, with equal chances; `None` of none.
    pub(crate) fn one_of<'a, T>(&mut self, choices: &'a [T]) -> Option<&'a T> {
        if choices.is_empty() {
            return None;
        }
        choices.get(self.below(choices.len() as u64) as usize)
    }

    /// True with so many per cent. Certainties draw nothing.
    #[inline]
    pub(crate) fn percent(&mut self, percent: u8) -> bool {
        match percent {
            0 => false,
            100.. => true,
            _ => self.below(100) < u64::from(percent),
        }
    }

    /// In `[0, 1)`, with 53 bits.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Exponentially distributed. The logarithm is computed in software: the same on every machine.
    pub(crate) fn exponential(&mut self, mean: Nanos) -> Nanos {
        Nanos((-libm::log(1.0 - self.unit()) * mean.0 as f64) as u64)
    }
}

/// FNV-1a, 64 bits: a hash that is the same for ever, unlike the standard library's.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_never_changes() {
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8, "the published test vector");
        let mut stream = Stream::new(1, "VM1");
        let first: Vec<u64> = (0..3).map(|_| stream.below(1_000_000)).collect();
        assert_eq!(first, [206_097, 871_929, 968_125]);
        assert_ne!(Stream::new(2, "VM1").below(u64::MAX), Stream::new(1, "VM1").below(u64::MAX));
        assert_ne!(Stream::new(1, "VM2").below(u64::MAX), Stream::new(1, "VM1").below(u64::MAX));
    }

    #[test]
    fn exponential_times_have_their_mean() {
        let mut stream = Stream::new(7, "think");
        let mean =
            (0..100_000).map(|_| stream.exponential(Nanos(1_000_000)).0).sum::<u64>() / 100_000;
        assert!((985_000..1_015_000).contains(&mean), "{mean}");
    }
}
