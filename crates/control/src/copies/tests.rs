//! Copies with a data path that says what the test has it say.

use crate::crash::testing::{has_ended, killed_after};
use crate::testing::Bench;
use crate::{ControlError, ErrorKind, images};
use headgate_api::copies::{Copy, CopyState, DiskCopy};
use headgate_api::moves::DiskMigrate;
use headgate_api::resize::DiskResize;
use headgate_api::types::{Changed, Force, ImageFate, ServiceState};
use headgate_cluster::lease::FileLease;
use headgate_mirror::instant::{Outcome, Reason};
use headgate_model::{CopyEvent, DiskState, Name};
use headgate_units::Iops;
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

/// A disk `a` in a directory `old`, and another directory `new`.
fn bench() -> Bench {
    let bench = Bench::new();
    for store in ["old", "new"] {
        let path = bench.temp.path().join(store);
        fs::create_dir(&path).unwrap();
        let store = json!({"name": store, "backend": {"dir": path}});
        bench.control.add_datastore(serde_json::from_value(store).unwrap()).unwrap();
    }
    let disk = json!({"name": "a", "size": 8192, "datastore": "old",
        "policy": {"shares": 700, "reservation": 50}});
    bench.control.create_disk(serde_json::from_value(disk).unwrap()).unwrap();
    bench
}

fn request(body: Value) -> DiskCopy {
    serde_json::from_value(body).unwrap()
}

fn to_new(copy: &str) -> DiskCopy {
    request(json!({"name": copy, "datastore": "new", "read_only": true,
        "policy": {"shares": 30}}))
}

fn begin(bench: &Bench) -> Result<Changed<Copy>, ControlError> {
    bench.control.copy_disk(&name("a"), to_new("b"))
}

fn image(bench: &Bench) -> PathBuf {
    images::image_path(&bench.temp.path().join("new"), &name("b"))
}

fn end(bench: &Bench, outcome: Outcome) {
    bench.plane.play_copy("b", CopyEvent::Ended(outcome));
    bench.plane.play_copy("b", CopyEvent::Released);
}

/// Waits until nothing more comes of the copy, and says how it was then.
fn settle(bench: &Bench) -> Copy {
    // It ends only a failure.
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let now = bench.control.view_of_copy(&name("b")).unwrap();
        if now.state.is_over() || has_ended() {
            return now;
        }
        assert!(Instant::now() < deadline, "{now:?}");
        sleep(Duration::from_millis(1));
    }
}

fn nothing_is_left(bench: &Bench, when: &str) {
    assert!(bench.control.model().copies.is_empty(), "{when}");
    let disks = bench.control.disks().unwrap();
    let names: Vec<&str> = disks.iter().map(|disk| disk.name.as_str()).collect();
    assert_eq!(names, ["a"], "{when}");
    assert_eq!(disks[0].state, ServiceState::Serving, "{when}: {:?}", disks[0].reason);
    assert!(!image(bench).exists(), "{when}: the image is left");
    assert!(!FileLease::path_of(&image(bench)).exists(), "{when}: the lease is left");
}

#[test]
fn a_copy_is_a_disk_when_all_is_copied_and_not_before() {
    let bench = bench();
    let begun = begin(&bench).unwrap().now;
    assert_eq!((begun.state, begun.copied.0, begun.waiting), (CopyState::Copying, 4096, 3));
    assert!(begun.instant.is_some());
    let during = bench.control.disk(&name("b")).unwrap();
    assert_eq!(during.state, ServiceState::Starting);
    assert!(!bench.control.live().unwrap().contains_key(&name("b")), "clients can have it");
    // What clients make necessary weighs at the copy as the disk does; nothing is promised there.
    let policy = bench.plane.policy_of_copy("b");
    assert_eq!((policy.shares.get(), policy.reservation), (700, None));
    end(&bench, Outcome::Complete);
    let over = settle(&bench);
    assert_eq!((over.state, over.copied, over.reason), (CopyState::Complete, over.size, None));
    let disk = bench.control.disk(&name("b")).unwrap();
    assert_eq!((disk.state, disk.read_only), (ServiceState::Serving, true));
    assert_eq!(disk.policy.shares.get(), 30);
    let origin = disk.origin.unwrap();
    assert_eq!((origin.disk, origin.at), (name("a"), over.instant.unwrap()));
    // The next daemon knows it, too.
    let bench = bench.restart();
    let disk = bench.control.disk(&name("b")).unwrap();
    assert_eq!((disk.state, disk.origin.unwrap().disk), (ServiceState::Serving, name("a")));
    bench.control.remove_disk(&name("b"), Force::No, ImageFate::Purge).unwrap();
    nothing_is_left(&bench, "removed");
}

