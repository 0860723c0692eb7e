//! Hands groups of disks to the shards.

use super::given::{Given, InForce};
use crate::{Control, ControlError, Model};
use headgate_model::{DiskGroups, DiskRecord, Name};
use std::sync::{MutexGuard, PoisonError};
use tracing::{error, warn};

impl Control {
    /// Held for as long as shards are told, so that what is newer is not overwritten. Taken before
    /// the model is read.
    fn given(&self) -> MutexGuard<'_, Given> {
        self.groups_given.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The shard of a datastore that comes into service was given nothing.
    pub(crate) fn forget_groups(&self, datastore: &Name) {
        self.given().by_datastore.remove(datastore);
    }

    /// Before a disk is opened: its datastore has the group that it is in.
    pub(crate) fn group_disk(&self, record: &DiskRecord) -> Result<(), ControlError> {
        let mut given = self.given();
        let model = self.model();
        let key = model.groups_of(record.vm.as_ref()).into_iter().next();
        let wanted = key.map(|(key, _)| given.id(&key));
        let is = given.by_datastore.get(&record.datastore);
        let is = is.and_then(|given| given.members.get(&record.name)).copied();
        let Some(store) = model.datastores.get(&record.datastore).filter(|_| wanted != is) else {
            return Ok(());
        };
        let groups = given.groups_of(&model, &store.record);
        drop(model);
        self.give(&mut given, [(record.datastore.clone(), groups)])
    }

    /// All datastores have the groups that a model says. On failure they have again those of
    /// before, as far as their shards confirm.
    pub(crate) fn put_groups(&self, wanted: &Model) -> Result<(), ControlError> {
        let mut given = self.given();
        let all = given.all_groups(wanted);
        let done = self.give(&mut given, all);
        drop(given);
        if done.is_err()
            && let Err(error) = self.put_groups_now()
        {
            error!(%error, "groups of disks are not as they were before a change that failed");
        }
        done
    }

    /// All datastores have the groups that are known.
    pub(crate) fn put_groups_now(&self) -> Result<(), ControlError> {
        let mut given = self.given();
        let all = given.all_groups(&self.model());
        self.give(&mut given, all)
    }

    /// A disk has gone from a datastore, perhaps the last one of a group.
    pub(crate) fn tidy_groups(&self) {
        if let Err(error) = self.put_groups_now() {
            warn!(%error, "groups of disks that are there no more stay until the next change");
        }
    }

    fn give(
        &self,
        given: &mut Given,
        all: impl IntoIterator<Item = (Name, DiskGroups)>,
    ) -> Result<(), ControlError> {
        for (datastore, groups) in all {
            if given.is(&datastore, &groups) {
                continue;
            }
            self.plane.set_groups(&datastore, &groups)?;
            let members = groups.members.iter().cloned().collect();
            given.by_datastore.insert(datastore, InForce { groups, members });
        }
        Ok(())
    }
}
