//! Placement settings of datastores and disks.

use crate::{Name, Overcommit};
use headgate_placement::{Affinity, Mobility, State};
use serde::{Deserialize, Serialize};

/// Placement settings of a datastore.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct DatastorePlacement {
    /// What kind of storage it is: disks may ask for one. Datastores of different classes are
    /// balanced apart.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub class: Option<Name>,
    /// The device under it, for datastores that share one: the same word for each of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub spindles: Option<Name>,
    /// Whether disks are placed on it: `active`, `closed` (nothing comes), `maintenance` (it is to
    /// be emptied).
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub state: State,
    /// In maintenance: who moves its disks away.
    #[serde(skip_serializing_if = "EmptiedBy::is_operator")]
    pub emptied_by: EmptiedBy,
    /// How many times the room of its file system disks may be large together, such as `2.5`, or
    /// `none`; ten times when absent. Of a datastore in a directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub overcommit: Option<Overcommit>,
}

/// Who moves disks away from a datastore in maintenance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum EmptiedBy {
    /// The operator, as advised.
    #[default]
    Operator,
    /// The daemon, one after the other.
    Daemon,
}

impl EmptiedBy {
    fn is_operator(&self) -> bool {
        *self == EmptiedBy::Operator
    }
}

/// Placement settings of a disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct DiskPlacement {
    /// The class of datastore it must be on.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub class: Option<Name>,
    /// Whether it may move: `free`, or `pinned`.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub mobility: Mobility,
    /// Which disks it shares a datastore with: `none` in particular, or `vm`, the other disks of
    /// its machine with this affinity.
    #[serde(alias = "company")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub affinity: Affinity,
}
