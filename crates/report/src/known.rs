//! Runs of one experiment under several policies or parameters, none of them twice.

use crate::{FileTraces, Job};
use headgate_sim::{Outcome, Scenario, Variant};
use std::collections::{BTreeMap, BTreeSet};

/// Runs jobs, and gives their outcomes in the same order.
pub type RunJobs<'a, E> = dyn FnMut(&[Job<'_>]) -> Result<Vec<Outcome>, E> + 'a;

/// Outcomes by what ran: stretches of time, a setup and a seed.
#[derive(Default)]
pub(super) struct Known(BTreeMap<(String, u64), Outcome>);

impl Known {
    /// The outcomes of some runs, variant and seed, of a scenario. Only those run that did not yet.
    pub(super) fn outcomes<E>(
        &mut self,
        scenario: &Scenario,
        runs: &[(&str, u64)],
        traces: &FileTraces,
        run: &mut RunJobs<'_, E>,
    ) -> Result<Vec<Outcome>, E> {
        let of = |variant: &Variant| format!("{:?} {:?}", scenario.spans, variant.setup);
        let setups: BTreeMap<&str, String> =
            scenario.variants.iter().map(|variant| (variant.name.as_str(), of(variant))).collect();
        let wanted: Vec<(&str, (String, u64))> = runs
            .iter()
            .filter_map(|&(name, seed)| Some((name, (setups.get(name)?.clone(), seed))))
            .collect();
        let mut asked = BTreeSet::new();
        let new: Vec<&(&str, (String, u64))> = wanted
            .iter()
            .filter(|(_, ran)| !self.0.contains_key(ran) && asked.insert(ran))
            .collect();
        let jobs: Vec<Job<'_>> = new
            .iter()
            .map(|&&(variant, (_, seed))| Job { scenario, variant, seed, traces })
            .collect();
        if !jobs.is_empty() {
            let outcomes = run(&jobs)?;
            self.0.extend(new.iter().map(|(_, ran)| ran.clone()).zip(outcomes));
        }
        let of = |(variant, ran): &(&str, (String, u64))| {
            let mut outcome = self.0.get(ran)?.clone();
            outcome.variant = (*variant).to_owned();
            Some(outcome)
        };
        Ok(wanted.iter().filter_map(of).collect())
    }
}
