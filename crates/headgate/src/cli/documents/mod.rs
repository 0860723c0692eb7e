//! Documents that say what classes, datastores and disks there are to be: in YAML, of which JSON is
//! a part.

mod amounts;
mod fields;
mod nodes;
mod read;
mod stores;
mod write;

pub(super) use amounts::amount;
pub(super) use read::read_all;
pub(super) use write::{Written, as_json, as_yaml};
