//! `headgate rules`: the rules of placement.

use super::common::{DaemonArgs, Print};
use super::error::CliError;
use super::output::{json, warnings};
use super::values::{self, Word};
use super::{balance, rules_text};
use clap::{Args, Subcommand};
use headgate_api::balance::AutomaticPatch;
use headgate_api::types::Changed;
use headgate_placement::{Automatic, Hours, Mode, Rules as PlacementRules};
use hyper::Method;
use std::fs;
use std::io::Write;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

const MODES: &[Word<Mode>] = &[
    Word("off", Mode::Off, "Disks move when an operator says so"),
    Word("ask", Mode::Ask, "Advice waits for 'headgate balance --apply', and health says so"),
    Word("on", Mode::On, "Advice is carried out, until a prediction proves wrong"),
];

/// Arguments of `headgate rules`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, arg_required_else_help = true)]
pub(super) struct Rules {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    automatic: AutomaticArgs,
}

/// When disks move without an operator.
#[derive(Debug, Args)]
struct AutomaticArgs {
    /// Whether advice is carried out without an operator. After moves were stopped by a prediction
    /// that proved wrong, this lets them go on
    #[arg(long, value_name = "MODE", value_parser = values::one_of(MODES))]
    automatic: Option<Mode>,
    /// Hours of the day, in UTC, in which such moves begin, such as 22:00-06:00, or 'always'
    #[arg(long, value_name = "HOURS")]
    move_hours: Option<Hours>,
    /// Most disks that move so at once
    #[arg(long, value_name = "N")]
    moves_at_once: Option<NonZeroU32>,
    /// Most of them from or to one datastore; also of 'headgate balance --apply'
    #[arg(long, value_name = "N")]
    moves_per_datastore: Option<NonZeroU32>,
}

/// Commands on rules.
#[derive(Debug, Subcommand)]
enum Command {
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

impl AutomaticArgs {
    fn run(&self, daemon: &DaemonArgs, out: &mut dyn Write) -> Result<(), CliError> {
        let patch = AutomaticPatch {
            mode: self.automatic,
            hours: self.move_hours,
            at_once: self.moves_at_once,
            per_datastore: self.moves_per_datastore,
        };
        if patch == AutomaticPatch::default() {
            let options = values::options::<AutomaticArgs>();
            return Err(CliError::Usage(format!("give 'show', 'set FILE', or some of {options}")));
        }
        let now: Automatic = daemon.client()?.send(Method::PATCH, "/v1/rules", &patch)?;
        Ok(writeln!(out, "automatic moves: {}", balance::automatic(&now))?)
    }
}

impl Rules {
    pub(super) fn print(&self) -> Option<Print> {
        self.command.as_ref().map(|command| match command {
            Command::Show { print } | Command::Set { print, .. } => *print,
        })
    }

    pub(super) fn run(self, daemon: &DaemonArgs, out: &mut dyn Write) -> Result<(), CliError> {
        match self.command {
            Some(command) => command.run(daemon, out),
            None => self.automatic.run(daemon, out),
        }
    }
}

impl Command {
    fn run(self, daemon: &DaemonArgs, out: &mut dyn Write) -> Result<(), CliError> {
        let client = daemon.client()?;
        match self {
            Command::Show { print } => {
                let rules: PlacementRules = client.get("/v1/rules")?;
                if print.json {
                    return Ok(json(out, &rules)?);
                }
                let text = rules_text::write(&rules).map_err(|e| CliError::Usage(e.to_string()))?;
                Ok(out.write_all(text.as_bytes())?)
            }
            Command::Set { file, print } => {
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
