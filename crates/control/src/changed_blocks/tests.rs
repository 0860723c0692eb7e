//! What snapshots tell of those before them, with a data path that marks what the test has it mark.

use crate::testing::Bench;
use headgate_api::copies::CopyState;
use headgate_api::types::{Force, ImageFate};
use headgate_mirror::instant::{Outcome, Reason};
use headgate_model::{CopyEvent, Name};
use headgate_units::Bytes;
use serde_json::json;
use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

pub(super) fn name(text: &str) -> Name {
    text.parse().unwrap()
}

/// A disk `a` of 16 blocks of 64 KiB.
pub(super) fn bench() -> Bench {
    bench_on("array")
}

pub(super) fn bench_on(datastore: &str) -> Bench {
    let bench = Bench::new();
    let disk = json!({"name": "a", "size": 1 << 20, "datastore": datastore});
    bench.control.create_disk(serde_json::from_value(disk).unwrap()).unwrap();
    bench
}

fn copy(bench: &Bench, to: &str, read_only: bool, outcome: Outcome) {
    let request = json!({"name": to, "read_only": read_only});
    bench.control.copy_disk(&name("a"), serde_json::from_value(request).unwrap()).unwrap();
    finish(bench, to, outcome);
}

fn finish(bench: &Bench, to: &str, outcome: Outcome) {
    bench.plane.play_copy(to, CopyEvent::Ended(outcome));
    bench.plane.play_copy(to, CopyEvent::Released);
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let state = bench.control.view_of_copy(&name(to)).unwrap().state;
        if state.is_over() {
            assert_eq!(state == CopyState::Complete, outcome == Outcome::Complete, "{state:?}");
            break;
        }
        assert!(Instant::now() < deadline, "{to}: {state:?}");
        sleep(Duration::from_millis(1));
    }
}

pub(super) fn snapshot(bench: &Bench, to: &str) {
    copy(bench, to, true, Outcome::Complete);
}

pub(super) fn change(bench: &Bench, blocks: &[u64]) {
    blocks.iter().for_each(|block| bench.plane.change("a", block << 16));
}

pub(super) fn told(bench: &Bench, snapshot: &str) -> Vec<(String, Vec<u64>)> {
    bench.plane.changes_since(snapshot)
}

pub(super) fn since(base: &str, blocks: &[u64]) -> (String, Vec<u64>) {
    (base.to_owned(), blocks.to_vec())
}

/// Three snapshots, with changes of blocks 1 and 2, and then of 2 and 3, in between.
fn three() -> Bench {
    let bench = bench();
    change(&bench, &[7]);
    snapshot(&bench, "mon");
    change(&bench, &[1, 2]);
    snapshot(&bench, "tue");
    change(&bench, &[2, 3]);
    snapshot(&bench, "wed");
    bench
}

#[test]
fn a_snapshot_tells_what_changed_since_those_before_it() {
    let bench = three();
    let all = |bench: &Bench| ["mon", "tue", "wed"].map(|snapshot| told(bench, snapshot));
    let expected = [
        vec![],
        vec![since("mon", &[1, 2])],
        vec![since("tue", &[2, 3]), since("mon", &[1, 2, 3])],
    ];
    assert_eq!(all(&bench), expected);
    // The next daemon tells it, too. What changed meanwhile it does not know.
    let bench = bench.restart();
    assert_eq!(all(&bench), expected);
    bench.plane.forget_changes("a");
    snapshot(&bench, "thu");
    assert_eq!(told(&bench, "thu"), []);
    change(&bench, &[9]);
    snapshot(&bench, "fri");
    assert_eq!(told(&bench, "fri"), [since("thu", &[9])]);
}

#[test]
fn a_copy_that_fails_or_can_be_written_is_nothing_to_compare_with() {
    let bench = bench();
    snapshot(&bench, "mon");
    change(&bench, &[1]);
    copy(&bench, "failed", true, Outcome::GivenUp(Reason::TargetFailed));
    change(&bench, &[2]);
    copy(&bench, "writable", false, Outcome::Complete);
    change(&bench, &[3]);
    snapshot(&bench, "tue");
    assert_eq!(told(&bench, "tue"), [since("mon", &[1, 2, 3])]);
    assert_eq!((told(&bench, "failed"), told(&bench, "writable")), (vec![], vec![]));
}

