//! Tenants: whose virtual machines are, what their disks are promised together, and how much they
//! may have (`docs/decisions/0115-tenants.md`).

pub(crate) mod given;
pub(crate) mod groups;
pub(crate) mod in_force;
pub(crate) mod quota;
#[cfg(test)]
mod tests;

use super::{Control, ControlError, GroupShares, GroupsOfMachines, Model};
use crate::configuration::Thing;
use crate::preconditions::in_earnest;
use groups::{GroupKey, WhatIf};
use headgate_api::tenants::{OnDatastore, Tenant, TenantPatch};
use headgate_api::top::TopTenant;
use headgate_api::types::Changed;
use headgate_catalog::PolicyChange;
use headgate_model::{GroupPolicy, Name, Quota, TenantRecord, VmPromise, VmRecord};

/// That what a group is promised does not contradict itself.
pub(crate) fn check_group_policy(of: &str, policy: &GroupPolicy) -> Result<(), ControlError> {
    policy.for_scheduler().map(drop).map_err(|e| {
        ControlError::invalid(format!("{of}: {e}"), "a reservation at most as high as the limit")
    })
}

impl Model {
    pub(crate) fn tenant(&self, name: &Name) -> Result<&TenantRecord, ControlError> {
        self.tenants.get(name).ok_or_else(|| ControlError::Missing {
            kind: "tenant",
            name: name.clone(),
            known: self.tenants.keys().cloned().collect(),
        })
    }

    /// That what a virtual machine is promised makes sense, and its tenant is one.
    pub(crate) fn check_promise(&self, vm: &VmRecord) -> Result<(), ControlError> {
        let VmPromise { tenant, policy, .. } = &vm.promise;
        check_group_policy(&format!("virtual machine '{}'", vm.name), policy)?;
        tenant.as_ref().map_or(Ok(()), |tenant| self.tenant(tenant).map(drop))
    }

    fn machines_of_tenant<'a>(&'a self, tenant: &'a Name) -> impl Iterator<Item = &'a VmRecord> {
        self.vms.values().filter(move |vm| vm.promise.tenant.as_ref() == Some(tenant))
    }

    /// What a group is promised on each datastore on which it has disks.
    pub(crate) fn group_on_datastores(&self, key: &GroupKey) -> Vec<OnDatastore> {
        let on = self.datastores.values().filter_map(|entry| {
            let promised = self.promised_in(&entry.record, WhatIf::default());
            let group = promised.groups.get(key)?;
            Some(OnDatastore {
                datastore: entry.record.name.clone(),
                promised_iops: group.promised(),
                inside_iops: group.inside,
            })
        });
        on.collect()
    }

    fn view_tenant(&self, tenant: &TenantRecord) -> Tenant {
        let TenantRecord { name, policy, quota, applied_by } = tenant.clone();
        Tenant {
            vms: self.machines_of_tenant(&name).map(|vm| vm.name.clone()).collect(),
            usage: self.usage(&name, None),
            datastores: self.group_on_datastores(&GroupKey::Tenant(name.clone())),
            name,
            policy,
            quota,
            applied_by,
        }
    }
}

fn changed(mut record: TenantRecord, patch: &TenantPatch) -> TenantRecord {
    let TenantPatch { reservation, limit, shares, max_disks, max_space, max_reserved, force: _ } =
        *patch;
    record.policy = GroupPolicy {
        reservation: reservation.apply(record.policy.reservation),
        limit: limit.apply(record.policy.limit),
        shares: shares.apply(record.policy.shares),
    };
    record.quota = Quota {
        max_disks: max_disks.apply(record.quota.max_disks),
        max_space: max_space.apply(record.quota.max_space),
        max_reserved: max_reserved.apply(record.quota.max_reserved),
    };
    record
}

impl Control {
    /// All tenants.
    pub fn tenants(&self) -> Vec<Tenant> {
        let model = self.model();
        model.tenants.values().map(|tenant| model.view_tenant(tenant)).collect()
    }

