//! Virtual machines: the disks that belong to them, and their priority settings.

use super::{Control, ControlError, DiskEntry, Model, Service, sockets};
use crate::configuration::Thing;
use crate::preconditions::in_earnest;
use headgate_api::priorities::{Priorities, VmPatch, VmSockets};
use headgate_api::types::{Changed, Disk, Vm};
use headgate_catalog::PolicyChange;
use headgate_model::Name;
use headgate_model::{GroupPolicy, PriorityRecord, Scheduler, VmPromise, VmRecord};
use headgate_qos::ioprio::IoprioMap;
use headgate_units::Bytes;
use std::collections::BTreeMap;

impl Model {
    /// The priority settings of a disk's virtual machine.
    pub(super) fn priorities(&self, vm: Option<&Name>) -> PriorityRecord {
        let set = vm.and_then(|vm| self.vms.get(vm));
        set.map_or_else(PriorityRecord::unset, |vm| vm.priorities)
    }

    fn disks_of<'a>(&'a self, vm: &'a Name) -> impl Iterator<Item = &'a DiskEntry> {
        self.disks.values().filter(move |disk| disk.record.vm.as_ref() == Some(vm))
    }
}

fn changed(mut record: PriorityRecord, patch: &VmPatch) -> Result<PriorityRecord, ControlError> {
    record.max = patch.max_priority.unwrap_or(record.max);
    record.default = patch.default_priority.unwrap_or(record.default);
    record.scope = patch.priority_scope.unwrap_or(record.scope);
    let nice = patch.nice.map_or(record.map.nice(), Into::into);
    if let Some(text) = &patch.ioprio_map {
        record.map = text.parse::<IoprioMap>().map_err(|e| {
            ControlError::invalid(
                e.to_string(),
                "entries such as be7=20,idle=1, separated by commas, or 'default'",
            )
        })?;
    }
    record.map = record.map.with_nice(nice);
    Ok(record)
}

fn promise_changed(mut promise: VmPromise, patch: &VmPatch) -> VmPromise {
    promise.tenant = patch.tenant.clone().apply(promise.tenant);
    promise.policy = GroupPolicy {
        reservation: patch.reservation.apply(promise.policy.reservation),
        limit: patch.limit.apply(promise.policy.limit),
        shares: patch.shares.apply(promise.policy.shares),
    };
    promise
}

/// Warnings about settings that the operator may not have intended.
fn warnings(model: &Model, vm: &Name, record: &PriorityRecord) -> Vec<String> {
    let mut warnings = Vec::new();
    if record.default > record.max {
        warnings.push(format!(
            "the default priority of {} is above the highest, so requests without one count {}",
            record.default, record.max
        ));
    }
    if model.disks_of(vm).next().is_none() {
        warnings.push(format!(
            "no disk names virtual machine '{vm}' yet: 'headgate disk set DISK --vm {vm}' makes one obey this"
        ));
    }
    let mut without: Vec<&Name> = model
        .disks_of(vm)
        .filter_map(|disk| model.datastores.get(&disk.record.datastore))
        .filter(|datastore| datastore.record.scheduler != Scheduler::Mclock)
        .map(|datastore| &datastore.record.name)
        .collect();
    without.dedup();
    for datastore in without {
        warnings.push(format!(
            "datastore '{datastore}' is not divided by mclock, and so not by priorities"
        ));
    }
    warnings
}

impl Control {
    /// All virtual machines that disks name or that something was set for.
    ///
    /// # Errors
    /// When a shard does not answer.
    pub fn vms(&self) -> Result<Vec<Vm>, ControlError> {
        Ok(self.vms_of(&self.disks()?))
    }

    /// The same where these are the disks.
    pub fn vms_of(&self, disks: &[Disk]) -> Vec<Vm> {
        let model = self.model();
        let mut vms = vms(&model.vms, disks);
        for vm in &mut vms {
            vm.sockets = self.view_sockets(&model, &vm.name);
        }
        vms
    }

    /// One virtual machine.
    ///
    /// # Errors
    /// [`ControlError::Missing`] when no disk names it and nothing was set for it.
    pub fn vm(&self, name: &Name) -> Result<Vm, ControlError> {
        let vms = self.vms()?;
        let known = vms.iter().map(|vm| vm.name.clone()).collect();
        vms.into_iter().find(|vm| vm.name == *name).ok_or_else(|| ControlError::Missing {
            kind: "virtual machine",
            name: name.clone(),
            known,
        })
    }

