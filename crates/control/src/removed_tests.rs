//! Removed disks: kept, restored, purged, and killed at every instant in between.

use crate::crash::testing::killed_after;
use crate::purge_failures::{PurgeFailures, Told};
use crate::testing::Bench;
use crate::{ControlError, ErrorKind, Roots, images};
use headgate_api::removed::{DiskRestore, RemovedDisk};
use headgate_api::types::{Disk, Force, ImageFate, ServiceState};
use headgate_model::Name;
use serde_json::json;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

const CONTENT: &[u8] = b"what the guest wrote";

fn db() -> Name {
    "db".parse().unwrap()
}

/// With disk `db`, of a policy and a content.
fn with_disk(datastore: &str) -> Bench {
    let bench = Bench::new();
    let disk = json!({"name": "db", "size": 4096, "datastore": datastore, "vm": "web",
        "policy": {"limit": 700}});
    bench.control.create_disk(serde_json::from_value(disk).unwrap()).unwrap();
    write(&bench, datastore, CONTENT);
    bench
}

fn directory(bench: &Bench, datastore: &str) -> PathBuf {
    let inner = if datastore == "array" { "emulated/array" } else { datastore };
    bench.temp.path().join(inner)
}

fn write(bench: &Bench, datastore: &str, content: &[u8]) {
    use std::os::unix::fs::FileExt;
    let image = images::image_path(&directory(bench, datastore), &db());
    fs::File::options().write(true).open(image).unwrap().write_all_at(content, 0).unwrap();
}

fn remove(bench: &Bench, fate: ImageFate) {
    bench.control.remove_disk(&db(), Force::No, fate).unwrap();
}

fn restore(bench: &Bench, which: &str) -> Result<Disk, ControlError> {
    bench.control.restore_disk(which, DiskRestore::default()).map(|changed| changed.now)
}

fn removed(bench: &Bench) -> Vec<RemovedDisk> {
    bench.control.removed_disks()
}

/// Every place where an image is, in service or kept.
fn contents(bench: &Bench, datastore: &str) -> Vec<Vec<u8>> {
    let directory = directory(bench, datastore);
    let trash = images::removed_directory(&directory);
    let files = [directory, trash].into_iter().filter_map(|dir| fs::read_dir(dir).ok()).flatten();
    let images = files.map(|entry| entry.unwrap().path());
    let images = images.filter(|path| path.extension().is_some_and(|end| end == "img"));
    images.map(|path| fs::read(path).unwrap()[..CONTENT.len()].to_vec()).collect()
}

#[test]
fn a_removed_disk_comes_back_with_its_content_its_policy_and_its_machine() {
    for datastore in ["default", "array"] {
        let bench = with_disk(datastore);
        remove(&bench, ImageFate::Remove);
        assert!(bench.control.disks().unwrap().is_empty());
        let kept = removed(&bench);
        assert_eq!((kept.len(), kept[0].name.clone(), kept[0].size.0), (1, db(), 4096));
        assert_eq!(kept[0].purged_at - kept[0].removed_at, 24 * 60 * 60);
        let store = bench.control.datastore(&datastore.parse().unwrap()).unwrap();
        let space = store.removed.unwrap();
        assert_eq!((space.disks, space.allocated), (1, kept[0].allocated));
        assert!(space.allocated.0 > 0);
        // A restart changes nothing of it.
        let bench = bench.restart();
        assert_eq!(removed(&bench), kept);
        let disk = restore(&bench, "db").unwrap();
        assert_eq!(disk.state, ServiceState::Serving);
        assert_eq!(disk.policy.limit.unwrap().get(), 700);
        assert_eq!(disk.vm.unwrap().as_str(), "web");
        assert_eq!(contents(&bench, datastore), [CONTENT]);
        assert!(removed(&bench).is_empty());
        let error = restore(&bench, "db").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Missing, "{error}");
    }
}

