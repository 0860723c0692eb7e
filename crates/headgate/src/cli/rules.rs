//! `headgate rules`: the rules of placement.

use super::common::{DaemonArgs, Print};
use super::dry_run::DryRunArg;
use super::error::CliError;
use super::output::{json, warnings};
use super::rules_fit::Fit;
use super::values::{self, Word};
use super::{balance, rules_text};
use clap::{Args, Subcommand};
use headgate_api::balance::AutomaticPatch;
use headgate_api::client::Tagged;
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
    /// Fit the constants of the load formula to what disks did that were alone on their datastores
    ///
    /// Equation 1 of BASIL says how long requests take: (K1 + outstanding) (K2 + size) (K3 + reads)
    /// (K4 + randomness) / K5. K1 to K4 are rules, common to all datastores; K5 is each datastore's
    /// own. A constant is fitted if its factor varied enough; else it stays as it is, and the table
    /// says why. The error is that of predicted latencies, as a median over intervals; intervals
    /// that were held out were not fitted to.
    Fit(Fit),
    /// Replace all rules by those of a TOML file; rules that it leaves out get their defaults
    ///
    /// A file that 'rules show' printed says of which rules it was made: if somebody has changed
    /// them since, nothing is changed. Without its line with the tag it replaces whatever there is.
    #[command(
        after_help = "Example: keep two disks on different datastores, and start moves at an imbalance of 20 %:\n\n  \
        [[anti-affinity]]\n  name = \"replicas\"\n  disks = [\"db1\", \"db2\"]\n\n  [balance]\n  start = \"20%\"\n\n\
        'headgate rules show' prints all rules."
    )]
    Set {
        /// File with the rules
        file: PathBuf,
        #[command(flatten)]
        dry_run: DryRunArg,
        #[command(flatten)]
        print: Print,
    },
}

/// What the line begins with that says of which rules a file was made.
const TAG: &str = "# tag: ";

fn read_text(path: &Path) -> Result<String, CliError> {
    fs::read_to_string(path).map_err(|source| CliError::File {
        doing: "read",
        file: path.to_owned(),
        source,
    })
}

fn parse(path: &Path, text: &str) -> Result<PlacementRules, CliError> {
    rules_text::read(text).map_err(|e| CliError::Usage(format!("{}: {e}", path.display())))
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
            Command::Fit(fit) => fit.print,
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
            Command::Fit(fit) => fit.run(&client, out),
            Command::Show { print } => {
                let rules: Tagged<PlacementRules> = client.get_tagged("/v1/rules")?;
                if print.json {
                    return Ok(json(out, &rules.value)?);
                }
                let text = rules_text::write(&rules.value);
                let text = text.map_err(|e| CliError::Usage(e.to_string()))?;
                let tag = rules.tag.map(|tag| format!("{TAG}{tag}\n\n")).unwrap_or_default();
                Ok(out.write_all(format!("{tag}{text}").as_bytes())?)
            }
            Command::Set { file, dry_run, print } => {
                let text = read_text(&file)?;
                // A file that was made of other rules than there are now is refused.
                let tag = text.lines().find_map(|line| line.strip_prefix(TAG)).map(str::to_owned);
                let (client, to) = (client.of(tag), (Method::PUT, "/v1/rules"));
                let rules = parse(&file, &text)?;
                let changed: Option<Changed<PlacementRules>> =
                    dry_run.send(&client, to, &rules, print, out)?;
                match changed {
                    None => Ok(()),
                    Some(changed) if print.json => Ok(json(out, &changed)?),
                    Some(changed) => {
                        warnings(&changed.warnings);
                        Ok(())
                    }
                }
            }
        }
    }
}
