//! What the next daemon knows of changes that the last one noted.

use super::tests::{bench, bench_on, change, name, since, snapshot, told};
use super::tracked_file;
use crate::Service;
use crate::snapshots::Kept;
use crate::testing::Bench;
use headgate_api::types::{Force, ImageFate};
use headgate_cluster::Identity;
use headgate_cluster::lease::FileLease;
use headgate_mirror::changes::Changes;
use headgate_units::{Bytes, Nanos};
use serde_json::json;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tempfile::TempDir;

fn file(temp: &TempDir) -> PathBuf {
    temp.path().join("changes/a.tracked")
}

/// A daemon has ended in order that noted changes of blocks 1 and 2 since `mon`.
fn ended() -> (TempDir, PathBuf) {
    ended_with(bench())
}

/// The same of a disk that has a lease.
fn ended_with_lease() -> (TempDir, PathBuf) {
    ended_with(bench_on("default"))
}

fn ended_with(bench: Bench) -> (TempDir, PathBuf) {
    snapshot(&bench, "mon");
    change(&bench, &[1, 2]);
    let image = image_of(&bench);
    let temp = bench.stopped();
    assert!(file(&temp).exists());
    (temp, image)
}

fn image_of(bench: &Bench) -> PathBuf {
    let record = bench.control.model().disk(&name("a")).unwrap().record.clone();
    let backend =
        bench.control.model().datastore(&record.datastore).unwrap().record.backend.clone();
    crate::images::image_path(&bench.control.directory(&backend).unwrap(), &name("a"))
}

/// Changes block 3 and has a snapshot made, by the next daemon.
fn next(temp: TempDir) -> (Bench, Vec<(String, Vec<u64>)>) {
    let bench = Bench::start_again(temp);
    assert!(!bench.control.state_dir().changes().join("a.tracked").exists());
    change(&bench, &[3]);
    snapshot(&bench, "tue");
    let told = told(&bench, "tue");
    (bench, told)
}

fn knows_nothing(temp: TempDir, why: &str) {
    let (bench, told) = next(temp);
    assert_eq!(told, [], "{why}");
    // It is a base like any other.
    change(&bench, &[9]);
    snapshot(&bench, "wed");
    assert_eq!(self::told(&bench, "wed"), [since("tue", &[9])], "{why}");
}

/// Has a file say something else.
type Change = fn(&mut Kept);

fn rewrite(temp: &TempDir, change: impl FnOnce(&mut Kept)) {
    let mut kept = tracked_file::read(&file(temp)).unwrap();
    change(&mut kept);
    let dir = File::open(temp.path().join("changes")).unwrap();
    tracked_file::write(&dir, &kept).unwrap();
}

/// Later than any change before, by the clock of the file system.
fn later() {
    sleep(Duration::from_millis(30));
}

fn write_to(image: &Path) {
    use std::os::unix::fs::FileExt;
    later();
    File::options().write(true).open(image).unwrap().write_all_at(&[1], 5 << 16).unwrap();
}

#[test]
fn an_orderly_end_loses_nothing() {
    let (temp, _) = ended();
    let (bench, told) = next(temp);
    assert_eq!(told, [since("mon", &[1, 2, 3])]);
    // As often as one likes, with changes and without.
    let bench = Bench::start_again(Bench::start_again(bench.stopped()).stopped());
    change(&bench, &[7]);
    let bench = Bench::start_again(bench.stopped());
    snapshot(&bench, "wed");
    assert_eq!(self::told(&bench, "wed"), [since("tue", &[7]), since("mon", &[1, 2, 3, 7])]);
}

#[test]
fn what_was_kept_is_believed_once_and_not_after_a_crash() {
    let (temp, _) = ended();
    let temp = Bench::start_again(temp).killed();
    assert!(!file(&temp).exists());
    knows_nothing(temp, "killed after the start");
    let bench = bench();
    snapshot(&bench, "mon");
    knows_nothing(bench.killed(), "killed");
}