#[test]
fn of_several_removed_disks_of_one_name_each_has_its_own_content() {
    let bench = with_disk("default");
    remove(&bench, ImageFate::Remove);
    let again = json!({"name": "db", "size": 4096, "datastore": "default"});
    bench.control.create_disk(serde_json::from_value(again).unwrap()).unwrap();
    write(&bench, "default", b"of the second disk..");
    let taken = restore(&bench, "db").unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::Conflict, "{taken}");
    remove(&bench, ImageFate::Remove);
    let kept = removed(&bench);
    assert_eq!(kept.len(), 2);
    restore(&bench, "db").unwrap();
    assert!(contents(&bench, "default").contains(&b"of the second disk..".to_vec()));
    let other = DiskRestore { name: Some("old".parse().unwrap()), force: Force::No };
    let disk = bench.control.restore_disk(&kept[0].id, other).unwrap().now;
    assert_eq!((disk.name.as_str(), disk.policy.limit.map(|l| l.get())), ("old", Some(700)));
    let image = directory(&bench, "default").join("old.img");
    assert_eq!(&fs::read(image).unwrap()[..CONTENT.len()], CONTENT);
}

#[test]
fn purging_deletes_and_a_datastore_with_removed_disks_is_not_forgotten() {
    let bench = with_disk("array");
    remove(&bench, ImageFate::Remove);
    let error = bench.control.remove_datastore(&"array".parse().unwrap()).unwrap_err();
    assert!(error.to_string().contains("still keeps 1 removed disk"), "{error}");
    bench.control.purge_expired();
    assert_eq!(removed(&bench).len(), 1, "its time is not over");
    bench.control.purge_removed("db").unwrap();
    assert!(contents(&bench, "array").is_empty());
    bench.control.remove_datastore(&"array".parse().unwrap()).unwrap();

    let bench = with_disk("default");
    remove(&bench, ImageFate::Purge);
    assert!(removed(&bench).is_empty() && contents(&bench, "default").is_empty());
}

#[test]
fn an_image_that_took_the_name_meanwhile_is_not_replaced() {
    let bench = with_disk("default");
    remove(&bench, ImageFate::Remove);
    let image = directory(&bench, "default").join("db.img");
    fs::write(&image, "somebody else's file").unwrap();
    let error = restore(&bench, "db").unwrap_err();
    assert!(error.hint().unwrap().contains("choose another name"), "{error:?}");
    assert_eq!(fs::read(&image).unwrap(), b"somebody else's file");
    fs::remove_file(&image).unwrap();
    restore(&bench, "db").unwrap();
    assert_eq!(contents(&bench, "default"), [CONTENT]);
}

#[test]
fn a_disk_that_cannot_be_opened_stays_among_the_removed() {
    let bench = with_disk("default");
    remove(&bench, ImageFate::Remove);
    bench.plane.break_down("open_disk");
    restore(&bench, "db").unwrap_err();
    assert_eq!((removed(&bench).len(), bench.control.disks().unwrap().len()), (1, 0));
    bench.plane.repair();
    restore(&bench, "db").unwrap();
    assert_eq!(contents(&bench, "default"), [CONTENT]);
}

#[test]
fn a_link_in_the_place_of_the_trash_is_not_followed() {
    let bench = with_disk("default");
    let elsewhere = tempfile::tempdir().unwrap();
    let trash = images::removed_directory(&directory(&bench, "default"));
    std::os::unix::fs::symlink(elsewhere.path(), trash).unwrap();
    let error = bench.control.remove_disk(&db(), Force::No, ImageFate::Remove).unwrap_err();
    assert!(error.to_string().contains("cannot look for"), "{error}");
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    // Nothing was begun.
    assert_eq!(bench.control.disk(&db()).unwrap().state, ServiceState::Serving);
}

