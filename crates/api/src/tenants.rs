//! Wire types of tenants.

use crate::change::{Change, Force};
use headgate_model::{GroupPolicy, Name, Quota};
use headgate_units::{Bytes, Iops, Shares};
use serde::{Deserialize, Serialize};

/// What to change about a tenant, which is made if there is none. A field that is absent stays as
/// it is, `null` takes it away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct TenantPatch {
    /// Least rate of its disks together on each datastore, in normalised IOPS.
    #[serde(skip_serializing_if = "Change::is_keep")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub reservation: Change<Iops>,
    /// Highest rate of its disks together on each datastore, in normalised IOPS.
    #[serde(skip_serializing_if = "Change::is_keep")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub limit: Change<Iops>,
    /// Weight against what is beside it on a datastore, 1 to 1,000,000.
    #[serde(skip_serializing_if = "Change::is_keep")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub shares: Change<Shares>,
    /// The most disks that it may have.
    #[serde(skip_serializing_if = "Change::is_keep")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub max_disks: Change<u64>,
    /// The most bytes that its disks may have together.
    #[serde(skip_serializing_if = "Change::is_keep")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub max_space: Change<Bytes>,
    /// The most that may be reserved by its disks together, in normalised IOPS.
    #[serde(skip_serializing_if = "Change::is_keep")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub max_reserved: Change<u64>,
    /// Overbook datastores if need be.
    pub force: Force,
}

/// What a tenant has, on all datastores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Usage {
    /// Disks, those among them that are to be made.
    pub disks: u64,
    /// Sum of their sizes in bytes.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub size: Bytes,
    /// Sum of their reservations, in normalised IOPS.
    pub reserved_iops: u64,
}

/// What a group of disks is promised on a datastore.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OnDatastore {
    /// The datastore.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub datastore: Name,
    /// Its own reservation, or what is promised to what is in it if that is more, in IOPS.
    pub promised_iops: u64,
    /// What is promised to what is in it, in IOPS.
    pub inside_iops: u64,
}

/// A tenant: whose virtual machines are, and what it is promised and may have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Tenant {
    /// Its name.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub name: Name,
    /// What its disks are promised together on each datastore.
    #[serde(flatten)]
    pub policy: GroupPolicy,
    /// The most that it may have.
    #[serde(flatten)]
    pub quota: Quota,
    /// What it has.
    #[serde(flatten)]
    pub usage: Usage,
    /// Its virtual machines.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub vms: Vec<Name>,
    /// The datastores on which it is promised something as a whole.
    #[serde(default)]
    pub datastores: Vec<OnDatastore>,
    /// The set of documents that made it, by 'headgate apply'.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub applied_by: Option<Name>,
}
