//! What tenants and virtual machines are promised as a whole, and how much a tenant may have.

use crate::Name;
use headgate_qos::{Burst, Group, GroupId, PolicyError};
use headgate_units::{Bytes, Iops, Shares};
use serde::{Deserialize, Serialize};

/// What all disks of a tenant, or of a virtual machine, are promised together on each datastore
/// that they are on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct GroupPolicy {
    /// Least rate while they have requests, in normalised IOPS. What they are promised themselves
    /// counts towards it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub reservation: Option<Iops>,
    /// Highest rate, in normalised IOPS.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub limit: Option<Iops>,
    /// Weight against others beside them, 1 to 1,000,000; those of a disk by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub shares: Option<Shares>,
}

impl GroupPolicy {
    /// Whether nothing is promised: then there is no group, and the disks stand where they would
    /// without it.
    pub fn is_empty(&self) -> bool {
        *self == GroupPolicy::default()
    }

    /// As the scheduler takes it.
    ///
    /// # Errors
    /// When the reservation is above the limit.
    pub fn for_scheduler(&self) -> Result<headgate_qos::Policy, PolicyError> {
        let shares = self.shares.unwrap_or_default();
        headgate_qos::Policy::new(self.reservation, self.limit, None, shares, Burst::default())
    }
}

/// The most that a tenant may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Quota {
    /// Disks, of all its virtual machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_disks: Option<u64>,
    /// Bytes, of all of these together.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub max_space: Option<Bytes>,
    /// Sum of their reservations, in normalised IOPS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_reserved: Option<u64>,
}

/// A tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantRecord {
    /// Its name, as virtual machines name it.
    pub name: Name,
    /// What its disks are promised together.
    #[serde(default)]
    pub policy: GroupPolicy,
    /// The most that it may have.
    #[serde(default)]
    pub quota: Quota,
    /// The set of documents that made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied_by: Option<Name>,
}

impl TenantRecord {
    /// One that nothing is said of.
    pub fn unset(name: Name) -> TenantRecord {
        let (policy, quota) = (GroupPolicy::default(), Quota::default());
        TenantRecord { name, policy, quota, applied_by: None }
    }
}

/// What a virtual machine is promised, and whose it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct VmPromise {
    /// The tenant that it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<Name>,
    /// What its disks are promised together.
    pub policy: GroupPolicy,
    /// The set of documents that said so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub applied_by: Option<Name>,
}

/// The groups of a datastore's disks. A group has the same number as long as it is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskGroups {
    /// Each after the one that it is in. None: disks are divided by their own policies alone.
    pub groups: Vec<Group>,
    /// Which disk is in which, also those that are not open. Others are in none.
    pub members: Vec<(Name, GroupId)>,
}
