//! Moves with a data path that says what the test has it say.

use super::watch::{Next, Watch};
use crate::records::{read_record, record_path};
use crate::testing::Bench;
use crate::testing::faults::Fault;
use crate::{ControlError, ErrorKind, images};
use headgate_api::moves::{DiskMigrate, MoveOutcome, MovePatch, MoveState, MoveWish};
use headgate_api::types::{Change, DiskPatch, Force, ImageFate};
use headgate_cluster::Identity;
use headgate_cluster::lease::FileLease;
use headgate_mirror::{Outcome, Reason, Record, Side, Word};
use headgate_model::{MoveEvent, MoveStep, Name};
use headgate_units::{Iops, Nanos, Shares};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(super) fn name(text: &str) -> Name {
    text.parse().unwrap()
}

/// A disk `a` in a directory `old`, and another directory `new`.
pub(super) fn bench() -> Bench {
    let bench = Bench::new();
    for store in ["old", "new"] {
        let path = bench.temp.path().join(store);
        std::fs::create_dir(&path).unwrap();
        add(&bench, json!({"name": store, "backend": {"dir": path}}));
    }
    create(&bench, json!({"name": "a", "size": 8192, "datastore": "old"}));
    bench
}

fn add(bench: &Bench, store: Value) {
    bench.control.add_datastore(serde_json::from_value(store).unwrap()).unwrap();
}

fn create(bench: &Bench, disk: Value) {
    bench.control.create_disk(serde_json::from_value(disk).unwrap()).unwrap();
}

pub(super) fn to(target: &str) -> DiskMigrate {
    serde_json::from_value(json!({"to": target})).unwrap()
}

/// The image of `a` on a datastore.
pub(super) fn image(root: &Path, datastore: &str) -> PathBuf {
    images::image_path(&root.join(datastore), &name("a"))
}

/// Begins to move `a`, and plays the beginning.
pub(super) fn begin(bench: &Bench, target: &str) -> Watch {
    let (control, target) = (&bench.control, target.to_owned());
    let moved =
        control.on_storage(&name(&target), "", Duration::from_secs(60), move |c, ticket| {
            c.begin_move(&name("a"), &to(&target), ticket)
        });
    let (_, mut watch) = moved.unwrap();
    assert_eq!(watch.take_next(control), Next::Event);
    watch
}

/// The data path says so, and what follows is done.
pub(super) fn hear(bench: &Bench, watch: &mut Watch, event: MoveEvent) -> Next {
    bench.plane.play("a", event);
    watch.take_next(&bench.control)
}

/// Has the workers do what they were given.
pub(super) fn settle(bench: &Bench) {
    bench.control.settle_moves();
    bench.control.wait_for_workers();
}

fn refused<T: std::fmt::Debug>(outcome: Result<T, ControlError>, words: &[&str]) {
    let error = outcome.unwrap_err();
    let text = format!("{error} | {}", error.hint().unwrap_or_default());
    assert_ne!(error.kind(), ErrorKind::Failed, "{text}");
    for word in words {
        assert!(text.contains(word), "no '{word}' in: {text}");
    }
}

/// Where `a` is, by the daemon and by its storage.
fn is_on(bench: &Bench, datastore: &str, other: &str) {
    let root = bench.temp.path();
    let disk = bench.control.disk(&name("a")).unwrap();
    assert_eq!(disk.datastore, name(datastore));
    assert!(image(root, datastore).exists(), "its image is gone");
    for left in [image(root, other), FileLease::path_of(&image(root, other))] {
        assert!(!left.exists(), "{} is left", left.display());
    }
    assert!(bench.control.model().moves.is_empty());
}

const SWITCH: MoveEvent = MoveEvent::Record(Record::Switched);

