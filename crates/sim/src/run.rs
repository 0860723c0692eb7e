//! Runs of one variant of a scenario.

use crate::outcome::Outcome;
use crate::progress::{Progress, RunError};
use crate::scenario::{Scenario, Variant};
use crate::workload::{NoTraces, Traces};
use crate::world::World;

impl Scenario {
    /// The variant of this name.
    pub(crate) fn find(&self, variant: &str) -> Result<&Variant, RunError> {
        self.variant(variant).ok_or_else(|| {
            let known: Vec<&str> =
                self.variants.iter().map(|variant| variant.name.as_str()).collect();
            RunError::UnknownVariant { given: variant.to_owned(), known: known.join(", ") }
        })
    }
}

/// Runs one variant of a scenario that replays no traces. The same arguments give the same outcome,
/// to the byte.
///
/// # Errors
/// See [`RunError`].
pub fn run(
    scenario: &Scenario,
    variant: &str,
    seed: u64,
    progress: &mut dyn Progress,
) -> Result<Outcome, RunError> {
    run_with(scenario, variant, seed, progress, &NoTraces)
}

/// Runs one variant of a scenario, with the traces that it replays.
///
/// # Errors
/// See [`RunError`].
pub fn run_with(
    scenario: &Scenario,
    variant: &str,
    seed: u64,
    progress: &mut dyn Progress,
    traces: &dyn Traces,
) -> Result<Outcome, RunError> {
    let chosen = scenario.find(variant)?;
    let mut world = World::new(chosen, &scenario.spans, seed, traces)?;
    world.run(progress)?;
    Ok(world.finish(&scenario.name, variant, seed))
}
