//! Wire types of documents: what there is to be, and what came of it.

use super::change::Force;
use super::classes::ClassPut;
use super::types::{DatastorePatch, ErrorBody};
use headgate_model::{GroupPolicy, Name, PolicyPart, Quota};
use headgate_units::{Bytes, Iops};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What there is to be, and how it is to come about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Apply {
    /// The name of these documents together: what they make is theirs.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub set: Name,
    /// Classes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<WantedClass>,
    /// Tenants.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tenants: Vec<WantedTenant>,
    /// Virtual machines: whose they are, and what they are promised.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vms: Vec<WantedVm>,
    /// Datastores that are there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub datastores: Vec<WantedDatastore>,
    /// Disks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<WantedDisk>,
    /// What becomes of what these documents made and do not name any more.
    #[serde(default)]
    pub prune: Prune,
    /// Change nothing, and say what would change.
    #[serde(default)]
    pub dry_run: bool,
    /// Overbook datastores if need be.
    #[serde(default)]
    pub force: Force,
}

/// What becomes of what a set of documents made and does not name any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Prune {
    /// It stays.
    #[default]
    Nothing,
    /// Classes, and disks that were never made, go. A disk that there is is an error.
    Empty,
    /// Disks go too, whatever they hold. Their content is kept as that of any removed disk.
    Disks,
}

/// A class that there is to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct WantedClass {
    /// Where that stands, for errors: file and line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// Its name.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub name: Name,
    /// All of it. Its `force` counts for nothing here.
    #[serde(default)]
    pub class: ClassPut,
}

/// A tenant that there is to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct WantedTenant {
    /// Where that stands, for errors: file and line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// Its name.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub name: Name,
    /// All that its disks are promised together.
    #[serde(default)]
    pub policy: GroupPolicy,
    /// All that it may have at most.
    #[serde(default)]
    pub quota: Quota,
}

/// What a virtual machine is to be promised.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct WantedVm {
    /// Where that stands, for errors: file and line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// Its name.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub name: Name,
    /// The tenant that it belongs to. Absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub tenant: Option<Name>,
    /// All that its disks are promised together.
    #[serde(default)]
    pub policy: GroupPolicy,
}

/// What a datastore is to have, which is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct WantedDatastore {
    /// Where that stands, for errors: file and line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// Its name.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub name: Name,
    /// What can be reserved, in worst-case random IOPS. Absent: it stays as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub capacity: Option<Iops>,
    /// What else is to be set. What is absent stays as it is. Its `capacity` is the one above, and
    /// servers are added by hand: `add_servers` is refused.
    #[serde(default, skip_serializing_if = "DatastorePatch::is_empty")]
    pub settings: DatastorePatch,
}

/// A disk that there is to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct WantedDisk {
    /// Where that stands, for errors: file and line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// Its name.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub name: Name,
    /// Where it is.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub datastore: Name,
    /// Its size in bytes.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub size: Bytes,
    /// The virtual machine it belongs to. Absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub vm: Option<Name>,
    /// Its class. Absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub class: Option<Name>,
    /// All that is its own of its policy.
    #[serde(default)]
    pub policy: PolicyPart,
}

/// What becomes of a thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Act {
    /// It is made.
    Create,
    /// It gets other values.
    Change,
    /// It goes.
    Remove,
}

/// A value that is different.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FieldChange {
    /// Which.
    pub field: String,
    /// What it was; `null`: nothing.
    #[cfg_attr(feature = "openapi", schema(value_type = Value))]
    pub from: Value,
    /// What it is to be; `null`: nothing.
    #[cfg_attr(feature = "openapi", schema(value_type = Value))]
    pub to: Value,
}

/// A thing that is different.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ThingChange {
    /// `class`, `tenant`, `vm`, `datastore` or `disk`.
    pub kind: String,
    /// Its name.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub name: Name,
    /// What becomes of it.
    pub act: Act,
    /// What is different about it.
    pub fields: Vec<FieldChange>,
    /// Of a disk that was not named, or whose own values stay: because of this class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub by_class: Option<Name>,
}

/// What is promised of a datastore.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PromisesOn {
    /// The datastore.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub datastore: Name,
    /// What was reserved before, in IOPS.
    pub before: u64,
    /// What is reserved then.
    pub after: u64,
    /// What it can promise; `null`: unknown.
    pub reservable: Option<u64>,
}

/// What came of documents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Applied {
    /// What is different, or would be.
    pub changes: Vec<ThingChange>,
    /// Datastores of which more or less is promised.
    pub promises: Vec<PromisesOn>,
    /// Disks that are recorded and are to be made, one by one, by `POST /v1/disks`.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub to_create: Vec<Name>,
    /// Disks that are to be removed, one by one, by `DELETE /v1/disks/{name}`.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub to_remove: Vec<Name>,
    /// Whether anything was changed: not by a dry run, and not where nothing is different.
    pub changed: bool,
    /// Of a dry run: why it would be refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<ErrorBody>,
    /// What may not be as intended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}
