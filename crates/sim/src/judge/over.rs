//! Aggregation over seeds.

use super::{Finding, Reading};
use crate::scenario::{Summary, Test, Unit};

impl Summary {
    pub(super) fn holds(self, readings: &[Reading], test: &Test) -> bool {
        match self {
            Summary::Each => readings.iter().all(|reading| reading.holds),
            Summary::Quantile(permille) => {
                // A run that gave nothing is none of the smallest or largest.
                readings.iter().all(|reading| reading.value.is_some())
                    && quantile(readings, permille)
                        .is_some_and(|value| test.holds(value, test.value()))
            }
            Summary::Share(permille) => {
                let holding = readings.iter().filter(|reading| reading.holds).count();
                holding * 1_000 >= readings.len() * permille as usize
            }
        }
    }

    pub(super) fn expected(self) -> String {
        match self {
            Summary::Each | Summary::Quantile(_) => String::new(),
            Summary::Share(permille) => format!(" with {} % of the seeds", percent(permille)),
        }
    }

    pub(super) fn describe(self, of: String) -> String {
        match self {
            Summary::Each => of,
            Summary::Quantile(500) => format!("median of {of}"),
            Summary::Quantile(permille) => format!("{} % quantile of {of}", percent(permille)),
            Summary::Share(_) => format!("seeds with {of}"),
        }
    }
}

fn percent(permille: u32) -> String {
    (f64::from(permille) / 10.0).to_string()
}

/// The quantile by the nearest-rank method.
fn quantile(readings: &[Reading], permille: u32) -> Option<f64> {
    let mut values: Vec<f64> = readings.iter().filter_map(|reading| reading.value).collect();
    values.sort_by(f64::total_cmp);
    let rank = (values.len() * permille as usize).div_ceil(1_000).max(1);
    values.get(rank - 1).copied()
}

impl Finding {
    /// What all seeds together gave: the mean, a quantile, or the part of them that is as expected.
    pub fn ours(&self) -> Option<f64> {
        match self.summary {
            Summary::Each => {
                let values: Vec<f64> =
                    self.readings.iter().filter_map(|reading| reading.value).collect();
                (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
            }
            Summary::Quantile(permille) => quantile(&self.readings, permille),
            Summary::Share(_) => {
                let holding = self.readings.iter().filter(|reading| reading.holds).count();
                (!self.readings.is_empty()).then(|| holding as f64 / self.readings.len() as f64)
            }
        }
    }

    /// The unit of [`Finding::ours`] and of [`Finding::paper`].
    pub fn shown_unit(&self) -> Unit {
        match self.summary {
            Summary::Each | Summary::Quantile(_) => self.unit,
            Summary::Share(_) => Unit::Ratio,
        }
    }

    /// The smallest and the largest value over all seeds.
    pub fn range(&self) -> Option<(f64, f64)> {
        let mut values = self.readings.iter().filter_map(|reading| reading.value);
        let first = values.next()?;
        Some(values.fold((first, first), |(low, high), value| (low.min(value), high.max(value))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readings(values: &[f64], least: f64) -> Vec<Reading> {
        let reading = |(seed, &value): (usize, &f64)| Reading {
            seed: seed as u64,
            value: Some(value),
            target: None,
            holds: value >= least,
        };
        values.iter().enumerate().map(reading).collect()
    }

    #[test]
    fn quantiles_and_shares_are_over_all_seeds() {
        let test = Test { at_least: Some(2.0), ..Test::default() };
        let all = readings(&[4.0, 1.0, 3.0, 2.0], 2.0);
        assert!(!Summary::Each.holds(&all, &test));
        assert!(Summary::Share(750).holds(&all, &test) && !Summary::Share(751).holds(&all, &test));
        assert_eq!(
            [250, 500, 501, 1_000].map(|part| quantile(&all, part)),
            [1.0, 2.0, 3.0, 4.0].map(Some)
        );
        assert!(
            Summary::Quantile(500).holds(&all, &test) && !Summary::Quantile(250).holds(&all, &test)
        );
        let mut lacking = all;
        lacking[0].value = None;
        assert!(
            !Summary::Quantile(900).holds(&lacking, &test),
            "a run without a value hides nowhere"
        );
    }
}
