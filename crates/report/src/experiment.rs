//! An experiment and what it came to, as a report is given it.

use headgate_sim::{Finding, Outcome, Scenario};

/// An experiment that was run.
pub struct Experiment<'a> {
    /// The scenario.
    pub scenario: &'a Scenario,
    /// With these seeds.
    pub seeds: &'a [u64],
    /// The outcomes, variant by variant, seed by seed.
    pub outcomes: &'a [Outcome],
    /// The findings.
    pub findings: &'a [Finding],
    /// Traces of the user's: what the scenario calls those in whose place they are, and their
    /// files.
    pub own_traces: Vec<(&'a str, &'a str)>,
}
