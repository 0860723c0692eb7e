//! What the copying of a disk may take, changed while it is under way.

use super::change::Change;
use headgate_model::MovePace;
use headgate_units::{BytesPerSec, Iops, Shares};
use serde::{Deserialize, Serialize};

/// What copying under way may take from now on. A field that is absent stays as it is; `null` takes
/// a limit away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PacePatch {
    /// Weight of the copying, 1 to 1,000,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub shares: Option<Shares>,
    /// Highest rate of the copying, in normalised IOPS.
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub limit: Change<Iops>,
    /// Highest bandwidth of the copying, in bytes per second.
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub limit_bandwidth: Change<BytesPerSec>,
}

impl PacePatch {
    /// The pace after the change.
    pub fn pace(&self, before: MovePace) -> MovePace {
        MovePace {
            shares: self.shares.unwrap_or(before.shares),
            limit: self.limit.apply(before.limit),
            limit_bandwidth: self.limit_bandwidth.apply(before.limit_bandwidth),
        }
    }
}
