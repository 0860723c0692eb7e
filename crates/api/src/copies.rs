//! Wire types of copies of disks as of one instant.

use super::change::Force;
use super::types::DiskCreate;
use headgate_model::{Blocks, DiskPlacement, DiskRecord, MovePace, Name, PolicyPart, Reflink};
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
    /// Its size in bytes, a multiple of 4,096 and not below the disk's; when absent, the disk's.
    /// What is behind the disk's end is zeroes. On a block device or an NBD server it is the
    /// disk's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub size: Option<Bytes>,
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
    /// Where it has its class, its policy and its placement from, as far as this says none.
    #[serde(default)]
    pub settings: SettingsFrom,
    /// The class that it has its policy from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub class: Option<Name>,
    /// What it is promised once it serves, in place of what its class says.
    #[serde(default)]
    pub policy: PolicyPart,
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

/// Where a copy has its settings from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum SettingsFrom {
    /// The request alone, as a new disk.
    #[default]
    Request,
    /// What the request does not say is as with the disk that is copied: a clone.
    Source,
}

impl DiskCopy {
    /// The disk that the copy will be.
    pub fn as_new(&self, source: &DiskRecord) -> DiskCreate {
        let (class, policy, placement) = match self.settings {
            SettingsFrom::Request => (self.class.clone(), self.policy, self.placement.clone()),
            SettingsFrom::Source => (
                self.class.clone().or_else(|| source.set.class.clone()),
                self.policy.over(&source.set.policy),
                match self.placement == DiskPlacement::default() {
                    true => source.placement.clone(),
                    false => self.placement.clone(),
                },
            ),
        };
        DiskCreate {
            name: self.name.clone(),
            size: Some(self.size.unwrap_or(source.size)),
            datastore: self.datastore.clone(),
            export: self.export.clone(),
            vm: self.vm.clone(),
            class,
            policy,
            read_only: self.read_only,
            placement,
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

/// Content that a disk does not have all of yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Filling {
    /// How it gets it.
    pub by: FilledBy,
    /// Where it comes from: the disk that is copied, or the image or URI that is imported, as the
    /// command says; `null` where nobody has said so yet.
    pub source: Option<String>,
    /// Bytes that it has, holes among them.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub copied: Bytes,
    /// Bytes that it will have had copied.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub size: Bytes,
    /// How fast it was lately, in bytes per second; `null` when it does not copy.
    pub rate: Option<u64>,
    /// How long the rest takes at that rate, in seconds.
    pub seconds_left: Option<u64>,
}

/// Who fills a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum FilledBy {
    /// The daemon copies another disk.
    Copy,
    /// A command imports an image.
    Import,
    /// A command began to import an image, and says nothing any more.
    Nobody,
}
