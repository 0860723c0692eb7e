//! Disks that are said to continue others, and what placing them goes by.

use super::ErrorKind;
use super::testing::Bench;
use crate::ControlError;
use headgate_api::placement::Created;
use headgate_api::types::{Disk, DiskCreate, Force, ImageFate};
use headgate_history::testing::sample;
use headgate_history::wall_clock;
use headgate_model::Lookback;
use headgate_placement::PastMove;
use headgate_units::Nanos;
use serde_json::json;

fn create(bench: &Bench, body: serde_json::Value) -> Result<Created<Disk>, ControlError> {
    let mut request = json!({"size": 1 << 20});
    for (key, value) in body.as_object().unwrap() {
        request[key] = value.clone();
    }
    bench.control.create_disk(serde_json::from_value::<DiskCreate>(request).unwrap())
}

fn remove(bench: &Bench, disk: &str) {
    bench.control.remove_disk(&disk.parse().unwrap(), Force::No, ImageFate::Remove).unwrap();
}

/// A hundred seconds in which these disks read so often in each.
fn observe(bench: &Bench, disks: &[(&str, u64)]) {
    let now = wall_clock();
    for second in (1..=101).step_by(5) {
        let at = Nanos(now.0 - Nanos::from_secs(101 - second).0);
        bench.control.samples().record_at(at, &sample(second, disks));
    }
    bench.control.samples().flush();
}

fn moves(bench: &Bench) -> Vec<(String, String)> {
    let report = bench.control.advice(Lookback::default()).unwrap();
    let history: Vec<PastMove> =
        report.pools.into_iter().flat_map(|pool| pool.pool.history).collect();
    let mut moves: Vec<(String, String)> =
        history.iter().map(|moved| (moved.disk.to_string(), moved.from.to_string())).collect();
    moves.sort();
    moves.dedup();
    moves
}

#[test]
fn a_disk_that_is_removed_and_made_elsewhere_has_moved_if_it_is_said_so() {
    let bench = Bench::new();
    create(&bench, json!({"name": "a", "datastore": "array"})).unwrap();
    create(&bench, json!({"name": "b", "datastore": "array"})).unwrap();
    observe(&bench, &[("a", 100), ("b", 50)]);
    let did = bench.control.samples().usual_workloads();
    for disk in ["a", "b"] {
        remove(&bench, disk);
    }
    create(&bench, json!({"name": "a", "datastore": "default", "moved_from": "a"})).unwrap();
    create(&bench, json!({"name": "b", "datastore": "default"})).unwrap();
    assert_eq!(moves(&bench), [("a".to_owned(), "array".to_owned())]);
    let now = bench.control.samples().usual_workloads();
    let [a, b] = ["a", "b"].map(|disk| disk.parse().unwrap());
    assert_eq!((now.get(&a), now.get(&b)), (did.get(&a), None));
    let moved = bench.control.disk(&"a".parse().unwrap()).unwrap().moved.unwrap();
    assert!(moved.from == "array" && moved.at >= wall_clock().0 / 1_000_000_000 - 60, "{moved:?}");
    // All that is known survives a restart.
    let bench = bench.restart();
    assert_eq!(moves(&bench), [("a".to_owned(), "array".to_owned())]);
    assert_eq!(bench.control.samples().usual_workloads(), now);
}

#[test]
fn a_copy_beside_its_original_takes_its_past_and_its_moves() {
    let bench = Bench::new();
    create(&bench, json!({"name": "a", "datastore": "default"})).unwrap();
    observe(&bench, &[("a", 100)]);
    create(&bench, json!({"name": "a2", "datastore": "array", "moved_from": "a"})).unwrap();
    create(&bench, json!({"name": "a3", "datastore": "array", "moved_from": "a2"})).unwrap();
    bench.control.samples().flush();
    let workloads = bench.control.samples().usual_workloads();
    assert_eq!(workloads.len(), 3);
    assert!(workloads.values().all(|profile| Some(profile) == workloads.values().next()));
    let from_default = |disk: &str| (disk.to_owned(), "default".to_owned());
    // The third is where the second was: that is no further move.
    assert_eq!(moves(&bench), [from_default("a2"), from_default("a3")]);
}

#[test]
fn a_disk_that_nobody_knows_is_not_continued() {
    let bench = Bench::new();
    let error =
        create(&bench, json!({"name": "b", "datastore": "array", "moved_from": "a"})).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("no disk 'a' to continue"), "{error}");
    assert!(bench.control.disks().unwrap().is_empty());
    create(&bench, json!({"name": "a", "datastore": "array"})).unwrap();
    let error =
        create(&bench, json!({"name": "a", "datastore": "array", "moved_from": "a"})).unwrap_err();
    assert!(error.to_string().contains('a'), "{error}");
}

#[test]
fn placing_a_disk_reads_no_samples_from_the_file() {
    let bench = Bench::new();
    let names: Vec<String> = (0..30).map(|n| format!("d{n}")).collect();
    for name in &names {
        create(&bench, json!({"name": name, "datastore": "array"})).unwrap();
    }
    observe(&bench, &names.iter().map(|name| (name.as_str(), 10)).collect::<Vec<_>>());
    let visits = bench.control.samples().visits();
    let created = create(&bench, json!({"name": "new"})).unwrap();
    assert!(created.placement_chosen.is_some());
    bench.control.set_rules(bench.control.rules()).unwrap();
    assert_eq!(bench.control.samples().visits(), visits);
    bench.control.advice(Lookback::default()).unwrap();
    assert!(bench.control.samples().visits() > visits, "which is counted");
}
