//! The simulator: rehearse policies and workloads before storage is bought or promises are made.

mod compare;
mod explain;
mod jobs;
mod load;
mod pool;
mod run;

pub(super) use compare::{print_comparison, print_notes};
pub(super) use jobs::{Interrupts, run_jobs, run_jobs_each};

use super::common::Print;
use super::error::CliError;
use clap::Subcommand;
use headgate_sim::SCHEMA;
use std::io::Write;

/// Commands on scenarios.
#[derive(Debug, Subcommand)]
pub(super) enum Sim {
    /// Run a scenario in virtual time, print what each VM got, and check the scenario's
    /// expectations
    #[command(after_help = "Examples:\n  headgate sim run night.toml --plot night.svg\n  \
                            headgate sim run night.toml --variant sfq --seeds 20\n\n\
                            Exit status: 0 all expectations hold, 1 one does not hold or the run failed, 2 the scenario is wrong, 130 interrupted.")]
    Run(run::Run),
    /// Print what each disk gets of a given capacity, and where reservations and limits bind
    ///
    /// Assumes disks that always have requests waiting. Rates are normalised IOs per second.
    /// Bandwidth limits do not count: in IOs they depend on the size of requests.
    #[command(
        after_help = "Examples:\n  headgate sim explain night.toml --capacity 800,1600,3200\n  \
                            headgate sim explain --disk RD:reservation=250,shares=100 \\\n    \
                            --disk OLTP:reservation=250,shares=200 --disk DM:shares=300,limit=1000 --capacity 500,1200,2000"
    )]
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
            Sim::Schema => Ok(out.write_all(SCHEMA.as_bytes())?),
        }
    }
}
