use crate::name::Name;
use headgate_placement::{Company, Mobility, State};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What placement is to know of a datastore.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DatastorePlacement {
    /// What kind of storage it is: disks may ask for one. Datastores of different classes are balanced apart.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub class: Option<Name>,
    /// The device under it, for datastores that share one: the same word for each of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub spindles: Option<Name>,
    /// Whether disks are placed on it: `active`, `closed` (nothing comes), `maintenance` (it is to be emptied).
    #[schema(value_type = String)]
    pub state: State,
}

/// What placement is to know of a disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DiskPlacement {
    /// The class of datastore it must be on.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub class: Option<Name>,
    /// Whether it may move: `free`, or `pinned`.
    #[schema(value_type = String)]
    pub mobility: Mobility,
    /// With whom: `alone`, or `with-vm`, with the other disks of its machine that say so.
    #[schema(value_type = String)]
    pub company: Company,
}
