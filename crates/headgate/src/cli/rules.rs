//! `headgate rules`: the rules of placement.

use super::common::{DaemonArgs, Print};
use super::error::CliError;
use super::output::{json, warnings};
use super::rules_text;
use clap::Subcommand;
use headgate_api::types::Changed;
use headgate_placement::Rules as PlacementRules;
use hyper::Method;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Commands on rules.
#[derive(Debug, Subcommand)]
pub(super) enum Rules {
    /// Print the rules in TOML, with units and comments, as 'rules set' reads them
    Show {
        #[command(flatten)]
        print: Print,
    },
    /// Replace all rules by those of a TOML file; rules that it leaves out get their defaults
    #[command(
        after_help = "Example: keep two disks on different datastores, and start moves at an imbalance of 20 %:\n\n  \
        [[anti-affinity]]\n  name = \"replicas\"\n  disks = [\"db1\", \"db2\"]\n\n  [balance]\n  start = \"20%\"\n\n\
        'headgate rules show' prints all rules."
    )]
    Set {
        /// File with the rules
        file: PathBuf,
        #[command(flatten)]
        print: Print,
    },
}

/// Reads rules from a file.
pub(super) fn read(path: &Path) -> Result<PlacementRules, CliError> {
    let text = fs::read_to_string(path).map_err(|source| CliError::File {
        doing: "read",
        file: path.to_owned(),
        source,
    })?;
    rules_text::read(&text).map_err(|e| CliError::Usage(format!("{}: {e}", path.display())))
}

impl Rules {
    pub(super) fn print(&self) -> Print {
        match self {
            Rules::Show { print } | Rules::Set { print, .. } => *print,
        }
    }

    pub(super) fn run(self, daemon: &DaemonArgs, out: &mut dyn Write) -> Result<(), CliError> {
        let client = daemon.client()?;
        match self {
            Rules::Show { print } => {
                let rules: PlacementRules = client.get("/v1/rules")?;
                if print.json {
                    return Ok(json(out, &rules)?);
                }
                let text = rules_text::write(&rules).map_err(|e| CliError::Usage(e.to_string()))?;
                Ok(out.write_all(text.as_bytes())?)
            }
            Rules::Set { file, print } => {
                let changed: Changed<PlacementRules> =
                    client.send(Method::PUT, "/v1/rules", &read(&file)?)?;
                if print.json {
                    return Ok(json(out, &changed)?);
                }
                warnings(&changed.warnings);
                Ok(())
            }
        }
    }
}
