//! Copies of disks as of one instant.

use super::common::Print;
use super::error::CliError;
use super::migrate::span;
use super::output::{Align, Table, date, or_dash, print_value, warnings};
use super::policy::PolicyArgs;
use super::values::{OrNone, force};
use clap::{Args, ValueEnum};
use headgate_api::client::Client;
use headgate_api::copies::{Copy, CopyState, DiskCopy, SettingsFrom};
use headgate_api::pace::PacePatch;
use headgate_api::types::{Changed, Disk};
use headgate_daemon::serve::signals::Signals;
use headgate_model::{Blocks, DiskPlacement, Name, PolicyPart, Reflink};
use headgate_units::{Bytes, BytesPerSec, Iops, Shares};
use hyper::Method;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::Write;
use std::time::Duration;

/// How often one looks how far a copy is.
const WATCH: Duration = Duration::from_millis(200);

/// What copying may take.
#[derive(Debug, Args)]
#[command(next_help_heading = "Copying")]
pub(super) struct Pace {
    /// Weight of the copying against the disks of both datastores, 1 to 1000000 [default: 100]
    #[arg(long, value_name = "N")]
    copy_shares: Option<Shares>,
    /// Maximum of the copying in IOs per second, or 'none'
    #[arg(long, value_name = "IOPS")]
    copy_limit: Option<OrNone<Iops>>,
    /// Maximum bandwidth of the copying in bytes per second, such as 50M, or 'none'
    #[arg(long, value_name = "BYTES")]
    copy_bandwidth: Option<OrNone<BytesPerSec>>,
    /// Whether the copy may use the disk's blocks, until either changes them: where both are files
    /// of one file system that can share blocks, such as XFS or Btrfs, or never [default: auto]
    #[arg(long, value_name = "WHEN")]
    reflink: Option<ReflinkArg>,
    /// Do not wait for the end: the command returns when the instant has passed
    #[arg(long)]
    detach: bool,
}

/// [`Reflink`] on the command line.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum ReflinkArg {
    Auto,
    Never,
}

impl From<ReflinkArg> for Reflink {
    fn from(arg: ReflinkArg) -> Reflink {
        match arg {
            ReflinkArg::Auto => Reflink::Auto,
            ReflinkArg::Never => Reflink::Never,
        }
    }
}

impl Pace {
    /// Whether one of its options is.
    pub(super) fn is_given(&self) -> bool {
        self.detach || self.reflink.is_some() || self.patch() != PacePatch::default()
    }

    fn patch(&self) -> PacePatch {
        PacePatch {
            shares: self.copy_shares,
            limit: OrNone::change(self.copy_limit),
            limit_bandwidth: OrNone::change(self.copy_bandwidth),
        }
    }
}

/// Arguments of `disk copy`.
#[derive(Debug, Args)]
pub(super) struct CopyDisk {
    /// Name of the disk
    #[arg(required_unless_present_any = ["cancel", "change"])]
    name: Option<Name>,
    /// Name of the copy, which is a disk like any other
    #[arg(required_unless_present_any = ["cancel", "change"])]
    copy: Option<Name>,
    /// Datastore for the copy [default: the one that fits best by load and space]
    #[arg(long, value_name = "DATASTORE")]
    datastore: Option<Name>,
    /// The copy's export, where that datastore is an NBD server; it has exactly the disk's size,
    /// and is overwritten
    #[arg(long, value_name = "EXPORT", requires = "datastore")]
    export: Option<String>,
    /// Virtual machine that the copy belongs to
    #[arg(long, value_name = "VM")]
    vm: Option<Name>,
    #[command(flatten)]
    policy: PolicyArgs,
    /// Let clients of the copy read and not write
    #[arg(long)]
    read_only: bool,
    #[command(flatten)]
    pace: Pace,
    /// Copy even if the copy's reservation overbooks its datastore, or if the block device that it
    /// goes to holds something, which is overwritten
    #[arg(long)]
    force: bool,
    /// End a copy under way and remove it; a block device or an export keeps what was written to it
    #[arg(long, value_name = "COPY", conflicts_with_all = ["name", "copy"])]
    cancel: Option<Name>,
    /// Change what a copy under way may take: with --copy-shares, --copy-limit, --copy-bandwidth
    #[arg(long, value_name = "COPY", conflicts_with_all = ["name", "copy", "cancel", "detach"])]
    change: Option<Name>,
    #[command(flatten)]
    pub(super) print: Print,
}

