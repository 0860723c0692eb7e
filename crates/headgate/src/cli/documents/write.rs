//! Writes documents: what there is, as it is read.

use super::amounts::{BANDWIDTHS, amount};
use super::fields::{some, thing};
use super::stores;
use headgate_api::classes::Class;
use headgate_api::tenants::Tenant;
use headgate_api::types::{Datastore, Disk, Vm};
use headgate_model::{GroupPolicy, PolicyPart, Quota};
use saphyr::{Mapping, Scalar, Yaml, YamlEmitter};
use serde_json::{Map, Value, json};

/// What is written.
#[derive(Debug, Default)]
pub(in crate::cli) struct Written {
    pub(in crate::cli) classes: Option<Vec<Class>>,
    pub(in crate::cli) tenants: Option<Vec<Tenant>>,
    pub(in crate::cli) vms: Option<Vec<Vm>>,
    pub(in crate::cli) datastores: Option<Vec<Datastore>>,
    pub(in crate::cli) disks: Option<Vec<Disk>>,
}

/// A policy's part, with amounts as people write them.
fn policy(part: &PolicyPart) -> Option<Value> {
    let Ok(Value::Object(mut map)) = serde_json::to_value(part) else { return None };
    for name in BANDWIDTHS {
        if let Some(bytes) = map.get(name).and_then(Value::as_u64) {
            map.insert(name.to_owned(), amount(bytes).into());
        }
    }
    for value in map.values_mut().filter(|value| value.is_null()) {
        *value = "none".into();
    }
    (!map.is_empty()).then(|| map.into())
}

fn class(class: &Class) -> Value {
    thing([
        ("name", some(Some(&class.name))),
        ("policy", policy(&class.policy)),
        ("reservation_per_gb", class.reservation_per_gb.map(|rate| rate.get().into())),
        ("limit_per_gb", class.limit_per_gb.map(|rate| rate.get().into())),
        ("datastore_class", some(class.datastore_class.as_ref())),
    ])
}

/// What a tenant or virtual machine is promised.
fn group(policy: &GroupPolicy) -> [(&'static str, Option<Value>); 3] {
    let GroupPolicy { reservation, limit, shares } = policy;
    [
        ("reservation", reservation.map(|rate| rate.get().into())),
        ("limit", limit.map(|rate| rate.get().into())),
        ("shares", shares.map(|shares| shares.get().into())),
    ]
}

fn tenant(tenant: &Tenant) -> Value {
    let [reservation, limit, shares] = group(&tenant.policy);
    let Quota { max_disks, max_space, max_reserved } = tenant.quota;
    thing([
        ("name", some(Some(&tenant.name))),
        reservation,
        limit,
        shares,
        ("max_disks", max_disks.map(Value::from)),
        ("max_space", max_space.map(|space| amount(space.0).into())),
        ("max_reserved", max_reserved.map(Value::from)),
    ])
}

fn vm(vm: &Vm) -> Value {
    let [reservation, limit, shares] = group(&vm.policy);
    let name = ("name", some(Some(&vm.name)));
    thing([name, ("tenant", some(vm.tenant.as_ref())), reservation, limit, shares])
}

/// One that is nobody's and is promised nothing is no document.
fn says_something(vm: &&Vm) -> bool {
    vm.tenant.is_some() || !vm.policy.is_empty()
}

fn disk(disk: &Disk) -> Value {
    thing([
        ("name", some(Some(&disk.name))),
        ("datastore", some(Some(&disk.datastore))),
        ("size", Some(amount(disk.size.0).into())),
        ("vm", some(disk.vm.as_ref())),
        ("class", some(disk.class.as_ref())),
        ("policy", policy(&disk.own_policy)),
    ])
}

fn value(written: &Written) -> Value {
    let Written { classes, tenants, vms, datastores, disks } = written;
    let mut all = Map::new();
    let mut put = |name: &str, list: Option<Vec<Value>>| {
        all.extend(list.map(|list| (name.to_owned(), list.into())));
    };
    put("classes", classes.as_ref().map(|all| all.iter().map(class).collect()));
    put("tenants", tenants.as_ref().map(|all| all.iter().map(tenant).collect()));
    put("vms", vms.as_ref().map(|all| all.iter().filter(says_something).map(vm).collect()));
    put("datastores", datastores.as_ref().map(|all| all.iter().map(stores::write).collect()));
    put("disks", disks.as_ref().map(|all| all.iter().map(disk).collect()));
    json!(all)
}

pub(in crate::cli) fn as_json(written: &Written) -> Value {
    value(written)
}

fn yaml(value: &Value) -> Yaml<'static> {
    match value {
        Value::Array(list) => Yaml::Sequence(list.iter().map(yaml).collect()),
        Value::Object(map) => {
            let pair = |(key, value): (&String, &Value)| (text(key.clone()), yaml(value));
            // What a thing is called goes first.
            let (name, others): (Vec<_>, Vec<_>) = map.iter().partition(|(key, _)| *key == "name");
            Yaml::Mapping(name.into_iter().chain(others).map(pair).collect::<Mapping<'_>>())
        }
        Value::String(string) => text(string.clone()),
        Value::Number(number) => Yaml::Value(Scalar::Integer(number.as_i64().unwrap_or(i64::MAX))),
        Value::Bool(bool) => Yaml::Value(Scalar::Boolean(*bool)),
        Value::Null => Yaml::Value(Scalar::Null),
    }
}

fn text(text: String) -> Yaml<'static> {
    Yaml::Value(Scalar::String(text.into()))
}