    /// Changes what a virtual machine's applications may ask for, which is in force at the next
    /// decision after the call returns, and who may connect to its disks from then on. It need not
    /// have disks yet.
    ///
    /// # Errors
    /// When a value makes no sense, or a shard does not confirm; everything is as it was then.
    pub fn set_vm(&self, name: &Name, patch: &VmPatch) -> Result<Changed<Vm>, ControlError> {
        let mut catalog = self.catalog_for(&Thing::Vm(name.clone()))?;
        let (before, record, warnings) = {
            let model = self.model();
            let before = model.vms.get(name).cloned();
            let old = before.clone().unwrap_or_else(|| VmRecord::unset(name.clone()));
            let record = VmRecord {
                name: old.name,
                priorities: changed(old.priorities, patch)?,
                sockets: sockets::changed(old.sockets.clone(), patch),
                promise: promise_changed(old.promise.clone(), patch),
            };
            if record.sockets != old.sockets {
                self.access_by(&record.sockets)?;
            }
            let mut warnings = warnings(&model, name, &record.priorities);
            let change = PolicyChange { vms: vec![record.clone()], ..PolicyChange::default() };
            let judged = self.judge_promises(&model, &change, patch.force)?;
            warnings.extend(judged.warnings.iter().cloned());
            in_earnest(|| judged.as_dry_run(self.would(&change, &warnings)))?;
            (before, record, warnings)
        };
        catalog.put_vm(&record)?;
        if let Err(e) = self.put_in_force(&record) {
            match before {
                Some(before) => catalog.put_vm(&before)?,
                None => catalog.delete_vm(name)?,
            }
            return Err(e);
        }
        // All else is in force by now, and this is judged already: it is the last that can fail.
        let change = PolicyChange { vms: vec![record.clone()], ..PolicyChange::default() };
        if let Err(e) = self.put_policies(&mut **catalog, &change) {
            let old = before.unwrap_or_else(|| VmRecord::unset(name.clone()));
            self.put_back_vm(&old);
            return Err(e);
        }
        drop(catalog);
        Ok(Changed { now: self.vm(name)?, warnings })
    }

    /// Forgets what was set for a virtual machine: its disks are as those of any other.
    ///
    /// # Errors
    /// [`ControlError::Missing`] when there is no such virtual machine, or a shard does not
    /// confirm; everything is as it was then.
    pub fn reset_vm(&self, name: &Name) -> Result<(), ControlError> {
        self.vm(name)?;
        let mut catalog = self.catalog_for(&Thing::Vm(name.clone()))?;
        let Some(before) = self.model().vms.get(name).cloned() else { return Ok(()) };
        let gone_vms = vec![name.clone()];
        let change = PolicyChange { gone_vms, ..PolicyChange::default() };
        in_earnest(|| self.would(&change, &[]))?;
        self.put_in_force(&VmRecord::unset(name.clone()))?;
        self.put_policies(&mut **catalog, &change).inspect_err(|_| self.put_back_vm(&before))
    }

    /// After a change that failed.
    fn put_back_vm(&self, before: &VmRecord) {
        if let Err(error) = self.put_in_force(before) {
            tracing::error!(vm = %before.name, %error, "its settings are not those it had");
        }
    }

    /// Hands `record` to the sockets and to the shards of every disk of a virtual machine; where
    /// one does not confirm, what the model has is handed to all again.
    fn put_in_force(&self, record: &VmRecord) -> Result<(), ControlError> {
        self.put_priorities_in_force(&record.name, record.priorities)?;
        self.put_access_in_force(record).inspect_err(|_| {
            let before = self.model().priorities(Some(&record.name));
            if let Err(error) = self.put_priorities_in_force(&record.name, before) {
                tracing::error!(vm = %record.name, %error, "its priorities are not those it had");
            }
        })
    }

    fn put_priorities_in_force(
        &self,
        vm: &Name,
        record: PriorityRecord,
    ) -> Result<(), ControlError> {
        let (disks, before) = {
            let model = self.model();
            let serving = model.disks_of(vm).filter(|disk| disk.service == Service::Serving);
            let disks: Vec<Name> = serving.map(|disk| disk.record.name.clone()).collect();
            (disks, model.priorities(Some(vm)))
        };
        for (done, disk) in disks.iter().enumerate() {
            if let Err(e) = self.plane.set_priorities(disk, &record) {
                for disk in &disks[..done] {
                    if let Err(e) = self.plane.set_priorities(disk, &before) {
                        tracing::error!(%disk, error = %e, "its priorities are not those of its virtual machine");
                    }
                }
                return Err(e.into());
            }
        }
        Ok(())
    }
}

fn vms(set: &BTreeMap<Name, VmRecord>, disks: &[Disk]) -> Vec<Vm> {
    let empty = |name: &Name| Vm {
        name: name.clone(),
        disks: Vec::new(),
        size: Bytes(0),
        reserved_iops: 0,
        clients: 0,
        priorities: set.get(name).map_or_else(PriorityRecord::unset, |vm| vm.priorities).into(),
        tenant: set.get(name).and_then(|vm| vm.promise.tenant.clone()),
        policy: set.get(name).map(|vm| vm.promise.policy).unwrap_or_default(),
        sockets: VmSockets::default(),
    };
    let mut vms: BTreeMap<Name, Vm> = set.keys().map(|name| (name.clone(), empty(name))).collect();
    for disk in disks {
        let Some(name) = &disk.vm else { continue };
        let vm = vms.entry(name.clone()).or_insert_with(|| empty(name));
        vm.size = Bytes(vm.size.0.saturating_add(disk.size.0));
        vm.reserved_iops += disk.policy.reservation.map_or(0, |r| r.get());
        vm.clients += disk.clients;
        vm.disks.push(disk.name.clone());
    }
    vms.into_values().collect()
}

