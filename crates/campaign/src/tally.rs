//! Samples of one measure.

/// Samples, of which the worst and a percentile are wanted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    samples: Vec<f32>,
}

impl Tally {
    /// Adds one.
    pub fn add(&mut self, sample: f64) {
        self.samples.push(sample as f32);
    }

    /// Adds those of another.
    pub fn merge(&mut self, other: Tally) {
        self.samples.extend(other.samples);
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.samples.len()
    }

    /// The largest; `None` of none.
    pub fn worst(&self) -> Option<f64> {
        self.samples.iter().copied().reduce(f32::max).map(f64::from)
    }

    /// The part of the samples that are at most this; `None` of none.
    pub fn part_within(&self, most: f64) -> Option<f64> {
        let within = self.samples.iter().filter(|&&sample| f64::from(sample) <= most).count();
        (!self.samples.is_empty()).then(|| within as f64 / self.samples.len() as f64)
    }

    /// The sample that this part of all is not above; `None` of none. O(n).
    pub fn quantile(&self, part: f64) -> Option<f64> {
        let mut samples = self.samples.clone();
        let last = samples.len().checked_sub(1)?;
        let at = ((part * samples.len() as f64).ceil() as usize).saturating_sub(1).min(last);
        let (_, found, _) = samples.select_nth_unstable_by(at, f32::total_cmp);
        Some(f64::from(*found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_samples() {
        let mut tally = Tally::default();
        assert_eq!((tally.worst(), tally.quantile(0.5)), (None, None));
        for n in 1..=200 {
            tally.add(f64::from(n));
        }
        assert_eq!((tally.worst(), tally.quantile(0.99)), (Some(200.0), Some(198.0)));
        assert_eq!((tally.part_within(50.0), tally.part_within(0.0)), (Some(0.25), Some(0.0)));
        assert_eq!((tally.quantile(0.0), tally.quantile(1.0)), (Some(1.0), Some(200.0)));
    }
}
