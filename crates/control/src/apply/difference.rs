//! What is different between what there is and what documents say that there is to be. Pure: it
//! looks at records only.

use super::owners::{Owners, OwnersDifference, owners};
use crate::classes::with_policy;
use crate::configuration::{Thing, of_datastore, tell};
use crate::datastores::{Update, updated};
use headgate_api::apply::{
    Act, Apply, FieldChange, Prune, ThingChange, WantedClass, WantedDatastore, WantedDisk,
};
use headgate_api::classes::ClassPut;
use headgate_api::types::{Change, DatastorePatch};
use headgate_catalog::PolicyChange;
use headgate_model::{
    Backend, ClassRecord, DatastoreRecord, DiskRecord, DiskSettings, Name, PlannedRecord, Policy,
    PolicyField, PolicyPart,
};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// What there is.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) classes: BTreeMap<Name, ClassRecord>,
    pub(super) datastores: BTreeMap<Name, DatastoreRecord>,
    pub(super) disks: BTreeMap<Name, DiskRecord>,
    pub(super) planned: BTreeMap<Name, PlannedRecord>,
    pub(super) owners: Owners,
}

/// What documents make of it.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Difference {
    /// What is written down in one step.
    pub(super) change: PolicyChange,
    pub(super) things: Vec<ThingChange>,
    /// Disks that are to be made then.
    pub(super) to_create: Vec<Name>,
    /// Disks that are to go then.
    pub(super) to_remove: Vec<Name>,
}

/// Why documents cannot be applied to what there is.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Problem {
    /// Where that stands.
    pub(super) at: Option<String>,
    pub(super) error: String,
    pub(super) expected: String,
}

pub(super) fn problem<T>(
    at: Option<&String>,
    error: impl Into<String>,
    expected: impl Into<String>,
) -> Result<T, Problem> {
    Err(Problem { at: at.cloned(), error: error.into(), expected: expected.into() })
}

/// The difference of two views of one thing, field by field.
pub(super) fn fields(before: Value, now: Value) -> Vec<FieldChange> {
    let [before, now] = [before, now].map(leaves);
    let names: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
    let of = |map: &Map<String, Value>, name: &str| map.get(name).cloned().unwrap_or_default();
    names
        .into_iter()
        .filter(|name| of(&before, name) != of(&now, name))
        .map(|name| FieldChange {
            field: name.clone(),
            from: of(&before, name),
            to: of(&now, name),
        })
        .collect()
}

/// The values of a view; those of a policy without its name before theirs.
fn leaves(view: Value) -> Map<String, Value> {
    let Value::Object(mut map) = view else { return Map::new() };
    map.remove("force");
    if let Some(Value::Object(policy)) = map.remove("policy") {
        map.extend(policy);
    }
    map
}

/// What makes a class what it is; without the word that forces a change of it.
fn class_view(class: &ClassPut) -> Value {
    serde_json::to_value(class).unwrap_or_default()
}

fn policy_view(policy: &Policy) -> Map<String, Value> {
    leaves(serde_json::to_value(policy).unwrap_or_default())
}

/// What is told of a disk's policy: each value, and that it is its own where only that changes.
fn policy_fields(before: (&Policy, &PolicyPart), now: (&Policy, &PolicyPart)) -> Vec<FieldChange> {
    let [of_before, of_now] = [before.0, now.0].map(policy_view);
    let mut changes = Vec::new();
    for field in PolicyField::all() {
        let name = field.as_str();
        let values = [&of_before, &of_now].map(|map| map.get(name).cloned().unwrap_or_default());
        let [from, to] = values;
        if from != to {
            changes.push(FieldChange { field: name.to_owned(), from, to });
        } else if before.1.says(field) != now.1.says(field) {
            // The value stays, and is another's.
            let whose = |part: &PolicyPart| match part.says(field) {
                true => Value::from("its own"),
                false => Value::from("not its own"),
            };
            let (field, [from, to]) = (name.to_owned(), [before.1, now.1].map(whose));
            changes.push(FieldChange { field, from, to });
        }
    }
    changes
}

