//! Wire types of the space of file systems under datastores.

use headgate_model::Overcommit;
use headgate_units::Bytes;
use serde::{Deserialize, Serialize};

/// The file system under a datastore, as it was a few seconds ago.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FileSystem {
    /// Its size in bytes.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub size: Bytes,
    /// What is free of it, in bytes.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub free: Bytes,
    /// What is not free, in per cent, rounded up.
    pub used_percent: u8,
    /// What disks of this datastore have allocated, in bytes.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub allocated: Bytes,
    /// Sizes of the disks of this datastore, in bytes.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub provisioned: Bytes,
    /// Sizes of all disks on the file system over the room for them: what is free and what they
    /// have allocated. Above 1 they cannot all be written whole. `null` where there is no room.
    pub overcommit: Option<f64>,
    /// The most that creations may make of that, or `none`.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub overcommit_max: Overcommit,
    /// Seconds since it was looked at.
    pub age_seconds: u64,
    /// Why it could not be looked at since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
