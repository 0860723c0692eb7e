//! The daemon ends at every instant of a move, and the next one finds one disk with one copy.

use super::tests::{begin, bench, hear, image, name, settle};
use crate::crash::testing::killed_after;
use crate::mend::{Claim, Keep, Mender, Replace};
use crate::testing::Bench;
use crate::{Control, ControlError, StateDir};
use headgate_api::moves::MoveOutcome;
use headgate_catalog::Copies;
use headgate_mirror::{Outcome, Record, Side};
use headgate_model::{LiveMoves, MoveEvent, MoveRecord, MoveStep};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// The instants of a move to its end, in their order.
const INSTANTS: [&str; 10] = [
    "move written down",
    "lease of the copy acquired",
    "copy made",
    "move started",
    "switch asked for",
    "switch written down",
    "switch told beside the copies",
    "copy removed",
    "lease of the copy removed",
    "move forgotten",
];

/// The first instant at which the target is the disk.
const SWITCHED: usize = 5;

fn on_worker(control: &Control, work: impl FnOnce(&Control) + Send + 'static) {
    let patience = Duration::from_secs(60);
    // One that is killed does not answer.
    let _ = control.on_storage(&name("new"), "", patience, move |control, _| {
        work(control);
        Ok::<_, ControlError>(())
    });
}

/// Moves `a`, and removes the copy that does not count.
fn move_to_the_end(bench: &Bench, to: &str) {
    let mut watch = begin(bench, to);
    hear(bench, &mut watch, MoveEvent::Record(Record::Switched));
    hear(bench, &mut watch, MoveEvent::Ended(Outcome::Switched));
    bench.plane.end_move(&name("a"), Side::Source).unwrap();
    bench.control.close_move(&name("a"));
    on_worker(&bench.control, |control| control.reclaim_now(&name("a")));
}

/// Everything in a directory that may be a disk's.
fn files(directory: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
    let names = entries.map(|name| name.into_string().unwrap());
    names.filter(|name| !name.starts_with("headgate-")).collect()
}

/// `a` is on this datastore, and nothing of it is on the other.
fn is_whole(bench: &Bench, at: &str, other: &str, when: &str) {
    let root = bench.temp.path();
    bench.records.wait(Duration::from_secs(60));
    let disk = bench.control.disk(&name("a")).unwrap();
    assert_eq!(disk.datastore, name(at), "{when}");
    assert!(disk.reason.is_none(), "{when}: {:?}", disk.reason);
    assert_eq!(bench.control.disks().unwrap().len(), 1, "{when}");
    assert!(files(&root.join(at)).contains("a.img"), "{when}");
    let left: Vec<String> =
        files(&root.join(other)).into_iter().filter(|file| file.contains("a.img")).collect();
    assert!(left.is_empty(), "{when}: {left:?} is left");
    assert!(bench.control.model().moves.is_empty(), "{when}");
}

fn sides(instant: usize) -> (&'static str, &'static str) {
    if instant >= SWITCHED { ("new", "old") } else { ("old", "new") }
}

/// The state directory of a daemon that ended at this instant of a move.
fn killed_at(instant: usize) -> tempfile::TempDir {
    let bench = bench();
    killed_on_the_way(&bench, "new", instant);
    bench.killed()
}

fn killed_on_the_way(bench: &Bench, to: &str, instant: usize) {
    let killed = killed_after(instant, || move_to_the_end(bench, to));
    assert_eq!(killed, Some(INSTANTS[instant]));
}

#[test]
fn a_crash_at_any_instant_of_a_move_leaves_one_copy_and_nothing_else() {
    for (instant, when) in INSTANTS.iter().enumerate() {
        let bench = Bench::start_again(killed_at(instant));
        let (at, other) = sides(instant);
        is_whole(&bench, at, other, when);
        let ended = bench.control.moves_ended();
        let interrupted = (MoveOutcome::Interrupted, u64::from(instant < SWITCHED));
        assert_eq!(ended[3], interrupted, "{when}");
        if instant < SWITCHED {
            let reason = bench.control.disk(&name("a")).unwrap().moving.unwrap().reason.unwrap();
            assert!(reason.contains("not begun again by itself"), "{when}: {reason}");
        }
        // It can be moved again, and back.
        let mut watch = begin(&bench, other);
        hear(&bench, &mut watch, MoveEvent::Record(Record::Switched));
        hear(&bench, &mut watch, MoveEvent::Ended(Outcome::Switched));
        hear(&bench, &mut watch, MoveEvent::Reclaim(Side::Source));
        settle(&bench);
        is_whole(&bench, other, at, when);
    }
    let bench = bench();
    assert_eq!(killed_after(INSTANTS.len(), || move_to_the_end(&bench, "new")), None);
}

