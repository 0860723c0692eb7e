//! Wire types of removed disks, whose content is kept for a while.

use super::change::Force;
use headgate_model::{Name, Policy};
use headgate_units::Bytes;
use serde::{Deserialize, Serialize};

/// A removed disk whose content is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RemovedDisk {
    /// Which: `NAME@SECONDS`. Several may have had one name.
    pub id: String,
    /// The name that it had.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub name: Name,
    /// Where it is kept.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub datastore: Name,
    /// The virtual machine that it belonged to.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub vm: Option<Name>,
    /// Its size in bytes.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub size: Bytes,
    /// What its content takes of the file system, in bytes.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub allocated: Bytes,
    /// Its policy, which it has again when it is restored.
    pub policy: Policy,
    /// When it was removed: seconds since 1970-01-01 UTC.
    pub removed_at: u64,
    /// When its content is deleted: seconds since 1970-01-01 UTC.
    pub purged_at: u64,
}

/// How a removed disk is restored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct DiskRestore {
    /// The name that it gets; the one that it had when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub name: Option<Name>,
    /// Overbook the datastore if need be.
    #[serde(default)]
    pub force: Force,
}

/// What removed disks take of a datastore.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RemovedSpace {
    /// How many are kept.
    pub disks: usize,
    /// What their contents take of the file system, in bytes.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub allocated: Bytes,
}
