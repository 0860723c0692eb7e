use super::attach::Attach;
use super::common::{DaemonArgs, Print};
use super::copy::{self, CopyDisk, Snapshot};
use super::create::{CloneDisk, NewDisk};
use super::disk_export::DiskExport;
use super::disk_import::{self, DiskImport};
use super::disk_show::Show;
use super::disk_text::{
    block_sizes, describe_connection, exports, lease, servers, set_by, state, whence,
};
use super::dry_run::DryRunArg;
use super::error::CliError;
use super::host;
use super::incomplete;
use super::migrate::{self, Migrate};
use super::output::{
    Align, Table, date, description, json, or_dash, print_changed, print_value, warnings,
};
use super::placement::{self, DiskArgs};
use super::policy::{PolicyArgs, policy};
use super::removed::{self, Asking, Content};
use super::resize::Resize;
use super::takeover::Takeover;
use super::trouble;
use super::values::{self, OrNone, Word, force, options};
use clap::{Args, Subcommand};
use headgate_api::client::Client;
use headgate_api::placement::Created;
use headgate_api::priorities::Priorities;
use headgate_api::removed::{DiskRestore, RemovedDisk};
use headgate_api::types::{self, Changed, DiskPatch};
use headgate_model::PriorityScope;
use headgate_model::{Name, PolicyField};
use headgate_placement::Placement;
use hyper::Method;
use serde::Serialize;
use std::io::Write;

