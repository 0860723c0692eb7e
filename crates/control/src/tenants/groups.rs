//! Groups of disks on each datastore, made of what tenants and virtual machines are promised: what
//! is promised in each, and what cannot be.

use crate::{ControlError, Model};
use headgate_model::{
    DatastoreRecord, DiskGroups, GroupPolicy, LimitMode, Name, Policy, PriorityScope, Scheduler,
};
use headgate_qos::{Group, GroupId};
use headgate_units::{Iops, Nanos};
use std::collections::BTreeMap;
use std::fmt;

/// A group of disks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum GroupKey {
    /// All of a tenant's.
    Tenant(Name),
    /// Those of a virtual machine.
    Machine(Name),
}

impl fmt::Display for GroupKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GroupKey::Tenant(name) => write!(f, "tenant '{name}'"),
            GroupKey::Machine(name) => write!(f, "virtual machine '{name}'"),
        }
    }
}

/// A disk on a datastore, as groups see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member<'a> {
    pub(crate) disk: &'a Name,
    pub(crate) vm: Option<&'a Name>,
    /// In IOPS.
    pub(crate) reserved: u64,
    pub(crate) policy: Policy,
}

/// A question about what there would be.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WhatIf<'a> {
    /// This disk were not there.
    pub(crate) without: Option<&'a Name>,
    /// This one were.
    pub(crate) with: Option<Member<'a>>,
}

impl<'a> WhatIf<'a> {
    /// A disk were so, whether it is there or not.
    pub(crate) fn is(with: Member<'a>) -> WhatIf<'a> {
        WhatIf { without: Some(with.disk), with: Some(with) }
    }
}

/// What is promised in a group on a datastore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InGroup {
    pub(crate) policy: GroupPolicy,
    pub(crate) parent: Option<GroupKey>,
    /// To what is in it, in IOPS.
    pub(crate) inside: u64,
}

impl InGroup {
    /// To it and what is in it together, in IOPS.
    pub(crate) fn promised(&self) -> u64 {
        self.inside.max(self.policy.reservation.map_or(0, Iops::get))
    }
}

/// What is promised on a datastore.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Promised {
    pub(crate) groups: BTreeMap<GroupKey, InGroup>,
    /// In all, in IOPS: of each group the larger of its own reservation and what is in it.
    pub(crate) all: u64,
}

impl Model {
    pub(crate) fn tenant_of(&self, vm: Option<&Name>) -> Option<&Name> {
        self.vms.get(vm?)?.promise.tenant.as_ref()
    }

    fn group_policy(&self, key: &GroupKey) -> GroupPolicy {
        match key {
            GroupKey::Tenant(name) => self.tenants.get(name).map(|tenant| tenant.policy),
            GroupKey::Machine(name) => self.vms.get(name).map(|vm| vm.promise.policy),
        }
        .unwrap_or_default()
    }

    /// The groups that a machine's disks are in, the innermost first. A tenant or machine without a
    /// policy is none.
    pub(crate) fn groups_of(&self, vm: Option<&Name>) -> Vec<(GroupKey, GroupPolicy)> {
        let machine = vm.cloned().map(GroupKey::Machine);
        let tenant = self.tenant_of(vm).cloned().map(GroupKey::Tenant);
        let both = machine.into_iter().chain(tenant);
        let with_policies = both.map(|key| (self.group_policy(&key), key));
        with_policies.filter(|(policy, _)| !policy.is_empty()).map(|(p, key)| (key, p)).collect()
    }

