//! Wire types of live moves: disks on their way to another datastore.

use super::change::{Change, Force};
use super::pace::PacePatch;
use headgate_model::{MovePace, Name};
use headgate_units::{Bytes, BytesPerSec, Iops, Shares};
use serde::{Deserialize, Serialize};

/// Where a disk is to move.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct DiskMigrate {
    /// The datastore that it goes to.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub to: Name,
    /// To an NBD server, and only there: the name of the export that the disk becomes. What it
    /// holds is overwritten.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub export: Option<String>,
    /// Weight of the copy against the disks of both datastores, 1 to 1,000,000; 100 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub shares: Option<Shares>,
    /// Highest rate of the copy, in normalised IOPS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub limit: Option<Iops>,
    /// Highest bandwidth of the copy, in bytes per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub limit_bandwidth: Option<BytesPerSec>,
    /// Overbook the datastore if need be, and overwrite a block device that holds something.
    #[serde(default)]
    pub force: Force,
}

impl DiskMigrate {
    /// What the copy may take.
    pub fn pace(&self) -> MovePace {
        MovePace {
            shares: self.shares.unwrap_or(MovePace::default().shares),
            limit: self.limit,
            limit_bandwidth: self.limit_bandwidth,
        }
    }
}

/// Whether a copy goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum MoveWish {
    /// It rests. What the guest changes is mirrored all the same.
    Paused,
    /// It goes on.
    Copying,
}

/// What to change about a move. A field that is absent stays as it is; `null` takes a limit away.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct MovePatch {
    /// Whether it goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<MoveWish>,
    /// Weight of the copy, 1 to 1,000,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub shares: Option<Shares>,
    /// Highest rate of the copy, in normalised IOPS.
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub limit: Change<Iops>,
    /// Highest bandwidth of the copy, in bytes per second.
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub limit_bandwidth: Change<BytesPerSec>,
}

impl MovePatch {
    /// The pace after the change.
    pub fn pace(&self, before: MovePace) -> MovePace {
        let MovePatch { state: _, shares, limit, limit_bandwidth } = *self;
        PacePatch { shares, limit, limit_bandwidth }.pace(before)
    }
}

/// What a move is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum MoveState {
    /// The copy at the target is being made.
    Preparing,
    /// It copies. What the guest changes goes to both.
    Copying,
    /// It rests, and mirrors.
    Paused,
    /// All is copied, and the switch is being recorded.
    Switching,
    /// It is over. The copy that does not count is to be removed still.
    Cleaning,
    /// Nothing is left of it.
    Ended,
}

impl MoveState {
    /// The word in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            MoveState::Preparing => "preparing",
            MoveState::Copying => "copying",
            MoveState::Paused => "paused",
            MoveState::Switching => "switching",
            MoveState::Cleaning => "cleaning",
            MoveState::Ended => "ended",
        }
    }
}

/// How a move ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum MoveOutcome {
    /// The disk is on the new datastore.
    Switched,
    /// Something failed. The disk is where it was.
    Failed,
    /// The operator ended it. The disk is where it was.
    Cancelled,
    /// The daemon ended, or stopped the disk, before the switch. The disk is where it was, and is
    /// not moved again by itself.
    Interrupted,
}

impl MoveOutcome {
    /// Every outcome.
    pub const ALL: [MoveOutcome; 4] = [
        MoveOutcome::Switched,
        MoveOutcome::Failed,
        MoveOutcome::Cancelled,
        MoveOutcome::Interrupted,
    ];

    /// The word in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            MoveOutcome::Switched => "switched",
            MoveOutcome::Failed => "failed",
            MoveOutcome::Cancelled => "cancelled",
            MoveOutcome::Interrupted => "interrupted",
        }
    }
}

/// A move of a disk, under way or over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Move {
    /// The disk.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub disk: Name,
    /// The datastore that it leaves.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub from: Name,
    /// The datastore that it goes to.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub to: Name,
    /// What is being done.
    pub state: MoveState,
    /// What need not be copied any more, in bytes.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub copied: Bytes,
    /// The disk's size in bytes.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub size: Bytes,
    /// How fast the copy was lately, in bytes per second; `null` when it does not copy.
    pub rate: Option<u64>,
    /// How long the rest takes at that rate, in seconds.
    pub seconds_left: Option<u64>,
    /// Weight of the copy.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub shares: Shares,
    /// Highest rate of the copy, in normalised IOPS.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub limit: Option<Iops>,
    /// Highest bandwidth of the copy, in bytes per second.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub limit_bandwidth: Option<BytesPerSec>,
    /// When it began: seconds since 1970.
    pub began: u64,
    /// When nothing was left of it: seconds since 1970.
    pub ended: Option<u64>,
    /// How it ended.
    pub outcome: Option<MoveOutcome>,
    /// Why it ended so, or why its other copy is there still.
    pub reason: Option<String>,
}
