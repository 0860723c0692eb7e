//! Times that requests took.

use headgate_units::Nanos;

/// Times, of which percentiles are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Times {
    sorted: Vec<Nanos>,
}

impl Times {
    /// Of any order. O(n log n).
    pub fn new(mut times: Vec<Nanos>) -> Times {
        times.sort_unstable();
        Times { sorted: times }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.sorted.len()
    }

    /// The time in milliseconds that this part of all, above 0 and at most 1, is not above; NaN of
    /// none. O(1).
    pub fn quantile(&self, part: f64) -> f64 {
        let rank = (part * self.sorted.len() as f64).ceil() as usize;
        let time = self.sorted.get(rank.saturating_sub(1));
        time.map_or(f64::NAN, |time| time.as_secs_f64() * 1e3)
    }

    /// The longest, in milliseconds; NaN of none.
    pub fn worst(&self) -> f64 {
        self.quantile(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_the_least_time_that_so_many_are_not_above() {
        let times = Times::new((1..=1_000).rev().map(Nanos::from_millis).collect());
        let found = [0.5, 0.99, 0.999, 1.0].map(|part| times.quantile(part));
        assert_eq!(found, [500.0, 990.0, 999.0, 1_000.0]);
        assert!(Times::default().worst().is_nan());
    }
}
