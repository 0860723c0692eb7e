//! Classes of disks: policies with names, which many disks have
//! (`docs/decisions/0111-classes.md`).

use super::disks::check_policy;
use super::server_policy::next_epoch;
use super::{Control, ControlError, DiskEntry, Model};
use crate::configuration::Thing;
use crate::preconditions::in_earnest;
use headgate_api::classes::{Class, ClassPut};
use headgate_api::types::{Changed, Force};
use headgate_catalog::PolicyChange;
use headgate_model::{
    Change, ClassRecord, DiskRecord, DiskSettings, DiskState, FieldSource, Name, PlannedRecord,
    Policy,
};
use headgate_units::{Bytes, Iops};
use std::collections::BTreeMap;

/// The most names of disks in an error.
const NAMED: usize = 5;

/// Some names, and how many more there are.
pub(super) fn some<'a>(names: impl ExactSizeIterator<Item = &'a Name>) -> String {
    let more = names.len().saturating_sub(NAMED);
    let named: Vec<&str> = names.take(NAMED).map(Name::as_str).collect();
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{rest}", named.join(", "))
}

/// That a class says nothing twice, and nothing that contradicts itself.
pub(super) fn check_class(class: &ClassRecord) -> Result<(), ControlError> {
    let twice = [
        ("reservation", &class.policy.reservation, class.reservation_per_gb),
        ("limit", &class.policy.limit, class.limit_per_gb),
    ];
    for (field, fixed, per_gb) in twice {
        if let (Change::Set(fixed), Some(per_gb)) = (fixed, per_gb) {
            let name = &class.name;
            return Err(ControlError::invalid(
                format!("class '{name}' has a {field} of {fixed} IOPS, and {per_gb} for each GiB"),
                format!("one of both: '{field}' or '{field}_per_gb'"),
            ));
        }
    }
    // What depends on sizes is seen with each disk's. A peak or a target may need it.
    let size = Bytes::from_gib(1);
    let nothing = DiskSettings::default();
    check_policy(&nothing.policy(Some(class), size))
        .map_err(|e| e.of(&format!("class '{}'", class.name)))
}

/// A disk with another policy. Servers that it lies on are told that it is a later one.
pub(super) fn with_policy(mut record: DiskRecord, policy: Policy) -> DiskRecord {
    if record.policy != policy {
        record.policy = policy;
        if let Some(stripe) = record.remote.as_mut().and_then(|remote| remote.stripe.as_mut()) {
            stripe.epoch = next_epoch(stripe.epoch);
        }
    }
    record
}

impl Model {
    /// What a disk is to have by what was set at it and by its class. What a gateway has set stays.
    pub(super) fn policy_of(&self, record: &DiskRecord) -> Policy {
        if record.set_by.is_some() {
            return record.policy;
        }
        let class = record.set.class.as_ref().and_then(|class| self.classes.get(class));
        record.set.policy(class, record.size)
    }

    /// A disk that comes back: its class may be another by now, or be gone. Then it keeps what it
    /// had.
    pub(super) fn with_class_of_now(&self, mut record: DiskRecord) -> DiskRecord {
        let is_gone = record.set.class.as_ref().is_some_and(|c| !self.classes.contains_key(c));
        if is_gone {
            let applied_by = record.set.applied_by.take();
            record.set = DiskSettings { applied_by, ..DiskSettings::of(&record.policy) };
        }
        let policy = self.policy_of(&record);
        with_policy(record, policy)
    }

    pub(super) fn policy_planned(&self, planned: &PlannedRecord) -> Policy {
        let class = planned.class.as_ref().and_then(|class| self.classes.get(class));
        planned.policy_with(class)
    }

    /// The class of datastores that a disk must be on.
    pub(super) fn datastore_class<'a>(&'a self, record: &'a DiskRecord) -> Option<&'a Name> {
        let class = record.set.class.as_ref().and_then(|class| self.classes.get(class));
        record.placement.class.as_ref().or(class.and_then(|class| class.datastore_class.as_ref()))
    }

