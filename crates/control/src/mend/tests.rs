use super::*;
use crate::crash::testing::killed_after;
use crate::testing::Bench;
use headgate_api::types::{Change, DiskPatch, Force, ImageFate};
use headgate_units::Iops;
use serde_json::json;

fn create(bench: &Bench, name: &str, datastore: &str) {
    let disk = json!({"name": name, "size": 4096, "datastore": datastore});
    bench.control.create_disk(serde_json::from_value(disk).unwrap()).unwrap();
}

fn limit(bench: &Bench, name: &str, limit: u64) {
    let limit = Change::Set(Iops::new(limit).unwrap());
    let patch = DiskPatch { limit, ..DiskPatch::default() };
    bench.control.set_disk(&name.parse().unwrap(), patch).unwrap();
}

/// A host with all kinds of things in its catalog, a directory that another host shares included.
struct Lived {
    temp: tempfile::TempDir,
    shared: tempfile::TempDir,
    before: Contents,
}

fn lived() -> Lived {
    let (bench, shared) = (Bench::new(), tempfile::tempdir().unwrap());
    let control = &bench.control;
    for add in [
        json!({"name": "shared", "backend": {"dir": shared.path()}, "queue_depth": 17}),
        json!({"name": "ram", "backend": {"memory": 1 << 20}}),
    ] {
        control.add_datastore(serde_json::from_value(add).unwrap()).unwrap();
    }
    for (name, datastore) in
        [("a", "default"), ("b", "array"), ("c", "shared"), ("d", "ram"), ("gone", "default")]
    {
        create(&bench, name, datastore);
        limit(&bench, name, 500);
    }
    let export = json!({"name": "a-fast", "disk": "a", "priority": 200});
    control.add_export(serde_json::from_value(export).unwrap()).unwrap();
    let vm = serde_json::from_value(json!({"max_priority": 120, "nice": "ignore"})).unwrap();
    control.set_vm(&"web".parse().unwrap(), &vm).unwrap();
    control.remove_disk(&"gone".parse().unwrap(), Force::No, ImageFate::Remove).unwrap();
    let temp = bench.killed();
    let before = contents(&temp);
    Lived { temp, shared, before }
}

fn state_dir(temp: &tempfile::TempDir) -> StateDir {
    StateDir::new(temp.path()).unwrap()
}

fn contents(temp: &tempfile::TempDir) -> Contents {
    inspect(&state_dir(temp).catalog(), Which::Live).unwrap().unwrap().contents
}

fn copy(temp: &tempfile::TempDir) -> CatalogCopy {
    let dir = state_dir(temp);
    Copies::new(dir.catalog_copies()).take(&dir.catalog()).unwrap()
}

fn mender(temp: &tempfile::TempDir) -> Mender {
    Mender::new(state_dir(temp)).unwrap()
}

fn lose_catalog(temp: &tempfile::TempDir) {
    for end in ["", "-wal", "-shm"] {
        let _ = fs::remove_file(temp.path().join(format!("catalog.sqlite{end}")));
    }
}

fn damage_catalog(temp: &tempfile::TempDir) {
    lose_catalog(temp);
    fs::write(temp.path().join("catalog.sqlite"), [0x5a; 20_000]).unwrap();
}

#[test]
fn a_new_directory_starts_and_one_that_lost_its_catalog_stops_with_the_commands() {
    let temp = tempfile::tempdir().unwrap();
    check_before_start(&state_dir(&temp)).unwrap();
    let Lived { temp, .. } = lived();
    check_before_start(&state_dir(&temp)).unwrap();
    let copy = copy(&temp);
    for empty in [false, true] {
        lose_catalog(&temp);
        if empty {
            fs::write(temp.path().join("catalog.sqlite"), "").unwrap();
        }
        let error = check_before_start(&state_dir(&temp)).unwrap_err();
        assert!(error.to_string().contains("default has 1 image(s)"), "{error}");
        let hint = error.hint().unwrap();
        assert!(hint.contains(copy.path.to_str().unwrap()), "{hint}");
        for command in ["catalog restore", "catalog rebuild", "catalog create"] {
            assert!(hint.contains(command), "{hint}");
        }
    }
    mender(&temp).create().unwrap();
    check_before_start(&state_dir(&temp)).unwrap();
    assert_eq!(contents(&temp), Contents::default());
    assert!(temp.path().join("default/a.img").exists());
}

#[test]
fn a_damaged_catalog_is_told_with_what_is_wrong_and_what_mends_it() {
    let Lived { temp, .. } = lived();
    damage_catalog(&temp);
    let error = check_before_start(&state_dir(&temp)).unwrap_err();
    assert!(
        error.to_string().contains("catalog.sqlite is damaged: file is not a database"),
        "{error}"
    );
    assert!(error.hint().unwrap().contains("there is no good copy"), "{error:?}");
    let checkup = mender(&temp).check().unwrap();
    assert!(matches!(checkup.catalog, Some(Err(CatalogError::Damaged { .. }))), "{checkup:?}");
}