/// A datastore as a document wants it.
fn store_after(
    before: &DatastoreRecord,
    one: &WantedDatastore,
) -> Result<DatastoreRecord, Problem> {
    let (at, what) = (one.at.as_ref(), format!("datastore '{}'", one.name));
    if !one.settings.capacity.is_keep() || !one.settings.add_servers.is_empty() {
        return problem(
            at,
            format!("{what} has a capacity or further servers among its settings"),
            "the capacity beside them; servers by 'headgate datastore set --add-server'",
        );
    }
    let had = before.capacity.as_ref().map(|capacity| capacity.iops);
    // What it has already keeps its source.
    let capacity = one.capacity.filter(|wanted| had != Some(*wanted));
    if capacity.is_none() && one.settings.is_empty() {
        return Ok(before.clone());
    }
    let patch = DatastorePatch {
        capacity: capacity.map_or(Change::Keep, Change::Set),
        ..one.settings.clone()
    };
    Update::of(patch).and_then(|update| updated(before.clone(), update)).or_else(|e| {
        let expected = e.expected().or_else(|| e.hint()).unwrap_or_default();
        problem(at, format!("{what}: {e}"), expected)
    })
}

struct Differ<'a> {
    known: &'a Known,
    wanted: &'a Apply,
    out: Difference,
    /// Classes as they will be, those that go among them.
    classes: BTreeMap<Name, ClassRecord>,
}

/// The difference.
pub(super) fn difference(known: &Known, wanted: &Apply) -> Result<Difference, Problem> {
    check_twice("class", wanted.classes.iter().map(|one| (&one.name, one.at.as_ref())))?;
    check_twice("datastore", wanted.datastores.iter().map(|one| (&one.name, one.at.as_ref())))?;
    check_twice("tenant", wanted.tenants.iter().map(|one| (&one.name, one.at.as_ref())))?;
    check_twice("vm", wanted.vms.iter().map(|one| (&one.name, one.at.as_ref())))?;
    check_twice("disk", wanted.disks.iter().map(|one| (&one.name, one.at.as_ref())))?;
    let (out, classes) = (Difference::default(), known.classes.clone());
    let mut differ = Differ { known, wanted, out, classes };
    wanted.classes.iter().for_each(|one| differ.class(one));
    let OwnersDifference { tenants, gone_tenants, vms, things } = owners(&known.owners, wanted)?;
    let change = &mut differ.out.change;
    (change.tenants, change.gone_tenants, change.vms) = (tenants, gone_tenants, vms);
    differ.out.things.extend(things);
    wanted.datastores.iter().try_for_each(|one| differ.datastore(one))?;
    wanted.disks.iter().try_for_each(|one| differ.disk(one))?;
    differ.others_of_classes();
    differ.forget_planned();
    differ.prune()?;
    Ok(differ.out)
}

fn check_twice<'a>(
    kind: &str,
    all: impl Iterator<Item = (&'a Name, Option<&'a String>)>,
) -> Result<(), Problem> {
    let mut seen: BTreeMap<&Name, Option<&String>> = BTreeMap::new();
    for (name, at) in all {
        if let Some(first) = seen.insert(name, at) {
            let before = first.map_or_else(String::new, |at| format!(", first in {at}"));
            return problem(at, format!("{kind} '{name}' is there twice{before}"), "each once");
        }
    }
    Ok(())
}