#[test]
fn a_link_that_takes_the_place_of_the_trash_leads_no_purge_and_no_restoration_elsewhere() {
    let bench = with_disk("default");
    remove(&bench, ImageFate::Remove);
    let trash = images::removed_directory(&directory(&bench, "default"));
    let elsewhere = tempfile::tempdir().unwrap();
    let name = format!("{}.img", removed(&bench)[0].id);
    fs::write(elsewhere.path().join(&name), "another's").unwrap();
    fs::rename(&trash, trash.with_extension("aside")).unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), &trash).unwrap();
    restore(&bench, "db").unwrap_err();
    bench.control.purge_removed("db").unwrap_err();
    assert_eq!(fs::read(elsewhere.path().join(&name)).unwrap(), b"another's");
}

#[test]
fn a_removed_image_keeps_its_owner_and_its_mode_and_nobody_else_sees_the_trash() {
    let bench = with_disk("default");
    let rights = |path: &Path| {
        let meta = fs::metadata(path).unwrap();
        (meta.uid(), meta.gid(), meta.mode() & 0o7777)
    };
    let image = images::image_path(&directory(&bench, "default"), &db());
    fs::set_permissions(&image, fs::Permissions::from_mode(0o640)).unwrap();
    let before = rights(&image);
    remove(&bench, ImageFate::Remove);
    let trash = images::removed_directory(&directory(&bench, "default"));
    assert_eq!(rights(&trash).2, 0o700);
    assert_eq!(rights(&trash.join(format!("{}.img", removed(&bench)[0].id))), before);
    restore(&bench, "db").unwrap();
    assert_eq!(rights(&image), before);
}

#[test]
fn a_removed_disk_comes_back_only_where_datastores_may_be() {
    let (bench, store) = (Bench::new(), tempfile::tempdir().unwrap());
    let inner = store.path().join("in");
    fs::create_dir(&inner).unwrap();
    let files = json!({"name": "files", "backend": {"dir": inner}});
    bench.control.add_datastore(serde_json::from_value(files).unwrap()).unwrap();
    let disk = json!({"name": "db", "size": 4096, "datastore": "files"});
    bench.control.create_disk(serde_json::from_value(disk).unwrap()).unwrap();
    let other = tempfile::tempdir().unwrap();
    let within = |path: &Path| Roots::of(&[path.to_owned()], &[]).unwrap();
    let bench = bench.restart_with(within(store.path()));
    remove(&bench, ImageFate::Remove);
    let bench = bench.restart_with(within(other.path()));
    let error = restore(&bench, "db").unwrap_err().to_string();
    assert!(error.contains("not in a directory that is allowed"), "{error}");
    bench.control.purge_removed("db").unwrap_err();
    assert_eq!(images_in(&images::removed_directory(&inner)), 1);
    // The daemon goes on, and a link takes the directory's place.
    let bench = bench.restart_with(within(store.path()));
    let aside = other.path().join("aside");
    fs::rename(&inner, &aside).unwrap();
    std::os::unix::fs::symlink(&aside, &inner).unwrap();
    let error = restore(&bench, "db").unwrap_err().to_string();
    assert!(error.contains("which is not in a directory that is allowed"), "{error}");
    assert_eq!(images_in(&images::removed_directory(&aside)), 1);
    fs::remove_file(&inner).unwrap();
    fs::rename(&aside, &inner).unwrap();
    restore(&bench, "db").unwrap();
}

#[test]
fn a_purge_that_failed_is_tried_again_until_it_is_done() {
    let bench = with_disk("default");
    remove(&bench, ImageFate::Remove);
    let trash = images::removed_directory(&directory(&bench, "default"));
    let image = trash.join(format!("{}.img", removed(&bench)[0].id));
    let aside = trash.join("aside");
    // What cannot be unlinked.
    fs::rename(&image, &aside).unwrap();
    fs::create_dir(&image).unwrap();
    bench.control.purge_removed("db").unwrap_err();
    assert_eq!(removed(&bench).len(), 1, "it is known until it is gone");
    purge_expired(&bench);
    assert_eq!(removed(&bench).len(), 1);
    fs::remove_dir(&image).unwrap();
    fs::rename(&aside, &image).unwrap();
    purge_expired(&bench);
    assert!(removed(&bench).is_empty() && contents(&bench, "default").is_empty());
    assert!(removed(&bench.restart()).is_empty());
}