#[test]
fn a_move_ends_on_the_new_datastore_with_one_copy_and_one_lease() {
    let bench = bench();
    let (control, root) = (&bench.control, bench.temp.path().to_owned());
    let mut watch = begin(&bench, "new");
    assert!(image(&root, "new").exists() && image(&root, "old").exists());
    let of_copy = FileLease::path_of(&image(&root, "new"));
    assert!(FileLease::holder(&of_copy).unwrap().is_some(), "nobody holds the copy");
    assert_eq!(bench.plane.words("a"), [Word::Made]);
    let moving = control.disk(&name("a")).unwrap().moving.unwrap();
    assert_eq!((moving.from, moving.to), (name("old"), name("new")));
    assert_eq!(moving.outcome, None);

    // What the copy is stands beside it before anything is written to it, and the switch before
    // anybody hears of it.
    let says = || {
        let record = read_record(&record_path(&image(&root, "new"))).unwrap().unwrap().contents;
        (record.disks.len(), record.moves.iter().map(|one| one.step).collect::<Vec<_>>())
    };
    assert_eq!(says(), (0, vec![MoveStep::Started]));
    assert_eq!(hear(&bench, &mut watch, SWITCH), Next::Event);
    assert_eq!(says(), (1, vec![MoveStep::Switched]));
    assert_eq!(bench.plane.words("a"), [Word::Made, Word::Made]);
    assert_eq!(control.disk(&name("a")).unwrap().datastore, name("new"));
    assert!(image(&root, "old").exists(), "it is removed before the data path lets it go");
    hear(&bench, &mut watch, MoveEvent::Ended(Outcome::Switched));
    assert_eq!(control.moves()[0].state, MoveState::Cleaning);
    assert_eq!(hear(&bench, &mut watch, MoveEvent::Reclaim(Side::Source)), Next::Over);
    settle(&bench);
    is_on(&bench, "new", "old");
    let past = control.disk(&name("a")).unwrap().moving.unwrap();
    assert_eq!((past.state, past.outcome), (MoveState::Ended, Some(MoveOutcome::Switched)));
    assert_eq!(control.moves_ended()[0], (MoveOutcome::Switched, 1));

    let held: Vec<PathBuf> = control.leases.directories().into_iter().collect();
    assert_eq!(held, [root.join("new")], "the lease of the copy that counts is held, and no other");
    assert!(control.leases.look(&root.join("new")).is_empty());

    // Rules that leave moved disks in peace know of it.
    control.samples().flush();
    assert_eq!(control.disk(&name("a")).unwrap().moved.unwrap().from, "old");

    // The lease went with it: the disk is served there after a restart.
    let bench = bench.restart();
    is_on(&bench, "new", "old");
    let lease = bench.control.disk(&name("a")).unwrap().lease.unwrap();
    assert!(lease.number.is_some(), "{lease:?}");
}

#[test]
fn a_move_that_fails_or_is_cancelled_leaves_the_disk_where_it_was() {
    let bench = bench();
    let mut watch = begin(&bench, "new");
    hear(&bench, &mut watch, MoveEvent::Ended(Outcome::Failed(Reason::TargetFailed)));
    hear(&bench, &mut watch, MoveEvent::Reclaim(Side::Target));
    settle(&bench);
    is_on(&bench, "old", "new");
    let past = bench.control.moves().remove(0);
    assert_eq!(past.outcome, Some(MoveOutcome::Failed));
    assert!(past.reason.unwrap().contains("target failed"));

    // Again, with the thread of its own, and to a kind without images.
    add(&bench, json!({"name": "ram", "backend": {"memory": 1 << 20}}));
    let changed = bench.control.migrate_disk(&name("a"), to("ram")).unwrap();
    assert!(changed.warnings.iter().any(|w| w.contains("memory")), "{:?}", changed.warnings);
    bench.control.cancel_move(&name("a"), Force::No).unwrap();
    while bench.control.model().moves.contains_key(&name("a")) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let disk = bench.control.disk(&name("a")).unwrap();
    assert_eq!(disk.moving.unwrap().outcome, Some(MoveOutcome::Cancelled));
    assert_eq!(disk.datastore, name("old"));
    refused(bench.control.cancel_move(&name("a"), Force::No), &["is not being moved"]);
    assert_eq!(
        bench.control.cancel_move(&name("x"), Force::No).unwrap_err().kind(),
        ErrorKind::Missing
    );
}

