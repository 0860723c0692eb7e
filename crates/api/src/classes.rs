//! Wire types of classes: policies with names, which many disks have.

use super::change::Force;
use headgate_model::{ClassRecord, Name, PolicyPart};
use headgate_units::Iops;
use serde::{Deserialize, Serialize};

/// What a class is to be, as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ClassPut {
    /// What it says of its disks' policies. `null` is as absent.
    pub policy: PolicyPart,
    /// Of a disk's reservation, IOPS for each GiB of its size. Not beside a reservation.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub reservation_per_gb: Option<Iops>,
    /// Of a disk's limit, IOPS for each GiB of its size. Not beside a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub limit_per_gb: Option<Iops>,
    /// The class of datastores that its disks must be on.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub datastore_class: Option<Name>,
    /// Overbook datastores if need be.
    pub force: Force,
}

impl ClassPut {
    /// What makes a class what it is, without force.
    pub fn of(record: &ClassRecord) -> ClassPut {
        ClassPut {
            policy: record.policy,
            reservation_per_gb: record.reservation_per_gb,
            limit_per_gb: record.limit_per_gb,
            datastore_class: record.datastore_class.clone(),
            force: Force::No,
        }
    }

    /// The class that it makes.
    pub fn record(self, name: Name, applied_by: Option<Name>) -> ClassRecord {
        ClassRecord {
            name,
            policy: self.policy.with_values_only(),
            reservation_per_gb: self.reservation_per_gb,
            limit_per_gb: self.limit_per_gb,
            datastore_class: self.datastore_class,
            applied_by,
        }
    }
}

/// A class of disks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Class {
    /// Its name.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub name: Name,
    /// What it says of its disks' policies.
    pub policy: PolicyPart,
    /// Of a disk's reservation, IOPS for each GiB of its size.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub reservation_per_gb: Option<Iops>,
    /// Of a disk's limit, IOPS for each GiB of its size.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub limit_per_gb: Option<Iops>,
    /// The class of datastores that its disks must be on.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub datastore_class: Option<Name>,
    /// The set of documents that made it, by 'headgate apply'.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub applied_by: Option<Name>,
    /// How many disks have it, those among them that are to be made.
    pub disks: usize,
    /// Sum of these disks' reservations, in IOPS.
    pub reserved_iops: u64,
}

impl Class {
    /// What makes it what it is.
    pub fn settings(&self) -> ClassPut {
        ClassPut {
            policy: self.policy,
            reservation_per_gb: self.reservation_per_gb,
            limit_per_gb: self.limit_per_gb,
            datastore_class: self.datastore_class.clone(),
            force: Force::No,
        }
    }
}
