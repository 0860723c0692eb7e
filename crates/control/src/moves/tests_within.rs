//! Striped disks that go over to the servers that their datastore has by now.

use super::tests::{hear, name, settle};
use super::watch::{Next, Watch};
use crate::ControlError;
use crate::testing::Bench;
use headgate_api::moves::DiskMigrate;
use headgate_mirror::{Outcome, Record, Side};
use headgate_model::MoveEvent;
use headgate_units::Iops;
use serde_json::{Value, json};
use std::time::Duration;

/// A disk `a` of 12 MiB on two servers, which has 800 of 1,000 IOPS reserved. The datastore has a
/// third server by now.
fn bench() -> Bench {
    let bench = Bench::new();
    let backend = json!({"stripe": ["nbd://a", "nbd://b"], "stripe_unit": 4096});
    let store = json!({"name": "wide", "backend": backend, "capacity": 1_000});
    bench.control.add_datastore(serde_json::from_value(store).unwrap()).unwrap();
    let disk = json!({"name": "a", "datastore": "wide", "export": "x", "size": 12 << 20,
        "policy": {"reservation": 800}});
    bench.control.create_disk(serde_json::from_value(disk).unwrap()).unwrap();
    let refused = migrate(&bench, json!({"to": "wide", "export": "y"})).unwrap_err().to_string();
    assert!(refused.contains("lies on all servers of datastore 'wide' already"), "{refused}");
    let patch = serde_json::from_value(json!({"add_servers": ["nbd://c"]})).unwrap();
    bench.control.set_datastore(&name("wide"), patch).unwrap();
    bench
}

fn migrate(bench: &Bench, request: Value) -> Result<(), ControlError> {
    bench.control.migrate_disk(&name("a"), serde_json::from_value(request).unwrap()).map(drop)
}

fn begin(bench: &Bench) -> Watch {
    let request: DiskMigrate =
        serde_json::from_value(json!({"to": "wide", "export": "y"})).unwrap();
    let begun =
        bench.control.on_storage(&name("wide"), "", Duration::from_secs(60), move |c, ticket| {
            c.begin_move(&name("a"), &request, ticket)
        });
    let (_, mut watch) = begun.unwrap();
    assert_eq!(watch.take_next(&bench.control), Next::Event);
    watch
}

/// The servers that the disk lies on, and its export there.
fn lies_on(bench: &Bench) -> (usize, String) {
    let model = bench.control.model();
    let remote = model.disks[&name("a")].record.remote.clone().unwrap();
    (remote.stripe.unwrap().servers.len(), remote.export)
}

fn reserved(bench: &Bench) -> u64 {
    bench.control.datastore(&name("wide")).unwrap().reserved_iops
}

#[test]
fn a_disk_goes_over_to_all_servers_and_is_promised_once_meanwhile() {
    let bench = bench();
    let mut watch = begin(&bench);
    assert_eq!((lies_on(&bench), reserved(&bench)), ((2, "x".into()), 800));
    // Old and new are disks of their own by their labels.
    let ids: Vec<_> = bench.plane.labels().values().map(|label| label.id).collect();
    let of_new = bench.plane.labels().iter().filter(|(uri, _)| uri.ends_with("/y")).count();
    assert_eq!((ids.len(), of_new), (5, 3));
    let members: Vec<u16> =
        bench.plane.labels().values().map(|label| label.layout.members()).collect();
    assert_eq!(members, [2, 3, 2, 3, 3]);
    hear(&bench, &mut watch, MoveEvent::Record(Record::Switched));
    assert_eq!((lies_on(&bench), reserved(&bench)), ((3, "y".into()), 800));
    hear(&bench, &mut watch, MoveEvent::Ended(Outcome::Switched));
    hear(&bench, &mut watch, MoveEvent::Reclaim(Side::Source));
    settle(&bench);
    assert!(bench.control.model().moves.is_empty());
    assert_eq!((lies_on(&bench), reserved(&bench)), ((3, "y".into()), 800));
    assert_eq!(bench.plane.policy("a").reservation, Iops::new(800).ok());
    let bench = bench.restart();
    assert_eq!(lies_on(&bench), (3, "y".into()));
}

#[test]
fn a_daemon_that_dies_finds_the_disk_on_one_side_and_forgets_the_move() {
    for switched in [false, true] {
        let bench = bench();
        let mut watch = begin(&bench);
        if switched {
            hear(&bench, &mut watch, MoveEvent::Record(Record::Switched));
        }
        drop(watch);
        let bench = bench.restart();
        settle(&bench);
        let expected = if switched { (3, "y".into()) } else { (2, "x".into()) };
        assert_eq!((lies_on(&bench), reserved(&bench)), (expected, 800), "{switched}");
        assert!(bench.control.model().moves.is_empty(), "{switched}");
    }
}

#[test]
fn what_a_disk_needs_to_go_over_is_said() {
    let bench = bench();
    let refused = |request: Value, words: &str| {
        let error = migrate(&bench, request).unwrap_err();
        let said = format!("{error}: {}", error.expected().unwrap_or_default());
        assert!(said.contains(words), "{said}");
    };
    refused(json!({"to": "wide"}), "on 2 of the 3 servers of datastore 'wide'");
    refused(json!({"to": "wide"}), "a new export by, of 5242880 bytes");
    refused(json!({"to": "wide", "export": "x"}), "is disk 'a' already");
    let patch = serde_json::from_value(json!({"placement": {"state": "maintenance"}})).unwrap();
    bench.control.set_datastore(&name("wide"), patch).unwrap();
    refused(json!({"to": "wide", "export": "y"}), "is in maintenance");
    assert!(bench.plane.labels().keys().all(|uri| uri.ends_with("/x")));
}