#[test]
fn what_fails_before_a_move_begins_leaves_nothing() {
    let bench = bench();
    let root = bench.temp.path();
    for step in ["create_image", "begin_move"] {
        bench.plane.break_down(step);
        let error = bench.control.migrate_disk(&name("a"), to("new")).unwrap_err();
        assert!(error.to_string().contains(step), "{error}");
        is_on(&bench, "old", "new");
        bench.plane.repair();
    }
    // What has the name already is not this move's, and stays.
    std::fs::write(image(root, "new"), "theirs").unwrap();
    refused_failed(bench.control.migrate_disk(&name("a"), to("new")));
    assert_eq!(std::fs::read(image(root, "new")).unwrap(), b"theirs");
    std::fs::File::create(image(root, "new")).unwrap().set_len(8192).unwrap();
    refused_failed(bench.control.migrate_disk(&name("a"), to("new")));
    assert!(image(root, "new").exists(), "an empty image of somebody else's is gone");
    assert!(bench.control.model().moves.is_empty() && bench.control.moves().is_empty());
}

fn refused_failed<T: std::fmt::Debug>(outcome: Result<T, ControlError>) {
    let error = outcome.unwrap_err().to_string();
    assert!(error.contains("a.img"), "{error}");
}

#[test]
fn while_a_disk_moves_it_keeps_what_it_is_and_its_policy_can_change() {
    let bench = bench();
    let control = &bench.control;
    let mut watch = begin(&bench, "new");
    let remove = || control.remove_disk(&name("a"), Force::Yes, ImageFate::Remove);
    refused(remove(), &["cancel that first", "migrate a --cancel"]);
    refused(control.migrate_disk(&name("a"), to("array")), &["is being moved already"]);
    refused(control.remove_datastore(&name("new")), &["disk 'a' is being moved"]);

    let patch = MovePatch { shares: Shares::new(7).ok(), ..MovePatch::default() };
    assert_eq!(control.change_move(&name("a"), &patch).unwrap().shares.get(), 7);
    assert_eq!(bench.plane.pace("a").unwrap().shares.get(), 7);
    let rest = MovePatch { state: Some(MoveWish::Paused), ..MovePatch::default() };
    assert_eq!(control.change_move(&name("a"), &rest).unwrap().state, MoveState::Paused);
    let go_on = MovePatch { state: Some(MoveWish::Copying), ..MovePatch::default() };
    assert_eq!(control.change_move(&name("a"), &go_on).unwrap().state, MoveState::Copying);

    let shares = DiskPatch { shares: Shares::new(5).ok(), ..DiskPatch::default() };
    control.set_disk(&name("a"), shares).unwrap();
    hear(&bench, &mut watch, SWITCH);
    let limit = Change::Set(Iops::new(900).unwrap());
    control.set_disk(&name("a"), DiskPatch { limit, ..DiskPatch::default() }).unwrap();
    let late = control.cancel_move(&name("a"), Force::No);
    refused(late, &["the switch is being recorded", "moved back"]);
    hear(&bench, &mut watch, MoveEvent::Ended(Outcome::Switched));
    refused(remove(), &["other copy on datastore 'old'"]);
    hear(&bench, &mut watch, MoveEvent::Reclaim(Side::Source));
    settle(&bench);
    let bench = bench.restart();
    is_on(&bench, "new", "old");
    let policy = bench.control.disk(&name("a")).unwrap().policy;
    assert_eq!((policy.shares.get(), policy.limit), (5, Iops::new(900).ok()));
}

