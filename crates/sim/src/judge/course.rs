//! How a measure behaves in the course of a window: its extremes, when it settles, how far it goes back.

use super::Expectation;
use super::measure::{Series, series};
use crate::outcome::Outcome;
use crate::scenario::Window;
use headgate_units::Nanos;

/// The least or the most in any stretch of a length, whichever is to be bounded.
pub(super) fn extreme(
    expectation: &Expectation,
    group: &[String],
    outcome: &Outcome,
    window: Option<&Window>,
    length: Nanos,
) -> Option<f64> {
    let values = means(expectation, group, outcome, window, length)?.into_iter();
    if expectation.test.at_least.is_some() { values.reduce(f64::min) } else { values.reduce(f64::max) }
}

/// Seconds from a window's beginning until all points of the series are within a part of the mean of its last quarter.
pub(super) fn settling(
    expectation: &Expectation,
    group: &[String],
    outcome: &Outcome,
    window: Option<&Window>,
    within: f64,
) -> Option<f64> {
    let Series { from, values } = series(outcome, expectation.measure, group, window, 1)?;
    let last: Vec<f64> =
        values[values.len() - values.len().div_ceil(4)..].iter().copied().flatten().collect();
    if last.is_empty() {
        return None;
    }
    let end = last.iter().sum::<f64>() / last.len() as f64;
    let far = |value: &Option<f64>| value.is_none_or(|value| (value - end).abs() > within * end.abs());
    let settled = values.iter().rposition(far).map_or(0, |index| index + 1);
    let begins = window.map_or(Nanos::ZERO, |window| window.from);
    // A last point that is far off has not settled at all.
    (settled < values.len()).then(|| {
        (from.since(begins) + Nanos(outcome.interval.0.saturating_mul(settled as u64))).as_secs_f64()
    })
}

/// By how much a series goes back at most on its way from a window's beginning to its end, in means over a length.
pub(super) fn reversal(
    expectation: &Expectation,
    group: &[String],
    outcome: &Outcome,
    window: Option<&Window>,
    length: Nanos,
) -> Option<f64> {
    let values = means(expectation, group, outcome, window, length)?;
    let (first, last) = (*values.first()?, *values.last()?);
    let sign = if last < first { -1.0 } else { 1.0 };
    let (mut farthest, mut back) = (f64::NEG_INFINITY, 0.0_f64);
    for value in values {
        farthest = farthest.max(sign * value);
        back = back.max(farthest - sign * value);
    }
    Some(back)
}

/// The measure over stretches of a length, where it has a value.
fn means(
    expectation: &Expectation,
    group: &[String],
    outcome: &Outcome,
    window: Option<&Window>,
    length: Nanos,
) -> Option<Vec<f64>> {
    let points = (length.0 / outcome.interval.0.max(1)) as usize;
    let all = series(outcome, expectation.measure, group, window, points)?.values;
    Some(all.into_iter().flatten().collect())
}
