//! Removal of disks, and removed disks whose content is kept.

use super::ask::{Wanted, ask};
use super::dry_run::DryRunArg;
use super::error::CliError;
use super::output::{Align, Table, date, or_dash};
use headgate_api::client::Client;
use headgate_api::removed::RemovedDisk;
use headgate_api::types::{self, Datastore};
use headgate_model::Name;
use std::io::Write;

/// What becomes of a disk's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// It is kept for a while.
    KeepForAWhile,
    /// It is deleted.
    Purge,
    /// It is left for another host.
    Leave,
}

/// Whether the operator is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asking {
    /// At a terminal.
    AtATerminal,
    /// The answer was given with the command.
    Never,
}

/// Whether a datastore has images that can be kept.
fn keeps(datastore: &Datastore) -> bool {
    datastore.backend.dir.is_some() || datastore.backend.emulated.is_some()
}

fn question(disk: &types::Disk, datastore: &Datastore, content: Content) -> Option<(String, bool)> {
    let name = &disk.name;
    let backend = &datastore.backend;
    Some(match (content, backend) {
        (Content::Leave, _) => return None,
        (_, types::BackendSpec { memory: Some(_), .. }) => (
            format!(
                "Disk '{name}' is in memory: its content is lost at once and cannot be restored."
            ),
            true,
        ),
        (_, types::BackendSpec { block: Some(device), .. }) => (
            format!(
                "Remove disk '{name}'? Its content stays on {device}, but nothing is kept of the \
                 disk: it cannot be restored."
            ),
            true,
        ),
        (_, types::BackendSpec { nbd: Some(server), .. }) => (
            format!(
                "Remove disk '{name}'? Its content stays at {server}, but nothing is kept of the \
                 disk: it cannot be restored."
            ),
            true,
        ),
        (_, types::BackendSpec { stripe: Some(servers), .. }) => (
            format!(
                "Remove disk '{name}'? Its content stays at {}, but nothing is kept of the disk: \
                 it can be created again of its exports.",
                servers.join(", ")
            ),
            true,
        ),
        (Content::Purge, _) => (
            format!("The content of disk '{name}' is deleted at once and cannot be restored."),
            true,
        ),
        (Content::KeepForAWhile, _) => {
            (format!("Remove disk '{name}'? Its content is kept for a while."), false)
        }
    })
}

/// Removes a disk.
pub(super) fn remove(
    client: &Client,
    name: &Name,
    (force, content, dry_run): (&str, Content, DryRunArg),
    asking: Asking,
    out: &mut dyn Write,
) -> Result<(), CliError> {
    let image = match content {
        Content::KeepForAWhile => "remove",
        Content::Purge => "purge",
        Content::Leave => "keep",
    };
    let path = format!("/v1/disks/{name}?{force}&image={image}");
    if !dry_run.try_removal(client, &path, out)? {
        return Ok(());
    }
    let disk: types::Disk = client.get(&format!("/v1/disks/{name}"))?;
    let datastore: Datastore = client.get(&format!("/v1/datastores/{}", disk.datastore))?;
    if let (Asking::AtATerminal, Some((text, for_good))) =
        (asking, question(&disk, &datastore, content))
    {
        ask(&text, if for_good { Wanted::Name(name.as_str()) } else { Wanted::Yes })?;
    }
    client.delete(&path)?;
    if let Some(export) = disk.export {
        writeln!(out, "disk '{name}' is removed; export '{export}' keeps its data at its server")?;
    } else if let Some(device) = &datastore.backend.block {
        writeln!(out, "disk '{name}' is removed; its content stays on {device}")?;
    } else if content == Content::KeepForAWhile && keeps(&datastore) {
        let removed: Vec<RemovedDisk> = client.get("/v1/removed")?;
        match removed.iter().rfind(|one| one.name == *name) {
            Some(kept) => writeln!(
                out,
                "disk '{name}' is removed; its content is kept until {}: 'headgate disk restore \
                 {name}' brings it back",
                date(kept.purged_at)
            )?,
            None => writeln!(out, "disk '{name}' is removed with its content")?,
        }
    }
    Ok(())
}

/// Deletes the content of a removed disk.
pub(super) fn purge(client: &Client, which: &str, asking: Asking) -> Result<(), CliError> {
    if asking == Asking::AtATerminal {
        let text =
            format!("The content of removed disk '{which}' is deleted and cannot be restored.");
        ask(&text, Wanted::Yes)?;
    }
    Ok(client.delete(&format!("/v1/removed/{}", in_path(which)))?)
}

/// What a name or an id is in a path; anything else is no such thing, and the daemon says so.
pub(super) fn in_path(which: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-@".contains(c);
    which.chars().map(|c| if plain(c) { c.to_string() } else { "_".into() }).collect()
}

pub(super) fn table(removed: &[RemovedDisk]) -> String {
    let mut table = Table::new(&[
        ("ID", Align::Left),
        ("DATASTORE", Align::Left),
        ("VM", Align::Left),
        ("SIZE", Align::Right),
        ("ALLOCATED", Align::Right),
        ("REMOVED", Align::Left),
        ("PURGED", Align::Left),
    ]);
    for disk in removed {
        table.row(vec![
            disk.id.clone(),
            disk.datastore.to_string(),
            or_dash(disk.vm.as_ref()),
            disk.size.to_string(),
            disk.allocated.to_string(),
            date(disk.removed_at),
            date(disk.purged_at),
        ]);
    }
    table.render()
}
