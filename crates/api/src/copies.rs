//! Wire types of copies of disks as of one instant.

use super::change::Force;
use super::types::DiskCreate;
use headgate_model::{Blocks, DiskPlacement, MovePace, Name, Policy, Reflink};
use headgate_units::{Bytes, BytesPerSec, Iops, Shares};
use serde::{Deserialize, Serialize};

/// What a copy of a disk is to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct DiskCopy {
    /// Its name.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub name: Name,
    /// Where to put it; when absent, where it fits best by load and space.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub datastore: Option<Name>,
    /// Where that is an NBD server: the export that the copy will be, of exactly the disk's size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub export: Option<String>,
    /// The virtual machine that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub vm: Option<Name>,
    /// What it is promised once it serves.
    #[serde(default)]
    pub policy: Policy,
    /// Whether its clients may only read: a snapshot.
    #[serde(default)]
    pub read_only: bool,
    /// What placement is to know of it.
    #[serde(default)]
    pub placement: DiskPlacement,
    /// Weight of the copying against the disks of both datastores, 1 to 1,000,000; 100 when absent.
    /// What the disk's own clients make necessary is charged to the disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub shares: Option<Shares>,
    /// Highest rate of the copying, in normalised IOPS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub limit: Option<Iops>,
    /// Highest bandwidth of the copying, in bytes per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub limit_bandwidth: Option<BytesPerSec>,
    /// Whether it may use the disk's blocks, until either changes them; `auto` when absent: where
    /// both are files of one file system that can share blocks, such as XFS or Btrfs.
    #[serde(default)]
    pub reflink: Reflink,
    /// Overbook the datastore if need be, and overwrite what a block device holds.
    #[serde(default)]
    pub force: Force,
}

impl DiskCopy {
    /// The disk that the copy will be.
    pub fn as_new(&self, size: Bytes) -> DiskCreate {
        DiskCreate {
            name: self.name.clone(),
            size: Some(size),
            datastore: self.datastore.clone(),
            export: self.export.clone(),
            vm: self.vm.clone(),
            class: None,
            policy: self.policy.into(),
            read_only: self.read_only,
            placement: self.placement.clone(),
            moved_from: None,
            force: self.force,
            overwrite: self.force,
            evict: Force::No,
        }
    }

    /// What the copying may take.
    pub fn pace(&self) -> MovePace {
        MovePace {
            shares: self.shares.unwrap_or(MovePace::default().shares),
            limit: self.limit,
            limit_bandwidth: self.limit_bandwidth,
        }
    }
}

/// How far a copy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum CopyState {
    /// Its storage is being made, or requests from before the instant are under way.
    Preparing,
    /// The instant has passed, and it copies.
    Copying,
    /// All is copied, and it is being brought into service.
    Finishing,
    /// It is a disk in service.
    Complete,
    /// It was given up, and nothing is left of it.
    Failed,
    /// It was cancelled, and nothing is left of it.
    Cancelled,
}

impl CopyState {
    /// The states in which nothing more comes of it.
    pub const OVER: [CopyState; 3] = [CopyState::Complete, CopyState::Failed, CopyState::Cancelled];

    /// The word in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            CopyState::Preparing => "preparing",
            CopyState::Copying => "copying",
            CopyState::Finishing => "finishing",
            CopyState::Complete => "complete",
            CopyState::Failed => "failed",
            CopyState::Cancelled => "cancelled",
        }
    }

    /// Whether nothing more comes of it.
    pub fn is_over(self) -> bool {
        CopyState::OVER.contains(&self)
    }
}

/// A copy of a disk as of one instant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Copy {
    /// The disk that it is, or becomes.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub disk: Name,
    /// The disk that is copied.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub source: Name,
    /// The datastore that it is on.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub datastore: Name,
    /// How far it is.
    pub state: CopyState,
    /// The instant as of which it is, in seconds since 1970; `null` before that.
    pub instant: Option<u64>,
    /// Bytes that need not be copied any more.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub copied: Bytes,
    /// The disk's size in bytes.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub size: Bytes,
    /// Whether it is made of blocks of its own, or of those of the disk, until either changes them.
    pub blocks: Blocks,
    /// How fast it was lately, in bytes per second; `null` when it does not copy.
    pub rate: Option<u64>,
    /// How long the rest takes at that rate, in seconds.
    pub seconds_left: Option<u64>,
    /// Weight of the copying.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub shares: Shares,
    /// Highest rate of the copying, in normalised IOPS.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub limit: Option<Iops>,
    /// Highest bandwidth of the copying, in bytes per second.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub limit_bandwidth: Option<BytesPerSec>,
    /// Changes of the disk's clients that wait for the copy now.
    pub waiting: usize,
    /// When it began, in seconds since 1970.
    pub began: u64,
    /// When it was over, in seconds since 1970.
    pub ended: Option<u64>,
    /// Why it failed.
    pub reason: Option<String>,
}