impl Differ<'_> {
    fn tell(&mut self, kind: &str, name: &Name, act: Act, fields: Vec<FieldChange>) {
        let (kind, name) = (kind.to_owned(), name.clone());
        self.out.things.push(ThingChange { kind, name, act, fields, by_class: None });
    }

    fn class(&mut self, one: &WantedClass) {
        let before = self.known.classes.get(&one.name);
        let owner = match before {
            Some(before) => before.applied_by.clone(),
            None => Some(self.wanted.set.clone()),
        };
        let now = one.class.clone().record(one.name.clone(), owner);
        self.classes.insert(one.name.clone(), now.clone());
        if before == Some(&now) {
            return;
        }
        let act = if before.is_some() { Act::Change } else { Act::Create };
        let was = before.map_or_else(ClassPut::default, ClassPut::of);
        self.tell(
            "class",
            &one.name,
            act,
            fields(class_view(&was), class_view(&ClassPut::of(&now))),
        );
        self.out.change.classes.push(now);
    }

    fn datastore(&mut self, one: &WantedDatastore) -> Result<(), Problem> {
        let Some(before) = self.known.datastores.get(&one.name) else {
            return problem(
                one.at.as_ref(),
                format!("there is no datastore '{}'", one.name),
                "one that was added: 'headgate datastore add'",
            );
        };
        let now = store_after(before, one)?;
        let views = [before, &now].map(of_datastore);
        if now != *before {
            self.out.change.datastores.push(now);
            self.out.things.extend(tell(
                &Thing::Datastore(one.name.clone()),
                Some(&views[0]),
                Some(&views[1]),
            ));
        }
        Ok(())
    }

    /// What is set at a wanted disk.
    fn settings(&self, one: &WantedDisk, owner: Option<Name>) -> Result<DiskSettings, Problem> {
        if let Some(class) = &one.class
            && !self.classes.contains_key(class)
        {
            let names: Vec<&str> = self.classes.keys().map(Name::as_str).collect();
            return problem(
                one.at.as_ref(),
                format!("disk '{}' has class '{class}', which is nowhere", one.name),
                format!("a class of the documents, or one of: {}", names.join(", ")),
            );
        }
        let values_only = one.class.is_none();
        let policy = if values_only { one.policy.with_values_only() } else { one.policy };
        Ok(DiskSettings { class: one.class.clone(), policy, applied_by: owner })
    }

    fn disk(&mut self, one: &WantedDisk) -> Result<(), Problem> {
        let Some(before) = self.known.disks.get(&one.name) else { return self.new_disk(one) };
        let (at, name) = (one.at.as_ref(), &one.name);
        if before.datastore != one.datastore {
            return problem(
                at,
                format!(
                    "disk '{name}' is on datastore '{}', not '{}'",
                    before.datastore, one.datastore
                ),
                format!(
                    "datastore '{}', or first 'headgate disk migrate {name} --to {}'",
                    before.datastore, one.datastore
                ),
            );
        }
        if before.size != one.size {
            return problem(
                at,
                format!("disk '{name}' has {}, not {}", before.size, one.size),
                format!(
                    "a size of {} bytes, or first 'headgate disk resize {name} --size {}'",
                    before.size.0, one.size.0
                ),
            );
        }
        let set = self.settings(one, before.set.applied_by.clone())?;
        let class = set.class.as_ref().and_then(|class| self.classes.get(class));
        let policy = match before.set_by {
            Some(_) => before.policy,
            None => set.policy(class, before.size),
        };
        let moved = DiskRecord { set, vm: one.vm.clone(), ..before.clone() };
        let now = with_policy(moved, policy);
        if now == *before {
            return Ok(());
        }
        let told = disk_fields(before, &now);
        self.tell("disk", name, Act::Change, told);
        self.out.change.disks.push(now);
        Ok(())
    }

    fn new_disk(&mut self, one: &WantedDisk) -> Result<(), Problem> {
        let (at, name) = (one.at.as_ref(), &one.name);
        match self.known.datastores.get(&one.datastore).map(|store| &store.backend) {
            Some(Backend::Dir { .. } | Backend::Emulated { .. } | Backend::Memory { .. }) => {}
            Some(_) => {
                return problem(
                    at,
                    format!(
                        "disk '{name}' is not there, and is not made on datastore '{}' by \
                         documents",
                        one.datastore
                    ),
                    format!(
                        "a disk that is there: 'headgate disk create {name} --datastore {}' makes \
                         it of what its storage has",
                        one.datastore
                    ),
                );
            }
            None => {
                return problem(
                    at,
                    format!(
                        "disk '{name}' is to be on datastore '{}', which is nowhere",
                        one.datastore
                    ),
                    "a datastore that was added: see 'headgate datastore list'",
                );
            }
        }
        if let Err(e) = crate::size::check(one.size) {
            return problem(at, format!("disk '{name}': {e}"), e.expected().unwrap_or_default());
        }
        let set = self.settings(one, Some(self.wanted.set.clone()))?;
        let known = self.known.planned.get(name);
        if let Some(other) = known.filter(|known| known.applied_by != self.wanted.set) {
            return problem(
                at,
                format!("disk '{name}' is to be made by documents '{}' already", other.applied_by),
                "each disk in one set of documents",
            );
        }
        let planned = PlannedRecord {
            name: name.clone(),
            datastore: one.datastore.clone(),
            size: one.size,
            vm: one.vm.clone(),
            class: set.class.clone(),
            policy: set.policy,
            applied_by: self.wanted.set.clone(),
        };
        let told = fields(
            Value::Null,
            json!({
                "datastore": one.datastore,
                "size": one.size.0,
                "vm": one.vm,
                "class": set.class,
                "policy": set.policy,
            }),
        );
        self.tell("disk", name, Act::Create, told);
        if known != Some(&planned) {
            self.out.change.planned.push(planned);
        }
        self.out.to_create.push(name.clone());
        Ok(())
    }

    /// Disks that are not named, or whose own values stay, and have a class that changes.
    fn others_of_classes(&mut self) {
        let named: BTreeSet<&Name> = self.wanted.disks.iter().map(|one| &one.name).collect();
        let changed: BTreeSet<&Name> =
            self.out.change.classes.iter().map(|one| &one.name).collect();
        let mut disks = Vec::new();
        for record in self.known.disks.values().filter(|disk| !named.contains(&disk.name)) {
            let Some(class) = record.set.class.as_ref().filter(|class| changed.contains(class))
            else {
                continue;
            };
            if record.set_by.is_some() {
                continue;
            }
            let policy = record.set.policy(self.classes.get(class), record.size);
            let now = with_policy(record.clone(), policy);
            if now != *record {
                let told = disk_fields(record, &now);
                disks.push((now, class.clone(), told));
            }
        }
        for (record, class, told) in disks {
            self.tell("disk", &record.name.clone(), Act::Change, told);
            if let Some(last) = self.out.things.last_mut() {
                last.by_class = Some(class);
            }
            self.out.change.disks.push(record);
        }
    }

    /// What these documents wanted to have made, and want no more.
    fn forget_planned(&mut self) {
        let named: BTreeSet<&Name> = self.wanted.disks.iter().map(|one| &one.name).collect();
        let of_set = self.known.planned.values().filter(|one| one.applied_by == self.wanted.set);
        let gone: Vec<Name> = of_set
            .filter(|one| !named.contains(&one.name) && !self.known.disks.contains_key(&one.name))
            .map(|one| one.name.clone())
            .collect();
        for name in gone {
            self.tell("planned disk", &name, Act::Remove, Vec::new());
            self.out.change.gone_planned.push(name);
        }
    }

    /// What these documents made, and do not name any more.
    fn prune(&mut self) -> Result<(), Problem> {
        if self.wanted.prune == Prune::Nothing {
            return Ok(());
        }
        let is_ours = |owner: &Option<Name>| owner.as_ref() == Some(&self.wanted.set);
        let named: BTreeSet<&Name> = self.wanted.disks.iter().map(|one| &one.name).collect();
        let ours = self.known.disks.values().filter(|disk| is_ours(&disk.set.applied_by));
        let gone: Vec<DiskRecord> =
            ours.filter(|disk| !named.contains(&disk.name)).cloned().collect();
        if !gone.is_empty() && self.wanted.prune == Prune::Empty {
            let names = crate::classes::some(
                gone.iter().map(|disk| &disk.name).collect::<Vec<_>>().into_iter(),
            );
            return problem(
                None,
                format!(
                    "{} disk(s) are in the documents no more, and may hold data: {names}",
                    gone.len()
                ),
                "--prune-disks to remove them too, or the disks in the documents",
            );
        }
        let named_classes: BTreeSet<&Name> =
            self.wanted.classes.iter().map(|one| &one.name).collect();
        let ours = self.known.classes.values().filter(|class| is_ours(&class.applied_by));
        let gone_classes: Vec<Name> = ours
            .filter(|class| !named_classes.contains(&class.name))
            .map(|class| class.name.clone())
            .collect();
        for disk in &gone {
            self.tell("disk", &disk.name, Act::Remove, Vec::new());
            self.out.to_remove.push(disk.name.clone());
        }
        for class in gone_classes {
            self.prune_class(&class, &gone)?;
        }
        Ok(())
    }

    fn prune_class(&mut self, class: &Name, gone: &[DiskRecord]) -> Result<(), Problem> {
        let changed: BTreeMap<&Name, &DiskRecord> =
            self.out.change.disks.iter().map(|disk| (&disk.name, disk)).collect();
        let now = self.known.disks.values().map(|disk| *changed.get(&disk.name).unwrap_or(&disk));
        let with_it: Vec<&DiskRecord> =
            now.filter(|disk| disk.set.class.as_ref() == Some(class)).collect();
        let (going, staying): (Vec<&DiskRecord>, Vec<&DiskRecord>) =
            with_it.into_iter().partition(|disk| gone.iter().any(|one| one.name == disk.name));
        let gone_planned = &self.out.change.gone_planned;
        let changed_plans = &self.out.change.planned;
        let replaced = |name: &Name| changed_plans.iter().any(|one| one.name == *name);
        let planned = self
            .known
            .planned
            .values()
            .filter(|one| !gone_planned.contains(&one.name) && !replaced(&one.name))
            .chain(changed_plans)
            .filter(|one| one.class.as_ref() == Some(class));
        let names: Vec<&Name> =
            staying.iter().map(|disk| &disk.name).chain(planned.map(|one| &one.name)).collect();
        if !names.is_empty() {
            return problem(
                None,
                format!(
                    "class '{class}' is in the documents no more, and {} disk(s) have it: {}",
                    names.len(),
                    crate::classes::some(names.into_iter())
                ),
                "another class for these disks, or the class in the documents",
            );
        }
        // Until they are removed they keep what they have.
        let kept: Vec<DiskRecord> = going
            .into_iter()
            .map(|disk| DiskRecord {
                set: DiskSettings {
                    applied_by: disk.set.applied_by.clone(),
                    ..DiskSettings::of(&disk.policy)
                },
                ..disk.clone()
            })
            .collect();
        for disk in kept {
            self.out.change.disks.retain(|other| other.name != disk.name);
            self.out.change.disks.push(disk);
        }
        self.tell("class", class, Act::Remove, Vec::new());
        self.out.change.gone_classes.push(class.clone());
        Ok(())
    }
}

fn disk_fields(before: &DiskRecord, now: &DiskRecord) -> Vec<FieldChange> {
    let view = |disk: &DiskRecord| {
        let name = |name: &Option<Name>| name.as_ref().map(Name::to_string);
        let [vm, class] = [name(&disk.vm), name(&disk.set.class)];
        json!({"vm": vm, "class": class})
    };
    let mut told = fields(view(before), view(now));
    let [was, is] = [before, now].map(|disk| (&disk.policy, &disk.set.policy));
    told.extend(policy_fields(was, is));
    told
}

#[cfg(test)]
#[path = "difference_tests.rs"]
mod tests;
