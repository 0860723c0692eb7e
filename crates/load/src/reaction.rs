//! The reports of attacks: how a server reacted, and whether others were served.

use serde::Serialize;
use std::fmt;

/// The reaction of a server to an attack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reaction {
    /// It answered with an error.
    Error(String),
    /// It did what was asked.
    Served,
    /// It hung up.
    Disconnected,
    /// Nothing: it waits, or ignores the request.
    Silence,
}

impl fmt::Display for Reaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reaction::Error(what) => write!(f, "error: {what}"),
            Reaction::Served => f.write_str("served"),
            Reaction::Disconnected => f.write_str("hung up"),
            Reaction::Silence => f.write_str("silence"),
        }
    }
}

/// The result of one attack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ScenarioReport {
    /// Its name, as `--hostile` takes it.
    pub scenario: String,
    /// What it does.
    pub about: String,
    /// Every kind of reaction seen.
    pub reactions: Vec<Reaction>,
    /// What is wrong with the server, if anything.
    pub failure: Option<String>,
}

impl fmt::Display for ScenarioReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reactions: Vec<String> = self.reactions.iter().map(ToString::to_string).collect();
        write!(f, "{:22} {:58} {}", self.scenario, self.about, reactions.join(", "))?;
        self.failure.as_ref().map_or(Ok(()), |failure| write!(f, "  FAILED: {failure}"))
    }
}
