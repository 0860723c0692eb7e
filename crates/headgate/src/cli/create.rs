//! Arguments for new disks.

use super::common::Print;
use super::copy::{self, Pace};
use super::dry_run::DryRunArg;
use super::error::CliError;
use super::placement::DiskArgs;
use super::policy::PolicyArgs;
use super::values::force;
use clap::Args;
use headgate_api::client::Client;
use headgate_api::copies::{DiskCopy, SettingsFrom};
use headgate_api::placement::Created;
use headgate_api::types::{Disk, DiskCreate};
use headgate_model::Name;
use headgate_units::Bytes;
use hyper::Method;
use std::io::Write;

/// Arguments of a new disk, whatever it holds.
#[derive(Debug, Args)]
pub(super) struct Create {
    /// Name of the disk: 1 to 64 letters, digits, '.', '_', '-'
    pub(super) name: Name,
    /// Size in bytes, such as 10G; a multiple of 4096 [default on a block device or an NBD server:
    /// its size]
    #[arg(long, value_name = "BYTES")]
    pub(super) size: Option<Bytes>,
    /// Datastore for the disk [default: the one that fits best by load and space]
    #[arg(long, value_name = "DATASTORE")]
    pub(super) datastore: Option<Name>,
    /// Export of the NBD server that becomes the disk, with its content; for datastores made with
    /// --nbd. With --stripe, the export of this name at each server
    #[arg(long, value_name = "NAME")]
    pub(super) export: Option<String>,
    /// Virtual machine that the disk belongs to
    #[arg(long, value_name = "VM")]
    pub(super) vm: Option<Name>,
    /// Class of policies that the disk has, as of 'headgate class list'; the options below go
    /// before what it says
    #[arg(long, value_name = "CLASS")]
    pub(super) class: Option<Name>,
    #[command(flatten)]
    pub(super) policy: PolicyArgs,
    #[command(flatten)]
    pub(super) placement: DiskArgs,
    /// Let clients read and not write
    #[arg(long)]
    pub(super) read_only: bool,
    /// Continue the history of DISK, which was moved by hand; advice will not move the new disk
    /// again for a while. DISK may still exist, or have been removed within the last 7 days
    #[arg(long, value_name = "DISK", help_heading = "Placement")]
    pub(super) moved_from: Option<Name>,
    /// Create the disk even if its reservation overbooks the datastore
    #[arg(long)]
    pub(super) force: bool,
    /// Make a new striped disk of exports that hold something, or are members of one: what they
    /// hold is lost
    #[arg(long)]
    pub(super) overwrite: bool,
    /// Take a striped disk from the host that its exports name as its holder. With --force also
    /// where their servers cannot end that host's connections: see first that it has stopped
    #[arg(long)]
    pub(super) evict: bool,
    #[command(flatten)]
    pub(super) print: Print,
}

impl Create {
    /// What the API is asked for.
    pub(super) fn request(self) -> DiskCreate {
        DiskCreate {
            name: self.name,
            size: self.size,
            datastore: self.datastore,
            export: self.export,
            vm: self.vm,
            class: self.class,
            policy: self.policy.part(),
            placement: self.placement.new_disk(),
            read_only: self.read_only,
            moved_from: self.moved_from,
            force: force(self.force),
            overwrite: force(self.overwrite),
            evict: force(self.evict),
        }
    }
}

/// Arguments of `disk create`.
#[derive(Debug, Args)]
pub(super) struct NewDisk {
    #[command(flatten)]
    create: Create,
    /// Make it of another disk, such as a snapshot, as of one instant while that is used; --size is
    /// at least that disk's, which is the default
    #[arg(
        long, value_name = "DISK", help_heading = "Copying",
        conflicts_with_all = ["moved_from", "overwrite", "evict", "dry_run"]
    )]
    from: Option<Name>,
    #[command(flatten)]
    pace: Pace,
    #[command(flatten)]
    dry_run: DryRunArg,
}

impl NewDisk {
    pub(super) fn print(&self) -> Print {
        self.create.print
    }