#[test]
fn a_purge_that_fails_in_the_same_way_is_told_once() {
    let (mut failures, id) = (PurgeFailures::default(), "db@7".parse().unwrap());
    let full = || Some("no".to_owned());
    assert_eq!(failures.tell(&id, full()), Told::Failed("no".into()));
    assert_eq!(failures.tell(&id, full()), Told::Already);
    assert_eq!(failures.tell(&id, Some("other".into())), Told::Failed("other".into()));
    assert_eq!(failures.tell(&id, None), Told::Done);
    assert_eq!(failures.tell(&id, full()), Told::Failed("no".into()));
}

/// As the daemon does now and then; returns when it is done.
fn purge_expired(bench: &Bench) {
    bench.control.purge_expired();
    while !bench.control.workers.is_idle(&"default".parse().unwrap()) {
        std::thread::yield_now();
    }
}

fn images_in(directory: &Path) -> usize {
    let ends = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().ends_with(".img");
    fs::read_dir(directory).unwrap().filter(|entry| ends(entry.as_ref().unwrap())).count()
}

/// Has the catalog refuse to forget removed disks, or not any more.
fn refuse_to_forget(bench: &Bench, sql: &str) {
    let catalog = bench.temp.path().join("catalog.sqlite");
    rusqlite::Connection::open(catalog).unwrap().execute_batch(sql).unwrap();
}

#[test]
fn a_restoration_that_the_catalog_refuses_is_undone() {
    let bench = with_disk("default");
    remove(&bench, ImageFate::Remove);
    refuse_to_forget(
        &bench,
        "CREATE TRIGGER refuse BEFORE DELETE ON removed BEGIN SELECT RAISE(ABORT, 'no'); END",
    );
    restore(&bench, "db").unwrap_err();
    assert_eq!((removed(&bench).len(), bench.control.disks().unwrap().len()), (1, 0));
    // If it cannot be undone either, it is told so, and finished or undone later.
    bench.plane.break_down("close_disk");
    restore(&bench, "db").unwrap_err();
    let disk = bench.control.disk(&db()).unwrap();
    assert_eq!(disk.state, ServiceState::Failed);
    assert!(disk.reason.unwrap().contains("could not be undone: close_disk"));
    bench.plane.repair();
    refuse_to_forget(&bench, "DROP TRIGGER refuse");
    let bench = bench.restart();
    assert_eq!(contents(&bench, "default"), [CONTENT]);
    assert_eq!(removed(&bench).len() + bench.control.disks().unwrap().len(), 1);
}

#[test]
fn what_is_changed_while_a_disk_is_being_removed_is_kept() {
    let limit = |bench: &Bench, value: u64| {
        let patch = serde_json::from_value(json!({"limit": value})).unwrap();
        bench.control.set_disk(&db(), patch).unwrap();
    };
    for broken in [false, true] {
        let bench = with_disk("default");
        let (began, end) = bench.plane.hold_next("close");
        std::thread::scope(|scope| {
            let bench = &bench;
            let removing =
                scope.spawn(move || bench.control.remove_disk(&db(), Force::No, ImageFate::Remove));
            began.recv().unwrap();
            limit(bench, 321);
            let row = bench.temp.path().join("catalog.sqlite");
            let row = rusqlite::Connection::open(row).unwrap();
            let state: String =
                row.query_row("SELECT state FROM disks", [], |row| row.get(0)).unwrap();
            assert_eq!(state, "removing", "a start must know that it is being removed");
            if broken {
                bench.plane.break_down("close_disk");
            }
            end.send(()).unwrap();
            assert_eq!(removing.join().unwrap().is_err(), broken);
        });
        let bench = bench.restart();
        if !broken {
            restore(&bench, "db").unwrap();
        }
        let disk = bench.control.disk(&db()).unwrap();
        assert_eq!((disk.state, disk.policy.limit.unwrap().get()), (ServiceState::Serving, 321));
    }
}