#[test]
fn what_the_copying_may_take_is_changed_while_it_is_under_way() {
    let bench = bench();
    let change = |patch: Value| {
        bench.control.change_copy(&name("b"), &serde_json::from_value(patch).unwrap())
    };
    assert!(change(json!({"limit": 5})).is_err(), "there is no copy");
    begin(&bench).unwrap();
    let now = change(json!({"shares": 7, "limit": 5})).unwrap();
    let set = |one: &Copy| (one.shares.get(), one.limit.map(Iops::get), one.limit_bandwidth);
    assert_eq!(set(&now), (7, Some(5), None));
    // What is not named stays, and the data path has what is told.
    let now = change(json!({"limit": null})).unwrap();
    assert_eq!(set(&now), (7, None, None));
    let pace = bench.plane.pace_of_copy("b");
    assert_eq!((pace.shares.get(), pace.limit, pace.limit_bandwidth), (7, None, None));
    // A shard that does not confirm leaves what was.
    bench.plane.break_down("set_copy_pace");
    assert!(change(json!({"shares": 9})).unwrap_err().to_string().contains("set_copy_pace"));
    assert_eq!(bench.control.view_of_copy(&name("b")).unwrap().shares.get(), 7);
    assert_eq!(bench.plane.pace_of_copy("b").shares.get(), 7);
    end(&bench, Outcome::Complete);
    assert_eq!(settle(&bench).shares.get(), 7);
    assert!(change(json!({"shares": 8})).is_err(), "it is a disk");
    let ended = |state| bench.control.copies_ended().into_iter().find(|(s, _)| *s == state);
    assert_eq!(ended(CopyState::Complete), Some((CopyState::Complete, 1)));
    assert_eq!(ended(CopyState::Failed), Some((CopyState::Failed, 0)));
}

#[test]
fn a_copy_that_is_given_up_or_cancelled_leaves_nothing() {
    for reason in [None, Some(Reason::TargetFailed), Some(Reason::SourceNotDurable)] {
        let bench = bench();
        begin(&bench).unwrap();
        let state = match reason {
            Some(reason) => {
                end(&bench, Outcome::GivenUp(reason));
                CopyState::Failed
            }
            None => {
                bench.control.cancel_copy(&name("b")).unwrap();
                CopyState::Cancelled
            }
        };
        let over = settle(&bench);
        assert_eq!((over.state, over.reason), (state, reason.map(|reason| reason.to_string())));
        nothing_is_left(&bench, "given up");
        // The name and the disk are free.
        begin(&bench).unwrap();
    }
}

#[test]
fn every_step_that_fails_undoes_those_before_it() {
    for step in ["create_image", "begin_copy", "open_disk"] {
        let bench = bench();
        bench.plane.break_down(step);
        let begun = begin(&bench);
        if step == "open_disk" {
            begun.unwrap();
            end(&bench, Outcome::Complete);
            assert!(settle(&bench).reason.unwrap().contains(step));
        } else {
            let error = begun.unwrap_err();
            assert!(error.to_string().contains(step), "{error}");
            assert_eq!(settle(&bench).state, CopyState::Failed);
        }
        nothing_is_left(&bench, step);
        bench.plane.repair();
        begin(&bench).unwrap_or_else(|e| panic!("after {step}: {e}"));
    }
}

#[test]
fn a_copy_that_the_data_path_has_lost_is_undone() {
    let bench = bench();
    begin(&bench).unwrap();
    bench.plane.lose_copy("b");
    assert_eq!(settle(&bench).state, CopyState::Failed);
    nothing_is_left(&bench, "lost");
}

