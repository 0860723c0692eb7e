use super::file::sweep;
use super::*;
use crate::testing::Bench;
use headgate_api::types::{Change, DiskPatch, Force, ImageFate};
use headgate_catalog::RecordFile;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::json;
use std::fs;
use std::path::Path;

fn create(bench: &Bench, name: &str) {
    let disk = json!({"name": name, "size": 4096, "datastore": "default"});
    bench.control.create_disk(serde_json::from_value(disk).unwrap()).unwrap();
}

fn record(bench: &Bench, disk: &str) -> Option<RecordFile> {
    read_record(&bench.temp.path().join(format!("default/{disk}.img.record"))).unwrap()
}

fn state(bench: &Bench) -> RecordFile {
    read_record(&bench.temp.path().join("records.json")).unwrap().unwrap()
}

#[test]
fn a_change_that_was_acknowledged_is_in_the_record_beside_the_image() {
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

fn note(directory: &Path, text: &str) -> Note {
    let image = directory.join("d.img");
    Note { path: record_path(&image), image: Some(image), text: Some(text.into()) }
}

#[test]
fn what_another_host_has_is_that_hosts_to_describe() {
    let dir = tempfile::tempdir().unwrap();
    let note = note(dir.path(), "mine");
    fs::write(dir.path().join("d.img"), "x").unwrap();
    fs::write(&note.path, "theirs").unwrap();
    let lease = r#"{"token":1,"holder":{"name":"h","host":"OTHER","instance":"i","pid":1},"released":true}"#;
    fs::write(dir.path().join("d.img.lease"), lease).unwrap();
    note.carry_out("me").unwrap();
    assert_eq!(fs::read_to_string(&note.path).unwrap(), "theirs");
    note.carry_out("OTHER").unwrap();
    assert_eq!(fs::read_to_string(&note.path).unwrap(), "mine");
    // Without its image there is nothing to describe; what another host wrote stays all the same.
    let theirs = RecordFile { host: "OTHER".into(), contents: Contents::default() }.to_text();
    fs::write(&note.path, theirs).unwrap();
    fs::remove_file(dir.path().join("d.img")).unwrap();
    fs::remove_file(dir.path().join("d.img.lease")).unwrap();
    sweep(dir.path(), "me").unwrap();
    assert!(note.path.exists());
    sweep(dir.path(), "OTHER").unwrap();
    assert!(!note.path.exists());
}

#[test]
fn a_planted_link_is_replaced_and_not_written_through() {
    let dir = tempfile::tempdir().unwrap();
    let note = note(dir.path(), "mine");
    fs::write(dir.path().join("d.img"), "x").unwrap();
    let victim = dir.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    std::os::unix::fs::symlink(&victim, &note.path).unwrap();
    std::os::unix::fs::symlink(&victim, dir.path().join(".d.img.record.new")).unwrap();
    note.carry_out("me").unwrap();
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    assert_eq!(fs::read_to_string(&note.path).unwrap(), "mine");
}

#[test]
fn storage_that_hangs_holds_up_a_change_once_and_no_other_directory() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("d.img"), "x").unwrap();
    // Opening a pipe waits for its other end.
    let lease = dir.path().join("d.img.lease");
    mknodat(CWD, &lease, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let other_end = dir.path().join("other-end");
    fs::hard_link(&lease, &other_end).unwrap();
    let scribe = Scribe::new("me".into());
    let path = record_path(&dir.path().join("d.img"));
    scribe.add(note(dir.path(), "first"));
    scribe.wait(Duration::from_millis(50));
    scribe.add(note(dir.path(), "second"));
    // It would be ten minutes.
    scribe.wait(Duration::from_secs(600));
    assert!(!path.exists());
    fs::remove_file(&lease).unwrap();
    drop(fs::File::options().write(true).open(&other_end).unwrap());
    // As soon as the storage is back, so are the records.
    let until = std::time::Instant::now() + Duration::from_secs(60);
    while fs::read_to_string(&path).ok().as_deref() != Some("second") {
        assert!(std::time::Instant::now() < until);
        std::thread::yield_now();
    }
}
