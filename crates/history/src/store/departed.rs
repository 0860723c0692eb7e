//! Removed disks and the names of their samples in the store.

use headgate_model::Name;

/// A removed disk whose samples are still kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Departed {
    pub disk: Name,
    /// Where it was.
    pub datastore: Name,
}

/// Under what a removed disk's samples are kept: no disk's name.
pub(crate) fn set_aside_name(disk: &Name) -> String {
    format!("~{disk}")
}
