//! A scenario at several values of a parameter that was chosen freely.

use crate::scenario::Scenario;

/// A parameter, its values, and the scenario at each of them.
///
/// A claim that holds at the value that a file happens to have and at no other says nothing of what
/// it is about.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Sensitivity {
    /// The parameter's name.
    pub name: String,
    /// What it is, in the file's words; may be empty.
    pub about: String,
    /// Where it stands in the file.
    pub line: usize,
    /// The seeds to run it with.
    pub seeds: Vec<u64>,
    /// The lines of the expectations that are judged at each value.
    pub judged: Vec<usize>,
    /// Whether these are claims by themselves.
    pub claims: Claims,
    /// The values in the order of the file. One is the file's own, before them where it is none.
    pub points: Vec<Point>,
}

/// What the judged expectations of a sensitivity are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Claims {
    /// Each is a claim.
    #[default]
    Each,
    /// All are one claim, which holds where all of them do.
    Together,
}

/// One value of a parameter.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Point {
    /// The value as the file writes it.
    pub value: String,
    /// Whose it is.
    pub origin: Origin,
    /// What runs and is expected. No expectation says that it is known not to hold.
    pub scenario: Scenario,
}

/// Whose a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// The scenario's, without a change.
    File,
    /// Another.
    Other,
}