/// Commands on disks.
#[derive(Debug, Subcommand)]
pub(super) enum DiskCommand {
    /// Create a disk and serve it
    ///
    /// With --from it has the content of another disk, as of one instant while that is used, and
    /// serves when all is copied; the command waits for that and shows how far it is.
    #[command(
        after_help = "Examples:\n  headgate disk create db0 --size 100G --vm db --reservation 500 --shares 2000\n  \
        headgate disk create db1 --from db0-monday --size 200G --class gold\n  \
        headgate disk create scratch --size 20G --limit 200 --limit-bandwidth 50M\n  \
        headgate disk create db1-new --size 100G --datastore array9 --moved-from db1"
    )]
    Create(Box<NewDisk>),
    /// Create a disk with the content of an image file or of an NBD server's export
    ///
    /// The content is written through the disk's own NBD export: the disk's policy holds for it.
    /// Until it is whole the disk belongs to no virtual machine but 'incomplete-import'. When the
    /// command fails or is interrupted, the disk is removed again.
    #[command(
        mut_arg("size", |arg| arg.help(disk_import::SIZE)),
        mut_arg("export", |arg| arg.help(disk_import::EXPORT)),
        after_help = "Examples:\n  headgate disk import db0 debian-12.qcow2 --vm db --reservation 500\n  \
        headgate disk import web web.raw --size 40G --limit-bandwidth 50M\n  \
        headgate disk import old 'nbd://array9/old'"
    )]
    Import(DiskImport),
    /// List imports that are under way, and what a killed one has left
    Imports {
        #[command(flatten)]
        print: Print,
    },
    /// Write a disk's content into an image file
    ///
    /// The file gets its name when it is whole. When the command fails or is interrupted, no file
    /// is left.
    #[command(after_help = "Examples:\n  headgate disk export db0 db0.qcow2 --format qcow2\n  \
        headgate disk export scratch /backup/scratch.raw --overwrite")]
    Export(DiskExport),
    /// List disks with their policies
    List {
        /// List removed disks instead, whose content is kept for a while
        #[arg(long)]
        removed: bool,
        /// List the disks of all hosts that meet in the daemon's etcd, those first that do not get
        /// what they were promised
        #[arg(long, conflicts_with = "removed")]
        all: bool,
        #[command(flatten)]
        print: Print,
    },
    /// Show a disk, and what its requests wait for
    #[command(after_help = "Examples:\n  headgate disk show db0\n  \
        headgate disk show db0 --history --since 2026-11-28T02:00 --until 2026-11-28T04:00")]
    Show(Show),
    /// Change a disk's policy or virtual machine; in force when the command returns
    #[command(
        after_help = "Examples:\n  headgate disk set db0 --reservation 800\n  headgate disk set scratch --limit none\n  \
        headgate disk set backup --limit 100 --limit-mode soft\n  \
        headgate disk set log --limit-write 200 --limit-write-bandwidth 20M\n  \
        headgate disk set web --limit 500 --limit-peak 3000 --limit-peak-time 60"
    )]
    Set(Set),
    /// Print how to attach a disk to a virtual machine
    #[command(after_help = "Example:\n  qemu-img info \"$(headgate disk attach db0 --nbd)\"")]
    Attach(Attach),
    /// Give a disk another size; a larger one while it is used
    ///
    /// A guest sees a larger disk at once, an NBD client when it connects again. On a block device
    /// the disk takes the size that the device has. A disk that does not serve because its image
    /// has another size takes that.
    #[command(after_help = "Examples:\n  headgate disk resize db0 --size 200G\n  \
        headgate disk resize scratch --size 5G --shrink")]
    Resize(Resize),
    /// Move a disk to another datastore while it is used
    ///
    /// The command waits for the end and shows how far it is. The move goes on without it.
    #[command(after_help = "Examples:\n  headgate disk migrate db0 --to fast\n  \
        headgate disk migrate db0 --to fast --move-bandwidth 50M --detach\n  \
        headgate disk migrate db0 --pause\n  headgate disk migrate db0 --cancel")]
    Migrate(Migrate),
    /// List disks that are being moved, and the last ones that were
    Moves {
        #[command(flatten)]
        print: Print,
    },
    /// Copy a disk as of one instant while it is used
    ///
    /// The copy has what clients had an answer for before the command, and nothing that they ask
    /// for after it: what a power cut would have left. It is a disk when all is copied; the command
    /// waits for that and shows how far it is.
    #[command(after_help = "Examples:\n  headgate disk copy db0 db0-test\n  \
        headgate disk copy db0 db0-test --datastore fast --copy-bandwidth 50M --detach\n  \
        headgate disk copy --cancel db0-test")]
    Copy(CopyDisk),
    /// Copy a disk with its class, its policy and its placement while it is used
    ///
    /// As 'disk copy', but what no option says of the new disk is as with the disk that is copied.
    /// Its virtual machine is not: name one with --vm. Of a snapshot, which has a policy of its
    /// own, the clone is a disk that clients can write.
    #[command(after_help = "Examples:\n  headgate disk clone db0 db0-test\n  \
        headgate disk clone db0 db0-test --vm test --reservation none --size 200G")]
    Clone(CloneDisk),
    /// Make a read-only copy of a disk as of one instant while it is used
    #[command(after_help = "Examples:\n  headgate disk snapshot db0 db0-monday\n  \
        headgate disk export db0-monday backup.qcow2 --format qcow2")]
    Snapshot(Snapshot),
    /// List copies that are being made, and the last ones that were
    Copies {
        #[command(flatten)]
        print: Print,
    },
    /// Serve a disk that another host created or served
    ///
    /// The disk's image is on a shared datastore, or the disk is known here and another host has
    /// taken it over.
    #[command(
        after_help = "Examples:\n  headgate disk takeover db0 --datastore shared --vm db --reservation 500\n  \
        headgate disk takeover db0"
    )]
    Takeover(Takeover),
    /// Have a disk that holds requests try its storage now
    ///
    /// A disk holds requests that its storage failed, as --werror and --rerror say. It tries one of
    /// them at growing intervals of up to 16 s, and goes on when the storage takes it.
    Resume {
        /// Name of the disk
        name: Name,
        #[command(flatten)]
        print: Print,
    },
    /// Remove a disk; its content is kept for a day, or as 'headgate serve --keep-removed-for' says
    ///
    /// At a terminal you are asked first. Content on a block device or an NBD server stays there.
    #[command(
        after_help = "Examples:\n  headgate disk remove db0\n  headgate disk remove scratch --purge --yes"
    )]
    Remove {
        /// Name of the disk
        name: Name,
        /// Delete the content at once
        #[arg(long, conflicts_with = "keep_image")]
        purge: bool,
        /// Do not ask
        #[arg(long)]
        yes: bool,
        /// Remove the disk even while clients are connected
        #[arg(long)]
        force: bool,
        /// Keep the content, so that another host can take the disk over
        #[arg(long)]
        keep_image: bool,
        #[command(flatten)]
        dry_run: DryRunArg,
    },
    /// Serve a removed disk again, with its content and its policy
    #[command(
        after_help = "Examples:\n  headgate disk restore db0\n  headgate disk restore db0@1764064800 --name db0-old"
    )]
    Restore {
        /// The name that the disk had, or its id of 'headgate disk list --removed'
        which: String,
        /// Give the disk another name
        #[arg(long, value_name = "NAME")]
        name: Option<Name>,
        /// Restore the disk even if its reservation overbooks the datastore
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        print: Print,
    },
    /// Delete the content of a removed disk
    Purge {
        /// The name that the disk had, or its id of 'headgate disk list --removed'
        which: String,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
}

