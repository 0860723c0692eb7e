//! The difference by its definition: what documents say, against what there is.

use super::*;
use headgate_model::{DiskState, Scheduler, WindowRecord};
use headgate_units::Bytes;
use serde_json::Value;

const GIB: u64 = 1 << 30;

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn store(text: &str, backend: Backend) -> (Name, DatastoreRecord) {
    let record = DatastoreRecord {
        name: name(text),
        backend,
        scheduler: Scheduler::Mclock,
        queue_depth: 32,
        capacity: None,
        cost_model: Default::default(),
        plug: Default::default(),
        batch: None,
        window: WindowRecord::unset(),
        placement: Default::default(),
        layers: Vec::new(),
    };
    (record.name.clone(), record)
}

fn disk(text: &str, class: Option<&str>, own: Value, owner: Option<&str>) -> DiskRecord {
    DiskRecord {
        name: name(text),
        datastore: name("fast"),
        vm: None,
        size: Bytes(GIB),
        policy: Policy::default(),
        set: DiskSettings {
            class: class.map(name),
            policy: serde_json::from_value(own).unwrap(),
            applied_by: owner.map(name),
        },
        state: DiskState::Ready,
        remote: None,
        placement: Default::default(),
        writes: Default::default(),
        origin: None,
        set_by: None,
    }
}

/// Two classes and three disks: `a` of gold and `b` of its own by the documents, `c` of gold by
/// hand.
fn known() -> Known {
    let class = |text: &str, limit: u64, owner: Option<&str>| {
        let mut class = ClassRecord::new(name(text));
        class.policy = serde_json::from_value(json!({"limit": limit})).unwrap();
        class.applied_by = owner.map(name);
        (class.name.clone(), class)
    };
    let mut known = Known {
        classes: [class("gold", 500, Some("site")), class("hand", 5, None)].into(),
        datastores: [
            store("fast", Backend::Dir { path: "/x".into() }),
            store(
                "dev",
                Backend::Block { device: "/d".into(), persistent_reservations: Default::default() },
            ),
        ]
        .into(),
        ..Known::default()
    };
    for record in [
        disk("a", Some("gold"), json!({}), Some("site")),
        disk("b", None, json!({"shares": 7}), Some("site")),
        disk("c", Some("gold"), json!({"burst": 2}), None),
    ] {
        let class = record.set.class.as_ref().map(|class| &known.classes[class]);
        let policy = record.set.policy(class, record.size);
        known.disks.insert(record.name.clone(), DiskRecord { policy, ..record });
    }
    known
}

/// What documents say that the state is as it is.
fn documents() -> Value {
    json!({
        "set": "site",
        "classes": [{"name": "gold", "class": {"policy": {"limit": 500}}}],
        "disks": [
            {"name": "a", "datastore": "fast", "size": GIB, "class": "gold"},
            {"name": "b", "datastore": "fast", "size": GIB, "policy": {"shares": 7}},
        ],
    })
}

fn apply(documents: &Value) -> Result<Difference, Problem> {
    difference(&known(), &serde_json::from_value(documents.clone()).unwrap())
}

/// The documents with another value at a place.
fn with(pointer: &str, value: Value) -> Value {
    let mut all = documents();
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    match all.pointer_mut(parent).unwrap() {
        Value::Array(list) if field == "-" => list.push(value),
        Value::Array(list) => list[field.parse::<usize>().unwrap()] = value,
        other => other[field] = value,
    }
    all
}

/// In a line: what becomes of what, and the fields.
fn told(found: &Difference) -> Vec<String> {
    let of = |thing: &ThingChange| {
        let fields: Vec<String> = thing
            .fields
            .iter()
            .map(|one| format!("{} {} -> {}", one.field, one.from, one.to))
            .collect();
        let by = thing.by_class.as_ref().map(|class| format!(" by {class}")).unwrap_or_default();
        format!("{:?} {} {}{by}: {}", thing.act, thing.kind, thing.name, fields.join(", "))
    };
    found.things.iter().map(of).collect()
}

