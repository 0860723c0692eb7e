//! What can be set of a thing, by names: what its tag is made of, and what differences are told of.
//! Counters, states and what the daemon finds by itself are no part of it.

use crate::Model;
pub use crate::thing::Thing;
use headgate_api::apply::{Act, FieldChange, ThingChange};
use headgate_api::classes::ClassPut;
use headgate_api::priorities::Priorities;
use headgate_catalog::PolicyChange;
use headgate_model::{
    Backend, ClassRecord, DatastoreRecord, DiskRecord, TenantRecord, VmRecord, WindowRecord, Writes,
};
use headgate_placement::{Automatic, Rules};
use headgate_units::Nanos;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Values by their names, the names of what is around them before theirs: `policy.limit`. Lists
/// count as values.
pub fn leaves(view: Value) -> BTreeMap<String, Value> {
    let mut leaves = BTreeMap::new();
    flatten("", view, &mut leaves);
    leaves
}

fn flatten(name: &str, value: Value, leaves: &mut BTreeMap<String, Value>) {
    let Value::Object(fields) = value else {
        leaves.insert(name.to_owned(), value);
        return;
    };
    for (key, value) in fields {
        let inner = if name.is_empty() { key } else { format!("{name}.{key}") };
        flatten(&inner, value, leaves);
    }
}

/// What is different between two configurations.
pub(crate) fn differences(before: &Value, now: &Value) -> Vec<FieldChange> {
    let [before, now] = [before, now].map(|view| match view {
        Value::Null => BTreeMap::new(),
        view => leaves(view.clone()),
    });
    let names: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
    let of = |map: &BTreeMap<String, Value>, name: &str| map.get(name).cloned().unwrap_or_default();
    names
        .into_iter()
        .filter(|name| of(&before, name) != of(&now, name))
        .map(|name| {
            let (field, from, to) = (name.clone(), of(&before, name), of(&now, name));
            FieldChange { field, from, to }
        })
        .collect()
}

pub(crate) fn of_disk(record: &DiskRecord) -> Value {
    json!({
        "datastore": record.datastore,
        "size": record.size.0,
        "vm": record.vm,
        "class": record.set.class,
        "policy": record.policy,
        "own": record.set.policy,
        "placement": record.placement,
        "read_only": record.writes == Writes::Refused,
    })
}

fn of_class(record: &ClassRecord) -> Value {
    let mut view = serde_json::to_value(ClassPut::of(record)).unwrap_or_default();
    if let Some(fields) = view.as_object_mut() {
        fields.remove("force");
    }
    view
}

fn of_tenant(record: &TenantRecord) -> Value {
    json!({"policy": record.policy, "quota": record.quota})
}

fn of_vm(record: &VmRecord) -> Value {
    let mut view = json!({
        "tenant": record.promise.tenant,
        "promised": record.promise.policy,
        "socket_user": record.sockets.user,
        "socket_group": record.sockets.group,
    });
    let priorities = serde_json::to_value(Priorities::from(record.priorities));
    if let (Some(fields), Ok(Value::Object(priorities))) = (view.as_object_mut(), priorities) {
        fields.extend(priorities);
    }
    view
}

pub(crate) fn of_datastore(record: &DatastoreRecord) -> Value {
    let mut view = json!({
        "queue_depth": record.queue_depth,
        "capacity": record.capacity.as_ref().map(|capacity| capacity.iops),
        "plug_ns": record.plug.0,
        "batch": record.batch.map(|batch| batch.to_string()),
        "window": WindowRecord { followed: None, ..record.window.clone() },
        "placement": record.placement,
        "layers": record.layers.iter().map(ToString::to_string).collect::<Vec<_>>(),
    });
    let of_backend = match &record.backend {
        Backend::Block { persistent_reservations, .. } => {
            json!({"persistent_reservations": persistent_reservations})
        }
        Backend::Nbd { connections, .. } => json!({"connections": connections.get()}),
        Backend::Stripe { connections, servers, .. } => {
            json!({"connections": connections.get(), "servers": servers})
        }
        Backend::Dir { .. } | Backend::Emulated { .. } | Backend::Memory { .. } => json!({}),
    };
    if let (Some(fields), Value::Object(more)) = (view.as_object_mut(), of_backend) {
        fields.extend(more);
    }
    view
}

