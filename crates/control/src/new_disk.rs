//! A disk as it would be.

use crate::tenants::groups::Member;
use crate::tenants::quota::Counted;
use headgate_model::{DiskRecord, Name, Policy};
use headgate_units::{Bytes, Iops};

/// A disk as it would be, for what is to be checked of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewDisk<'a> {
    pub(super) name: &'a Name,
    pub(super) target: &'a Name,
    pub(super) vm: Option<&'a Name>,
    pub(super) size: Bytes,
    pub(super) policy: &'a Policy,
    /// What counts of its reservation: an equal part, of one that lies on other servers too.
    pub(super) reserved: Option<Iops>,
}

impl<'a> NewDisk<'a> {
    /// A disk as its record says.
    pub(super) fn of(record: &'a DiskRecord) -> NewDisk<'a> {
        NewDisk {
            name: &record.name,
            target: &record.datastore,
            vm: record.vm.as_ref(),
            size: record.size,
            policy: &record.policy,
            reserved: record.promised(),
        }
    }

    pub(super) fn member(&self) -> Member<'a> {
        let reserved = self.reserved.map_or(0, Iops::get);
        Member { disk: self.name, vm: self.vm, reserved, policy: *self.policy }
    }

    pub(super) fn counted(&self) -> Counted<'a> {
        let reserved = self.policy.reservation.map_or(0, Iops::get);
        Counted { disk: self.name, size: self.size, reserved }
    }
}