#[test]
fn a_crash_while_the_copy_is_removed_after_a_crash_is_finished_by_the_next() {
    for first in [0, 2, 3, 6] {
        for second in 0..3 {
            let temp = killed_at(first);
            let (at, other) = sides(first);
            // The next daemon does not find the copy's storage.
            let (store, away) = (temp.path().join(other), temp.path().join("away"));
            fs::rename(&store, &away).unwrap();
            let bench = Bench::start_again(temp);
            let is_known = bench.control.model().moves.contains_key(&name("a"));
            assert!(is_known, "the row went without the copy, {}", INSTANTS[first]);
            fs::rename(&away, &store).unwrap();
            let killed = killed_after(second, || {
                on_worker(&bench.control, |control| control.reclaim_now(&name("a")));
            });
            let when = format!("{} and {killed:?}", INSTANTS[first]);
            assert!(killed.is_some(), "{when}");
            is_whole(&bench.restart(), at, other, &when);
        }
    }
}

#[test]
fn a_copy_stays_until_the_disk_itself_serves() {
    for instant in [3, 6] {
        let temp = killed_at(instant);
        let (at, other) = sides(instant);
        let (store, away) = (temp.path().join(at), temp.path().join("away"));
        fs::rename(&store, &away).unwrap();
        let bench = Bench::start_again(temp);
        assert!(image(bench.temp.path(), other).exists(), "the only copy there is was removed");
        let temp = bench.killed();
        let _ = fs::remove_dir_all(&store);
        fs::rename(&away, &store).unwrap();
        is_whole(&Bench::start_again(temp), at, other, INSTANTS[instant]);
    }
}

#[test]
fn what_has_the_name_of_a_copy_that_was_not_made_yet_is_kept_unless_it_is_empty() {
    let temp = killed_at(1);
    fs::write(image(temp.path(), "new"), "theirs").unwrap();
    let bench = Bench::start_again(temp);
    assert_eq!(fs::read(image(bench.temp.path(), "new")).unwrap(), b"theirs");
    assert!(bench.control.model().moves.is_empty());
}

/// A copy of the catalog may be older than the switch.
#[test]
fn a_catalog_that_is_restored_knows_of_a_switch_by_the_record_beside_the_image() {
    let bench = bench();
    let dir = StateDir::new(bench.temp.path()).unwrap();
    let mut watch = begin(&bench, "new");
    Copies::new(dir.catalog_copies()).take(&dir.catalog()).unwrap();
    hear(&bench, &mut watch, MoveEvent::Record(Record::Switched));
    drop(watch);
    let temp = bench.killed();
    let mender = Mender::new(dir).unwrap();
    let mended = mender.restore(None, Replace::Good).unwrap();
    assert!(mended.notes.iter().any(|note| note.contains("had moved to")), "{:?}", mended.notes);
    drop(mender);
    is_whole(&Bench::start_again(temp), "new", "old", "restored");
}

/// Also where the directory that comes first by name is the wrong one.
#[test]
fn without_the_catalog_records_say_which_copy_is_the_disk() {
    for to in ["new", "old"] {
        let from = if to == "new" { "old" } else { "new" };
        for (instant, when) in INSTANTS.iter().enumerate() {
            rebuilt_after(instant, from, to, when);
        }
    }
}

fn rebuilt_after(instant: usize, from: &str, to: &str, when: &str) {
    let bench = bench();
    if from == "new" {
        move_to_the_end(&bench, "new");
    }
    killed_on_the_way(&bench, to, instant);
    let temp = bench.killed();
    for end in ["", "-wal", "-shm"] {
        let _ = fs::remove_file(temp.path().join(format!("catalog.sqlite{end}")));
    }
    let mender = Mender::new(StateDir::new(temp.path()).unwrap()).unwrap();
    let mended = mender.rebuild(&[], Claim::Own, Replace::Never, Keep::Catalog).unwrap();
    drop(mender);
    let (at, other) = if instant >= SWITCHED { (to, from) } else { (from, to) };
    let on: Vec<_> = mended.contents.disks.iter().map(|disk| &disk.datastore).collect();
    assert_eq!(on, [&name(at)], "{when}: {:?}", mended.notes);
    let moves: Vec<&MoveRecord> = mended.contents.moves.iter().collect();
    match instant {
        3 | 4 => assert!(matches!(moves[..], [MoveRecord { step: MoveStep::Started, .. }])),
        5 | 6 => assert!(matches!(moves[..], [MoveRecord { step: MoveStep::Switched, .. }])),
        _ => {}
    }
    if (3..7).contains(&instant) {
        assert!(mended.notes.iter().any(|note| note.contains("passed over")), "{when}");
        is_whole(&Bench::start_again(temp), at, other, when);
    }
}