#[test]
fn a_disk_that_was_opened_anew_may_have_changed_anywhere() {
    let bench = bench();
    snapshot(&bench, "mon");
    change(&bench, &[1]);
    bench.plane.forget_changes("a");
    snapshot(&bench, "tue");
    assert_eq!(told(&bench, "tue"), []);
}

#[test]
fn what_a_disk_gained_between_snapshots_has_changed() {
    let bench = bench();
    snapshot(&bench, "mon");
    change(&bench, &[1]);
    let size = Bytes((1 << 20) + (3 << 16));
    let resize = serde_json::from_value(json!({ "size": size.0 })).unwrap();
    bench.control.resize_disk(&name("a"), resize).unwrap();
    // Beyond what is noted.
    change(&bench, &[17]);
    snapshot(&bench, "tue");
    assert_eq!(told(&bench, "tue"), [since("mon", &[1, 16, 17, 18])]);
    change(&bench, &[18]);
    snapshot(&bench, "wed");
    let expected = [since("tue", &[18]), since("mon", &[1, 16, 17, 18])];
    assert_eq!(told(&bench, "wed"), expected);
}

#[test]
fn a_snapshot_that_is_gone_is_a_base_still_and_none_to_go_further_by() {
    let bench = three();
    bench.control.remove_disk(&name("tue"), Force::No, ImageFate::Purge).unwrap();
    assert_eq!((told(&bench, "tue"), told(&bench, "wed")), (vec![], vec![since("tue", &[2, 3])]));
    // Another disk of its name is not what clients mean by it.
    let disk = json!({"name": "tue", "size": 4096});
    bench.control.create_disk(serde_json::from_value(disk).unwrap()).unwrap();
    assert_eq!(told(&bench, "wed"), []);
    let files = fs::read_dir(bench.control.state_dir().changes()).unwrap();
    let names: Vec<_> = files.map(|file| file.unwrap().file_name()).collect();
    assert_eq!(names, ["wed.changes"]);
}

#[test]
fn a_snapshot_that_was_written_is_one_no_more() {
    for back in [false, true] {
        let bench = three();
        for read_only in [Some(false), back.then_some(true)].into_iter().flatten() {
            let patch = serde_json::from_value(json!({ "read_only": read_only })).unwrap();
            bench.control.set_disk(&name("tue"), patch).unwrap();
        }
        assert_eq!((told(&bench, "tue"), told(&bench, "wed")), (vec![], vec![]));
        change(&bench, &[4]);
        snapshot(&bench, "thu");
        assert_eq!(told(&bench, "thu"), [since("wed", &[4])]);
        let bench = bench.restart();
        assert_eq!((told(&bench, "tue"), told(&bench, "wed")), (vec![], vec![]));
    }
}

#[test]
fn a_base_that_is_written_while_the_next_snapshot_is_made_is_none() {
    let bench = bench();
    snapshot(&bench, "mon");
    change(&bench, &[1]);
    let request = serde_json::from_value(json!({"name": "tue", "read_only": true})).unwrap();
    bench.control.copy_disk(&name("a"), request).unwrap();
    for read_only in [false, true] {
        let patch = serde_json::from_value(json!({ "read_only": read_only })).unwrap();
        bench.control.set_disk(&name("mon"), patch).unwrap();
    }
    finish(&bench, "tue", Outcome::Complete);
    assert_eq!(told(&bench, "tue"), []);
    change(&bench, &[2]);
    snapshot(&bench, "wed");
    assert_eq!(told(&bench, "wed"), [since("tue", &[2])]);
}

#[test]
fn a_file_that_cannot_be_used_is_not_believed() {
    let bench = three();
    let path = bench.control.state_dir().changes().join("tue.changes");
    let mut bytes = fs::read(&path).unwrap();
    let at = bytes.len() - 12;
    bytes[at] ^= 1;
    fs::write(&path, bytes).unwrap();
    let bench = bench.restart();
    assert_eq!((told(&bench, "tue"), told(&bench, "wed")), (vec![], vec![since("tue", &[2, 3])]));
    assert!(!path.exists());
}
