//! Groups of disks, by the names that the engine has for disks.

use crate::engine_plane::EnginePlane;
use headgate_engine::DiskGroups;
use headgate_model::Name;

impl EnginePlane {
    /// A disk's copy that a move makes has its name with a dot before it until it is the disk. So
    /// has the daemon's own disk of a datastore, which is in no group.
    pub(crate) fn engine_groups(&self, groups: &headgate_model::DiskGroups) -> DiskGroups {
        let stores = self.stores();
        let is_store = |disk: &Name| stores.contains_key(disk);
        let copies = groups.members.iter().filter(|(disk, _)| !is_store(disk));
        let copies = copies.map(|(disk, group)| (format!(".{disk}"), *group));
        let disks = groups.members.iter().map(|(disk, group)| (disk.to_string(), *group));
        DiskGroups { groups: groups.groups.clone(), members: disks.chain(copies).collect() }
    }
}