/// Kills `work` at every instant between two steps, and gives `judge` what the next daemon has.
fn at_every_instant(
    prepare: impl Fn() -> Bench,
    work: impl Fn(&Bench),
    judge: impl Fn(Bench, Option<&str>),
) {
    let mut seen = Vec::new();
    for instants in 0.. {
        let bench = prepare();
        let end = killed_after(instants, || work(&bench));
        judge(bench.restart(), end);
        match end {
            Some(name) => seen.push(name),
            None => break,
        }
    }
    assert!(seen.len() >= 3, "{seen:?}");
}

#[test]
fn killed_at_any_instant_of_a_removal_the_content_is_there_once() {
    let judge = |bench: Bench, end: Option<&str>| {
        assert_eq!(contents(&bench, "default"), [CONTENT], "{end:?}");
        // The first instant is after the removal was written down.
        assert_eq!(
            (removed(&bench).len(), bench.control.disks().unwrap().len()),
            (1, 0),
            "{end:?}"
        );
        let lease = directory(&bench, "default").join("db.img.lease");
        assert!(!lease.exists(), "{end:?}");
        assert!(removed(&bench)[0].allocated.0 > 0, "{end:?}");
        let disk = restore(&bench, "db").unwrap();
        assert_eq!(disk.policy.limit.unwrap().get(), 700, "{end:?}");
        assert_eq!(contents(&bench, "default"), [CONTENT], "{end:?}");
    };
    at_every_instant(|| with_disk("default"), |bench| remove(bench, ImageFate::Remove), judge);
}

#[test]
fn killed_at_any_instant_of_a_restoration_the_content_is_there_once() {
    let prepare = || {
        let bench = with_disk("default");
        remove(&bench, ImageFate::Remove);
        bench
    };
    let judge = |bench: Bench, end: Option<&str>| {
        assert_eq!(contents(&bench, "default"), [CONTENT], "{end:?}");
        let (removed, disks) = (removed(&bench), bench.control.disks().unwrap());
        assert_eq!(removed.len() + disks.len(), 1, "{end:?}: {removed:?} {disks:?}");
        assert!(disks.iter().all(|disk| disk.state == ServiceState::Serving), "{end:?}: {disks:?}");
        let is_back = matches!(end, Some("image brought back" | "disk restored") | None);
        assert_eq!(disks.len() == 1, is_back, "{end:?}");
        if !is_back {
            restore(&bench, "db").unwrap();
        }
        let disk = bench.control.disk(&db()).unwrap();
        assert_eq!(disk.policy.limit.unwrap().get(), 700, "{end:?}");
    };
    at_every_instant(prepare, |bench| drop(restore(bench, "db").unwrap()), judge);
}

#[test]
fn killed_at_any_instant_of_a_purge_nothing_is_left_of_it() {
    let prepare = || {
        let bench = with_disk("default");
        remove(&bench, ImageFate::Remove);
        bench
    };
    let judge = |bench: Bench, end: Option<&str>| {
        assert!(removed(&bench).is_empty(), "{end:?}");
        assert!(contents(&bench, "default").is_empty(), "{end:?}");
    };
    at_every_instant(prepare, |bench| bench.control.purge_removed("db").unwrap(), judge);
}

#[test]
fn killed_at_any_instant_of_a_removal_for_good_it_is_finished() {
    let judge = |bench: Bench, end: Option<&str>| {
        assert!(contents(&bench, "default").is_empty(), "{end:?}");
        assert!(removed(&bench).is_empty(), "{end:?}");
        assert!(bench.control.disks().unwrap().is_empty(), "{end:?}");
    };
    at_every_instant(|| with_disk("default"), |bench| remove(bench, ImageFate::Purge), judge);
}