#[test]
fn a_restored_catalog_has_what_the_newest_good_copy_has_and_the_other_is_aside() {
    let Lived { temp, before, .. } = lived();
    let (good, later) = (copy(&temp), copy(&temp));
    fs::write(&later.path, "no copy").unwrap();
    let error = mender(&temp).restore(None, Replace::Never).unwrap_err();
    assert!(error.hint().unwrap().contains("--replace"), "{error}");
    damage_catalog(&temp);
    let named = mender(&temp).restore(Some(&later.path), Replace::Never).unwrap_err();
    assert!(named.to_string().contains("cannot be restored"), "{named}");
    let mended = mender(&temp).restore(None, Replace::Never).unwrap();
    assert_eq!(mended.from.as_ref(), Some(&good));
    assert_eq!(mended.notes, Vec::<String>::new());
    assert_eq!(contents(&temp), before);
    assert_eq!(fs::read(mended.aside.unwrap()).unwrap(), [0x5a; 20_000]);
    let bench = Bench::start_again(temp);
    let disk = bench.control.disk(&"a".parse().unwrap()).unwrap();
    assert_eq!(disk.policy.limit.unwrap().get(), 500);
}

#[test]
fn a_restoration_tells_what_is_newer_than_the_copy() {
    let Lived { temp, .. } = lived();
    copy(&temp);
    let bench = Bench::start_again(temp);
    create(&bench, "new", "default");
    limit(&bench, "a", 900);
    bench.control.remove_disk(&"b".parse().unwrap(), Force::No, ImageFate::Purge).unwrap();
    let temp = bench.killed();
    damage_catalog(&temp);
    let notes = mender(&temp).restore(None, Replace::Never).unwrap().notes;
    assert_eq!(
        notes,
        [
            "the record of disk 'a' is not what the catalog has",
            "disk 'b' is in the catalog, and its image is not there",
            "disk 'new' is on datastore 'default', and not in the catalog",
        ]
    );
    let mended =
        mender(&temp).rebuild(&[], Claim::Own, Replace::Good, Keep::Catalog).unwrap().contents;
    let names: Vec<&str> = mended.disks.iter().map(|disk| disk.name.as_str()).collect();
    assert_eq!(names, ["a", "c", "d", "new"]);
    assert_eq!(mended.disks[0].policy.limit.unwrap().get(), 900);
}

#[test]
fn a_catalog_is_rebuilt_from_the_records_alone() {
    let Lived { temp, before, shared: _shared } = lived();
    lose_catalog(&temp);
    let told = mender(&temp).rebuild(&[], Claim::Own, Replace::Never, Keep::Nothing).unwrap();
    assert_eq!((told.contents, told.notes), (before.clone(), Vec::new()));
    assert!(!temp.path().join("catalog.sqlite").exists(), "a dry run writes nothing");
    mender(&temp).rebuild(&[], Claim::Own, Replace::Never, Keep::Catalog).unwrap();
    assert_eq!(contents(&temp), before);
    assert_eq!(mender(&temp).check().unwrap().differences, Vec::<String>::new());
    let bench = Bench::start_again(temp);
    assert_eq!(bench.control.disks().unwrap().len(), 4);
    bench.control.restore_disk("gone", Default::default()).unwrap();
}

#[test]
fn without_records_images_become_disks_of_the_default_policy_and_others_are_passed_over() {
    let Lived { temp, .. } = lived();
    lose_catalog(&temp);
    fs::remove_file(temp.path().join("records.json")).unwrap();
    let default = temp.path().join("default");
    fs::remove_file(default.join("a.img.record")).unwrap();
    fs::write(default.join("q.img"), [&b"QFI\xfb"[..], &[0; 4092]].concat()).unwrap();
    std::os::unix::fs::symlink(default.join("a.img"), default.join("link.img")).unwrap();
    fs::write(default.join("bad name.img"), [0; 4096]).unwrap();
    let Mended { contents, notes, .. } =
        mender(&temp).rebuild(&[], Claim::Own, Replace::Never, Keep::Catalog).unwrap();
    let disks: Vec<_> =
        contents.disks.iter().map(|d| (d.name.as_str(), d.size.0, d.policy.limit)).collect();
    assert_eq!(disks, [("a", 4096, None)]);
    for said in [
        "no record names the device model",
        "q.img is passed over: ",
        "is a qcow2 image",
        "link.img is a symbolic link",
        "bad name.img is passed over: its name is no disk's",
        "nothing is known of disk 'a' but its image",
    ] {
        assert!(notes.iter().any(|note| note.contains(said)), "{said}: {notes:#?}");
    }
    assert_eq!(contents.removed.len(), 1, "what was kept is kept");
}

