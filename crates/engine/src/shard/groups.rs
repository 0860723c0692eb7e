//! Groups of disks: which there are, and which disk is in which.

use super::Shard;
use super::datastore::Datastore;
use crate::error::EngineError;
use crate::groups::DiskGroups;
use crate::tables::Tables;
use headgate_qos::{Groups, GroupsError, Policy};
use headgate_units::Nanos;

impl Shard {
    /// Puts groups in the place of those that a datastore has.
    pub(crate) fn set_groups(
        &mut self,
        datastore: usize,
        groups: DiskGroups,
    ) -> Result<(), EngineError> {
        let ctx = &self.core.ctx;
        let store = self.core.datastores.get_mut(datastore).ok_or(EngineError::NoDatastore)?;
        if store.groups == groups {
            return Ok(());
        }
        let before = std::mem::replace(&mut store.groups, groups);
        store.regroup(ctx.now, &ctx.tables, datastore).inspect_err(|_| store.groups = before)?;
        Ok(())
    }
}

impl Datastore {
    /// Brings the gate up to date with which disks are open.
    pub(crate) fn regroup(
        &mut self,
        now: Nanos,
        tables: &Tables,
        key: usize,
    ) -> Result<(), GroupsError> {
        let on_it = tables.disks.iter().filter(|(_, disk)| disk.datastore == key);
        let members = on_it.filter_map(|(_, disk)| {
            let group = self.groups.members.get(&disk.info.name)?;
            Some((disk.queues.clients, *group))
        });
        let groups = Groups { groups: self.groups.groups.clone(), members: members.collect() };
        self.gate.set_groups(now, &groups)
    }

    /// That a disk may have a policy beside the groups.
    pub(crate) fn check_policy(&self, policy: Policy) -> Result<(), EngineError> {
        match self.gate.scheduler().cannot_have(policy) {
            None => Ok(()),
            Some(what) => Err(EngineError::BesideGroups { what }),
        }
    }
}
