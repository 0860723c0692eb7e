//! Wire types of advice that is carried out.

use headgate_model::{MovePace, Name};
use headgate_placement::{Automatic, Hours, Mode};
use headgate_units::{Bytes, BytesPerSec, Iops, Shares};
use serde::{Deserialize, Serialize};
use std::num::NonZeroU32;

/// How advice is to be carried out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct BalanceCreate {
    /// At most so many disks move at once, those that others move included; 1 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u32>))]
    pub at_once: Option<NonZeroU32>,
    /// Weight of each copy, as of a move by hand.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub shares: Option<Shares>,
    /// Highest rate of each copy, in normalised IOPS.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub limit: Option<Iops>,
    /// Highest bandwidth of each copy, in bytes per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub limit_bandwidth: Option<BytesPerSec>,
}

impl BalanceCreate {
    /// What each copy may take.
    pub fn pace(&self) -> MovePace {
        MovePace {
            shares: self.shares.unwrap_or(MovePace::default().shares),
            limit: self.limit,
            limit_bandwidth: self.limit_bandwidth,
        }
    }
}

/// What becomes of an advised move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum BalanceMoveState {
    /// It would be made, or is to come.
    Waiting,
    /// The disk is on its way.
    Moving,
    /// The disk is where it should be.
    Moved,
    /// It failed: the disk is where it was.
    Failed,
    /// It is refused, or was not begun.
    Skipped,
}

impl BalanceMoveState {
    /// The word in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            BalanceMoveState::Waiting => "waiting",
            BalanceMoveState::Moving => "moving",
            BalanceMoveState::Moved => "moved",
            BalanceMoveState::Failed => "failed",
            BalanceMoveState::Skipped => "skipped",
        }
    }
}

/// An advised move, and what becomes of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BalanceMove {
    /// The disk.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub disk: Name,
    /// Where it is.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub from: Name,
    /// Where it should be.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub to: Name,
    /// The disk's size in bytes.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub size: Bytes,
    /// Why, and what it is predicted to do.
    pub advice: String,
    /// What becomes of it.
    pub state: BalanceMoveState,
    /// Why it failed or is not made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A disk that is not moved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Staying {
    /// The disk, or the datastore that takes no part.
    pub name: String,
    /// Why.
    pub reason: String,
}

/// What would be done now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BalancePlan {
    /// The moves. One that would be refused is `skipped`, with the reason.
    pub moves: Vec<BalanceMove>,
    /// The disks that stay, and datastores that take no part.
    pub stays: Vec<Staying>,
}

/// Who has advice carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum BalanceBy {
    /// An operator.
    Operator,
    /// The rules.
    Automatic,
}

impl BalanceBy {
    /// The word in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            BalanceBy::Operator => "operator",
            BalanceBy::Automatic => "automatic",
        }
    }
}

/// Advice that is carried out, or was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BalanceRun {
    /// Who has it carried out.
    pub by: BalanceBy,
    /// When it began: seconds since 1970.
    pub began: u64,
    /// When its last move was over: seconds since 1970; absent while it goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<u64>,
    /// The moves, in their order.
    pub moves: Vec<BalanceMove>,
}

/// How far advice is carried out, and what would be done now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Balance {
    /// What is carried out, or was last since the daemon began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<BalanceRun>,
    /// What would be done now; absent while something is carried out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<BalancePlan>,
    /// When moves are made without an operator, and what stopped that.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub automatic: Automatic,
}

/// What to change about moves without an operator. A field that is absent stays as it is. To set
/// the mode forgives what stopped it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct AutomaticPatch {
    /// `off`, `ask` or `on`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub mode: Option<Mode>,
    /// In which hours moves begin, in UTC, such as `22:00-06:00`, or `always`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub hours: Option<Hours>,
    /// At most so many disks move at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u32>))]
    pub at_once: Option<NonZeroU32>,
    /// Of these, at most so many from or to one datastore; also of what `POST /v1/balance` begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u32>))]
    pub per_datastore: Option<NonZeroU32>,
}

impl AutomaticPatch {
    /// What holds after the change, but for what a new mode forgives.
    pub fn apply(&self, before: Automatic) -> Automatic {
        Automatic {
            mode: self.mode.unwrap_or(before.mode),
            hours: self.hours.unwrap_or(before.hours),
            at_once: self.at_once.unwrap_or(before.at_once),
            per_datastore: self.per_datastore.unwrap_or(before.per_datastore),
            ..before
        }
    }
}
