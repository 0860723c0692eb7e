//! Lines over time from recorded points.

use crate::plot::Line;
use headgate_sim::Outcome;
use headgate_units::Nanos;

/// More points do not show: neighbours are taken together.
const MOST_POINTS: usize = 300;

/// Points in the middle of their intervals.
pub(super) fn series<T: Copy>(
    outcome: &Outcome,
    points: &[T],
    plus: impl Fn(T, &T) -> T,
    value: &dyn Fn(&T, Nanos) -> Option<f64>,
) -> Line {
    let together = points.len().div_ceil(MOST_POINTS).max(1);
    let chunks = points.chunks(together).enumerate();
    chunks
        .filter_map(|(index, chunk)| {
            let (first, rest) = chunk.split_first()?;
            let sum = rest.iter().fold(*first, &plus);
            let from = outcome.point(index * together).0;
            let to = outcome.point(index * together + chunk.len() - 1).1;
            let middle = (from.as_secs_f64() + to.as_secs_f64()) / 2.0;
            Some(value(&sum, to - from).map(|value| (middle, value)))
        })
        .collect()
}
