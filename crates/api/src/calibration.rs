//! Wire types of calibrations.

use super::types::{CapacityView, Force};
use headgate_model::{Capacity, FoundThreshold};
use serde::{Deserialize, Serialize};

/// How to calibrate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct CalibrationCreate {
    /// Measure although disks are in use.
    pub force: Force,
    /// For how long to measure at most, in seconds, 6 to 3,600. A device that settles sooner is
    /// known sooner.
    pub seconds: u16,
}

impl Default for CalibrationCreate {
    /// Half a minute.
    fn default() -> CalibrationCreate {
        CalibrationCreate { force: Force::No, seconds: 30 }
    }
}

/// How far a calibration is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum CalibrationState {
    /// Under way.
    Running,
    /// The capacity was measured and stored.
    Done,
    /// Stopped from outside; the capacity is as it was.
    Cancelled,
    /// It went wrong; `error` says how.
    Failed,
}

/// A calibration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Calibration {
    /// How far it is.
    pub state: CalibrationState,
    /// `preparing` (filling the scratch disk), `measuring`, `finding the threshold` or `cleaning
    /// up`.
    pub phase: String,
    /// How much is done, 0 to 1,000.
    pub permille: u64,
    /// The rate right now, in IOPS.
    pub iops: Option<u64>,
    /// What was found.
    pub capacity: Option<CapacityView>,
    /// The latency threshold that was found.
    #[serde(default)]
    pub threshold: Option<FoundThreshold>,
    /// What went wrong.
    pub error: Option<String>,
}

impl Calibration {
    /// One that has just begun.
    pub fn begun() -> Calibration {
        Calibration {
            state: CalibrationState::Running,
            phase: "preparing".into(),
            permille: 0,
            iops: None,
            capacity: None,
            threshold: None,
            error: None,
        }
    }
}

impl From<Capacity> for CapacityView {
    fn from(capacity: Capacity) -> CapacityView {
        CapacityView { iops: capacity.iops, source: capacity.source }
    }
}