#[test]
fn requests_that_do_not_end_keep_no_copy_waiting_for_ever() {
    let bench = bench();
    bench.plane.hold_instants();
    let error = begin(&bench).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.to_string().contains("did not end"), "{error}");
    assert_eq!(settle(&bench).state, CopyState::Cancelled);
    nothing_is_left(&bench, "no instant");
}

#[test]
fn a_disk_that_is_copied_keeps_what_it_is_and_its_copy_is_nobodys() {
    let bench = bench();
    begin(&bench).unwrap();
    let (control, a) = (&bench.control, name("a"));
    let migrate: DiskMigrate = serde_json::from_value(json!({"to": "new"})).unwrap();
    let resize: DiskResize = serde_json::from_value(json!({"size": 16384})).unwrap();
    let refused = [
        control.migrate_disk(&a, migrate.clone()).unwrap_err(),
        control.resize_disk(&a, resize).unwrap_err(),
        control.remove_disk(&a, Force::Yes, ImageFate::Remove).unwrap_err(),
        control.copy_disk(&a, to_new("c")).unwrap_err(),
    ];
    for error in refused {
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        assert!(error.to_string().contains("is being copied to disk 'b'"), "{error}");
        assert!(error.hint().unwrap().contains("--cancel b"));
    }
    assert!(!bench.control.model().disks.contains_key(&name("c")), "a row is left");
    let b = name("b");
    let refused = [
        control.migrate_disk(&b, migrate).unwrap_err(),
        control.resize_disk(&b, resize).unwrap_err(),
        control.remove_disk(&b, Force::Yes, ImageFate::Remove).unwrap_err(),
        control.copy_disk(&b, to_new("c")).unwrap_err(),
    ];
    for error in refused {
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        assert!(error.to_string().contains("is being created"), "{error}");
    }
    let taken = control.copy_disk(&a, to_new("a")).unwrap_err();
    assert!(taken.to_string().contains("'a'"), "{taken}");
    end(&bench, Outcome::Complete);
    settle(&bench);
    control.remove_disk(&a, Force::No, ImageFate::Remove).unwrap();
}

#[test]
fn a_disk_that_moves_is_not_copied() {
    let bench = bench();
    let migrate: DiskMigrate = serde_json::from_value(json!({"to": "new"})).unwrap();
    bench.control.migrate_disk(&name("a"), migrate).unwrap();
    let refused = bench.control.copy_disk(&name("a"), to_new("b")).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict);
    assert!(refused.hint().unwrap().contains("migrate a --cancel"), "{refused}");
    assert!(bench.control.model().copies.is_empty());
    assert!(!bench.control.model().disks.contains_key(&name("b")), "a row is left");
}

#[test]
fn a_copy_without_a_datastore_is_placed_and_one_on_a_server_names_its_export() {
    let bench = bench();
    let server = json!({"name": "far", "backend": {"nbd": "nbd+unix:///?socket=/run/none.sock"}});
    bench.control.add_datastore(serde_json::from_value(server).unwrap()).unwrap();
    let far = request(json!({"name": "b", "datastore": "far"}));
    let error = bench.control.copy_disk(&name("a"), far).unwrap_err();
    assert!(error.to_string().contains("no export of it is named"), "{error}");
    let near = request(json!({"name": "b", "datastore": "new", "export": "e"}));
    let error = bench.control.copy_disk(&name("a"), near).unwrap_err();
    assert!(error.to_string().contains("is no NBD server"), "{error}");
    assert!(bench.control.model().copies.is_empty());
    assert!(!bench.control.model().disks.contains_key(&name("b")), "a row is left");
    let anywhere = request(json!({"name": "b"}));
    let placed = bench.control.copy_disk(&name("a"), anywhere).unwrap().now;
    assert!(["default", "old", "new", "array"].contains(&placed.datastore.as_str()));
}

