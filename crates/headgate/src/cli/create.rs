//! Arguments for new disks.

use super::common::Print;
use super::dry_run::DryRunArg;
use super::placement::DiskArgs;
use super::policy::PolicyArgs;
use super::values::force;
use clap::Args;
use headgate_api::types::DiskCreate;
use headgate_model::Name;
use headgate_units::Bytes;

/// Arguments of `disk create`.
#[derive(Debug, Args)]
pub(super) struct CreateDisk {
    #[command(flatten)]
    pub(super) disk: Create,
    #[command(flatten)]
    pub(super) dry_run: DryRunArg,
}

/// What a new disk is to be.
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