#[test]
fn the_new_datastore_must_take_the_disk_as_it_takes_new_ones() {
    let bench = Bench::new();
    let new = bench.temp.path().join("new");
    std::fs::create_dir(&new).unwrap();
    add(&bench, json!({"name": "new", "backend": {"dir": new}}));
    add(&bench, json!({"name": "small", "backend": {"memory": 4096}}));
    add(&bench, json!({"name": "far", "backend": {"nbd": "nbd+unix:///?socket=/run/none.sock"}}));
    let policy = json!({"reservation": 1000});
    create(&bench, json!({"name": "a", "size": 8192, "datastore": "new", "policy": policy}));
    create(&bench, json!({"name": "b", "size": 8192, "datastore": "array", "policy": policy}));
    let control = &bench.control;
    let migrate = |target: &str| control.migrate_disk(&name("a"), to(target));
    refused(migrate("array"), &["1000 IOPS", "400 IOPS are missing"]);
    refused(migrate("small"), &["does not fit on datastore 'small'"]);
    add(&bench, json!({"name": "hole", "backend": {"emulated": "null"}}));
    refused(migrate("hole"), &["stores nothing"]);
    refused(migrate("new"), &["is on datastore 'new' already"]);
    refused(migrate("far"), &["no export of it is named"]);
    let sized = DiskMigrate { export: Some("x".into()), ..to("far") };
    refused(control.migrate_disk(&name("a"), sized), &["differs from that of export 'x'"]);
    let bare = DiskMigrate { export: Some("x".into()), ..to("array") };
    refused(control.migrate_disk(&name("a"), bare), &[]);
    assert_eq!(migrate("nowhere").unwrap_err().kind(), ErrorKind::Missing);

    // What is on its way counts on both.
    let forced = DiskMigrate { force: Force::Yes, ..to("array") };
    let warnings = control.migrate_disk(&name("a"), forced).unwrap().warnings;
    assert!(warnings.iter().any(|w| w.contains("overbooked by 400")), "{warnings:?}");
    assert_eq!(control.datastore(&name("array")).unwrap().reserved_iops, 2000);
    assert_eq!(control.datastore(&name("new")).unwrap().reserved_iops, 1000);
    let more = Change::Set(Iops::new(1100).unwrap());
    let more = DiskPatch { reservation: more, ..DiskPatch::default() };
    refused(control.set_disk(&name("a"), more), &["on datastore 'array'"]);
}

#[test]
fn a_switch_that_was_not_written_is_told_so_and_tried_again() {
    let bench = bench();
    let mut watch = begin(&bench, "new");
    bench.faults.lock().unwrap().puts = [Some(Fault::Unwritten)].into();
    hear(&bench, &mut watch, SWITCH);
    assert_eq!(bench.plane.words("a"), [Word::Made, Word::Unknown, Word::NotMade]);
    assert_eq!(bench.control.disk(&name("a")).unwrap().datastore, name("old"));
    hear(&bench, &mut watch, SWITCH);
    assert_eq!(bench.plane.words("a").last(), Some(&Word::Made));
    assert_eq!(bench.control.disk(&name("a")).unwrap().datastore, name("new"));
}

#[test]
fn a_switch_in_doubt_is_unknown_until_the_catalog_says_and_keeps_to_it() {
    for (fault, made) in [(Fault::Untold, Word::Made), (Fault::Unwritten, Word::NotMade)] {
        let bench = bench();
        let mut watch = begin(&bench, "new");
        {
            let mut faults = bench.faults.lock().unwrap();
            faults.puts = [Some(fault), Some(Fault::Unwritten), None].into();
            faults.unanswered = 2;
        }
        hear(&bench, &mut watch, SWITCH);
        let unknown = [Word::Unknown; 4];
        let words = bench.plane.words("a");
        assert_eq!(words[1..5], unknown, "{words:?}");
        assert_eq!(words[5..], [made]);
        let at = if made == Word::Made { "new" } else { "old" };
        assert_eq!(bench.control.disk(&name("a")).unwrap().datastore, name(at));
        // The catalog says the same, and the other copy goes.
        drop(watch);
        let bench = bench.restart();
        let other = if made == Word::Made { "old" } else { "new" };
        is_on(&bench, at, other);
    }
}

#[test]
fn a_change_of_the_disk_while_the_switch_is_in_doubt_does_not_part_disk_and_move() {
    let bench = bench();
    let mut watch = begin(&bench, "new");
    bench.plane.play("a", SWITCH);
    bench.faults.lock().unwrap().puts = [Some(Fault::Untold)].into();
    assert_eq!(bench.control.write_switch(&name("a")), Word::Unknown);
    let shares = DiskPatch { shares: Shares::new(5).ok(), ..DiskPatch::default() };
    bench.control.set_disk(&name("a"), shares).unwrap();
    // Killed in between: nothing was told, so both copies have everything.
    let temp = {
        drop(std::mem::replace(&mut watch, begin_nothing()));
        bench.killed()
    };
    let bench = Bench::start_again(temp);
    is_on(&bench, "old", "new");
    assert_eq!(bench.control.disk(&name("a")).unwrap().policy.shares.get(), 5);
}

