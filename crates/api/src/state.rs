//! Whether a datastore or a disk is in service.

use serde::{Deserialize, Serialize};

/// Is it in service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum ServiceState {
    /// In service.
    Serving,
    /// It is being opened, or created.
    Starting,
    /// It is known, and its storage does not answer; `reason` says since when. It comes back by
    /// itself.
    Hung,
    /// It could not be opened, or was stopped; `reason` says why.
    Failed,
    /// Of a block device and its disk: another host has taken it, as the device itself says.
    Evicted,
}

impl ServiceState {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            ServiceState::Serving => "serving",
            ServiceState::Starting => "starting",
            ServiceState::Hung => "hung",
            ServiceState::Failed => "failed",
            ServiceState::Evicted => "evicted",
        }
    }
}
