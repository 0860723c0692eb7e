use super::common::{DaemonArgs, Print};
use super::error::CliError;
use super::output::{Align, Table, description, json, print_value};
use clap::{Args, Subcommand};
use headgate_api::priorities::{self, ExportCreate, ExportPatch};
use headgate_model::Name;
use headgate_units::Priority;
use hyper::Method;
use std::io::Write;

/// Commands on additional exports.
#[derive(Debug, Subcommand)]
pub(super) enum Export {
    /// Export a disk under an additional name, with a priority of its own or read-only
    ///
    /// NBD requests carry no priority, so an export carries it for them.
    #[command(after_help = "Example:\n  headgate export add db0-backup --disk db0 --priority 10")]
    Add(Add),
    /// List additional exports; every disk is also exported under its own name
    List {
        #[command(flatten)]
        print: Print,
    },
    /// Change an export's priority; it applies to the next request of connected clients
    Set(Set),
    /// Remove an export; clients that use it stay connected, new ones are refused
    Remove {
        /// Name of the export
        name: Name,
    },
}

/// Arguments of `export add`.
#[derive(Debug, Args)]
pub(super) struct Add {
    /// Name of the export: 1 to 64 letters, digits, '.', '_', '-'; not the name of a disk
    name: Name,
    /// Disk to export
    #[arg(long)]
    disk: Name,
    /// Priority of its requests, 1 to 254, at most the --max-priority of the disk's virtual
    /// machine; requests without one usually have 100
    #[arg(long, value_name = "P", default_value = "100")]
    priority: Priority,
    /// Its clients cannot write: for backups of a disk in use, and for whoever only looks
    #[arg(long)]
    read_only: bool,
    #[command(flatten)]
    print: Print,
}

/// Arguments of `export set`.
#[derive(Debug, Args)]
pub(super) struct Set {
    /// Name of the export
    name: Name,
    /// Priority of its requests, 1 to 254
    #[arg(long, value_name = "P")]
    priority: Priority,
    #[command(flatten)]
    print: Print,
}

impl Export {
    pub(super) fn print(&self) -> Option<Print> {
        match self {
            Export::Add(add) => Some(add.print),
            Export::List { print } => Some(*print),
            Export::Set(set) => Some(set.print),
            Export::Remove { .. } => None,
        }
    }

    pub(super) fn run(self, daemon: &DaemonArgs, out: &mut dyn Write) -> Result<(), CliError> {
        let client = daemon.client()?;
        match self {
            Export::Add(Add { name, disk, priority, read_only, print }) => {
                let request = ExportCreate { name, disk, priority, read_only };
                show(out, &client.send(Method::POST, "/v1/exports", &request)?, print)
            }
            Export::Set(Set { name, priority, print }) => {
                let path = format!("/v1/exports/{name}");
                show(out, &client.send(Method::PATCH, &path, &ExportPatch { priority })?, print)
            }
            Export::List { print } => {
                let exports: Vec<priorities::Export> = client.get("/v1/exports")?;
                print_value(out, print, &exports, |exports| table(exports).render())
            }
            Export::Remove { name } => Ok(client.delete(&format!("/v1/exports/{name}"))?),
        }
    }
}

fn show(out: &mut dyn Write, export: &priorities::Export, print: Print) -> Result<(), CliError> {
    if print.json {
        return Ok(json(out, export)?);
    }
    let text = description(&[
        ("name", Some(export.name.to_string())),
        ("disk", Some(export.disk.to_string())),
        ("priority", Some(export.priority.to_string())),
        ("access", Some(access(export).to_owned())),
        ("nbd", Some(export.nbd_uri.clone())),
    ]);
    Ok(out.write_all(text.as_bytes())?)
}

fn access(export: &priorities::Export) -> &'static str {
    if export.read_only { "read-only" } else { "read-write" }
}

fn table(exports: &[priorities::Export]) -> Table {
    let mut table = Table::new(&[
        ("NAME", Align::Left),
        ("DISK", Align::Left),
        ("PRIORITY", Align::Right),
        ("ACCESS", Align::Left),
        ("NBD", Align::Left),
    ]);
    for export in exports {
        table.row(vec![
            export.name.to_string(),
            export.disk.to_string(),
            export.priority.to_string(),
            access(export).to_owned(),
            export.nbd_uri.clone(),
        ]);
    }
    table
}