fn begin_nothing() -> Watch {
    Watch::new(std::sync::Weak::new(), name("a"), std::sync::mpsc::channel().1)
}

#[test]
fn a_data_path_that_says_nothing_more_loses_the_copy_and_never_the_disk() {
    let bench = bench();
    let mut watch = begin(&bench, "new");
    bench.plane.lose_move("a");
    assert_eq!(watch.take_next(&bench.control), Next::Over);
    settle(&bench);
    settle(&bench);
    is_on(&bench, "old", "new");
    let past = bench.control.moves().remove(0);
    assert_eq!(past.outcome, Some(MoveOutcome::Interrupted));

    // After the switch the other copy goes.
    let mut watch = begin(&bench, "new");
    hear(&bench, &mut watch, SWITCH);
    bench.plane.lose_move("a");
    watch.take_next(&bench.control);
    settle(&bench);
    settle(&bench);
    is_on(&bench, "new", "old");
}

#[test]
fn a_copy_that_another_host_takes_ends_the_move_and_not_the_disk() {
    for asked in [false, true] {
        let bench = bench();
        let (control, root) = (&bench.control, bench.temp.path().to_owned());
        let mut watch = begin(&bench, "new");
        let lease = FileLease::path_of(&image(&root, "new"));
        std::fs::remove_file(&lease).unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let (other, _) = Identity::load(elsewhere.path()).unwrap();
        let taken = FileLease::acquire(&lease, "a", &other, Nanos::ZERO).unwrap();
        if asked {
            bench.plane.play("a", SWITCH);
        }
        control.give_up_copies(control.leases.look_beside(&root.join("new")));
        while watch.take_next(control) == Next::Event {}
        settle(&bench);
        assert!(!bench.plane.words("a").contains(&Word::Unknown));
        assert_eq!(control.disk(&name("a")).unwrap().datastore, name("old"));
        let past = control.moves().remove(0);
        assert_eq!((past.state, past.outcome), (MoveState::Ended, Some(MoveOutcome::Cancelled)));
        // What has that name is the other host's.
        assert!(image(&root, "new").exists() && lease.exists());
        assert!(control.model().moves.is_empty());
        drop(taken);
    }
}

#[test]
fn a_copy_that_cannot_be_removed_is_tried_again_or_forgotten_by_force() {
    let bench = bench();
    let (control, root) = (&bench.control, bench.temp.path().to_owned());
    let mut watch = begin(&bench, "new");
    hear(&bench, &mut watch, MoveEvent::Ended(Outcome::Failed(Reason::TargetLost)));
    // Its storage goes away.
    std::fs::rename(root.join("new"), root.join("away")).unwrap();
    hear(&bench, &mut watch, MoveEvent::Reclaim(Side::Target));
    settle(&bench);
    let left = control.moves().remove(0);
    assert_eq!(left.state, MoveState::Cleaning);
    assert!(left.reason.unwrap().contains("new"));
    let again = json!({"name": "a", "size": 4096, "datastore": "array"});
    refused(control.create_disk(serde_json::from_value(again).unwrap()), &[]);
    refused(control.migrate_disk(&name("a"), to("array")), &["other copy", "--cancel --force"]);
    std::fs::rename(root.join("away"), root.join("new")).unwrap();
    settle(&bench);
    is_on(&bench, "old", "new");

    let mut watch = begin(&bench, "new");
    std::fs::rename(root.join("new"), root.join("away")).unwrap();
    control.cancel_move(&name("a"), Force::No).unwrap();
    while watch.take_next(control) == Next::Event {}
    settle(&bench);
    refused(control.cancel_move(&name("a"), Force::No), &["--cancel --force"]);
    control.cancel_move(&name("a"), Force::Yes).unwrap();
    assert!(control.model().moves.is_empty());
    assert!(image(&root, "away").exists(), "it was to be left there");
}