#[test]
fn what_is_as_documents_say_is_no_difference() {
    assert_eq!(apply(&documents()).unwrap(), Difference::default());
    // What is none is not said of a disk without a class.
    let same = with("/disks/1/policy", json!({"shares": 7, "limit": null}));
    assert_eq!(apply(&same).unwrap(), Difference::default());
    let empty = json!({"set": "site"});
    assert_eq!(apply(&empty).unwrap(), Difference::default(), "nothing is pruned unasked");
}

#[test]
fn each_difference_is_told_and_written_down() {
    for (documents, expected) in [
        (
            with("/classes/0/class/policy", json!({"limit": 700})),
            vec![
                "Change class gold: limit 500 -> 700",
                "Change disk a: limit 500 -> 700",
                "Change disk c by gold: limit 500 -> 700",
            ],
        ),
        (
            with("/classes/-", json!({"name": "new", "class": {"reservation_per_gb": 3}})),
            vec!["Create class new: reservation_per_gb null -> 3"],
        ),
        (with("/disks/0/vm", json!("web")), vec!["Change disk a: vm null -> \"web\""]),
        (
            with("/disks/0/class", json!("hand")),
            vec!["Change disk a: class \"gold\" -> \"hand\", limit 500 -> 5"],
        ),
        (
            with("/disks/0/class", Value::Null),
            vec!["Change disk a: class \"gold\" -> null, limit 500 -> null"],
        ),
        (with("/disks/0/policy", json!({"limit": null})), vec!["Change disk a: limit 500 -> null"]),
        (
            with("/disks/0/policy", json!({"limit": 500})),
            vec!["Change disk a: limit \"not its own\" -> \"its own\""],
        ),
        (
            with(
                "/disks/-",
                json!({"name": "d", "datastore": "fast", "size": 4096, "class": "gold", "policy": {"burst": 3}}),
            ),
            vec![
                "Create disk d: burst null -> 3, class null -> \"gold\", datastore null -> \"fast\", size null -> 4096",
            ],
        ),
        (
            json!({"set": "site", "datastores": [{"name": "fast", "capacity": 900}, {"name": "dev"}]}),
            vec!["Change datastore fast: capacity null -> 900"],
        ),
        (
            json!({"set": "site", "prune": "empty", "disks": documents()["disks"], "classes": [{"name": "gold", "class": {"policy": {"limit": 500}}}]}),
            vec![],
        ),
        (json!({"set": "other", "prune": "disks"}), vec![]),
    ] {
        let found = apply(&documents).unwrap();
        assert_eq!(told(&found), expected, "{documents}");
        // What is told is what is written down.
        let PolicyChange { classes, disks, datastores, planned, .. } = &found.change;
        let written = classes.len() + disks.len() + datastores.len() + planned.len();
        assert_eq!(written, expected.len(), "{documents}");
        for record in disks {
            assert_eq!(record.datastore.as_str(), "fast");
            assert_ne!(known().disks[&record.name], *record);
        }
    }
}

#[test]
fn a_new_disk_is_planned_once_and_made_until_it_is_there() {
    let new = json!({"name": "d", "datastore": "fast", "size": 4096, "class": "gold"});
    let documents: Apply = serde_json::from_value(with("/disks/-", new)).unwrap();
    let mut known = known();
    let first = difference(&known, &documents).unwrap();
    assert_eq!((first.change.planned.len(), &first.to_create), (1, &vec![name("d")]));
    known.planned.insert(name("d"), first.change.planned[0].clone());
    let again = difference(&known, &documents).unwrap();
    assert!(again.change.is_empty());
    assert_eq!(again.to_create, [name("d")]);
    // Others do not make it, and what nobody wants is forgotten.
    let theirs = Apply { set: name("other"), ..documents.clone() };
    assert!(difference(&known, &theirs).unwrap_err().error.contains("by documents 'site'"));
    let without: Apply = serde_json::from_value(self::documents()).unwrap();
    let found = difference(&known, &without).unwrap();
    assert_eq!(
        (told(&found), found.change.gone_planned),
        (vec!["Remove planned disk d: ".to_owned()], vec![name("d")])
    );
}