#[test]
fn after_the_loss_of_a_state_directory_its_disks_elsewhere_are_claimed_and_keep_their_policies() {
    let Lived { temp, shared, before } = lived();
    drop(temp);
    let temp = tempfile::tempdir().unwrap();
    let dirs = [shared.path().to_owned()];
    let own = mender(&temp).rebuild(&dirs, Claim::Own, Replace::Never, Keep::Nothing).unwrap();
    assert!(own.contents.disks.is_empty(), "it may be another host's");
    assert!(own.notes[0].contains("--claim"), "{:?}", own.notes);
    mender(&temp).rebuild(&dirs, Claim::All, Replace::Never, Keep::Catalog).unwrap();
    let found = contents(&temp);
    let of = |contents: &Contents, name: &str| {
        contents.disks.iter().find(|disk| disk.name.as_str() == name).cloned().unwrap()
    };
    assert_eq!(found.disks, [of(&before, "c")]);
    assert_eq!(found.datastores[0].queue_depth, 17);
}

#[test]
fn an_image_that_another_host_took_over_is_left_to_it() {
    let Lived { temp, shared, .. } = lived();
    let other = Bench::new();
    let add = json!({"name": "shared", "backend": {"dir": shared.path()}});
    other.control.add_datastore(serde_json::from_value(add).unwrap()).unwrap();
    let take = json!({"datastore": "shared"});
    other.control.take_over(&"c".parse().unwrap(), serde_json::from_value(take).unwrap()).unwrap();
    let other_temp = other.killed();
    lose_catalog(&temp);
    let found = mender(&temp).rebuild(&[], Claim::Own, Replace::Never, Keep::Nothing).unwrap();
    assert!(found.contents.disks.iter().all(|disk| disk.name.as_str() != "c"));
    assert!(
        found.notes.iter().any(|n| n.contains("'headgate disk takeover c'")),
        "{:?}",
        found.notes
    );
    lose_catalog(&other_temp);
    let theirs =
        mender(&other_temp).rebuild(&[], Claim::Own, Replace::Never, Keep::Nothing).unwrap();
    assert_eq!(theirs.contents.disks[0].name.as_str(), "c");
}

#[test]
fn killed_at_any_instant_a_mended_catalog_is_the_old_one_the_new_one_or_none() {
    let mut seen = Vec::new();
    for instants in 0.. {
        let Lived { temp, before, .. } = lived();
        copy(&temp);
        // The old one is good, and has something in its log that the copy lacks.
        let bench = Bench::start_again(temp);
        create(&bench, "logged", "default");
        let temp = bench.killed();
        let old = contents(&temp);
        assert_ne!(old, before);
        let end = killed_after(instants, || {
            mender(&temp).restore(None, Replace::Good).unwrap();
        });
        match check_before_start(&state_dir(&temp)) {
            Ok(()) => {
                let found = contents(&temp);
                assert!(found == old || found == before, "{end:?}: {found:?}");
            }
            Err(MendError::Missing { .. }) => {}
            Err(e) => panic!("{end:?}: {e}"),
        }
        // The command can be given again, and what was there is aside, whole.
        let last = mender(&temp).restore(None, Replace::Good).unwrap();
        assert_eq!(contents(&temp), before, "{end:?}");
        let asides = fs::read_dir(temp.path()).unwrap().map(|entry| entry.unwrap().path());
        let asides = asides.filter(|path| {
            let name = path.file_name().unwrap().to_str().unwrap();
            name.contains(".aside-") && !name.ends_with("-wal") && !name.ends_with("-shm")
        });
        let kept: Vec<Contents> = asides
            .filter_map(|path| Some(inspect(&path, Which::Live).unwrap()?.contents))
            .collect();
        assert!(kept.contains(&old), "{end:?}, at last {last:?}");
        match end {
            Some(name) => seen.push(name),
            None => break,
        }
    }
    assert_eq!(seen.len(), 5, "{seen:?}");
}

#[test]
fn a_mended_catalog_is_its_daemons_whoever_mends_it() {
    use std::os::unix::fs::{MetadataExt, chown};
    let Lived { temp, .. } = lived();
    copy(&temp);
    // Only root can give files away, and need do so.
    let owner = if rustix::process::geteuid().is_root() { 4711 } else { u32::MAX };
    if owner != u32::MAX {
        chown(temp.path(), Some(owner), Some(owner)).unwrap();
    }
    let of = |path: &Path| {
        let meta = fs::metadata(path).unwrap();
        (meta.uid(), meta.gid())
    };
    for how in ["restore", "rebuild", "create"] {
        lose_catalog(&temp);
        let mender = mender(&temp);
        match how {
            "restore" => drop(mender.restore(None, Replace::Never).unwrap()),
            "rebuild" => {
                drop(mender.rebuild(&[], Claim::Own, Replace::Never, Keep::Catalog).unwrap());
            }
            _ => drop(mender.create().unwrap()),
        }
        let catalog = state_dir(&temp).catalog();
        for path in [&catalog, &temp.path().join("machines"), &temp.path().join("lock")] {
            assert_eq!(of(path), of(temp.path()), "{how}: {}", path.display());
        }
        assert_eq!(fs::metadata(&catalog).unwrap().mode() & 0o777, 0o600, "{how}");
    }
}
