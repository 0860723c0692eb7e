//! The groups that the data plane in memory was given.

use super::MemoryPlane;
use headgate_units::Iops;

impl MemoryPlane {
    /// Each group in force at a datastore, by its number: the one that it is in, its reservation,
    /// and the disks that are in it directly.
    pub(crate) fn groups(&self, datastore: &str) -> Vec<(Option<u32>, Option<u64>, Vec<String>)> {
        let state = self.0.lock().unwrap();
        let Some(given) = state.groups.get(&datastore.parse().unwrap()) else { return Vec::new() };
        let of = |group: &headgate_qos::Group| {
            let members = given.members.iter().filter(|(_, id)| *id == group.id);
            let members = members.map(|(disk, _)| disk.to_string()).collect();
            let parent = group.parent.map(|parent| parent.0);
            (parent, group.policy.reservation().map(Iops::get), members)
        };
        given.groups.iter().map(of).collect()
    }
}
