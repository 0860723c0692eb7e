//! The seeds that `reproduce` runs with.

use crate::cli::error::CliError;
use clap::Args;
use headgate_report::seeds_for_mutants;
use headgate_sim::{Scenario, judge};
use std::fmt;

/// Which seeds to take instead of those of each experiment.
#[derive(Debug, Args)]
pub(super) struct SeedChoice {
    /// Run with the seeds 1 to N [default: those of each experiment]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    seeds: Option<u64>,
    /// Run with the seeds from FROM on instead of those that the files name: N of them with
    /// --seeds, else as many as each experiment has
    #[arg(long, value_name = "FROM", conflicts_with = "full")]
    seeds_from: Option<u64>,
    /// Run with as many seeds as the published experiment; takes minutes
    #[arg(long, conflicts_with = "seeds")]
    full: bool,
}

impl SeedChoice {
    /// The seeds to run an experiment with.
    ///
    /// # Errors
    /// [`CliError::Usage`] if there are not as many from the first one on.
    pub(super) fn of(&self, scenario: &Scenario) -> Result<Vec<u64>, CliError> {
        match self.full {
            true => Ok(scenario.all_seeds.clone()),
            false => self.instead_of(&scenario.seeds),
        }
    }

    /// The seeds to try wrong policies with: one where that suffices, unless more are asked for.
    ///
    /// # Errors
    /// See [`SeedChoice::of`].
    pub(super) fn for_mutants(&self, scenario: &Scenario) -> Result<Vec<u64>, CliError> {
        self.instead_of(&seeds_for_mutants(scenario, &judge(scenario, &[])))
    }

    /// The seeds to run something with that names its own.
    ///
    /// # Errors
    /// See [`SeedChoice::of`].
    pub(super) fn or(&self, named: &[u64]) -> Result<Vec<u64>, CliError> {
        self.instead_of(named)
    }

    /// Whether the seeds are those that files name, and so what files say of claims is of them.
    pub(super) fn is_of_files(&self) -> bool {
        self.seeds.is_none() && self.seeds_from.is_none()
    }

    fn instead_of(&self, named: &[u64]) -> Result<Vec<u64>, CliError> {
        let many = self.seeds.unwrap_or(named.len() as u64);
        match (self.seeds_from, self.seeds) {
            (Some(from), _) => many_from(from, many),
            (None, Some(many)) => many_from(1, many),
            (None, None) => Ok(named.to_vec()),
        }
    }
}

/// The options that choose the same seeds again.
impl fmt::Display for SeedChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(many) = self.seeds {
            write!(f, " --seeds {many}")?;
        }
        if let Some(from) = self.seeds_from {
            write!(f, " --seeds-from {from}")?;
        }
        match self.full {
            true => f.write_str(" --full"),
            false => Ok(()),
        }
    }
}

fn many_from(from: u64, many: u64) -> Result<Vec<u64>, CliError> {
    let last = many.checked_sub(1).and_then(|more| from.checked_add(more));
    match last {
        Some(last) => Ok((from..=last).collect()),
        None => Err(CliError::Usage(format!(
            "there are not {many} seeds from {from} on: the last one is {}; begin at {} or below",
            u64::MAX,
            u64::MAX - many.saturating_sub(1)
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(seeds: Option<u64>, seeds_from: Option<u64>) -> SeedChoice {
        SeedChoice { seeds, seeds_from, full: false }
    }

    #[test]
    fn seeds_are_those_of_the_file_unless_others_are_asked_for() {
        let of = |seeds, from| choice(seeds, from).instead_of(&[301, 302]).unwrap();
        assert_eq!(of(None, None), [301, 302]);
        assert_eq!(of(Some(3), None), [1, 2, 3]);
        assert_eq!(of(None, Some(9000)), [9000, 9001]);
        assert_eq!(of(Some(3), Some(9000)), [9000, 9001, 9002]);
        assert_eq!(of(Some(1), Some(0)), [0]);
        assert_eq!(of(Some(2), Some(u64::MAX - 1)), [u64::MAX - 1, u64::MAX]);
    }

    #[test]
    fn seeds_beyond_the_last_one_are_refused() {
        for (seeds, from) in [(Some(2), u64::MAX), (None, u64::MAX), (Some(10_000), u64::MAX - 9)] {
            let refused = choice(seeds, Some(from)).instead_of(&[1, 2]).unwrap_err().to_string();
            assert!(refused.contains(&format!("seeds from {from} on: the last one")), "{refused}");
        }
    }

    #[test]
    fn the_options_are_those_that_were_given() {
        assert_eq!(choice(None, None).to_string(), "");
        assert_eq!(choice(Some(20), Some(9000)).to_string(), " --seeds 20 --seeds-from 9000");
        let full = SeedChoice { seeds: None, seeds_from: None, full: true };
        assert_eq!(full.to_string(), " --full");
    }
}