    /// The groups that the disks of each machine are in, where datastores have groups: of machines
    /// that are in one.
    pub fn groups_of_machines(&self) -> GroupsOfMachines {
        let model = self.model();
        let of = |vm: &Name| {
            let groups = model.groups_of(Some(vm)).into_iter().map(|(key, policy)| GroupShares {
                group: key.to_string(),
                shares: policy.shares.unwrap_or_default(),
            });
            (vm.clone(), groups.collect::<Vec<_>>())
        };
        model.vms.keys().map(of).filter(|(_, groups)| !groups.is_empty()).collect()
    }

    /// The machines of each tenant that has some.
    pub fn machines_of_tenants(&self) -> Vec<TopTenant> {
        let model = self.model();
        let of = |name: &Name| {
            let vms = model.machines_of_tenant(name).map(|vm| vm.name.clone()).collect();
            TopTenant { name: name.clone(), vms }
        };
        model.tenants.keys().map(of).filter(|tenant| !tenant.vms.is_empty()).collect()
    }

    /// One tenant.
    ///
    /// # Errors
    /// [`ControlError::Missing`].
    pub fn tenant(&self, name: &Name) -> Result<Tenant, ControlError> {
        let model = self.model();
        Ok(model.view_tenant(model.tenant(name)?))
    }

    /// Changes a tenant, or makes one. What its disks are promised together is in force when the
    /// call returns.
    ///
    /// # Errors
    /// When the values contradict each other, what is promised does not fit, or a shard does not
    /// confirm; everything is as it was then.
    pub fn set_tenant(
        &self,
        name: &Name,
        patch: &TenantPatch,
    ) -> Result<Changed<Tenant>, ControlError> {
        let mut catalog = self.catalog_for(&Thing::Tenant(name.clone()))?;
        let (change, mut judged) = {
            let model = self.model();
            let before = model.tenants.get(name).cloned();
            let record =
                changed(before.unwrap_or_else(|| TenantRecord::unset(name.clone())), patch);
            let change = PolicyChange { tenants: vec![record], ..PolicyChange::default() };
            let judged = self.judge_promises(&model, &change, patch.force)?;
            (change, judged)
        };
        in_earnest(|| judged.as_dry_run(self.would(&change, &judged.warnings)))?;
        self.put_policies(&mut **catalog, &change)?;
        drop(catalog);
        let now = self.tenant(name)?;
        judged.warnings.extend(warnings(&now));
        Ok(Changed { now, warnings: judged.warnings })
    }

    /// Forgets a tenant that has no virtual machines.
    ///
    /// # Errors
    /// [`ControlError::Missing`], or that virtual machines are its.
    pub fn remove_tenant(&self, name: &Name) -> Result<(), ControlError> {
        let mut catalog = self.catalog_for(&Thing::Tenant(name.clone()))?;
        {
            let model = self.model();
            model.tenant(name)?;
            let names: Vec<&str> =
                model.machines_of_tenant(name).map(|vm| vm.name.as_str()).collect();
            if let Some(first) = names.first() {
                return Err(ControlError::Busy {
                    error: format!(
                        "{} virtual machine(s) belong to tenant '{name}': {}",
                        names.len(),
                        names.iter().take(5).copied().collect::<Vec<_>>().join(", ")
                    ),
                    hint: format!("take them away first: 'headgate vm set {first} --tenant none'"),
                });
            }
        }
        let gone_tenants = vec![name.clone()];
        let change = PolicyChange { gone_tenants, ..PolicyChange::default() };
        in_earnest(|| self.would(&change, &[]))?;
        self.put_policies(&mut **catalog, &change)
    }
}

/// What an operator may not have intended.
fn warnings(tenant: &Tenant) -> Vec<String> {
    let mut warnings = Vec::new();
    let Tenant { name, quota, usage, vms, .. } = tenant;
    if vms.is_empty() {
        warnings.push(format!(
            "no virtual machine belongs to tenant '{name}' yet: 'headgate vm set VM --tenant \
             {name}'"
        ));
    }
    let over = |most: Option<u64>, has: u64| most.is_some_and(|most| has > most);
    if over(quota.max_disks, usage.disks)
        || over(quota.max_space.map(|b| b.0), usage.size.0)
        || over(quota.max_reserved, usage.reserved_iops)
    {
        warnings.push(format!(
            "tenant '{name}' has more than its quota already ({} disks, {}, {} IOPS reserved): \
             that stays, and does not grow",
            usage.disks, usage.size, usage.reserved_iops
        ));
    }
    warnings
}