const YES_OR_NO: &[Word<bool>] =
    &[Word("yes", true, "They may not"), Word("no", false, "They may")];

/// Arguments of `disk set`.
#[derive(Debug, Args)]
pub(super) struct Set {
    /// Name of the disk
    name: Name,
    /// Class of policies that the disk has, as of 'headgate class list', or 'none'; what is set at
    /// the disk itself goes before what it says
    #[arg(long, value_name = "CLASS")]
    class: Option<OrNone<Name>>,
    /// Options of its policy that are not set at the disk any more: its class says them, or the
    /// default, such as limit,shares; or 'all'
    #[arg(long, value_name = "OPTIONS", value_parser = inherited)]
    inherit: Option<Inherited>,
    #[command(flatten)]
    policy: PolicyArgs,
    /// Virtual machine that the disk belongs to, or 'none'
    #[arg(long, value_name = "VM")]
    vm: Option<OrNone<Name>>,
    #[command(flatten)]
    placement: DiskArgs,
    /// Whether clients may read and not write; none may be connected
    #[arg(long, value_name = "yes|no", value_parser = values::one_of(YES_OR_NO))]
    read_only: Option<bool>,
    /// Set the reservation even if it overbooks the datastore
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    dry_run: DryRunArg,
    #[command(flatten)]
    print: Print,
}

/// Fields of a policy, separated by commas.
#[derive(Clone, Debug)]
struct Inherited(Vec<PolicyField>);

fn inherited(text: &str) -> Result<Inherited, String> {
    if text == "all" {
        return Ok(Inherited(PolicyField::all().collect()));
    }
    let fields = text.split(',').map(|one| one.trim().parse::<PolicyField>());
    fields.collect::<Result<_, _>>().map(Inherited).map_err(|e| format!("{e}, or 'all'"))
}

impl DiskCommand {
    pub(super) fn print(&self) -> Option<Print> {
        match self {
            DiskCommand::List { print, .. }
            | DiskCommand::Resume { print, .. }
            | DiskCommand::Moves { print }
            | DiskCommand::Copies { print }
            | DiskCommand::Restore { print, .. } => Some(*print),
            DiskCommand::Show(show) => Some(show.print),
            DiskCommand::Create(create) => Some(create.print()),
            DiskCommand::Clone(clone) => Some(clone.print()),
            DiskCommand::Imports { print } => Some(*print),
            DiskCommand::Import(import) => Some(import.print()),
            DiskCommand::Export(export) => Some(export.print),
            DiskCommand::Set(set) => Some(set.print),
            DiskCommand::Attach(attach) => Some(attach.print),
            DiskCommand::Resize(resize) => Some(resize.print),
            DiskCommand::Migrate(migrate) => Some(migrate.print),
            DiskCommand::Copy(copy) => Some(copy.print),
            DiskCommand::Snapshot(snapshot) => Some(snapshot.print),
            DiskCommand::Takeover(takeover) => Some(takeover.print),
            DiskCommand::Remove { .. } | DiskCommand::Purge { .. } => None,
        }
    }

