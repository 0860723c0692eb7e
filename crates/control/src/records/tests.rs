use super::file::sweep;
use super::*;
use crate::testing::Bench;
use headgate_api::types::{Change, DiskPatch, Force, ImageFate};
use headgate_catalog::RecordFile;
use headgate_model::DiskState;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::json;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Instant;

const MINUTE: Duration = Duration::from_secs(60);

fn create(bench: &Bench, name: &str) {
    let disk = json!({"name": name, "size": 4096, "datastore": "default"});
    bench.control.create_disk(serde_json::from_value(disk).unwrap()).unwrap();
}

fn record(bench: &Bench, disk: &str) -> Option<RecordFile> {
    bench.records.wait(MINUTE);
    read_record(&bench.temp.path().join(format!("default/{disk}.img.record"))).unwrap()
}

fn state(bench: &Bench) -> RecordFile {
    bench.records.wait(MINUTE);
    read_record(&bench.temp.path().join("records.json")).unwrap().unwrap()
}

#[test]
fn a_change_comes_into_the_record_beside_the_image() {
    let bench = Bench::new();
    create(&bench, "a");
    assert_eq!(record(&bench, "a").unwrap().contents.disks[0].policy.limit, None);
    let limit = headgate_units::Iops::new(321).unwrap();
    let patch = DiskPatch { limit: Change::Set(limit), ..DiskPatch::default() };
    bench.control.set_disk(&"a".parse().unwrap(), patch).unwrap();
    let export = json!({"name": "a-fast", "disk": "a", "priority": 200});
    bench.control.add_export(serde_json::from_value(export).unwrap()).unwrap();
    let noted = record(&bench, "a").unwrap();
    assert_eq!(noted.host, bench.control.identity().host.to_string());
    assert_eq!(noted.contents.disks[0].policy.limit, Some(limit));
    assert_eq!(noted.contents.exports[0].name.as_str(), "a-fast");
    let vm = serde_json::from_value(json!({"max_priority": 120})).unwrap();
    bench.control.set_vm(&"web".parse().unwrap(), &vm).unwrap();
    let noted = state(&bench).contents;
    assert_eq!(noted.vms[0].priorities.max.get(), 120);
    let names: Vec<&str> = noted.datastores.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["array", "default"]);
    bench.control.remove_disk(&"a".parse().unwrap(), Force::No, ImageFate::Purge).unwrap();
    assert_eq!(record(&bench, "a"), None);
}

#[test]
fn a_start_makes_good_what_a_killed_daemon_left() {
    let bench = Bench::new();
    create(&bench, "a");
    create(&bench, "b");
    bench.records.wait(MINUTE);
    let default = bench.temp.path().join("default");
    fs::write(default.join("a.img.record"), "half of a rec").unwrap();
    let gone = fs::read_to_string(default.join("b.img.record")).unwrap();
    fs::write(default.join("gone.img.record"), gone.replace("\"b\"", "\"gone\"")).unwrap();
    fs::write(default.join(".b.img.record.new"), "half").unwrap();
    let bench = bench.restart();
    // The end of a daemon waits for its records.
    let temp = bench.killed();
    let mut names: Vec<String> = fs::read_dir(temp.path().join("default"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let expected = ["a.img", "a.img.lease", "a.img.record", "b.img", "b.img.lease", "b.img.record"];
    assert_eq!(names, expected);
    let whole = read_record(&temp.path().join("default/a.img.record")).unwrap().unwrap();
    assert_eq!(whole.contents.disks[0].name.as_str(), "a");
}

fn file_of(host: &str) -> Box<RecordFile> {
    Box::new(RecordFile { host: host.into(), contents: Contents::default() })
}

fn note(host: &str) -> Note {
    Note::of_image(Part::Itself, "d.img".into(), Some(file_of(host)))
}

#[test]
fn what_another_host_has_is_that_hosts_to_describe() {
    let dir = tempfile::tempdir().unwrap();
    let (dir, note) = (dir.path(), note("mine"));
    let path = dir.join("d.img.record");
    fs::write(dir.join("d.img"), "x").unwrap();
    fs::write(&path, "theirs").unwrap();
    let lease = r#"{"token":1,"holder":{"name":"h","host":"OTHER","instance":"i","pid":1},"released":true}"#;
    fs::write(dir.join("d.img.lease"), lease).unwrap();
    note.carry_out(dir, "me").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "theirs");
    note.carry_out(dir, "OTHER").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), file_of("mine").to_text());
    // Without its image there is nothing to describe; what another host wrote stays all the same.
    let theirs = file_of("OTHER").to_text();
    fs::write(&path, theirs).unwrap();
    fs::remove_file(dir.join("d.img")).unwrap();
    fs::remove_file(dir.join("d.img.lease")).unwrap();
    sweep(dir, "me").unwrap();
    assert!(path.exists());
    sweep(dir, "OTHER").unwrap();
    assert!(!path.exists());
}