/// Arguments of `disk snapshot`.
#[derive(Debug, Args)]
pub(super) struct Snapshot {
    /// Name of the disk
    name: Name,
    /// Name of the snapshot, which is a disk that clients read and do not write
    snapshot: Name,
    /// Datastore for the snapshot [default: that of the disk]
    #[arg(long, value_name = "DATASTORE")]
    datastore: Option<Name>,
    /// The snapshot's export, where that datastore is an NBD server; it has exactly the disk's
    /// size, and is overwritten
    #[arg(long, value_name = "EXPORT", requires = "datastore")]
    export: Option<String>,
    /// Overwrite what the block device holds that the snapshot goes to
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    pace: Pace,
    #[command(flatten)]
    pub(super) print: Print,
}

impl CopyDisk {
    pub(super) fn run(self, client: &Client, out: &mut dyn Write) -> Result<(), CliError> {
        if let Some(copy) = self.cancel {
            let path = format!("/v1/copies/{copy}");
            let signals = Signals::catch().map_err(CliError::Print)?;
            client.delete(&path)?;
            let end = watch(client, client.get(&path)?, &signals)?;
            return match end.state {
                CopyState::Complete => Err(CliError::Stopped(format!(
                    "disk '{copy}' was complete already; 'headgate disk remove {copy}' removes it"
                ))),
                _ => Ok(writeln!(out, "the copy '{copy}' is ended and removed")?),
            };
        }
        if let Some(copy) = self.change {
            let patch = self.pace.patch();
            if self.pace.reflink.is_some() {
                return Err(CliError::Usage(
                    "--reflink is for a copy that begins: one under way goes on as it began".into(),
                ));
            }
            if patch == PacePatch::default() {
                return Err(CliError::Usage(
                    "give with --change what the copying may take: --copy-shares, --copy-limit, \
                     --copy-bandwidth"
                        .into(),
                ));
            }
            let now: Copy = client.send(Method::PATCH, &format!("/v1/copies/{copy}"), &patch)?;
            return print_value(out, self.print, &now, |now| format!("{}\n", words(now)));
        }
        // The command line asks for both unless it has one of these.
        let (Some(name), Some(copy)) = (self.name, self.copy) else { return Ok(()) };
        let request = DiskCopy {
            datastore: self.datastore,
            export: self.export,
            vm: self.vm,
            policy: self.policy.part().with_values_only(),
            read_only: self.read_only,
            force: force(self.force),
            ..request(copy, &self.pace)
        };
        begin(client, &name, &request, &self.pace, self.print, out)
    }
}

impl Snapshot {
    pub(super) fn run(self, client: &Client, out: &mut dyn Write) -> Result<(), CliError> {
        let datastore = match self.datastore {
            Some(datastore) => datastore,
            None => client.get::<Disk>(&format!("/v1/disks/{}", self.name))?.datastore,
        };
        let request = DiskCopy {
            datastore: Some(datastore),
            export: self.export,
            read_only: true,
            force: force(self.force),
            ..request(self.snapshot, &self.pace)
        };
        begin(client, &self.name, &request, &self.pace, self.print, out)
    }
}

pub(super) fn request(name: Name, pace: &Pace) -> DiskCopy {
    let reflink = pace.reflink.map(Reflink::from).unwrap_or_default();
    let pace = pace.patch();
    DiskCopy {
        name,
        size: None,
        datastore: None,
        export: None,
        vm: None,
        settings: SettingsFrom::Request,
        class: None,
        policy: PolicyPart::default(),
        read_only: false,
        placement: DiskPlacement::default(),
        shares: pace.shares,
        limit: pace.limit.apply(None),
        limit_bandwidth: pace.limit_bandwidth.apply(None),
        reflink,
        force: force(false),
    }
}

pub(super) fn begin(
    client: &Client,
    name: &Name,
    request: &DiskCopy,
    pace: &Pace,
    print: Print,
    out: &mut dyn Write,
) -> Result<(), CliError> {
    // Caught before it begins: what ends this command must not look like the copy's end.
    let signals = Signals::catch().map_err(CliError::Print)?;
    let begun: Changed<Copy> =
        client.send(Method::POST, &format!("/v1/disks/{name}/copy"), request)?;
    warnings(&begun.warnings);
    let end = match pace.detach {
        true => begun.now,
        false => watch(client, begun.now, &signals)?,
    };
    if let Some(failed) = failure(&end) {
        return Err(CliError::Stopped(failed));
    }
    print_value(out, print, &end, |end| format!("{}\n", words(end)))
}