    pub(super) fn run(self, daemon: &DaemonArgs, out: &mut dyn Write) -> Result<(), CliError> {
        let client = daemon.client()?;
        match self {
            DiskCommand::Create(new) if new.is_copy() => new.copy(&client, out),
            DiskCommand::Create(new) => create(*new, &client, out),
            DiskCommand::Clone(clone) => clone.run(&client, out),
            DiskCommand::Import(import) if import.is_cancel() => import.cancel(&client, out),
            DiskCommand::Import(import) => {
                let (print, imported) = (import.print(), import.run(&client)?);
                print_created(print, &imported, &imported.created, out)
            }
            DiskCommand::Imports { print } => disk_import::list(&client, print, out),
            DiskCommand::Export(export) => export.run(&client, out),
            DiskCommand::Set(set) => {
                let (print, dry_run) = (set.print, set.dry_run);
                let path = format!("/v1/disks/{}", set.name);
                let patch = set.patch();
                if patch == (DiskPatch { force: patch.force, ..DiskPatch::default() }) {
                    let [policy, placement] = [options::<PolicyArgs>(), options::<DiskArgs>()];
                    let message = format!(
                        "nothing to change: give one of {policy}, --class, --inherit, --vm, --read-only, \
                         {placement}"
                    );
                    return Err(CliError::Usage(message));
                }
                let to = (Method::PATCH, path.as_str());
                let changed: Option<Changed<types::Disk>> =
                    dry_run.send(&client, to, &patch, print, out)?;
                changed.map_or(Ok(()), |changed| print_changed(out, print, &changed, describe))
            }
            DiskCommand::List { all: true, print, .. } => host::list_disks(&client, print, out),
            DiskCommand::List { removed: true, print, .. } => {
                let removed: Vec<RemovedDisk> = client.get("/v1/removed")?;
                print_value(out, print, &removed, |removed| removed::table(removed))
            }
            DiskCommand::List { removed: false, print, .. } => {
                let disks: Vec<types::Disk> = client.get("/v1/disks")?;
                print_value(out, print, &disks, |disks| table(disks).render())
            }
            DiskCommand::Show(show) => show.run(&client, describe, out),
            DiskCommand::Attach(attach) => attach.run(&client, out),
            DiskCommand::Resize(resize) => {
                let changed = resize.run(&client, out)?;
                changed
                    .map_or(Ok(()), |changed| print_changed(out, resize.print, &changed, describe))
            }
            DiskCommand::Migrate(migrate) => migrate.run(&client, out),
            DiskCommand::Moves { print } => migrate::list(&client, print, out),
            DiskCommand::Copy(copy) => copy.run(&client, out),
            DiskCommand::Snapshot(snapshot) => snapshot.run(&client, out),
            DiskCommand::Copies { print } => copy::list(&client, print, out),
            DiskCommand::Takeover(takeover) => {
                let print = takeover.print;
                print_changed(out, print, &takeover.run(&client)?, describe)
            }
            DiskCommand::Resume { name, print } => {
                print_value(out, print, &trouble::resume(&client, &name)?, describe)
            }
            DiskCommand::Remove { name, purge, yes, force, keep_image, dry_run } => {
                let force = if force { "force=yes" } else { "force=no" };
                let content = match (purge, keep_image) {
                    (true, _) => Content::Purge,
                    (_, true) => Content::Leave,
                    _ => Content::KeepForAWhile,
                };
                let how = (force, content, dry_run);
                removed::remove(&client, &name, how, asking(yes), out)
            }
            DiskCommand::Restore { which, name, force: forced, print } => {
                let request = DiskRestore { name, force: force(forced) };
                let path = format!("/v1/removed/{}/restore", removed::in_path(&which));
                let restored: Changed<types::Disk> = client.send(Method::POST, &path, &request)?;
                print_changed(out, print, &restored, describe)
            }
            DiskCommand::Purge { which, yes } => removed::purge(&client, &which, asking(yes)),
        }
    }
}

fn create(new: NewDisk, client: &Client, out: &mut dyn Write) -> Result<(), CliError> {
    let print = new.print();
    let created = new.create(client, out)?;
    created.map_or(Ok(()), |created| print_created(print, &created, &created, out))
}

/// A new disk in words, or all that is known of it.
fn print_created<T: Serialize>(
    print: Print,
    all: &T,
    created: &Created<types::Disk>,
    out: &mut dyn Write,
) -> Result<(), CliError> {
    if print.json {
        return Ok(json(out, all)?);
    }
    out.write_all(describe(&created.now).as_bytes())?;
    out.write_all(chosen(created.placement_chosen.as_ref()).as_bytes())?;
    warnings(&created.warnings);
    Ok(())
}

