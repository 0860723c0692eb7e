//! What the shards were given of groups.

use super::groups::GroupKey;
use crate::state::{Model, Service};
use headgate_model::{DatastoreRecord, DiskGroups, Name};
use headgate_qos::GroupId;
use std::collections::BTreeMap;

/// What the shards were given.
#[derive(Default)]
pub(crate) struct Given {
    /// A group has the same number as long as the daemon runs.
    pub(super) ids: BTreeMap<GroupKey, GroupId>,
    pub(super) by_datastore: BTreeMap<Name, InForce>,
}

/// Of one datastore.
pub(super) struct InForce {
    pub(super) groups: DiskGroups,
    pub(super) members: BTreeMap<Name, GroupId>,
}

impl Given {
    pub(super) fn id(&mut self, key: &GroupKey) -> GroupId {
        let next = GroupId(self.ids.len() as u32);
        *self.ids.entry(key.clone()).or_insert(next)
    }

    pub(super) fn groups_of(&mut self, model: &Model, datastore: &DatastoreRecord) -> DiskGroups {
        model.disk_groups(datastore, &mut |key| self.id(key))
    }

    /// Of all datastores that serve.
    pub(super) fn all_groups(&mut self, model: &Model) -> Vec<(Name, DiskGroups)> {
        let serving = model.datastores.values().filter(|one| one.service == Service::Serving);
        serving.map(|one| (one.record.name.clone(), self.groups_of(model, &one.record))).collect()
    }

    pub(super) fn is(&self, datastore: &Name, groups: &DiskGroups) -> bool {
        match self.by_datastore.get(datastore) {
            Some(given) => given.groups == *groups,
            None => groups.groups.is_empty(),
        }
    }
}
