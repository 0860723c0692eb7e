//! The simulator: rehearse policies and workloads before storage is bought or promises are made.

mod explain;
mod jobs;
mod pool;
mod run;

pub(super) use jobs::{Interrupts, run_jobs};
pub(super) use run::write_file;

use super::output::json;
use super::{CliError, Print};
use clap::Subcommand;
use headgate_sim::{Scenario, schema};
use std::io::Write;
use std::path::Path;

/// Commands on scenarios.
#[derive(Debug, Subcommand)]
pub(super) enum Sim {
    /// Run a scenario in simulated time, print what every VM got, and judge what the scenario expects
    #[command(after_help = "Examples:\n  headgate sim run night.toml --plot night.svg\n  \
                            headgate sim run night.toml --variant sfq --seeds 20\n\n\
                            Exit status: 0 all that is expected holds, 1 it does not or the run failed, 2 the scenario is wrong, 130 interrupted.")]
    Run(run::Run),
    /// Say what every disk gets of a capacity under its policy, and where reservations and limits bind
    ///
    /// For disks that always have requests waiting, in normalised IOs per second. Bandwidth limits are left aside: what they are in IOs
    /// depends on the requests' size.
    #[command(after_help = "Examples:\n  headgate sim explain night.toml --capacity 800,1600,3200\n  \
                            headgate sim explain --disk RD:reservation=250,shares=100 \\\n    \
                            --disk OLTP:reservation=250,shares=200 --disk DM:shares=300,limit=1000 --capacity 500,1200,2000")]
    Explain(explain::Explain),
    /// Print the JSON schema of scenario files, for editors
    Schema,
}

impl Sim {
    pub(super) fn print(&self) -> Option<Print> {
        match self {
            Sim::Run(run) => Some(run.print),
            Sim::Explain(explain) => Some(explain.print),
            Sim::Schema => None,
        }
    }

    pub(super) fn run(self, out: &mut dyn Write) -> Result<(), CliError> {
        match self {
            Sim::Run(run) => run.run(out),
            Sim::Explain(explain) => explain.run(out),
            Sim::Schema => Ok(json(out, &schema())?),
        }
    }
}

/// Reads a scenario file.
fn load(file: &Path) -> Result<Scenario, CliError> {
    let cannot = |source| CliError::File { file: file.to_owned(), doing: "read", source };
    let text = std::fs::read_to_string(file).map_err(cannot)?;
    Ok(Scenario::parse(&file.display().to_string(), &text)?)
}

/// A variant by its name.
///
/// # Errors
/// Names those that there are.
fn variant<'a>(scenario: &'a Scenario, name: &str) -> Result<&'a headgate_sim::Variant, CliError> {
    scenario.variant(name).ok_or_else(|| {
        let known: Vec<&str> = scenario.variants.iter().map(|variant| variant.name.as_str()).collect();
        CliError::Usage(format!(
            "'{}' has no variant '{name}', expected one of {}",
            scenario.name,
            known.join(", ")
        ))
    })
}