/// The priority settings that a scheduler enforces; `None` if it enforces none.
pub(super) fn effective(record: PriorityRecord, scheduler: Scheduler) -> Option<Priorities> {
    match scheduler {
        Scheduler::Mclock => Some(record.into()),
        Scheduler::Sfq | Scheduler::Fifo => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Bench;
    use headgate_model::PriorityScope;
    use serde_json::json;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    fn set(bench: &Bench, vm: &str, patch: serde_json::Value) -> Result<Changed<Vm>, ControlError> {
        bench.control.set_vm(&name(vm), &serde_json::from_value(patch).unwrap())
    }

    fn disk(bench: &Bench, disk: &str, vm: Option<&str>) {
        let request = json!({"name": disk, "size": 1 << 20, "datastore": "array", "vm": vm});
        bench.control.create_disk(serde_json::from_value(request).unwrap()).unwrap();
    }

    fn in_force(bench: &Bench, disk: &str) -> Priorities {
        bench.control.disk(&name(disk)).unwrap().effective_priorities.unwrap()
    }

    #[test]
    fn what_is_set_is_in_force_on_all_disks_of_the_vm_and_survives_a_restart() {
        let bench = Bench::new();
        disk(&bench, "a", Some("web"));
        disk(&bench, "b", Some("web"));
        disk(&bench, "other", None);
        let patch = json!({"max_priority": 150, "priority_scope": "across", "nice": "ignore", "ioprio_map": "idle=1"});
        let changed = set(&bench, "web", patch).unwrap();
        assert_eq!(changed.warnings, Vec::<String>::new());
        let expected = Priorities {
            max_priority: "150".parse().unwrap(),
            default_priority: "100".parse().unwrap(),
            priority_scope: PriorityScope::Across,
            nice: headgate_api::priorities::Nice::Ignore,
            ioprio_map: "idle=1".into(),
        };
        assert_eq!(changed.now.priorities, expected);
        let bench = bench.restart();
        assert_eq!(bench.control.vm(&name("web")).unwrap().priorities, expected);
        assert_eq!(
            (in_force(&bench, "a"), in_force(&bench, "b")),
            (expected.clone(), expected.clone())
        );
        assert_eq!(in_force(&bench, "other"), PriorityRecord::unset().into());
        set(&bench, "web", json!({"default_priority": 7})).unwrap();
        assert_eq!(
            in_force(&bench, "a"),
            Priorities { default_priority: "7".parse().unwrap(), ..expected },
            "what a patch does not name stays"
        );
        bench.control.reset_vm(&name("web")).unwrap();
        assert_eq!(in_force(&bench, "a"), PriorityRecord::unset().into());
    }

    #[test]
    fn a_disk_that_changes_its_vm_obeys_the_new_one() {
        let bench = Bench::new();
        let warned = set(&bench, "db", json!({"max_priority": 9})).unwrap().warnings;
        assert!(
            warned.iter().any(|w| w.contains("no disk names virtual machine 'db' yet")),
            "{warned:?}"
        );
        assert!(warned.iter().any(|w| w.contains("count 9")), "{warned:?}");
        disk(&bench, "a", Some("web"));
        let move_to = |vm: serde_json::Value| {
            bench
                .control
                .set_disk(&name("a"), serde_json::from_value(json!({"vm": vm})).unwrap())
                .unwrap();
            in_force(&bench, "a").max_priority.get()
        };
        assert_eq!(move_to(json!("db")), 9);
        assert_eq!(move_to(json!(null)), 254);
    }

    #[test]
    fn what_makes_no_sense_changes_nothing() {
        let bench = Bench::new();
        disk(&bench, "a", Some("web"));
        let error =
            set(&bench, "web", json!({"max_priority": 5, "ioprio_map": "be4=1"})).unwrap_err();
        assert!(error.to_string().contains("default priority stands for it"), "{error}");
        assert_eq!(
            bench.control.vm(&name("web")).unwrap().priorities,
            PriorityRecord::unset().into()
        );
        let error = bench.control.reset_vm(&name("nobody")).unwrap_err();
        assert_eq!(error.to_string(), "there is no virtual machine 'nobody'");
    }

    #[test]
    fn a_shard_that_does_not_confirm_leaves_all_as_it_was() {
        let bench = Bench::new();
        disk(&bench, "a", Some("web"));
        set(&bench, "web", json!({"max_priority": 5})).unwrap();
        bench.plane.break_down("set_priorities");
        set(&bench, "web", json!({"max_priority": 6})).unwrap_err();
        bench.control.reset_vm(&name("web")).unwrap_err();
        bench.plane.repair();
        let bench = bench.restart();
        assert_eq!(bench.control.vm(&name("web")).unwrap().priorities.max_priority.get(), 5);
        assert_eq!(in_force(&bench, "a").max_priority.get(), 5);
    }
}