    /// That a class lets its disks be on a datastore.
    pub(super) fn check_place_of_class(
        &self,
        class: &ClassRecord,
        datastore: &Name,
        force: Force,
    ) -> Result<(), ControlError> {
        let Some(wanted) = class.datastore_class.as_ref().filter(|_| force == Force::No) else {
            return Ok(());
        };
        let has = self.datastore(datastore)?.record.placement.class.as_ref();
        if has == Some(wanted) {
            return Ok(());
        }
        let is = has.map_or_else(|| "has none".to_owned(), |has| format!("has class '{has}'"));
        Err(ControlError::Busy {
            error: format!(
                "disks of class '{}' are on datastores of class '{wanted}', and datastore \
                 '{datastore}' {is}",
                class.name
            ),
            hint: format!(
                "choose another datastore, use --force, or say that it is one: 'headgate datastore \
                 set {datastore} --class {wanted}'"
            ),
        })
    }

    pub(super) fn check_not_planned(&self, disk: &Name) -> Result<(), ControlError> {
        let Some(planned) = self.planned.get(disk) else { return Ok(()) };
        Err(ControlError::Busy {
            error: format!("disk '{disk}' is to be made, by documents '{}'", planned.applied_by),
            hint: "apply them once more, or take it out of them and apply them then".into(),
        })
    }

    /// Where each field of a disk's policy comes from.
    pub(super) fn sources(&self, record: &DiskRecord) -> BTreeMap<String, FieldSource> {
        let class = record.set.class.as_ref().and_then(|class| self.classes.get(class));
        let by_gateway = |source| match record.set_by {
            Some(_) => FieldSource::Gateway,
            None => source,
        };
        headgate_model::sources(&record.set, class)
            .map(|(field, source)| (field.to_string(), by_gateway(source)))
            .collect()
    }

    pub(super) fn disks_of_class<'a>(
        &'a self,
        class: &'a Name,
    ) -> impl Iterator<Item = &'a DiskEntry> {
        self.disks.values().filter(move |entry| entry.record.set.class.as_ref() == Some(class))
    }

    fn planned_of_class<'a>(&'a self, class: &'a Name) -> impl Iterator<Item = &'a PlannedRecord> {
        self.planned.values().filter(move |one| {
            one.class.as_ref() == Some(class) && !self.disks.contains_key(&one.name)
        })
    }

    /// That nothing is done with a disk that would write down what it was before.
    pub(super) fn check_settled(&self, disk: &DiskRecord) -> Result<(), ControlError> {
        let doing = match disk.state {
            DiskState::Creating => "created",
            DiskState::Removing => "removed",
            DiskState::Ready | DiskState::Resizing | DiskState::Copying => return Ok(()),
        };
        Err(ControlError::Busy {
            error: format!("disk '{}' is being {doing}", disk.name),
            hint: "ask again in a moment".into(),
        })
    }

    /// A class, and the disks that are different by it.
    fn change_by_class(&self, class: ClassRecord) -> Result<PolicyChange, ControlError> {
        let mut disks = Vec::new();
        for entry in self.disks_of_class(&class.name) {
            self.check_settled(&entry.record)?;
            if entry.record.set_by.is_none() {
                let policy = entry.record.set.policy(Some(&class), entry.record.size);
                if policy != entry.record.policy {
                    disks.push(with_policy(entry.record.clone(), policy));
                }
            }
        }
        Ok(PolicyChange { classes: vec![class], disks, ..PolicyChange::default() })
    }

    /// That a class goes. Its disks keep the policies that they have.
    fn change_without(&self, class: &Name) -> Result<PolicyChange, ControlError> {
        let of_its_own = |set: &DiskSettings, policy: &Policy| DiskSettings {
            applied_by: set.applied_by.clone(),
            ..DiskSettings::of(policy)
        };
        let mut disks = Vec::new();
        for DiskEntry { record, .. } in self.disks_of_class(class) {
            self.check_settled(record)?;
            let policy = record.set.policy(self.classes.get(class), record.size);
            disks.push(DiskRecord { set: of_its_own(&record.set, &policy), ..record.clone() });
        }
        let planned = self.planned.values().filter(|one| one.class.as_ref() == Some(class));
        let planned = planned.map(|one| {
            let policy = of_its_own(&one.settings(), &self.policy_planned(one)).policy;
            PlannedRecord { class: None, policy, ..one.clone() }
        });
        Ok(PolicyChange {
            gone_classes: vec![class.clone()],
            disks,
            planned: planned.collect(),
            ..PolicyChange::default()
        })
    }

    fn view_class(&self, class: &ClassRecord) -> Class {
        let of = |record: &DiskRecord| record.promised();
        let disks = self.disks_of_class(&class.name).map(|entry| of(&entry.record));
        let planned =
            self.planned_of_class(&class.name).map(|one| self.policy_planned(one).reservation);
        let reservations: Vec<Option<Iops>> = disks.chain(planned).collect();
        let ClassPut { policy, reservation_per_gb, limit_per_gb, datastore_class, force: _ } =
            ClassPut::of(class);
        Class {
            name: class.name.clone(),
            policy,
            reservation_per_gb,
            limit_per_gb,
            datastore_class,
            applied_by: class.applied_by.clone(),
            disks: reservations.len(),
            reserved_iops: reservations.into_iter().flatten().map(Iops::get).sum(),
        }
    }
}

