//! Published values in figures over time.

use crate::plot::Level;
use headgate_sim::{Outcome, Scenario};

/// The published values of one measure, for a panel with a line for each of some subjects.
///
/// `scale` makes of a value what the panel shows: 1,000 where it shows milliseconds. `line_of` says
/// which line is a subject's; a value of who has none is left out.
pub(super) fn levels(
    scenario: &Scenario,
    outcome: &Outcome,
    measure: &str,
    scale: f64,
    line_of: &dyn Fn(&str) -> Option<usize>,
) -> Vec<Level> {
    let of_measure = scenario.levels(&outcome.variant);
    let shown = of_measure.into_iter().filter(|level| level.measure == measure);
    shown
        .filter_map(|level| {
            Some(Level {
                from: level.from.as_secs_f64(),
                to: level.to.as_secs_f64(),
                value: level.value * scale,
                colour: Some(line_of(&level.of)?),
            })
        })
        .collect()
}