fn asking(yes: bool) -> Asking {
    if yes { Asking::Never } else { Asking::AtATerminal }
}

impl Set {
    fn patch(self) -> DiskPatch {
        DiskPatch {
            class: OrNone::change(self.class),
            inherit: self.inherit.map(|Inherited(fields)| fields).unwrap_or_default(),
            vm: OrNone::change(self.vm),
            placement: self.placement.patch(),
            read_only: self.read_only,
            force: force(self.force),
            ..self.policy.patch()
        }
    }
}

/// Why a disk is where it is, when that was not asked for and there was something to choose from.
fn chosen(placement: Option<&Placement>) -> String {
    let Some(placement) = placement.filter(|found| found.ranking.len() + found.refused.len() > 1)
    else {
        return String::new();
    };
    let mut text = format!("\nplaced on '{}': {}\n", placement.datastore, placement.basis);
    for other in &placement.ranking {
        let latency = other
            .latency
            .map_or_else(|| "latency not known".into(), |latency| format!("latency {latency}"));
        text.push_str(&format!(
            "  {}: load {} of the mean, {latency}\n",
            other.datastore, other.load
        ));
    }
    placement
        .refused
        .iter()
        .for_each(|(name, because)| text.push_str(&format!("  {name}: {because}\n")));
    text
}

fn table(disks: &[types::Disk]) -> Table {
    let mut table = Table::new(&[
        ("NAME", Align::Left),
        ("STATE", Align::Left),
        ("DATASTORE", Align::Left),
        ("VM", Align::Left),
        ("SIZE", Align::Right),
        ("RESERVATION", Align::Right),
        ("LIMIT", Align::Right),
        ("BANDWIDTH", Align::Right),
        ("SHARES", Align::Right),
        ("CLIENTS", Align::Right),
    ]);
    for disk in disks {
        let policy = disk.effective_policy.unwrap_or(disk.policy);
        table.row(vec![
            disk.name.to_string(),
            state(disk),
            disk.datastore.to_string(),
            or_dash(disk.vm.as_ref()),
            disk.size.to_string(),
            or_dash(policy.reservation),
            or_dash(policy.limit),
            or_dash(policy.limit_bandwidth),
            policy.shares.to_string(),
            disk.clients.to_string(),
        ]);
    }
    table
}

fn priorities(set: &Priorities) -> String {
    let Priorities { max_priority, default_priority, priority_scope, .. } = set;
    format!(
        "{default_priority} unless given, at most {max_priority}, {} the disk",
        match priority_scope {
            PriorityScope::Within => "within",
            PriorityScope::Across => "beyond",
        }
    )
}

