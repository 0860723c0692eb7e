//! Parts of requests that change something.

pub use headgate_model::Change;

use serde::{Deserialize, Serialize};

/// May an operation go past a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Force {
    /// Refuse what does not fit or is in use.
    #[default]
    No,
    /// Overbook, disconnect clients, or take a device that holds something.
    Yes,
}
