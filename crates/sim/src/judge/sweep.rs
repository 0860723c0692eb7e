//! Measures of sweeps: how latency grows with each trait, and how good the workload model is.

use crate::outcome::Outcome;
use crate::outcome::sweep::{SweepOutcome, SweepPoint};
use crate::scenario::{Measure, Selection};
use headgate_units::Bytes;
use std::collections::BTreeMap;

impl Selection {
    fn takes(&self, point: &SweepPoint) -> bool {
        fn one_of<T: PartialEq>(value: T, list: &[T]) -> bool {
            list.is_empty() || list.contains(&value)
        }
        one_of(point.outstanding, &self.outstanding)
            && one_of(point.size, &self.sizes)
            && one_of(point.read, &self.read)
            && one_of(point.random, &self.random)
    }
}

/// Predictions that miss by no more than this part count as good.
const GOOD: f64 = 0.4;

/// Nothing where the sweep did not come to its end.
pub(super) fn measure_sweep(
    outcome: &Outcome,
    measure: Measure,
    group: &[String],
    selection: &Selection,
) -> Option<f64> {
    let sweep = outcome.sweeps.iter().find(|sweep| group.first() == Some(&sweep.name))?;
    if sweep.points.len() < sweep.of {
        return None;
    }
    let points: Vec<&SweepPoint> =
        sweep.points.iter().filter(|point| selection.takes(point)).collect();
    let part = |count: usize, of: usize| (of > 0).then(|| count as f64 / of as f64);
    let errors = || -> Option<Vec<f64>> {
        points.iter().map(|point| Some(error(sweep, point)?.abs())).collect()
    };
    match measure {
        Measure::SweepLatency => {
            let latencies: Option<Vec<f64>> = points.iter().map(|point| seconds(point)).collect();
            let latencies = latencies?;
            part(1, latencies.len()).map(|each| each * latencies.iter().sum::<f64>())
        }
        Measure::ModelError => at(errors()?, 0.5),
        Measure::ModelGood => {
            let errors = errors()?;
            part(errors.iter().filter(|&&error| error <= GOOD).count(), errors.len())
        }
        Measure::ModelOver => {
            let errors: Option<Vec<f64>> = points.iter().map(|point| error(sweep, point)).collect();
            let errors = errors?;
            part(errors.iter().filter(|&&error| error > 0.0).count(), errors.len())
        }
        Measure::ModelWorst => {
            let mut worst: Vec<&SweepPoint> = sweep.points.iter().collect();
            worst.sort_by(|a, b| {
                let of = |point| error(sweep, point).map_or(0.0, f64::abs);
                of(b).total_cmp(&of(a))
            });
            worst.truncate(sweep.points.len().div_ceil(10));
            part(worst.iter().filter(|point| selection.takes(point)).count(), worst.len())
        }
        Measure::ConstantReads => Some(sweep.constants?.read.as_f64()),
        Measure::LinearInOutstanding
        | Measure::LinearInSize
        | Measure::LinearInReads
        | Measure::LinearInRandom => {
            at(lines(&points, measure)?.into_iter().map(|line| line.explained).collect(), 0.1)
        }
        Measure::RiseWithOutstanding
        | Measure::RiseWithSize
        | Measure::RiseWithReads
        | Measure::RiseWithRandom => {
            at(lines(&points, measure)?.into_iter().map(|line| line.rise).collect(), 0.5)
        }
        _ => None,
    }
}

fn seconds(point: &SweepPoint) -> Option<f64> {
    point.latency.map(|latency| latency.as_secs_f64())
}

/// By how much the model is above what was measured, relative to that.
fn error(sweep: &SweepOutcome, point: &SweepPoint) -> Option<f64> {
    Some(sweep.fit?.latency(&point.profile()).as_secs_f64() / seconds(point)? - 1.0)
}

/// The value that such a part does not exceed.
fn at(mut values: Vec<f64>, part: f64) -> Option<f64> {
    // There is no R² of what does not vary.
    if values.iter().any(|value| !value.is_finite()) {
        return None;
    }
    values.sort_by(f64::total_cmp);
    let index = (values.len() as f64 * part) as usize;
    values.get(index.min(values.len().saturating_sub(1))).copied()
}

/// A line of latency over one trait, all others being equal.
struct Line {
    /// R².
    explained: f64,
    /// From the trait's least to its largest value, relative to the mean.
    rise: f64,
}

fn lines(points: &[&SweepPoint], over: Measure) -> Option<Vec<Line>> {
    type Rest = (u32, Bytes, u8, u8);
    let mut series: BTreeMap<Rest, Vec<(f64, f64)>> = BTreeMap::new();
    for point in points {
        let mut rest: Rest = (point.outstanding, point.size, point.read, point.random);
        let x = match over {
            Measure::LinearInOutstanding | Measure::RiseWithOutstanding => {
                f64::from(std::mem::take(&mut rest.0))
            }
            Measure::LinearInSize | Measure::RiseWithSize => std::mem::take(&mut rest.1).0 as f64,
            Measure::LinearInReads | Measure::RiseWithReads => {
                f64::from(std::mem::take(&mut rest.2))
            }
            _ => f64::from(std::mem::take(&mut rest.3)),
        };
        series.entry(rest).or_default().push((x, seconds(point)?));
    }
    series.values().map(|points| line(points)).collect()
}

fn line(points: &[(f64, f64)]) -> Option<Line> {
    let n = points.len() as f64;
    let (x, y) =
        (points.iter().map(|p| p.0).sum::<f64>() / n, points.iter().map(|p| p.1).sum::<f64>() / n);
    let sum = |of: fn(f64, f64) -> f64| points.iter().map(|p| of(p.0 - x, p.1 - y)).sum::<f64>();
    let (xx, xy, yy) = (sum(|x, _| x * x), sum(|x, y| x * y), sum(|_, y| y * y));
    let (least, most) =
        points.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), p| {
            (least.min(p.0), most.max(p.0))
        });
    let line = Line { explained: xy * xy / xx / yy, rise: xy / xx * (most - least) / y };
    line.rise.is_finite().then_some(line)
}