#[test]
fn a_copy_on_an_export_has_its_size_and_leaves_it_free_when_it_fails() {
    let bench = bench();
    let server = json!({"name": "far", "backend": {"nbd": "nbd+unix:///?socket=/run/none.sock"}});
    bench.control.add_datastore(serde_json::from_value(server).unwrap()).unwrap();
    let big = json!({"name": "big", "size": 1u64 << 30, "datastore": "old"});
    bench.control.create_disk(serde_json::from_value(big).unwrap()).unwrap();
    let far = || request(json!({"name": "b", "datastore": "far", "export": "e"}));
    // The server's exports have a GiB.
    let error = bench.control.copy_disk(&name("a"), far()).unwrap_err();
    assert!(error.to_string().contains("differs from that of export 'e'"), "{error}");
    for step in ["connect", "begin_copy"] {
        bench.plane.break_down(step);
        let error = bench.control.copy_disk(&name("big"), far()).unwrap_err();
        assert!(error.to_string().contains(step), "{error}");
        assert!(!bench.control.model().disks.contains_key(&name("b")), "{step}: a row is left");
        assert!(bench.control.model().copies.is_empty(), "{step}");
        bench.plane.repair();
    }
    bench.control.copy_disk(&name("big"), far()).unwrap();
    let disk = json!({"name": "c", "datastore": "far", "export": "e"});
    let error = bench.control.create_disk(serde_json::from_value(disk).unwrap()).unwrap_err();
    assert!(error.to_string().contains("is disk 'b' already"), "{error}");
    end(&bench, Outcome::Complete);
    assert_eq!(settle(&bench).state, CopyState::Complete);
    let record = bench.control.model().disks[&name("b")].record.clone();
    assert_eq!(record.remote.map(|remote| remote.export).as_deref(), Some("e"));
}

/// The instants of a copy to its end, in their order.
const INSTANTS: [&str; 5] = [
    "storage of a copy made",
    "copy begun",
    "copy complete",
    "what a snapshot knows kept",
    "copy written down",
];

#[test]
fn a_crash_at_any_instant_of_a_copy_leaves_a_whole_one_or_none() {
    for instant in 0..=INSTANTS.len() {
        let bench = bench();
        let killed = killed_after(instant, || {
            begin(&bench).unwrap();
            end(&bench, Outcome::Complete);
            settle(&bench);
        });
        assert_eq!(killed, INSTANTS.get(instant).copied());
        let when = killed.unwrap_or("none");
        // As long as it is, whatever it holds.
        assert_eq!(fs::metadata(image(&bench)).unwrap().len(), 8192, "{when}");
        let bench = Bench::start_again(bench.killed());
        if instant < 4 {
            nothing_is_left(&bench, when);
        } else {
            let disk = bench.control.disk(&name("b")).unwrap();
            assert_eq!(disk.state, ServiceState::Serving, "{when}: {:?}", disk.reason);
            assert!(disk.origin.is_some(), "{when}");
        }
    }
}

/// A catalog that is made anew of what lies beside images must not take half a copy for a disk.
#[test]
fn nothing_beside_a_copy_says_that_it_is_a_disk_until_it_is() {
    let bench = bench();
    begin(&bench).unwrap();
    bench.records.wait(Duration::from_secs(60));
    let record = crate::records::record_path(&image(&bench));
    assert!(!record.exists(), "half a copy is told to be a disk");
    let state = bench.control.model().disks[&name("b")].record.state;
    assert_eq!(state, DiskState::Copying);
    end(&bench, Outcome::Complete);
    settle(&bench);
    bench.records.wait(Duration::from_secs(60));
    assert!(record.exists());
}

