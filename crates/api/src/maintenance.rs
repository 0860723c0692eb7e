//! Wire types of datastores that are emptied.

use super::balance::Staying;
use headgate_model::Name;
use serde::{Deserialize, Serialize};

/// Whether a datastore is to be emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum MaintenanceWish {
    /// It takes no disks, and those on it are moved away.
    On,
    /// It takes disks.
    Off,
}

/// What to change about a datastore's maintenance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct MaintenanceSet {
    /// Whether it is to be emptied.
    pub state: MaintenanceWish,
}

/// How far a datastore's maintenance is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum MaintenanceState {
    /// It takes disks.
    Off,
    /// Advice says where its disks should go, and nobody moves them.
    Advised,
    /// Its disks are moved away.
    Emptying,
    /// Disks are left on it that cannot move now. They are tried again.
    Stuck,
    /// No disk is left on it.
    Empty,
}

impl MaintenanceState {
    /// The word in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            MaintenanceState::Off => "off",
            MaintenanceState::Advised => "advised",
            MaintenanceState::Emptying => "emptying",
            MaintenanceState::Stuck => "stuck",
            MaintenanceState::Empty => "empty",
        }
    }
}

/// A disk on its way out, or to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Leaving {
    /// The disk.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub disk: Name,
    /// Where it goes; of one whose turn has not come, as things are now.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub to: Name,
}

/// A datastore's maintenance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Maintenance {
    /// The datastore.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub datastore: Name,
    /// How far it is.
    pub state: MaintenanceState,
    /// Disks on it, those that leave included.
    pub disks: usize,
    /// Disks on their way out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moving: Vec<Leaving>,
    /// Disks whose turn comes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<Leaving>,
    /// Disks that cannot move now, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stuck: Vec<Staying>,
}
