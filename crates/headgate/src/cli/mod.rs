//! The command line.

mod advise;
mod datastore;
mod disk;
mod export;
mod flash;
mod history;
mod model_plot;
mod output;
mod picture;
mod placement;
mod reproduce;
mod rules;
mod sim;
mod trace;
mod values;
mod vm;
mod window;

use crate::api::client::{Client, ClientError};
use crate::api::types::ErrorBody;
use crate::control::{StateDir, StateDirError};
use crate::serve::signals::EndSignal;
use crate::serve::{DaemonError, ServeArgs, serve};
use crate::top::{self, TopError};
use clap::{Args, CommandFactory, Parser, Subcommand};
use headgate_load::LoadArgs;
use headgate_trace::TraceError;
use hyper::StatusCode;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use thiserror::Error;

/// Storage I/O control for virtual machines: virtual disks with a guaranteed minimum, a maximum and a share.
#[derive(Debug, Parser)]
#[command(
    name = "headgate",
    version,
    after_help = "Exit status: 0 done, 1 failed, 2 usage.\nUnits: rates in IOs per second; sizes and bandwidths in bytes, \
                  with K, M, G, T as powers of 1,024."
)]
pub struct Cli {
    #[command(flatten)]
    place: Place,
    #[command(subcommand)]
    command: Command,
}

/// Which daemon.
#[derive(Clone, Debug, Args)]
struct Place {
    /// The daemon's state directory [default: /var/lib/headgate for root, else $XDG_STATE_HOME/headgate]
    #[arg(long, value_name = "DIR", env = "HEADGATE_STATE_DIR", global = true)]
    state_dir: Option<PathBuf>,
}