/// Without what the daemon notes there by itself.
pub(crate) fn of_rules(rules: &Rules) -> Value {
    let automatic = Automatic { since: Nanos::ZERO, stopped: None, ..rules.automatic.clone() };
    serde_json::to_value(Rules { automatic, ..rules.clone() }).unwrap_or_default()
}

impl Model {
    /// What is set of a thing; `None`: there is none.
    pub(crate) fn configuration(&self, thing: &Thing) -> Option<Value> {
        match thing {
            Thing::Disk(name) => self.disks.get(name).map(|entry| of_disk(&entry.record)),
            Thing::Class(name) => self.classes.get(name).map(of_class),
            Thing::Tenant(name) => self.tenants.get(name).map(of_tenant),
            Thing::Vm(name) => {
                let has_disks =
                    || self.disks.values().any(|one| one.record.vm.as_ref() == Some(name));
                let set = self.vms.get(name).map(of_vm);
                set.or_else(|| has_disks().then(|| of_vm(&VmRecord::unset(name.clone()))))
            }
            Thing::Datastore(name) => {
                self.datastores.get(name).map(|entry| of_datastore(&entry.record))
            }
            Thing::Rules => Some(of_rules(&self.rules)),
        }
    }

    /// What a change makes different, thing by thing.
    pub(crate) fn told(&self, change: &PolicyChange) -> Vec<ThingChange> {
        let after = self.after(change);
        let classes = change.classes.iter().map(|one| &one.name).chain(&change.gone_classes);
        let tenants = change.tenants.iter().map(|one| &one.name).chain(&change.gone_tenants);
        let vms = change.vms.iter().map(|one| &one.name).chain(&change.gone_vms);
        let stores = change.datastores.iter().map(|one| &one.name);
        let disks = change.disks.iter().map(|one| &one.name);
        let things = classes
            .map(|name| Thing::Class(name.clone()))
            .chain(tenants.map(|name| Thing::Tenant(name.clone())))
            .chain(vms.map(|name| Thing::Vm(name.clone())))
            .chain(stores.map(|name| Thing::Datastore(name.clone())))
            .chain(disks.map(|name| Thing::Disk(name.clone())));
        let tell = |thing: Thing| {
            let [was, is] = [self, &after].map(|model| model.configuration(&thing));
            let told = tell(&thing, was.as_ref(), is.as_ref())?;
            let by_class = match &thing {
                Thing::Disk(disk) if !change.classes.is_empty() => {
                    after.disks.get(disk).and_then(|entry| entry.record.set.class.clone())
                }
                _ => None,
            };
            Some(ThingChange { by_class, ..told })
        };
        things.filter_map(tell).collect()
    }
}

/// Of a disk, a value that is its own and what it has are told once: of a new one what is its own,
/// and of another one what it has, where that is another.
fn once(act: Act, fields: Vec<FieldChange>) -> Vec<FieldChange> {
    let has = |name: &str| fields.iter().any(|one| one.field.strip_prefix("policy.") == Some(name));
    let of = |one: &FieldChange| -> Option<FieldChange> {
        match (one.field.strip_prefix("own."), act) {
            (Some(name), Act::Create) => {
                Some(FieldChange { field: format!("policy.{name}"), ..one.clone() })
            }
            (None, Act::Create) if one.field.starts_with("policy.") => None,
            (Some(name), _) if has(name) => None,
            _ => Some(one.clone()),
        }
    };
    fields.iter().filter_map(of).collect()
}

/// What becomes of a thing; `None`: it stays as it is. Of one that goes no values are told.
pub(crate) fn tell(thing: &Thing, was: Option<&Value>, is: Option<&Value>) -> Option<ThingChange> {
    let nothing = Value::Object(Map::new());
    let (act, fields) = match (was, is) {
        (None, None) => return None,
        (Some(_), None) => (Act::Remove, Vec::new()),
        (None, Some(is)) => {
            let mut fields = differences(&nothing, is);
            fields.retain(|field| !field.to.is_null());
            (Act::Create, fields)
        }
        (Some(was), Some(is)) => (Act::Change, differences(was, is)),
    };
    if act == Act::Change && fields.is_empty() {
        return None;
    }
    let fields = if let Thing::Disk(_) = thing { once(act, fields) } else { fields };
    let name = thing.name().cloned().or_else(|| "placement".parse().ok())?;
    Some(ThingChange { kind: thing.kind().to_owned(), name, act, fields, by_class: None })
}
