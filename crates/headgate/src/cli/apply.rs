//! Applies documents: what is different is shown, changed at once, and then disks are made.

use super::ask::{Wanted, ask};
use super::common::{DaemonArgs, Print};
use super::difference;
use super::documents::read_all;
use super::error::CliError;
use super::output::{json, warnings};
use super::values::force;
use clap::Args;
use headgate_api::apply::{Applied, Apply, Prune, WantedDisk};
use headgate_api::client::Client;
use headgate_api::placement::Created;
use headgate_api::types::{Disk, DiskCreate, ErrorBody, Force};
use headgate_model::Name;
use hyper::Method;
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;

const APPLY: &str = "/v1/apply";

/// The same, and nothing is changed.
const DRY_RUN: &str = "/v1/apply?dry_run=true";

/// Arguments of `apply`.
#[derive(Debug, Args)]
pub(super) struct ApplyArgs {
    /// Documents: files, directories with .yaml, .yml and .json files, or '-' for standard input
    #[arg(required = true, value_name = "FILE|DIR")]
    paths: Vec<PathBuf>,
    /// Show what would change and whether the promises fit, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Name of these documents together: what they make is theirs, and only that is pruned
    #[arg(long, value_name = "NAME", default_value = "default")]
    set: Name,
    /// Remove classes that these documents made and do not name any more; fails where such a disk
    /// is there, for it may hold data
    #[arg(long)]
    prune: bool,
    /// Remove such disks too; their content is kept as that of any removed disk
    #[arg(long)]
    prune_disks: bool,
    /// Do not ask before disks are removed
    #[arg(long)]
    yes: bool,
    /// Overbook datastores if need be
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    pub(super) print: Print,
}

/// A step that failed, after all else was changed.
#[derive(Debug, Serialize)]
struct Failed {
    disk: Name,
    error: ErrorBody,
}

/// All that came of it.
#[derive(Debug, Serialize)]
struct Outcome {
    #[serde(flatten)]
    applied: Applied,
    created: usize,
    removed: usize,
    failed: Vec<Failed>,
}

impl Outcome {
    fn is_nothing(&self) -> bool {
        let Applied { changed, to_create, to_remove, .. } = &self.applied;
        !changed && to_create.is_empty() && to_remove.is_empty()
    }
}

fn new_disk(wanted: &WantedDisk, force: Force) -> DiskCreate {
    DiskCreate {
        name: wanted.name.clone(),
        size: Some(wanted.size),
        datastore: Some(wanted.datastore.clone()),
        export: None,
        vm: wanted.vm.clone(),
        class: wanted.class.clone(),
        policy: wanted.policy,
        read_only: false,
        placement: Default::default(),
        moved_from: None,
        force,
        overwrite: Force::No,
        evict: Force::No,
    }
}

impl ApplyArgs {
    pub(super) fn run(self, daemon: &DaemonArgs, out: &mut dyn Write) -> Result<(), CliError> {
        let client = daemon.client()?;
        let mut wanted = read_all(self.set.clone(), &self.paths)?;
        wanted.force = force(self.force);
        wanted.prune = match (self.prune, self.prune_disks) {
            (_, true) => Prune::Disks,
            (true, false) => Prune::Empty,
            (false, false) => Prune::Nothing,
        };
        if self.prune_disks && !self.dry_run && !self.yes {
            self.ask_about_disks(&client, &wanted)?;
        }
        let path = if self.dry_run { DRY_RUN } else { APPLY };
        let applied: Applied = client.send(Method::POST, path, &wanted)?;
        if !self.print.json {
            let text = difference::text(&applied.changes, &applied.promises);
            out.write_all(text.as_bytes())?;
            out.flush()?;
        }
        let outcome = match self.dry_run {
            true => Outcome { applied, created: 0, removed: 0, failed: Vec::new() },
            false => make(&client, &wanted, applied),
        };
        self.tell(&wanted, &outcome, out)
    }

    /// What is removed cannot be asked about once the rest is changed.
    fn ask_about_disks(&self, client: &Client, wanted: &Apply) -> Result<(), CliError> {
        let would: Applied = client.send(Method::POST, DRY_RUN, wanted)?;
        if would.to_remove.is_empty() {
            return Ok(());
        }
        let names: Vec<&str> = would.to_remove.iter().map(Name::as_str).collect();
        ask(&format!("Remove {} disk(s): {}?", names.len(), names.join(", ")), Wanted::Yes)
    }

    fn tell(&self, wanted: &Apply, outcome: &Outcome, out: &mut dyn Write) -> Result<(), CliError> {
        let Outcome { applied, created, removed, failed } = outcome;
        if self.print.json {
            json(out, outcome)?;
        } else {
            warnings(&applied.warnings);
            for Failed { disk, error } in failed {
                eprint!(
                    "{}",
                    super::output::error(
                        &ErrorBody {
                            error: format!("disk '{disk}': {}", error.error),
                            ..error.clone()
                        },
                        false,
                    )
                );
            }
            let all = format!(
                "{} class(es), {} datastore(s) and {} disk(s)",
                wanted.classes.len(),
                wanted.datastores.len(),
                wanted.disks.len()
            );
            match (&applied.refused, self.dry_run) {
                (Some(_), _) => {}
                (None, _) if outcome.is_nothing() => {
                    writeln!(out, "nothing to change: {all} are as the documents say")?;
                }
                (None, true) => writeln!(out, "nothing is changed; the promises fit")?,
                (None, false) => writeln!(
                    out,
                    "applied: {} change(s), {created} disk(s) created, {removed} removed",
                    applied
                        .changes
                        .len()
                        .saturating_sub(applied.to_create.len() + applied.to_remove.len())
                )?,
            }
        }
        if let Some(refused) = &applied.refused {
            return Err(CliError::WouldBeRefused(Box::new(refused.clone())));
        }
        if !failed.is_empty() {
            let all = applied.to_create.len() + applied.to_remove.len();
            return Err(CliError::Unfinished { failed: failed.len(), all });
        }
        Ok(())
    }
}

/// Makes the disks that are to be made, and removes those that are to go. One that fails keeps no
/// other from it.
fn make(client: &Client, wanted: &Apply, applied: Applied) -> Outcome {
    let mut outcome = Outcome { applied, created: 0, removed: 0, failed: Vec::new() };
    let to_create = outcome.applied.to_create.iter();
    for disk in to_create.filter_map(|name| wanted.disks.iter().find(|one| one.name == *name)) {
        let request = new_disk(disk, wanted.force);
        match client.send::<_, Created<Disk>>(Method::POST, "/v1/disks", &request) {
            Ok(created) => {
                outcome.created += 1;
                let of = |warning: String| format!("disk '{}': {warning}", disk.name);
                // What was said of all of them is not said of each.
                let known = &outcome.applied.warnings;
                let new = created.warnings.into_iter().filter(|one| !known.contains(one)).map(of);
                outcome.applied.warnings.extend(new.collect::<Vec<_>>());
            }
            Err(e) => {
                let (disk, error) = (disk.name.clone(), e.body());
                outcome.failed.push(Failed { disk, error });
                if let headgate_api::client::ClientError::NoDaemon { .. } = e {
                    break;
                }
            }
        }
    }
    for name in &outcome.applied.to_remove {
        match client.delete(&format!("/v1/disks/{name}?force=no")) {
            Ok(()) => outcome.removed += 1,
            Err(e) => outcome.failed.push(Failed { disk: name.clone(), error: e.body() }),
        }
    }
    outcome
}
