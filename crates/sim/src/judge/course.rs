//! How a measure behaves in the course of a span: its extremes, when it settles, how far it goes
//! back.

use super::measure::{Series, series};
use crate::outcome::Outcome;
use crate::scenario::{Expectation, Span};
use headgate_units::Nanos;

/// The course of a group's measure within a span.
#[derive(Clone, Copy)]
pub(super) struct Course<'a> {
    pub(super) expectation: &'a Expectation,
    pub(super) group: &'a [String],
    pub(super) outcome: &'a Outcome,
    pub(super) span: Option<&'a Span>,
}

impl Course<'_> {
    /// The minimum or the maximum over stretches of a length, whichever is bounded.
    pub(super) fn extreme(self, length: Nanos) -> Option<f64> {
        let values = self.means(length)?.into_iter();
        match self.expectation.test.at_least {
            Some(_) => values.reduce(f64::min),
            None => values.reduce(f64::max),
        }
    }

    /// Seconds from the span's beginning until all points of the series are near the mean of its
    /// last quarter, relative to that.
    pub(super) fn settling(self, within: f64) -> Option<f64> {
        let Series { from, values } = self.series(1)?;
        let last: Vec<f64> =
            values[values.len() - values.len().div_ceil(4)..].iter().copied().flatten().collect();
        if last.is_empty() {
            return None;
        }
        let end = last.iter().sum::<f64>() / last.len() as f64;
        let far = |value: &Option<f64>| {
            value.is_none_or(|value| (value - end).abs() > within * end.abs())
        };
        let settled = values.iter().rposition(far).map_or(0, |index| index + 1);
        let begins = self.span.map_or(Nanos::ZERO, |span| span.from);
        let interval = self.outcome.interval.0;
        // A last point that is far off has not settled at all.
        (settled < values.len()).then(|| {
            let after = Nanos(interval.saturating_mul(settled as u64));
            (from.since(begins) + after).as_secs_f64()
        })
    }

    /// The largest step back of the series on its way from the span's beginning to its end, in
    /// means over a length.
    pub(super) fn reversal(self, length: Nanos) -> Option<f64> {
        let values = self.means(length)?;
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
    fn means(self, length: Nanos) -> Option<Vec<f64>> {
        let points = (length.0 / self.outcome.interval.0.max(1)) as usize;
        Some(self.series(points)?.values.into_iter().flatten().collect())
    }

    fn series(self, points: usize) -> Option<Series> {
        series(self.outcome, self.expectation.measure, self.group, self.span, points)
    }
}