    /// All disks that a datastore has promised something to, those that are to be made among them.
    fn members_on<'a>(
        &'a self,
        datastore: &'a Name,
        what_if: WhatIf<'a>,
    ) -> impl Iterator<Item = Member<'a>> {
        let made = self.promised_on(datastore).map(|entry| Member {
            disk: &entry.record.name,
            vm: entry.record.vm.as_ref(),
            reserved: entry.record.promised().map_or(0, Iops::get),
            policy: entry.record.policy,
        });
        let planned = self.planned.values().filter(|one| one.datastore == *datastore);
        // One that is being made is promised it already.
        let planned = planned.filter(|one| !self.disks.contains_key(&one.name)).map(|one| {
            let policy = self.policy_planned(one);
            let reserved = policy.reservation.map_or(0, Iops::get);
            Member { disk: &one.name, vm: one.vm.as_ref(), reserved, policy }
        });
        let there = made.chain(planned).filter(move |member| what_if.without != Some(member.disk));
        there.chain(what_if.with)
    }

    /// What is promised on a datastore.
    pub(crate) fn promised_in(&self, datastore: &DatastoreRecord, what_if: WhatIf<'_>) -> Promised {
        let mut promised = Promised::default();
        let is_grouped = datastore.scheduler == Scheduler::Mclock;
        // The innermost groups first.
        let mut levels: [Vec<GroupKey>; 2] = Default::default();
        for member in self.members_on(&datastore.name, what_if) {
            let groups = if is_grouped { self.groups_of(member.vm) } else { Vec::new() };
            let keys: Vec<GroupKey> = groups.iter().map(|(key, _)| key.clone()).collect();
            for (at, (key, policy)) in groups.into_iter().enumerate() {
                let level = usize::from(matches!(key, GroupKey::Tenant(_)));
                let parent = keys.get(at + 1).cloned();
                promised.groups.entry(key.clone()).or_insert_with(|| {
                    levels[level].push(key);
                    InGroup { policy, parent, inside: 0 }
                });
            }
            match keys.first().and_then(|key| promised.groups.get_mut(key)) {
                Some(group) => group.inside += member.reserved,
                None => promised.all += member.reserved,
            }
        }
        for key in levels.iter().flatten() {
            let Some(group) = promised.groups.get(key) else { continue };
            let (sum, parent) = (group.promised(), group.parent.clone());
            match parent.and_then(|parent| promised.groups.get_mut(&parent)) {
                Some(parent) => parent.inside += sum,
                None => promised.all += sum,
            }
        }
        promised
    }

    /// That the disks of a datastore can be in the groups that they would be in, and that none of
    /// these promises more than its limit.
    pub(crate) fn check_groups(
        &self,
        datastore: &DatastoreRecord,
        what_if: WhatIf<'_>,
    ) -> Result<(), ControlError> {
        self.check_promised(datastore, what_if, &self.promised_in(datastore, what_if))
    }

    /// The same where this is what it promises then.
    pub(crate) fn check_promised(
        &self,
        datastore: &DatastoreRecord,
        what_if: WhatIf<'_>,
        promised: &Promised,
    ) -> Result<(), ControlError> {
        for (key, group) in &promised.groups {
            if let Some(limit) = group.policy.limit
                && group.inside > limit.get()
            {
                return Err(ControlError::AboveLimit {
                    what: format!(
                        "{key} would promise {} IOPS to what is in it on datastore '{}', {} more \
                         than its limit of {limit} IOPS",
                        group.inside,
                        datastore.name,
                        group.inside - limit.get()
                    ),
                });
            }
        }
        let Some(key) = promised.groups.keys().next() else { return Ok(()) };
        self.check_rules(datastore, key, what_if)
    }

    /// The same of all datastores after a change. What was wrong before it is not its fault.
    pub(crate) fn check_groups_after(&self, after: &Model) -> Result<(), ControlError> {
        let check = |model: &Model, name: &Name| match model.datastores.get(name) {
            Some(entry) => model.check_groups(&entry.record, WhatIf::default()),
            None => Ok(()),
        };
        after.datastores.keys().try_for_each(|name| match check(after, name) {
            Err(e) if check(self, name).is_ok() => Err(e),
            _ => Ok(()),
        })
    }

    /// That nothing is asked for on a datastore that disks beside groups have no rule for.
    fn check_rules(
        &self,
        datastore: &DatastoreRecord,
        key: &GroupKey,
        what_if: WhatIf<'_>,
    ) -> Result<(), ControlError> {
        let name = &datastore.name;
        let refused = |error: String, hint: String| {
            let error = format!("{error}, which has no rule beside the promises of {key} there");
            Err(ControlError::Busy { error, hint })
        };
        if datastore.plug > Nanos::ZERO {
            let hint = format!("turn it off: 'headgate datastore set {name} --plug 0s'");
            return refused(format!("datastore '{name}' has a plug"), hint);
        }
        if datastore.batch.is_some() {
            let hint = format!("turn them off: 'headgate datastore set {name} --batch none'");
            return refused(format!("datastore '{name}' sends batches"), hint);
        }
        for Member { disk, vm, policy, .. } in self.members_on(name, what_if) {
            let what = match policy {
                Policy { limit_mode: LimitMode::Soft, .. } => "soft limits",
                policy if limits_one_direction(&policy) => "limits of reads or of writes alone",
                _ if self.priorities(vm).scope == PriorityScope::Across => {
                    let vm = vm.map_or("", Name::as_str);
                    let hint = format!("'headgate vm set {vm} --priority-scope within'");
                    let error = format!("priorities of virtual machine '{vm}' count across others");
                    return refused(format!("{error} on datastore '{name}'"), hint);
                }
                _ => continue,
            };
            let hint = format!(
                "take them away with 'headgate disk set {disk}', or have the disk on another \
                 datastore"
            );
            return refused(format!("disk '{disk}' on datastore '{name}' has {what}"), hint);
        }
        Ok(())
    }

    /// The groups of a datastore, for its shard.
    pub(crate) fn disk_groups(
        &self,
        datastore: &DatastoreRecord,
        id: &mut dyn FnMut(&GroupKey) -> GroupId,
    ) -> DiskGroups {
        let promised = self.promised_in(datastore, WhatIf::default());
        // Tenants before their machines.
        let in_order = promised.groups.iter();
        let groups = in_order.filter_map(|(key, group)| {
            let parent = group.parent.as_ref().map(&mut *id);
            // It was checked when it was set.
            let policy = group.policy.for_scheduler().ok()?;
            Some(Group { id: id(key), parent, policy })
        });
        let groups: Vec<Group> = groups.collect();
        let mut members = Vec::new();
        if !groups.is_empty() {
            for Member { disk, vm, .. } in self.members_on(&datastore.name, WhatIf::default()) {
                if let Some((key, _)) = self.groups_of(vm).first() {
                    members.push((disk.clone(), id(key)));
                }
            }
        }
        DiskGroups { groups, members }
    }
}

fn limits_one_direction(policy: &Policy) -> bool {
    let iops = policy.limit_read.or(policy.limit_write).is_some();
    iops || policy.limit_read_bandwidth.or(policy.limit_write_bandwidth).is_some()
}