pub(in crate::cli) fn as_yaml(written: &Written) -> String {
    let mut out = String::new();
    let dumped = YamlEmitter::new(&mut out).dump(&yaml(&value(written)));
    dumped.expect("a text takes whatever is written to it, and all keys are texts");
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::super::read::read_all;
    use super::*;

    fn written() -> Written {
        let classes = json!([
            {"name": "gold", "policy": {"limit_bandwidth": 209_715_200, "limit_read_bandwidth": 1_000_001,
             "latency_target": "p99.9=1500us", "shares": 4000, "werror": "stop"},
             "reservation_per_gb": 3, "datastore_class": "ssd", "disks": 1, "reserved_iops": 0},
            {"name": "on", "policy": {}, "disks": 0, "reserved_iops": 0},
        ]);
        let disk = |name: &str, class: Value, own: Value| {
            json!({"name": name, "state": "serving", "reason": null, "datastore": "1e3", "vm": "0x10",
                "class": class, "own_policy": own, "size": 10_737_418_240_u64, "policy": {},
                "effective_policy": null, "overbooked": false, "clients": 1, "nbd_uri": "", "vhost_socket": ""})
        };
        let disks = json!([
            disk("null", json!("on"), json!({"limit": null, "burst": 0})),
            disk("1.5", Value::Null, json!({})),
        ]);
        let tenants = json!([{"name": "0x1", "reservation": 5, "max_space": 3_u64 << 30, "vms": [],
            "disks": 0, "size": 0, "reserved_iops": 0}]);
        let vm = |name: &str, tenant: Value| {
            json!({"name": name, "disks": [], "size": 0, "reserved_iops": 0, "clients": 0, "tenant": tenant,
                "max_priority": 1, "default_priority": 1, "priority_scope": "within", "nice": "honour", "ioprio_map": ""})
        };
        let vms = json!([vm("1e1", json!("0x1")), vm("nobodys", Value::Null)]);
        let read = |value| serde_json::from_value(value);
        Written {
            classes: Some(serde_json::from_value(classes).unwrap()),
            tenants: Some(serde_json::from_value(tenants).unwrap()),
            vms: Some(serde_json::from_value(vms).unwrap()),
            datastores: None,
            disks: Some(read(disks).unwrap()),
        }
    }

    /// Names that look like something else are names.
    #[test]
    fn what_is_written_is_read_as_it_was() {
        let (dir, written) = (tempfile::tempdir().unwrap(), written());
        let files = [as_yaml(&written), as_json(&written).to_string()];
        for (at, text) in files.iter().enumerate() {
            let file = dir.path().join(format!("{at}.yaml"));
            std::fs::write(&file, text).unwrap();
            let all = read_all("site".parse().unwrap(), &[file]).unwrap();
            for (read, class) in all.classes.iter().zip(written.classes.iter().flatten()) {
                assert_eq!((&read.name, &read.class), (&class.name, &class.settings()), "{text}");
            }
            for (read, disk) in all.disks.iter().zip(written.disks.iter().flatten()) {
                assert_eq!((&read.name, &read.datastore), (&disk.name, &disk.datastore), "{text}");
                assert_eq!((&read.vm, &read.class), (&disk.vm, &disk.class), "{text}");
                assert_eq!((read.size, read.policy), (disk.size, disk.own_policy), "{text}");
            }
            assert_eq!((all.classes.len(), all.disks.len()), (2, 2));
            let red = &written.tenants.as_ref().unwrap()[0];
            let read = &all.tenants[0];
            assert_eq!((&read.name, read.policy, read.quota), (&red.name, red.policy, red.quota));
            assert_eq!((all.vms.len(), all.vms[0].name.as_str()), (1, "1e1"), "{text}");
            assert_eq!(all.vms[0].tenant.as_ref().unwrap().as_str(), "0x1");
        }
    }
}