/// Looks until the copy is over, with a bar where somebody sees it.
fn watch(client: &Client, mut now: Copy, signals: &Signals) -> Result<Copy, CliError> {
    let (disk, path) = (now.disk.clone(), format!("/v1/copies/{}", now.disk));
    let bar = ProgressBar::new(now.size.0.max(1));
    // The template is a constant, and its mistakes would show in every run.
    if let Ok(style) = ProgressStyle::with_template("{msg:>32} {wide_bar} {percent:>3} % {elapsed}")
    {
        bar.set_style(style);
    }
    while !now.state.is_over() {
        bar.set_message(format!("{} {} of {}", now.state.as_str(), now.copied, now.size));
        bar.set_position(now.copied.0);
        if signals.wait_for(WATCH).is_some() {
            bar.finish_and_clear();
            return Err(CliError::Stopped(format!(
                "the copy '{disk}' goes on without this command: 'headgate disk copies' says how \
                 far it is, 'headgate disk copy --cancel {disk}' ends it"
            )));
        }
        now = client.get(&path)?;
    }
    bar.finish_and_clear();
    Ok(now)
}

/// How one ended that is no disk.
fn failure(end: &Copy) -> Option<String> {
    let how = match end.state {
        CopyState::Failed => "has failed",
        CopyState::Cancelled => "was cancelled",
        _ => return None,
    };
    let why = end.reason.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
    Some(format!("the copy '{}' of disk '{}' {how} and was removed{why}", end.disk, end.source))
}

fn words(one: &Copy) -> String {
    let when = one.instant.map(date).unwrap_or_default();
    match one.state {
        CopyState::Complete => format!(
            "disk '{}' on datastore '{}' is disk '{}' as of {when}{}",
            one.disk,
            one.datastore,
            one.source,
            match one.blocks {
                Blocks::Shared => ", and shares its blocks until either changes them",
                Blocks::Copied => "",
            }
        ),
        _ => format!(
            "disk '{}' is being copied as of {when} to disk '{}' on datastore '{}': 'headgate disk \
             copies' says how far it is",
            one.source, one.disk, one.datastore
        ),
    }
}

/// All copies.
pub(super) fn list(client: &Client, print: Print, out: &mut dyn Write) -> Result<(), CliError> {
    let copies: Vec<Copy> = client.get("/v1/copies")?;
    print_value(out, print, &copies, |copies| table(copies))
}

fn table(copies: &[Copy]) -> String {
    let mut table = Table::new(&[
        ("COPY", Align::Left),
        ("OF", Align::Left),
        ("STATE", Align::Left),
        ("DATASTORE", Align::Left),
        ("COPIED", Align::Right),
        ("SIZE", Align::Right),
        ("BLOCKS", Align::Left),
        ("RATE", Align::Right),
        ("LEFT", Align::Right),
        ("AS OF", Align::Left),
        ("REASON", Align::Left),
    ]);
    for one in copies {
        table.row(vec![
            one.disk.to_string(),
            one.source.to_string(),
            one.state.as_str().to_owned(),
            one.datastore.to_string(),
            one.copied.to_string(),
            one.size.to_string(),
            match one.blocks {
                Blocks::Shared => "shared",
                Blocks::Copied => "copied",
            }
            .to_owned(),
            or_dash(one.rate.map(|rate| format!("{}/s", Bytes(rate)))),
            or_dash(one.seconds_left.map(span)),
            or_dash(one.instant.map(date)),
            or_dash(one.reason.clone()),
        ]);
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(changes: serde_json::Value) -> Copy {
        let mut all = serde_json::json!({
            "disk": "snap", "source": "db0", "datastore": "fast", "state": "copying",
            "instant": 1_764_064_800, "copied": 1_073_741_824, "size": 10_737_418_240_u64,
            "rate": 10_485_760, "seconds_left": 922, "shares": 100, "limit": null,
            "limit_bandwidth": null, "blocks": "copied", "waiting": 0, "began": 1_764_064_800, "ended": null, "reason": null
        });
        for (key, value) in changes.as_object().unwrap() {
            all[key] = value.clone();
        }
        serde_json::from_value(all).unwrap()
    }

    #[test]
    fn a_copy_is_told_with_its_instant_and_a_failure_with_its_reason() {
        let going = one(serde_json::json!({}));
        assert_eq!(failure(&going), None);
        assert!(words(&going).contains("is being copied as of 2025-"), "{}", words(&going));
        let text = table(&[going]);
        assert!(
            text.contains(
                "snap  db0  copying  fast        1 GiB  10 GiB  copied  10 MiB/s  16 min"
            ),
            "{text}"
        );
        let done = one(serde_json::json!({"state": "complete"}));
        assert!(words(&done).contains("is disk 'db0' as of 2025-"), "{}", words(&done));
        let failed = one(serde_json::json!({"state": "failed", "reason": "no space"}));
        let text = failure(&failed).unwrap();
        assert!(text.ends_with("has failed and was removed: no space"), "{text}");
    }
}