#[test]
fn only_what_the_documents_made_is_pruned_and_disks_on_request() {
    let without = |what: &str, prune: &str| {
        let mut all = documents();
        all["prune"] = prune.into();
        all[what].as_array_mut().unwrap().remove(0);
        all
    };
    // Disk a is in the documents no more.
    assert_eq!(told(&apply(&without("disks", "nothing")).unwrap()), Vec::<String>::new());
    let refused = apply(&without("disks", "empty")).unwrap_err();
    assert!(refused.error.contains("1 disk(s)") && refused.error.contains(": a"), "{refused:?}");
    let found = apply(&without("disks", "disks")).unwrap();
    assert_eq!(
        (told(&found), found.to_remove),
        (vec!["Remove disk a: ".to_owned()], vec![name("a")])
    );
    // So is class gold, which a and c have.
    let refused = apply(&without("classes", "empty")).unwrap_err();
    assert!(refused.error.contains("2 disk(s) have it: a, c"), "{refused:?}");
    let mut neither = without("classes", "disks");
    neither["disks"].as_array_mut().unwrap().remove(0);
    let refused = apply(&neither).unwrap_err();
    assert!(refused.error.contains("1 disk(s) have it: c"), "{refused:?}");
    // With another class at c, both go. What a has until it is removed is its own.
    let hand = json!({"name": "c", "datastore": "fast", "size": GIB, "class": "hand"});
    neither["disks"].as_array_mut().unwrap().push(hand);
    let found = apply(&neither).unwrap();
    assert_eq!((found.to_remove, found.change.gone_classes), (vec![name("a")], vec![name("gold")]));
    let a = found.change.disks.iter().find(|disk| disk.name.as_str() == "a").unwrap();
    assert_eq!((&a.set.class, a.policy.limit), (&None, known().disks[&name("a")].policy.limit));
}

#[test]
fn contradictions_say_where_they_stand() {
    let at = |mut thing: Value| {
        thing["at"] = "site.yaml:7".into();
        thing
    };
    let disk = |further: Value| {
        let mut disk = json!({"name": "x", "datastore": "fast", "size": GIB});
        disk.as_object_mut().unwrap().extend(further.as_object().unwrap().clone());
        with("/disks/-", at(disk))
    };
    for (documents, words, expected) in [
        (disk(json!({"name": "a"})), "disk 'a' is there twice", "once"),
        (disk(json!({"class": "none"})), "class 'none', which is nowhere", "gold, hand"),
        (disk(json!({"datastore": "none"})), "'none', which is nowhere", "datastore list"),
        (disk(json!({"datastore": "dev"})), "is not made on datastore 'dev'", "disk create x"),
        (disk(json!({"size": 5})), "5 bytes", "a multiple of"),
        (disk(json!({"name": "c", "size": 2 * GIB})), "has 1 GiB, not 2 GiB", "disk resize c"),
        (
            disk(json!({"name": "c", "datastore": "dev"})),
            "on datastore 'fast', not 'dev'",
            "disk migrate c --to dev",
        ),
        (with("/classes/-", at(json!({"name": "gold"}))), "class 'gold' is there twice", "once"),
        (
            json!({"set": "site", "datastores": [at(json!({"name": "none"}))]}),
            "there is no datastore 'none'",
            "datastore add",
        ),
    ] {
        let problem = apply(&documents).unwrap_err();
        assert_eq!(problem.at.as_deref(), Some("site.yaml:7"), "{problem:?}");
        assert!(problem.error.contains(words), "{problem:?}");
        assert!(problem.expected.contains(expected), "{problem:?}");
    }
}

#[test]
fn what_a_gateway_has_set_stays() {
    let mut known = known();
    let set_by = headgate_model::PolicySource {
        peer: "gw".into(),
        stripe: "0".repeat(32),
        lease: 1,
        epoch: 1,
        servers: 2,
    };
    for disk in known.disks.values_mut() {
        disk.set_by = Some(set_by.clone());
    }
    let documents = with("/classes/0/class/policy", json!({"limit": 700}));
    let found = difference(&known, &serde_json::from_value(documents).unwrap()).unwrap();
    assert_eq!(told(&found), ["Change class gold: limit 500 -> 700"]);
}
