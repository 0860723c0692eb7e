//! The command line.

mod advise;
mod apply;
mod ask;
mod attach;
mod balance;
mod catalog;
mod class;
mod common;
mod copy;
mod costs;
mod create;
mod datastore;
mod datastore_text;
mod datastore_trace;
mod difference;
mod disk;
mod disk_export;
mod disk_import;
mod disk_show;
mod disk_text;
mod documents;
mod dry_run;
mod error;
mod events;
mod export;
mod flash;
mod get;
mod history;
mod host;
mod incomplete;
mod load;
mod maintenance;
mod man;
mod migrate;
mod model_plot;
mod node;
mod output;
mod period;
mod persistent;
mod picture;
mod placement;
mod policy;
mod removed;
mod report;
mod reproduce;
mod resize;
mod rules;
mod rules_fit;
mod rules_text;
mod sim;
mod space;
mod takeover;
mod tenant;
mod tls;
mod trace;
mod transfer;
mod trouble;
mod values;
mod vm;
mod what_if;
mod window;
mod write_file;

use common::{DaemonArgs, Print};
use error::CliError;
use load::print_load;

use crate::top;
use clap::{CommandFactory, Parser, Subcommand};
use headgate_daemon::serve::{ServeArgs, serve};
use headgate_load::LoadArgs;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// Storage I/O control for virtual machines: virtual disks with a guaranteed minimum, a maximum and
/// a share of the rest.
#[derive(Debug, Parser)]
#[command(
    name = "headgate",
    version,
    after_help = "Exit status: 0 success, 1 failure, 2 wrong usage.\nUnits: rates are IOs per second (IOPS); sizes are bytes and bandwidths bytes per second, \
                  with suffixes K, M, G, T for powers of 1,024; times take a unit: ns, us, ms or s, and min, h or d for spans of history."
)]
pub struct Cli {
    #[command(flatten)]
    daemon: DaemonArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the daemon
    Serve(Box<ServeArgs>),
    /// Manage datastores: the storage that disks are on
    #[command(subcommand)]
    Datastore(datastore::Datastore),
    /// Manage virtual disks and their policies
    #[command(subcommand)]
    Disk(Box<disk::DiskCommand>),
    /// Manage classes: policies with names, which many disks have
    #[command(subcommand)]
    Class(class::ClassCommand),
    /// Make classes, tenants, virtual machines, datastores and disks what documents in YAML say
    ///
    /// What is different is shown. Classes, policies and capacities change together or not at all;
    /// disks that are to be made are recorded in the same step, and made one by one after it. An
    /// apply that was cut is completed by the next one.
    #[command(
        after_help = "Examples:\n  headgate apply site.yaml --dry-run\n  headgate apply /etc/headgate/site.d --set site --prune\n  headgate get -o yaml > site.yaml"
    )]
    Apply(apply::ApplyArgs),
    /// Print classes, tenants, virtual machines, datastores and disks as documents that 'headgate
    /// apply' takes
    #[command(
        after_help = "Examples:\n  headgate get > site.yaml\n  headgate get disks tenants -o json"
    )]
    Get(get::Get),
    /// Manage additional NBD exports of disks, each with its own priority
    #[command(subcommand)]
    Export(export::Export),
    /// Show the hosts that meet in one etcd, and what they do
    #[command(subcommand)]
    Host(host::HostCommand),
    /// Show the NBD servers that disks lie on
    #[command(subcommand)]
    Node(node::NodeCommand),
    /// Manage tenants: what their virtual machines are promised together, and how much they may
    /// have
    #[command(subcommand)]
    Tenant(tenant::TenantCommand),
    /// Manage virtual machines: whose they are, what their disks are promised together, and the
    /// priorities that their applications may use
    #[command(subcommand)]
    Vm(vm::Vm),
    /// Check the daemon's catalog, and mend one that is damaged or lost; while no daemon runs
    #[command(subcommand)]
    Catalog(catalog::Catalog),
    /// Recommend moves of disks between datastores, with figures and reasons
    #[command(
        after_help = "Examples:\n  headgate advise\n  headgate advise --window 7d --json\n  headgate advise --save pool && headgate advise --from pool"
    )]
    Advise(advise::Advise),
    /// Show what advice would do now, or carry it out
    #[command(
        after_help = "Examples:\n  headgate balance\n  headgate balance --apply --move-bandwidth 50M\n  headgate balance --stop"
    )]
    Balance(balance::Balance),
    /// Show or replace the placement rules: affinity, anti-affinity and when a move pays; say when
    /// disks move without an operator
    #[command(
        after_help = "Example: move disks by night as advised, in UTC, until a prediction proves wrong:\n  headgate rules --automatic on --move-hours 22:00-06:00"
    )]
    Rules(rules::Rules),
    /// Show live load, latency and kept promises of datastores and disks
    #[command(after_help = "Keys: q quit, ? help, b who waits for whom, s sort, / filter.")]
    Top {
        /// Print the view once and exit; so does output that is not a terminal
        #[arg(long)]
        once: bool,
        /// Show all hosts that meet in the daemon's etcd, and the disks that matter most: those
        /// first that do not get what they were promised
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        print: Print,
    },
    /// Show who changed what, what was refused, and what the daemon did and noticed
    #[command(
        after_help = "Examples:\n  headgate events --since 7d --disk db0\n  headgate events --follow --json"
    )]
    Events(events::Events),
    /// Report what disks were promised, demanded and received, and why they fell short
    #[command(
        after_help = "Examples:\n  headgate report --month 2026-11\n  headgate report --since 7d --vm web --format html > web.html\n  \
        headgate report --month 2026-11 --samples > samples.csv"
    )]
    Report(report::ReportArgs),
    /// Simulate what a change of a disk's policy would have done on the recorded load
    ///
    /// Nothing is changed. Every disk of the datastore is shown as it was recorded, as it is
    /// simulated with the policies of then, and as it is simulated with the change: how far the
    /// first two differ says how much the third is to be believed.
    #[command(after_help = "Examples:\n  headgate what-if db0 --reservation 800\n  \
        headgate what-if noisy0 --limit 500 --since 2026-11-28T02:00 --until 2026-11-28T03:00\n  \
        headgate what-if db0 --class gold --since 1h --json")]
    WhatIf(Box<what_if::WhatIfArgs>),
    /// Generate load on disks of any NBD or vhost-user-blk server; measure and verify
    #[command(
        after_help = "Example:\n  headgate load \"$(headgate disk attach db0 --nbd)\" --depth 32 --read-percent 70 \
        --seconds 10"
    )]
    Load(Box<LoadArgs>),
    /// Simulate policies and workloads in virtual time
    #[command(subcommand)]
    Sim(Box<sim::Sim>),
    /// Run the published experiments in the simulator and compare with the papers' numbers
    #[command(
        after_help = "Examples:\n  headgate reproduce --all --report report.html\n  headgate reproduce mc-04 --seeds 10\n\n\
                            Exit status: 0 every number is as expected, 1 at least one is not, 2 wrong usage."
    )]
    Reproduce(reproduce::Reproduce),
    /// Analyse, replay and convert block traces
    #[command(subcommand)]
    Trace(trace::Trace),
    /// Make certificates for NBD over TLS, where no other authority is at hand
    #[command(subcommand)]
    Tls(tls::Tls),
    /// Print the OpenAPI document of the HTTP API
    Api,
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the manual pages of all commands into a directory
    #[command(
        after_help = "Example:\n  headgate man /usr/local/share/man/man1 && man headgate-disk-create"
    )]
    Man {
        /// The directory; it is made if it does not exist
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
}