impl Control {
    /// All classes.
    pub fn classes(&self) -> Vec<Class> {
        let model = self.model();
        model.classes.values().map(|class| model.view_class(class)).collect()
    }

    /// One class.
    ///
    /// # Errors
    /// [`ControlError::Missing`].
    pub fn class(&self, name: &Name) -> Result<Class, ControlError> {
        let model = self.model();
        Ok(model.view_class(model.class(name)?))
    }

    /// Makes a class what is said, or a new one. All its disks have what that makes of their
    /// policies when the call returns.
    ///
    /// # Errors
    /// When the values contradict each other or what a disk has of its own, the reservations of its
    /// disks do not fit, or a shard does not confirm. The class and all its disks are as they were
    /// then.
    pub fn set_class(&self, name: &Name, put: ClassPut) -> Result<Changed<Class>, ControlError> {
        let force = put.force;
        let mut catalog = self.catalog_for(&Thing::Class(name.clone()))?;
        let (change, mut judged) = {
            let model = self.model();
            let owner = model.classes.get(name).and_then(|class| class.applied_by.clone());
            let class = put.record(name.clone(), owner);
            check_class(&class)?;
            let change = model.change_by_class(class)?;
            let judged = self.judge_promises(&model, &change, force)?;
            (change, judged)
        };
        in_earnest(|| judged.as_dry_run(self.would(&change, &judged.warnings)))?;
        self.put_policies(&mut **catalog, &change)?;
        drop(catalog);
        judged.warnings.extend(self.warn_of_class(&change));
        Ok(Changed { now: self.class(name)?, warnings: judged.warnings })
    }

    /// What to say of disks that do not follow their class, and of servers that do not.
    pub(super) fn warn_of_class(&self, change: &PolicyChange) -> Vec<String> {
        let mut warnings = self.announce_all(change);
        let model = self.model();
        for class in &change.classes {
            let all: Vec<&DiskRecord> =
                model.disks_of_class(&class.name).map(|entry| &entry.record).collect();
            let of_gateways = all.iter().filter(|disk| disk.set_by.is_some()).count();
            if of_gateways > 0 {
                warnings.push(format!(
                    "gateways have set the policies of {of_gateways} disk(s) of class '{}': these \
                     stay",
                    class.name
                ));
            }
            let Some(wanted) = &class.datastore_class else { continue };
            let elsewhere = all.iter().filter(|disk| {
                let on = model.datastores.get(&disk.datastore);
                disk.placement.class.is_none()
                    && on.is_none_or(|on| on.record.placement.class.as_ref() != Some(wanted))
            });
            let names: Vec<&Name> = elsewhere.map(|disk| &disk.name).collect();
            if !names.is_empty() {
                warnings.push(format!(
                    "disks of class '{}' are on datastores that are not of class '{wanted}', and \
                     stay there until they are moved: {}",
                    class.name,
                    some(names.into_iter())
                ));
            }
        }
        warnings
    }

    /// Forgets a class. With force also one that disks have: these keep the policies that they
    /// have, as their own.
    ///
    /// # Errors
    /// [`ControlError::Missing`], or [`ControlError::ClassInUse`] without force.
    pub fn remove_class(&self, name: &Name, force: Force) -> Result<(), ControlError> {
        let mut catalog = self.catalog_for(&Thing::Class(name.clone()))?;
        let change = {
            let model = self.model();
            model.class(name)?;
            let made = model.disks_of_class(name).map(|entry| &entry.record.name);
            let planned = model.planned_of_class(name).map(|one| &one.name);
            let names: Vec<&Name> = made.chain(planned).collect();
            if !names.is_empty() && force == Force::No {
                let count = names.len();
                let disks = some(names.into_iter());
                return Err(ControlError::ClassInUse { name: name.clone(), count, disks });
            }
            model.change_without(name)?
        };
        in_earnest(|| self.would(&change, &[]))?;
        self.put_policies(&mut **catalog, &change)
    }
}

#[cfg(test)]
#[path = "classes_tests.rs"]
mod tests;