/// How to print.
#[derive(Clone, Copy, Debug, Args)]
struct Print {
    /// Print JSON, as the API has it
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the daemon
    Serve(ServeArgs),
    /// Storage that disks live on
    #[command(subcommand)]
    Datastore(datastore::Datastore),
    /// Virtual disks
    #[command(subcommand)]
    Disk(disk::Disk),
    /// Further NBD exports of disks, each with a priority
    #[command(subcommand)]
    Export(export::Export),
    /// Virtual machines: disks that belong together, and what their applications may ask for
    #[command(subcommand)]
    Vm(vm::Vm),
    /// Which disks to move to other datastores, what that would change, and why the others stay
    #[command(
        after_help = "Examples:\n  headgate advise\n  headgate advise --window 7d --json\n  headgate advise --save pool && headgate advise --from pool"
    )]
    Advise(advise::Advise),
    /// Rules of placement: which disks belong together or apart, and when moving is worth while
    #[command(subcommand)]
    Rules(rules::Rules),
    /// Watch what datastores and disks do, and what they get of what they were promised
    #[command(after_help = "Keys: q quit, ? help, s sort, / filter.")]
    Top {
        /// Print the view once and end
        #[arg(long)]
        once: bool,
        #[command(flatten)]
        print: Print,
    },
    /// Load disks of any NBD or vhost-user-blk server, measure and verify
    #[command(
        after_help = "Example:\n  headgate load \"$(headgate disk attach db0 --nbd)\" --depth 32 --read-percent 70 \
        --seconds 10"
    )]
    Load(Box<LoadArgs>),
    /// Rehearse policies and workloads in simulated time
    #[command(subcommand)]
    Sim(Box<sim::Sim>),
    /// Run the published experiments in the simulator, and print the papers' numbers beside ours
    #[command(
        after_help = "Examples:\n  headgate reproduce --all --report report.html\n  headgate reproduce mc-04 --seeds 10\n\n\
                            Exit status: 0 every number is as expected, 1 one is not, 2 usage."
    )]
    Reproduce(reproduce::Reproduce),
    /// Block traces: what they say of their workload, and conversion
    #[command(subcommand)]
    Trace(trace::Trace),
    /// Print the OpenAPI document of the HTTP API
    Api,
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// Why a command failed.
#[derive(Debug, Error)]
enum CliError {
    /// The daemon refused, or is not there.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The state directory cannot be.
    #[error(transparent)]
    StateDir(#[from] StateDirError),
    /// No state directory can be guessed.
    #[error("no state directory is given and neither XDG_STATE_HOME nor HOME is set")]
    NoStateDir,
    /// A pool on disk cannot be used or written.
    #[error(transparent)]
    Recorded(#[from] crate::recorded::RecordedError),
    /// The arguments contradict each other.
    #[error("{0}")]
    Usage(String),
    /// The live view ended.
    #[error(transparent)]
    Top(#[from] TopError),
    /// The daemon cannot serve.
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    /// The load cannot run.
    #[error(transparent)]
    Load(#[from] headgate_load::LoadError),
    /// The load ran and its report says what went wrong.
    #[error("requests failed or data was wrong: see the report")]
    Unclean(u8),
    /// A file cannot be read or written.
    #[error("cannot {doing} {}: {source}", file.display())]
    File {
        /// Which.
        file: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// A trace is not what it should be.
    #[error("{}: {error}", file.display())]
    Trace {
        /// Which.
        file: PathBuf,
        /// Why.
        error: TraceError,
    },
    /// A scenario is not what it should be.
    #[error(transparent)]
    Scenario(#[from] headgate_sim::ScenarioError),
    /// The simulation ran, and something else came out.
    #[error("{failed} of {all} expectations do not hold")]
    Expectations {
        /// How many.
        failed: usize,
        /// Of how many.
        all: usize,
    },
    /// Somebody ended it, before anything was printed or written.
    #[error("interrupted: nothing is printed or written")]
    Interrupted(EndSignal),
    /// What was started did not come to its end.
    #[error("{0}")]
    Stopped(String),
    /// Standard output is gone.
    #[error("cannot print: {0}")]
    Print(#[from] io::Error),
}

impl CliError {
    fn body(&self) -> ErrorBody {
        match self {
            CliError::Client(e) | CliError::Top(TopError::Client(e)) => e.body(),
            CliError::Daemon(e) => ErrorBody { error: e.to_string(), expected: None, hint: e.hint() },
            CliError::NoStateDir => ErrorBody {
                error: self.to_string(),
                expected: None,
                hint: Some("give --state-dir or HEADGATE_STATE_DIR".into()),
            },
            CliError::Trace { error, .. } => {
                ErrorBody { error: self.to_string(), expected: None, hint: Some(error.hint()) }
            }
            _ => ErrorBody { error: self.to_string(), expected: None, hint: None },
        }
    }

    fn exit_code(&self) -> ExitCode {
        match self {
            CliError::Usage(_) | CliError::Scenario(_) => ExitCode::from(2),
            // A value that the daemon cannot take was given on the command line.
            CliError::Client(ClientError::Refused { status: StatusCode::UNPROCESSABLE_ENTITY, .. }) => {
                ExitCode::from(2)
            }
            CliError::Load(e) => ExitCode::from(e.exit_code()),
            CliError::Unclean(code) => ExitCode::from(*code),
            CliError::Interrupted(signal) => ExitCode::from(signal.exit_code()),
            _ => ExitCode::from(1),
        }
    }
}

impl Place {
    fn state_dir(&self) -> Result<StateDir, CliError> {
        let root = match &self.state_dir {
            Some(given) => given.clone(),
            None => StateDir::default_root().ok_or(CliError::NoStateDir)?,
        };
        Ok(StateDir::new(&root)?)
    }

    fn client(&self) -> Result<Client, CliError> {
        Ok(Client::new(&self.state_dir()?.api_socket()))
    }
}

impl Cli {
    fn prints_json(&self) -> bool {
        match &self.command {
            Command::Datastore(command) => command.print().is_some_and(|p| p.json),
            Command::Disk(command) => command.print().is_some_and(|p| p.json),
            Command::Export(command) => command.print().is_some_and(|p| p.json),
            Command::Vm(command) => command.print().is_some_and(|p| p.json),
            Command::Advise(command) => command.print.json,
            Command::Rules(command) => command.print().json,
            Command::Top { print, .. } => print.json,
            Command::Load(args) => args.json,
            Command::Sim(command) => command.print().is_some_and(|p| p.json),
            Command::Reproduce(command) => command.print.json,
            Command::Trace(command) => command.print().is_some_and(|p| p.json),
            Command::Serve(_) | Command::Api | Command::Completions { .. } => false,
        }
    }

    fn run(self, out: &mut dyn Write) -> Result<(), CliError> {
        match self.command {
            Command::Serve(args) => Ok(serve(&self.place.state_dir()?, &args)?),
            Command::Datastore(command) => command.run(&self.place, out),
            Command::Disk(command) => command.run(&self.place, out),
            Command::Export(command) => command.run(&self.place, out),
            Command::Vm(command) => command.run(&self.place, out),
            Command::Advise(command) => command.run(&self.place, out),
            Command::Rules(command) => command.run(&self.place, out),
            Command::Top { once, print } => {
                let client = self.place.client()?;
                // Who redirects the output wants lines.
                let once = once || !io::stdout().is_terminal();
                match (print.json, once) {
                    (true, _) => Ok(output::json(out, &top::fetch(&client)?)?),
                    (false, true) => Ok(out.write_all(top::once(&client)?.as_bytes())?),
                    (false, false) => Ok(top::live(&client)?),
                }
            }
            Command::Load(args) => {
                let report = headgate_load::run(&args)?;
                print_load(out, &report, Print { json: args.json })
            }
            Command::Sim(command) => command.run(out),
            Command::Reproduce(command) => command.run(out),
            Command::Trace(command) => command.run(out),
            Command::Api => Ok(out.write_all(crate::api::document().as_bytes())?),
            Command::Completions { shell } => {
                clap_complete::generate(shell, &mut Cli::command(), "headgate", out);
                Ok(())
            }
        }
    }
}

/// Prints what a load came to; an unclean one is an error.
fn print_load(out: &mut dyn Write, report: &headgate_load::Report, print: Print) -> Result<(), CliError> {
    match print.json {
        true => writeln!(out, "{}", report.to_json())?,
        false => write!(out, "{report}")?,
    }
    match report.exit_code() {
        0 => Ok(()),
        code => Err(CliError::Unclean(code)),
    }
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let json = cli.prints_json();
    // Not locked: the daemon runs in here for days.
    let mut out = io::stdout();
    let result = cli.run(&mut out).and_then(|()| Ok(out.flush()?));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever reads our output has read enough.
        Err(CliError::Print(e)) if e.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(e) => {
            eprint!("{}", output::error(&e.body(), json));
            e.exit_code()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
