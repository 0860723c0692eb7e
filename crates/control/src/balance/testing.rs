//! Disks to move, and moves that end as a test says.

use crate::testing::Bench;
use headgate_mirror::{Outcome, Record, Side};
use headgate_model::{MoveEvent, Name};
use headgate_placement::Rules;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

pub(crate) fn name(text: &str) -> Name {
    text.parse().unwrap()
}

/// Three directories, and these disks on the first one. What they take does not matter: they share
/// a file system with all else that is on the machine.
pub(crate) fn bench(disks: &[&str]) -> Bench {
    let bench = Bench::new();
    for store in ["old", "new", "other"] {
        let path = bench.temp.path().join(store);
        std::fs::create_dir(&path).unwrap();
        let placement = json!({"spindles": store});
        add(&bench, json!({"name": store, "backend": {"dir": path}, "placement": placement}));
    }
    bench.control.set_rules(spacious()).unwrap();
    for disk in disks {
        create(&bench, json!({"name": disk, "size": 8192, "datastore": "old"}));
    }
    bench
}

/// However full the machine's file system is.
pub(crate) fn spacious() -> Rules {
    serde_json::from_value(json!({"space": {"full": 1000, "relieve": 1000}})).unwrap()
}

fn add(bench: &Bench, store: Value) {
    bench.control.add_datastore(serde_json::from_value(store).unwrap()).unwrap();
}

pub(crate) fn create(bench: &Bench, disk: Value) {
    bench.control.create_disk(serde_json::from_value(disk).unwrap()).unwrap();
}

pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !done() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The move of a disk ends, with the switch or without.
pub(crate) fn finish(bench: &Bench, disk: &str, outcome: Outcome) {
    let side = match outcome {
        Outcome::Switched => {
            bench.plane.play(disk, MoveEvent::Record(Record::Switched));
            Side::Source
        }
        _ => Side::Target,
    };
    end(bench, disk, outcome, side);
}

/// What was to be said of the switch was.
pub(crate) fn end(bench: &Bench, disk: &str, outcome: Outcome, side: Side) {
    bench.plane.play(disk, MoveEvent::Ended(outcome));
    bench.plane.play(disk, MoveEvent::Reclaim(side));
    until("the move should be over", || {
        bench.control.settle_moves();
        bench.control.wait_for_workers();
        !bench.control.model().moves.contains_key(&name(disk))
    });
}

pub(crate) fn on(bench: &Bench, disk: &str) -> String {
    bench.control.disk(&name(disk)).unwrap().datastore.to_string()
}