#[test]
fn a_clone_has_what_the_disk_has_and_a_copy_what_was_asked_for() {
    let bench = bench();
    let class: headgate_api::classes::ClassPut =
        serde_json::from_value(json!({"policy": {"limit": 900}})).unwrap();
    bench.control.set_class(&name("gold"), class).unwrap();
    let patch = json!({"class": "gold", "vm": "db"});
    bench.control.set_disk(&name("a"), serde_json::from_value(patch).unwrap()).unwrap();
    let made = |copy: &str, body: Value| {
        let mut all = json!({"name": copy, "datastore": "new"});
        all.as_object_mut().unwrap().append(&mut body.as_object().unwrap().clone());
        bench.control.copy_disk(&name("a"), request(all)).unwrap();
        let of = bench.control.disk(&name(copy)).unwrap();
        bench.plane.play_copy(copy, CopyEvent::Ended(Outcome::Complete));
        bench.plane.play_copy(copy, CopyEvent::Released);
        while bench.control.view_of_copy(&name(copy)).unwrap().state != CopyState::Complete {
            sleep(Duration::from_millis(1));
        }
        of
    };
    let clone = made("b", json!({"settings": "source"}));
    assert_eq!(clone.class, Some(name("gold")));
    let set = |p: headgate_model::Policy| {
        (p.shares.get(), p.reservation.map(Iops::get), p.limit.map(Iops::get))
    };
    assert_eq!(set(clone.policy), (700, Some(50), Some(900)));
    assert_eq!((clone.vm, clone.read_only), (None, false));
    // What is said goes before what the disk has; that there is none, too.
    let other = json!({"settings": "source", "policy": {"reservation": null, "shares": 9}});
    assert_eq!(set(made("c", other).policy), (9, None, Some(900)));
    let plain = made("d", json!({"policy": {"shares": 30}}));
    assert_eq!((plain.class, set(plain.policy)), (None, (30, None, None)));
    let new = made("e", json!({"class": "gold", "vm": "test"}));
    assert_eq!((new.class, new.vm), (Some(name("gold")), Some(name("test"))));
    assert_eq!(set(new.policy).2, Some(900));
}

#[test]
fn a_copy_may_be_larger_than_its_disk_and_not_smaller() {
    let bench = bench();
    let with = |size: u64| request(json!({"name": "b", "datastore": "new", "size": size}));
    let small = bench.control.copy_disk(&name("a"), with(4096)).unwrap_err();
    assert_eq!(small.kind(), ErrorKind::Invalid);
    assert!(small.to_string().contains("is less than the 8 KiB"), "{small}");
    let odd = bench.control.copy_disk(&name("a"), with(8193)).unwrap_err();
    assert_eq!(odd.kind(), ErrorKind::Invalid, "{odd}");
    nothing_is_left(&bench, "refused");
    let begun = bench.control.copy_disk(&name("a"), with(65_536)).unwrap().now;
    // What is copied is the disk; what is promised is the copy.
    assert_eq!(begun.size.0, 8192);
    assert_eq!(bench.control.disk(&name("b")).unwrap().size.0, 65_536);
    assert_eq!(image(&bench).metadata().unwrap().len(), 8192);
    end(&bench, Outcome::Complete);
    assert_eq!(settle(&bench).state, CopyState::Complete);
    assert_eq!(image(&bench).metadata().unwrap().len(), 65_536);
    let disk = bench.control.disk(&name("b")).unwrap();
    assert_eq!((disk.size.0, disk.state), (65_536, ServiceState::Serving));
    let bench = bench.restart();
    let disk = bench.control.disk(&name("b")).unwrap();
    assert_eq!((disk.size.0, disk.state), (65_536, ServiceState::Serving));
}

#[test]
fn a_copy_that_cannot_grow_is_undone() {
    let bench = bench();
    bench.plane.break_down("resize_disk");
    let larger = request(json!({"name": "b", "datastore": "new", "size": 65_536}));
    bench.control.copy_disk(&name("a"), larger).unwrap();
    end(&bench, Outcome::Complete);
    let over = settle(&bench);
    assert_eq!(over.state, CopyState::Failed);
    assert!(over.reason.unwrap().contains("resize_disk"));
    nothing_is_left(&bench, "not grown");
}

#[test]
fn a_disk_that_is_copied_to_says_how_far_it_is() {
    let bench = bench();
    begin(&bench).unwrap();
    let filling = bench.control.disk(&name("b")).unwrap().filling.unwrap();
    assert_eq!((filling.source.as_deref(), filling.copied.0), (Some("a"), 4096));
    assert_eq!(bench.control.disk(&name("a")).unwrap().filling, None);
    end(&bench, Outcome::Complete);
    settle(&bench);
    assert_eq!(bench.control.disk(&name("b")).unwrap().filling, None);
}
