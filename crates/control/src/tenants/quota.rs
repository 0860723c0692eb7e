//! The most that a tenant may have.

use crate::{ControlError, Model};
use headgate_api::tenants::Usage;
use headgate_model::{Name, Quota};
use headgate_units::{Bytes, Iops};

/// A disk of a tenant, as quotas see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted<'a> {
    pub(crate) disk: &'a Name,
    pub(crate) size: Bytes,
    /// In IOPS.
    pub(crate) reserved: u64,
}

fn add(usage: Usage, size: Bytes, reserved: u64) -> Usage {
    Usage {
        disks: usage.disks + 1,
        size: Bytes(usage.size.0.saturating_add(size.0)),
        reserved_iops: usage.reserved_iops.saturating_add(reserved),
    }
}

impl Model {
    /// What a tenant has, but for this disk: of all of its machines, on all datastores, with what
    /// is to be made.
    pub(crate) fn usage(&self, tenant: &Name, without: Option<&Name>) -> Usage {
        let is_its = |vm: Option<&Name>| self.tenant_of(vm) == Some(tenant);
        let made = self.disks.values().map(|entry| &entry.record);
        let made = made.filter(|one| is_its(one.vm.as_ref()) && Some(&one.name) != without);
        let made = made.map(|one| (one.size, one.policy.reservation));
        let planned = self.planned.values().filter(|one| {
            let is_counted = self.disks.contains_key(&one.name) || Some(&one.name) == without;
            is_its(one.vm.as_ref()) && !is_counted
        });
        let planned = planned.map(|one| (one.size, self.policy_planned(one).reservation));
        made.chain(planned).fold(Usage::default(), |usage, (size, reservation)| {
            add(usage, size, reservation.map_or(0, Iops::get))
        })
    }

    /// That a machine's tenant may have this disk, as it would be. What was beyond a quota before
    /// may stay, and not grow.
    pub(crate) fn check_quota(
        &self,
        vm: Option<&Name>,
        disk: Counted<'_>,
    ) -> Result<(), ControlError> {
        let Some(tenant) = self.tenant_of(vm).and_then(|name| self.tenants.get(name)) else {
            return Ok(());
        };
        if tenant.quota == Quota::default() {
            return Ok(());
        }
        let before = self.usage(&tenant.name, None);
        let others = self.usage(&tenant.name, Some(disk.disk));
        let after = add(others, disk.size, disk.reserved);
        within(&tenant.name, tenant.quota, before, after)
    }

    /// The same of everything that a change makes of all tenants.
    pub(crate) fn check_quotas_after(&self, after: &Model) -> Result<(), ControlError> {
        for tenant in after.tenants.values().filter(|one| one.quota != Quota::default()) {
            let before = self.usage(&tenant.name, None);
            within(&tenant.name, tenant.quota, before, after.usage(&tenant.name, None))?;
        }
        Ok(())
    }
}

/// That nothing grows beyond a quota.
fn within(tenant: &Name, quota: Quota, before: Usage, after: Usage) -> Result<(), ControlError> {
    let over = |most: Option<u64>, before: u64, after: u64| {
        most.filter(|most| after > *most && after > before)
    };
    let what = if let Some(most) = over(quota.max_disks, before.disks, after.disks) {
        format!("{} disks, and may have {most}", after.disks)
    } else if let Some(most) = over(quota.max_space.map(|b| b.0), before.size.0, after.size.0) {
        format!("{} in its disks, and may have {}", after.size, Bytes(most))
    } else if let Some(most) = over(quota.max_reserved, before.reserved_iops, after.reserved_iops) {
        format!("{} IOPS reserved, and may have {most} IOPS", after.reserved_iops)
    } else {
        return Ok(());
    };
    Err(ControlError::OverQuota { tenant: tenant.clone(), what })
}
