use crate::testing::Bench;
use crate::{ControlError, ErrorKind};
use headgate_api::apply::{Applied, Apply};
use headgate_api::types::Datastore;
use headgate_model::{DatastoreRecord, Name};
use serde_json::{Value, json};

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

/// Documents of these settings of the 1,600-IOPS array.
fn site(settings: Value) -> Apply {
    let array = json!({"at": "site.yaml:3", "name": "array", "settings": settings});
    serde_json::from_value(json!({"set": "site", "datastores": [array]})).unwrap()
}

fn apply(bench: &Bench, settings: Value) -> Result<Applied, ControlError> {
    bench.control.apply(&site(settings))
}

fn record(bench: &Bench) -> DatastoreRecord {
    bench.control.datastore_record(&name("array")).unwrap()
}

/// What `datastore set` sets, documents set, and say so once.
#[test]
fn documents_set_what_is_set_by_hand_and_nothing_is_left_to_do() {
    let settings = json!({
        "queue_depth": 16, "plug_ns": 1000, "batch": "8,span=4M", "layers": ["trace=10"],
        "window": {"latency_threshold": "30ms", "min": 2, "max": 12, "period_ns": 2_000_000_000_u64,
            "board": "none", "law": "slots", "narrow": "never"},
        "placement": {"class": "ssd", "spindles": "sda", "state": "closed"},
    });
    let (by_hand, by_documents) = (Bench::new(), Bench::new());
    let patch = serde_json::from_value(settings.clone()).unwrap();
    by_hand.control.set_datastore(&name("array"), patch).unwrap();
    let applied = apply(&by_documents, settings.clone()).unwrap();
    let fields: Vec<&str> =
        applied.changes[0].fields.iter().map(|one| one.field.as_str()).collect();
    for field in ["batch", "layers", "placement.state", "plug_ns", "queue_depth", "window.min"] {
        assert!(fields.contains(&field), "{field} in {fields:?}");
    }
    assert_eq!(record(&by_documents), record(&by_hand));
    assert_eq!(by_documents.plane.window("array"), by_hand.plane.window("array"));
    let again = apply(&by_documents, settings.clone()).unwrap();
    assert_eq!((again.changes, again.changed), (vec![], false));
    // What is not said stays, and after a restart too.
    let bench = by_documents.restart();
    let again = apply(&bench, json!({"queue_depth": 16})).unwrap();
    assert_eq!((again.changes, again.changed), (vec![], false));
    assert_eq!(record(&bench), record(&by_hand));
}

#[test]
fn what_makes_no_sense_is_said_with_its_line_and_changes_nothing() {
    let bench = Bench::new();
    let before = record(&bench);
    for (settings, words) in [
        (json!({"queue_depth": 0}), "a queue depth of 0 is out of range"),
        (json!({"plug_ns": 2_000_000}), "is too long"),
        (json!({"batch": "many"}), "datastore 'array'"),
        (json!({"layers": ["lace"]}), "lace"),
        (json!({"window": {"min": 9, "max": 3, "latency_threshold": "30ms"}}), "datastore 'array'"),
        (json!({"window": {"board": "/none/here", "latency_threshold": "30ms"}}), "/none/here"),
        (json!({"capacity": 5}), "has a capacity or further servers"),
        (json!({"add_servers": ["nbd://x"]}), "has a capacity or further servers"),
        (json!({"connections": 3}), "datastore 'array'"),
    ] {
        let refused = apply(&bench, settings.clone()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{settings}: {refused}");
        let text = refused.to_string();
        assert!(text.starts_with("site.yaml:3: datastore 'array'"), "{settings}: {text}");
        assert!(text.contains(words), "{settings}: {text}");
        assert_eq!(record(&bench), before, "{settings}");
    }
}

/// A shard that does not take the second of two datastores leaves both as they were.
#[test]
fn a_shard_that_does_not_confirm_leaves_all_datastores_as_they_were() {
    for (operation, settings) in [
        ("set_layers", json!({"layers": ["trace=10"], "queue_depth": 9})),
        ("adjust", json!({"plug_ns": 500, "queue_depth": 9})),
        ("set_narrow", json!({"window": {"narrow": "never"}, "queue_depth": 9})),
    ] {
        for confirmed in 0..2 {
            let bench = Bench::new();
            let stores = |bench: &Bench| -> Vec<Datastore> { bench.control.datastores() };
            let before =
                (stores(&bench), bench.plane.window("array"), bench.plane.window("default"));
            let both = ["array", "default"]
                .map(|store| json!({"name": store, "settings": settings.clone()}));
            let documents = json!({"set": "site", "datastores": both});
            let documents: Apply = serde_json::from_value(documents).unwrap();
            bench.plane.break_down_after(operation, confirmed);
            bench.control.apply(&documents).unwrap_err();
            let after =
                (stores(&bench), bench.plane.window("array"), bench.plane.window("default"));
            assert_eq!(after, before, "{operation} {confirmed}");
            bench.control.apply(&documents).unwrap();
            assert!(stores(&bench).iter().all(|store| store.queue_depth == 9));
        }
    }
}