#[test]
fn a_planted_link_is_replaced_and_not_written_through() {
    let dir = tempfile::tempdir().unwrap();
    let (dir, note) = (dir.path(), note("mine"));
    let path = dir.join("d.img.record");
    fs::write(dir.join("d.img"), "x").unwrap();
    let victim = dir.join("victim");
    fs::write(&victim, "precious").unwrap();
    std::os::unix::fs::symlink(&victim, &path).unwrap();
    std::os::unix::fs::symlink(&victim, dir.join(".d.img.record.new")).unwrap();
    note.carry_out(dir, "me").unwrap();
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    assert_eq!(fs::read_to_string(&path).unwrap(), file_of("mine").to_text());
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn records_of_removed_disks_are_not_written_through_a_link() {
    let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(elsewhere.path().join("d@1.img"), "x").unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), dir.path().join(".removed")).unwrap();
    let note = Note::of_image(Part::Removed, "d@1.img".into(), Some(file_of("mine")));
    note.carry_out(dir.path(), "me").unwrap_err();
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 1);
}

#[test]
fn no_record_is_written_where_no_datastore_may_be() {
    let bench = Bench::new();
    let allowed = tempfile::tempdir().unwrap();
    let body = json!({"name": "files", "backend": {"dir": allowed.path()}});
    bench.control.add_datastore(serde_json::from_value(body).unwrap()).unwrap();
    let disk = json!({"name": "a", "size": 4096, "datastore": "files"});
    bench.control.create_disk(serde_json::from_value(disk).unwrap()).unwrap();
    bench.records.wait(MINUTE);
    let path = allowed.path().join("a.img.record");
    fs::remove_file(&path).unwrap();
    // It was allowed once, and is not any more.
    let other = tempfile::tempdir().unwrap();
    let roots = Roots::of(&[other.path().to_owned()], &[]).unwrap();
    let bench = bench.restart_with(roots);
    bench.records.wait(MINUTE);
    assert!(!path.exists());
    let bench = bench.restart();
    bench.records.wait(MINUTE);
    assert!(path.exists());
}

/// A datastore on a directory, with a disk.
fn with_disk(at: usize, path: &Path) -> (DatastoreRecord, DiskRecord) {
    let first = crate::start::default_datastore().unwrap();
    let name: Name = format!("d{at}").parse().unwrap();
    let backend = Backend::Dir { path: path.to_owned() };
    let disk = DiskRecord {
        name: format!("disk{at}").parse().unwrap(),
        datastore: name.clone(),
        vm: None,
        size: headgate_units::Bytes(4096),
        policy: Default::default(),
        state: DiskState::Ready,
        remote: None,
        placement: Default::default(),
        writes: Default::default(),
        origin: None,
        set: Default::default(),
        set_by: None,
    };
    (DatastoreRecord { name, backend, ..first }, disk)
}

/// Opening a pipe waits for its other end: so do records that look whose the image is.
fn hang(directory: &Path, disk: &Name) -> PathBuf {
    fs::write(directory.join(format!("{disk}.img")), "x").unwrap();
    let lease = directory.join(format!("{disk}.img.lease"));
    mknodat(CWD, &lease, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let other_end = directory.join("other-end");
    fs::hard_link(&lease, &other_end).unwrap();
    other_end
}

#[test]
fn storage_that_hangs_holds_up_no_change() {
    const STORES: usize = 8;
    let state = tempfile::tempdir().unwrap();
    let dir = StateDir::new(state.path()).unwrap();
    let sqlite = headgate_catalog::SqliteCatalog::open(&dir.catalog()).unwrap();
    let mut catalog = Recorded::new(sqlite, dir, "me".into(), Roots::Anywhere);
    let directories: Vec<_> = (0..STORES).map(|_| tempfile::tempdir().unwrap()).collect();
    let mut other_ends = Vec::new();
    let began = Instant::now();
    for (at, directory) in directories.iter().enumerate() {
        let (store, disk) = with_disk(at, directory.path());
        other_ends.push(hang(directory.path(), &disk.name));
        catalog.insert_datastore(&store).unwrap();
        catalog.insert_disk(&disk).unwrap();
        let vm = Some("web".parse().unwrap());
        catalog.update_disk(&DiskRecord { vm, ..disk }).unwrap();
    }
    // All of this is under the catalog's lock. Two seconds for each would be 16.
    assert!(began.elapsed() < Duration::from_secs(12), "{:?}", began.elapsed());
    let path = |at: usize| directories[at].path().join(format!("disk{at}.img.record"));
    assert!((0..STORES).all(|at| !path(at).exists()));
    // As soon as the storage is back, so are the records: the newest ones.
    for (at, other_end) in other_ends.iter().enumerate() {
        fs::remove_file(directories[at].path().join(format!("disk{at}.img.lease"))).unwrap();
        // Opened for both, it does not wait for who reads.
        drop(fs::File::options().read(true).write(true).open(other_end).unwrap());
    }
    let until = Instant::now() + Duration::from_secs(60);
    let is_there = |at| {
        let record = read_record(&path(at)).unwrap();
        record.is_some_and(|record| record.contents.disks[0].vm.is_some())
    };
    while !(0..STORES).all(is_there) {
        assert!(Instant::now() < until);
        std::thread::yield_now();
    }
}
