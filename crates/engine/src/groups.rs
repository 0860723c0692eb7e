//! Groups of a datastore's disks, by the names of the disks.

use headgate_qos::{Group, GroupId};
use std::collections::HashMap;

/// The groups of a datastore, and which disks are in them: also ones that are not open, which are
/// in theirs from the first request on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskGroups {
    /// Each after the one that it is in. None: the disks are divided by their own policies alone.
    pub groups: Vec<Group>,
    /// Of a disk's name, the group that it is in. Others are in none.
    pub members: HashMap<String, GroupId>,
}