#[test]
fn an_image_that_is_another_one_is_not_believed() {
    let (temp, image) = ended();
    write_to(&image);
    knows_nothing(temp, "written");
    let (temp, image) = ended();
    let modified = image.metadata().unwrap().modified().unwrap();
    write_to(&image);
    later();
    File::options().write(true).open(&image).unwrap().set_modified(modified).unwrap();
    knows_nothing(temp, "written, and its time set back");
    let (temp, image) = ended();
    let other = image.with_extension("other");
    fs::copy(&image, &other).unwrap();
    fs::rename(&other, &image).unwrap();
    knows_nothing(temp, "replaced");
}

/// Another host has the disk and gives it back; what it wrote has left no trace in the image's
/// times, for it lost its power before those were written.
fn elsewhere(image: &Path) {
    let host = tempfile::tempdir().unwrap();
    let (other, _) = Identity::load(host.path()).unwrap();
    let lease = FileLease::acquire(&FileLease::path_of(image), "a", &other, Nanos::ZERO);
    lease.unwrap().lease.release().unwrap();
}

#[test]
fn what_another_daemon_had_in_between_is_not_believed() {
    let (temp, _) = ended_with_lease();
    let (_, told) = next(temp);
    assert_eq!(told, [since("mon", &[1, 2, 3])], "nobody had it");
    let (temp, image) = ended_with_lease();
    elsewhere(&image);
    knows_nothing(temp, "it had the disk");
    let (temp, image) = ended_with_lease();
    fs::remove_file(FileLease::path_of(&image)).unwrap();
    elsewhere(&image);
    knows_nothing(temp, "and the lease is a new one");
    let (temp, image) = ended_with_lease();
    fs::remove_file(FileLease::path_of(&image)).unwrap();
    knows_nothing(temp, "nobody knows who had it");
    for holder in [None, Some("another".to_owned())] {
        let (temp, _) = ended_with_lease();
        rewrite(&temp, |kept| kept.before.holder = holder);
        knows_nothing(temp, "the file says another holder");
    }
    let (temp, _) = ended();
    rewrite(&temp, |kept| kept.before.holder = Some("another".to_owned()));
    knows_nothing(temp, "there is no lease now");
}

#[test]
fn a_disk_that_cannot_be_opened_at_first_is_believed_later_if_nobody_had_it_meanwhile() {
    for visitor in [false, true] {
        let (temp, image) = ended_with_lease();
        let bench = Bench::start_again_broken(temp, "open_disk");
        if visitor {
            elsewhere(&image);
        }
        bench.plane.repair();
        let begun = Instant::now();
        while bench.control.model().disk(&name("a")).unwrap().service != Service::Serving {
            assert!(begun.elapsed() < Duration::from_secs(60));
            bench.control.tend();
            sleep(Duration::from_millis(20));
        }
        let expected = if visitor { vec![] } else { vec![since("mon", &[1, 2])] };
        snapshot(&bench, "tue");
        assert_eq!(told(&bench, "tue"), expected);
    }
}

#[test]
fn each_part_of_a_stamp_counts() {
    let parts: [Change; 5] = [
        |kept| kept.before.stamp.device += 1,
        |kept| kept.before.stamp.inode += 1,
        |kept| kept.before.stamp.length.0 += 4096,
        |kept| kept.before.stamp.modified.0 += 1,
        |kept| kept.before.stamp.changed.0 += 1,
    ];
    for (number, part) in parts.into_iter().enumerate() {
        let (temp, _) = ended();
        rewrite(&temp, part);
        knows_nothing(temp, &format!("part {number}"));
    }
}