impl Cli {
    fn prints_json(&self) -> bool {
        match &self.command {
            Command::Datastore(command) => command.print().is_some_and(|p| p.json),
            Command::Disk(command) => command.print().is_some_and(|p| p.json),
            Command::Class(command) => command.print().is_some_and(|p| p.json),
            Command::Apply(command) => command.print.json,
            Command::Export(command) => command.print().is_some_and(|p| p.json),
            Command::Host(command) => command.print().json,
            Command::Node(command) => command.print().json,
            Command::Tenant(command) => command.print().is_some_and(|p| p.json),
            Command::Vm(command) => command.print().is_some_and(|p| p.json),
            Command::Catalog(command) => command.print().json,
            Command::Advise(command) => command.print.json,
            Command::Balance(command) => command.print.json,
            Command::Rules(command) => command.print().is_some_and(|p| p.json),
            Command::Top { print, .. } => print.json,
            Command::Events(command) => command.print.json,
            Command::Report(command) => command.prints_json(),
            Command::WhatIf(command) => command.print.json,
            Command::Load(args) => args.json,
            Command::Sim(command) => command.print().is_some_and(|p| p.json),
            Command::Reproduce(command) => command.print.json,
            Command::Trace(command) => command.print().is_some_and(|p| p.json),
            Command::Serve(_)
            | Command::Get(_)
            | Command::Tls(_)
            | Command::Api
            | Command::Completions { .. }
            | Command::Man { .. } => false,
        }
    }