fn describe(disk: &types::Disk) -> String {
    let in_force = disk.effective_policy.as_ref().map_or_else(|| "not in service".into(), policy);
    let mut lines = vec![
        ("name", Some(disk.name.to_string())),
        ("state", Some(state(disk))),
        ("reason", disk.reason.clone()),
        ("copying", disk.filling.as_ref().map(incomplete::words)),
        ("trouble", disk.trouble.as_ref().map(trouble::words)),
        ("last error", disk.last_error.as_ref().map(trouble::last_error)),
        ("datastore", Some(disk.datastore.to_string())),
        ("export", disk.export.clone()),
        ("connection", disk.connection.as_ref().map(describe_connection)),
        ("vm", disk.vm.as_ref().map(Name::to_string)),
        ("size", Some(disk.size.to_string())),
        ("read-only", disk.read_only.then(|| "yes".into())),
        ("blocks", disk.block_sizes.as_ref().map(block_sizes)),
        ("policy set", Some(policy(&disk.policy))),
        ("class", disk.class.as_ref().map(Name::to_string)),
        ("policy from", whence(disk)),
        ("policy in force", Some(in_force)),
        ("latency", disk.latency.as_ref().map(ToString::to_string)),
        ("priorities", disk.effective_priorities.as_ref().map(priorities)),
        (
            "overbooked",
            disk.overbooked
                .then(|| format!("datastore '{}' promises more than it can", disk.datastore)),
        ),
        ("clients", Some(disk.clients.to_string())),
        ("nbd", Some(disk.nbd_uri.clone())),
        ("vhost-user", Some(disk.vhost_socket.clone())),
        ("further exports", exports(disk)),
        ("lease", disk.lease.as_ref().map(lease)),
        ("move", disk.moving.as_ref().map(migrate::words)),
        ("applied by", disk.applied_by.as_ref().map(|set| format!("documents '{set}'"))),
        ("policy set by", disk.set_by.as_ref().map(set_by)),
        ("copy of", disk.origin.as_ref().map(|of| format!("'{}' as of {}", of.disk, date(of.at)))),
        ("changes since", (!disk.changes_since.is_empty()).then(|| disk.changes_since.join(", "))),
        (
            "moved",
            disk.moved.as_ref().map(|moved| format!("from '{}' on {}", moved.from, date(moved.at))),
        ),
    ];
    lines.extend(placement::disk(&disk.placement));
    let servers = disk.connection.as_ref().map(servers).unwrap_or_default();
    lines.extend(servers.into_iter().map(|(server, line)| (server, Some(line))));
    description(&lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use headgate_model::BlockSizes;
    use headgate_units::{Bytes, BytesPerSec, Iops};

    fn disk() -> types::Disk {
        serde_json::from_str(
            r#"{"name": "db0", "state": "serving", "reason": null, "datastore": "array", "vm": null,
                "size": 10737418240, "policy": {"reservation": 250, "limit_bandwidth": 52428800, "shares": 200},
                "effective_policy": {"limit_bandwidth": 52428800, "shares": 200, "burst": 0},
                "overbooked": true, "clients": 1, "nbd_uri": "nbd+unix:///db0?socket=/s/nbd.sock",
                "vhost_socket": "/s/vhost/db0.sock"}"#,
        )
        .unwrap()
    }

    #[test]
    fn the_list_shows_the_policy_in_force() {
        assert_eq!(
            table(&[disk()]).render(),
            "NAME  STATE       DATASTORE  VM    SIZE  RESERVATION  LIMIT  BANDWIDTH  SHARES  CLIENTS\n\
             db0   overbooked  array      -   10 GiB            -      -   50 MiB/s     200        1\n"
        );
    }

    #[test]
    fn the_description_shows_what_guests_are_told_of_block_sizes() {
        let sizes = |physical, alignment_offset, minimum_io, optimal_io| {
            let [logical, physical, alignment_offset, minimum_io, optimal_io] =
                [512, physical, alignment_offset, minimum_io, optimal_io].map(Bytes);
            BlockSizes { logical, physical, alignment_offset, minimum_io, optimal_io }
        };
        let text = |told| describe(&types::Disk { block_sizes: Some(told), ..disk() });
        let plain = text(sizes(4096, 0, 4096, 0));
        assert!(plain.contains("blocks:           512 B logical, 4 KiB physical\n"), "{plain}");
        let all = text(sizes(4096, 3584, 65_536, 1 << 20));
        assert!(
            all.contains(
                "4 KiB physical, the first at 3.50 KiB, requests of 64 KiB, long ones of 1 MiB\n"
            ),
            "{all}"
        );
        assert!(!describe(&disk()).contains("blocks:"));
    }

    #[test]
    fn the_description_shows_what_was_was_set_beside_what_is_in_force() {
        let text = describe(&disk());
        assert!(text.contains(
            "policy set:       reservation 250 IOPS, limit 50 MiB/s, shares 200, burst 1 IOs\n"
        ));
        assert!(
            text.contains("policy in force:  limit 50 MiB/s, shares 200, burst 0 IOs\n"),
            "{text}"
        );
        let mut disk = disk();
        disk.policy.limit_write = Iops::new(200).ok();
        disk.policy.limit_read_bandwidth = BytesPerSec::new(20 << 20).ok();
        assert!(describe(&disk).contains(
            "limit 50 MiB/s, limit of reads 20 MiB/s, limit of writes 200 IOPS, shares 200"
        ));
    }
}