    /// Whether it is made of another disk.
    pub(super) fn is_copy(&self) -> bool {
        self.from.is_some()
    }

    /// Makes it where it is not. A dry run is printed, and answered with `None`.
    pub(super) fn create(
        self,
        client: &Client,
        out: &mut dyn Write,
    ) -> Result<Option<Created<Disk>>, CliError> {
        let NewDisk { create, from: _, pace, dry_run } = self;
        if pace.is_given() {
            return Err(CliError::Usage(
                "--copy-shares, --copy-limit, --copy-bandwidth, --reflink and --detach are for a \
                 disk that is made of another one: name it with --from"
                    .into(),
            ));
        }
        let (print, to) = (create.print, (Method::POST, "/v1/disks"));
        dry_run.send(client, to, &create.request(), print, out)
    }

    /// Makes it of another disk.
    pub(super) fn copy(self, client: &Client, out: &mut dyn Write) -> Result<(), CliError> {
        let NewDisk { create, from, pace, dry_run: _ } = self;
        let Some(source) = from else { return Ok(()) };
        create.copy_of(client, &source, SettingsFrom::Request, &pace, out)
    }
}

/// Arguments of `disk clone`.
#[derive(Debug, Args)]
pub(super) struct CloneDisk {
    /// Name of the disk, or snapshot, that is cloned
    #[arg(value_name = "DISK")]
    source: Name,
    /// Name of the clone
    #[arg(value_name = "CLONE")]
    clone: Name,
    /// Size in bytes, such as 10G; at least the disk's, which is the default
    #[arg(long, value_name = "BYTES")]
    size: Option<Bytes>,
    /// Datastore for the clone [default: the one that fits best by load and space]
    #[arg(long, value_name = "DATASTORE")]
    datastore: Option<Name>,
    /// The clone's export, where that datastore is an NBD server; it has exactly the disk's size,
    /// and is overwritten
    #[arg(long, value_name = "EXPORT", requires = "datastore")]
    export: Option<String>,
    /// Virtual machine that the clone belongs to
    #[arg(long, value_name = "VM")]
    vm: Option<Name>,
    /// Class of policies that the clone has [default: that of the disk]
    #[arg(long, value_name = "CLASS")]
    class: Option<Name>,
    #[command(flatten)]
    policy: PolicyArgs,
    #[command(flatten)]
    placement: DiskArgs,
    /// Let clients read and not write
    #[arg(long)]
    read_only: bool,
    #[command(flatten)]
    pace: Pace,
    /// Clone even if the clone's reservation overbooks its datastore, or if the block device that
    /// it goes to holds something, which is overwritten
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    print: Print,
}

impl CloneDisk {
    pub(super) fn print(&self) -> Print {
        self.print
    }

    pub(super) fn run(self, client: &Client, out: &mut dyn Write) -> Result<(), CliError> {
        let create = Create {
            name: self.clone,
            size: self.size,
            datastore: self.datastore,
            export: self.export,
            vm: self.vm,
            class: self.class,
            policy: self.policy,
            placement: self.placement,
            read_only: self.read_only,
            moved_from: None,
            force: self.force,
            overwrite: false,
            evict: false,
            print: self.print,
        };
        create.copy_of(client, &self.source, SettingsFrom::Source, &self.pace, out)
    }
}

impl Create {
    /// Has the disk made as a copy of another one.
    fn copy_of(
        self,
        client: &Client,
        source: &Name,
        settings: SettingsFrom,
        pace: &Pace,
        out: &mut dyn Write,
    ) -> Result<(), CliError> {
        let print = self.print;
        let request = DiskCopy {
            size: self.size,
            datastore: self.datastore,
            export: self.export,
            vm: self.vm,
            settings,
            class: self.class,
            policy: self.policy.part(),
            read_only: self.read_only,
            placement: self.placement.new_disk(),
            force: force(self.force),
            ..copy::request(self.name, pace)
        };
        copy::begin(client, source, &request, pace, print, out)
    }
}