    fn run(self, out: &mut dyn Write) -> Result<(), CliError> {
        match self.command {
            Command::Serve(args) => Ok(serve(&self.daemon.state_dir()?, &args)?),
            Command::Datastore(command) => command.run(&self.daemon, out),
            Command::Disk(command) => command.run(&self.daemon, out),
            Command::Class(command) => command.run(&self.daemon, out),
            Command::Apply(command) => command.run(&self.daemon, out),
            Command::Get(command) => command.run(&self.daemon, out),
            Command::Export(command) => command.run(&self.daemon, out),
            Command::Host(command) => command.run(&self.daemon, out),
            Command::Node(command) => command.run(&self.daemon, out),
            Command::Tenant(command) => command.run(&self.daemon, out),
            Command::Vm(command) => command.run(&self.daemon, out),
            Command::Catalog(command) => command.run(&self.daemon, out),
            Command::Advise(command) => command.run(&self.daemon, out),
            Command::Balance(command) => command.run(&self.daemon, out),
            Command::Rules(command) => command.run(&self.daemon, out),
            Command::Top { all: true, once, print } => {
                host::top(&self.daemon.client()?, once, print, out)
            }
            Command::Top { all: false, once, print } => {
                let client = self.daemon.client()?;
                // Redirected output gets plain lines.
                let once = once || !io::stdout().is_terminal();
                match (print.json, once) {
                    (true, _) => Ok(output::json(out, &top::fetch(&client)?)?),
                    (false, true) => Ok(out.write_all(top::once(&client)?.as_bytes())?),
                    (false, false) => Ok(top::live(&client)?),
                }
            }
            Command::Events(command) => command.run(&self.daemon, out),
            Command::Report(command) => command.run(&self.daemon, out),
            Command::WhatIf(command) => command.run(&self.daemon, out),
            Command::Load(args) => {
                let report = headgate_load::run(&args)?;
                print_load(out, &report, Print { json: args.json })
            }
            Command::Sim(command) => command.run(out),
            Command::Reproduce(command) => command.run(out),
            Command::Trace(command) => command.run(out),
            Command::Tls(command) => command.run(out),
            Command::Api => Ok(out.write_all(headgate_daemon::http::DOCUMENT.as_bytes())?),
            Command::Completions { shell } => {
                // The generator panics where a write fails, as into a pipe that nobody reads.
                let mut script = Vec::new();
                clap_complete::generate(shell, &mut Cli::command(), "headgate", &mut script);
                Ok(out.write_all(&script)?)
            }
            Command::Man { directory } => {
                let pages = man::write_pages(Cli::command(), &directory)?;
                Ok(writeln!(out, "{pages} manual pages in {}", directory.display())?)
            }
        }
    }
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let json = cli.prints_json();
    // Not locked: `serve` runs in here for days.
    let mut out = io::stdout();
    let result = cli.run(&mut out).and_then(|()| Ok(out.flush()?));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of a pipe has read enough.
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