#[test]
fn a_file_of_another_disk_boot_or_base_is_not_believed() {
    let others: [(&str, Change); 4] = [
        ("boot", |kept| kept.boot.push('x')),
        ("instant", |kept| kept.base.at += 1),
        ("base", |kept| kept.base.name = name("a")),
        ("size", |kept| {
            let size = Bytes(kept.blocks.size().0 * 2);
            kept.blocks = Changes::new(size).since_base(size);
        }),
    ];
    for (what, other) in others {
        let (temp, _) = ended();
        rewrite(&temp, other);
        knows_nothing(temp, what);
    }
    let (temp, _) = ended();
    fs::rename(file(&temp), temp.path().join("changes/mon.tracked")).unwrap();
    knows_nothing(temp, "name");
}

#[test]
fn a_damaged_file_is_not_believed() {
    let (temp, _) = ended();
    let mut bytes = fs::read(file(&temp)).unwrap();
    let at = bytes.len() - 12;
    bytes[at] ^= 1;
    fs::write(file(&temp), bytes).unwrap();
    knows_nothing(temp, "a bit");
    let (temp, _) = ended();
    File::options().write(true).open(file(&temp)).unwrap().set_len(0).unwrap();
    knows_nothing(temp, "empty");
}

#[test]
fn what_can_be_neither_read_nor_removed_keeps_no_disk_from_being_served() {
    let (temp, _) = ended();
    fs::remove_file(file(&temp)).unwrap();
    fs::create_dir(file(&temp)).unwrap();
    let bench = Bench::start_again(temp);
    snapshot(&bench, "tue");
    assert_eq!(told(&bench, "tue"), []);
}

#[test]
fn a_base_that_is_none_any_more_is_not_believed() {
    // It is gone.
    let bench = bench();
    snapshot(&bench, "mon");
    bench.control.remove_disk(&name("mon"), Force::No, ImageFate::Purge).unwrap();
    knows_nothing(bench.stopped(), "gone");
    // It could be written, before the end and after the start.
    let writable = |bench: &Bench| {
        for read_only in [false, true] {
            let patch = serde_json::from_value(json!({ "read_only": read_only })).unwrap();
            bench.control.set_disk(&name("mon"), patch).unwrap();
        }
    };
    let bench = self::bench();
    snapshot(&bench, "mon");
    writable(&bench);
    let temp = bench.stopped();
    assert!(!file(&temp).exists());
    knows_nothing(temp, "written before");
    let (temp, _) = ended();
    let bench = Bench::start_again(temp);
    writable(&bench);
    snapshot(&bench, "tue");
    assert_eq!(told(&bench, "tue"), []);
}

#[test]
fn a_disk_that_is_gone_takes_what_was_kept_with_it() {
    let (temp, image) = ended();
    // It cannot be opened at first.
    let aside = image.with_extension("aside");
    fs::rename(&image, &aside).unwrap();
    let bench = Bench::start_again(temp);
    bench.control.remove_disk(&name("a"), Force::Yes, ImageFate::Purge).unwrap();
    assert!(bench.control.model().tracked.is_empty());
    let disk = json!({"name": "a", "size": 1 << 20});
    bench.control.create_disk(serde_json::from_value(disk).unwrap()).unwrap();
    snapshot(&bench, "tue");
    assert_eq!(told(&bench, "tue"), []);
}

#[test]
fn of_a_disk_that_is_copied_at_the_end_nothing_is_kept() {
    let bench = bench();
    snapshot(&bench, "mon");
    let request = serde_json::from_value(json!({"name": "tue", "read_only": true})).unwrap();
    bench.control.copy_disk(&name("a"), request).unwrap();
    let temp = bench.stopped();
    assert!(!file(&temp).exists());
}

#[test]
fn a_disk_with_another_size_than_its_base_goes_on() {
    let bench = bench();
    snapshot(&bench, "mon");
    change(&bench, &[1]);
    let resize = serde_json::from_value(json!({"size": (1 << 20) + (2 << 16)})).unwrap();
    bench.control.resize_disk(&name("a"), resize).unwrap();
    let (_, told) = next(bench.stopped());
    assert_eq!(told, [since("mon", &[1, 3, 16, 17])]);
}
