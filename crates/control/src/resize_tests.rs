//! Disks that get another size: what is refused, and what a crash leaves.

use crate::crash::testing::killed_after;
use crate::testing::Bench;
use crate::{Control, ControlError, ErrorKind, Service};
use headgate_api::moves::DiskMigrate;
use headgate_api::resize::{DiskResize, Shrink};
use headgate_model::{DiskState, Name};
use headgate_units::Bytes;
use serde_json::json;
use std::fs::{self, File};
use std::path::PathBuf;
use std::time::Duration;

const MIB: u64 = 1 << 20;

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn bench() -> Bench {
    let bench = Bench::new();
    let disk = json!({"name": "a", "size": 4 * MIB, "datastore": "default"});
    bench.control.create_disk(serde_json::from_value(disk).unwrap()).unwrap();
    bench
}

fn image(bench: &Bench) -> PathBuf {
    bench.temp.path().join("default/a.img")
}

fn resize(control: &Control, size: Option<u64>, shrink: Shrink) -> Result<Bytes, ControlError> {
    let request = DiskResize { size: size.map(Bytes), shrink };
    control.resize_disk(&name("a"), request).map(|changed| changed.now.size)
}

/// What is known of the disk: by the model, by the catalog, by its image.
fn sizes(bench: &Bench) -> (u64, u64, u64) {
    let known = bench.control.model().disk(&name("a")).unwrap().record.clone();
    assert_eq!(known.state, DiskState::Ready);
    let row = bench.control.catalog().load().unwrap().disks.remove(0);
    assert_eq!(row.state, DiskState::Ready);
    (known.size.0, row.size.0, fs::metadata(image(bench)).unwrap().len())
}

fn all(size: u64) -> (u64, u64, u64) {
    (size, size, size)
}

#[test]
fn a_disk_grows_and_shrinks_only_when_told() {
    let bench = bench();
    let control = &bench.control;
    bench.plane.connect("a", 1);
    assert_eq!(resize(control, Some(6 * MIB), Shrink::Never).unwrap(), Bytes(6 * MIB));
    assert_eq!(sizes(&bench), all(6 * MIB));
    assert_eq!(resize(control, Some(6 * MIB), Shrink::Never).unwrap(), Bytes(6 * MIB), "again");

    let said = |size, shrink| {
        let error = resize(control, size, shrink).unwrap_err();
        assert_eq!(sizes(&bench), all(6 * MIB), "{error}");
        (error.kind(), format!("{error}; {}", error.hint().or(error.expected()).unwrap()))
    };
    let (kind, text) = said(Some(5 * MIB), Shrink::Never);
    assert_eq!(kind, ErrorKind::Invalid);
    assert_eq!(
        text,
        "5 MiB is less than the 6 MiB that disk 'a' has; a larger size, or --shrink beside it"
    );
    let (kind, text) = said(Some(5 * MIB), Shrink::DiscardData);
    assert_eq!(kind, ErrorKind::Conflict);
    assert!(text.contains("has 1 client(s)") && text.contains("shut the guest down"), "{text}");
    bench.plane.connect("a", 0);
    bench.plane.break_down("data");
    let (kind, text) = said(Some(5 * MIB), Shrink::UnlessData);
    assert_eq!(kind, ErrorKind::Conflict);
    assert!(text.contains("there is data at 5 MiB") && text.contains("--discard-data"), "{text}");
    assert_eq!(resize(control, Some(5 * MIB), Shrink::DiscardData).unwrap(), Bytes(5 * MIB));
    assert_eq!(sizes(&bench), all(5 * MIB));
    bench.plane.repair();
    assert_eq!(resize(control, Some(4 * MIB), Shrink::UnlessData).unwrap(), Bytes(4 * MIB));
    assert_eq!(sizes(&bench), all(4 * MIB));

    assert_eq!(
        resize(control, Some(4 * MIB + 1), Shrink::Never).unwrap_err().kind(),
        ErrorKind::Invalid
    );
    assert_eq!(resize(control, None, Shrink::Never).unwrap_err().kind(), ErrorKind::Invalid);
    let missing = control.resize_disk(&name("b"), DiskResize::default()).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::Missing);
    // It is found so by the next daemon.
    assert_eq!(sizes(&bench.restart()), all(4 * MIB));
}

#[test]
fn what_the_storage_refuses_leaves_the_disk_as_it_was() {
    let bench = bench();
    bench.plane.break_down("resize_disk");
    let error = resize(&bench.control, Some(8 * MIB), Shrink::Never).unwrap_err();
    assert_eq!(error.to_string(), "resize_disk is broken");
    assert_eq!(sizes(&bench), all(4 * MIB));
    bench.plane.repair();
    resize(&bench.control, Some(8 * MIB), Shrink::Never).unwrap();
    assert_eq!(sizes(&bench), all(8 * MIB));
}

#[test]
fn an_image_that_got_its_size_before_something_failed_decides() {
    let bench = bench();
    bench.plane.break_down("resized");
    let error = resize(&bench.control, Some(8 * MIB), Shrink::Never).unwrap_err();
    assert_eq!(error.to_string(), "resized is broken");
    let state = |bench: &Bench| bench.control.model().disk(&name("a")).unwrap().record.state;
    assert_eq!(state(&bench), DiskState::Resizing);
    // The same again finishes it.
    bench.plane.repair();
    resize(&bench.control, Some(8 * MIB), Shrink::Never).unwrap();
    assert_eq!(sizes(&bench), all(8 * MIB));
    // And so does the next start.
    bench.plane.break_down("resized");
    resize(&bench.control, Some(12 * MIB), Shrink::Never).unwrap_err();
    let bench = bench.restart();
    assert_eq!(sizes(&bench), all(12 * MIB));
    assert!(bench.control.disk(&name("a")).unwrap().reason.is_none());
}

#[test]
fn room_is_looked_for_by_what_a_disk_gets_more() {
    let bench = Bench::new();
    let control = &bench.control;
    let drive =
        json!({"name": "drive", "backend": {"emulated": "ssd=8M,op=50%,dies=2,planes=2,block=16"}});
    control.add_datastore(serde_json::from_value(drive).unwrap()).unwrap();
    for disk in ["a", "b"] {
        let disk = json!({"name": disk, "size": 3 * MIB, "datastore": "drive"});
        control.create_disk(serde_json::from_value(disk).unwrap()).unwrap();
    }
    let error = resize(control, Some(5 * MIB + 4096), Shrink::Never).unwrap_err();
    assert!(
        matches!(error, ControlError::NoSpace { left: Bytes(left), .. } if left == 2 * MIB),
        "{error}"
    );
    assert_eq!(resize(control, Some(5 * MIB), Shrink::Never).unwrap(), Bytes(5 * MIB));

    // What may be promised of a file system.
    let tight = json!({"placement": {"overcommit": "1"}});
    control.set_datastore(&name("default"), serde_json::from_value(tight).unwrap()).unwrap();
    let disk = json!({"name": "c", "size": 4 * MIB, "datastore": "default"});
    control.create_disk(serde_json::from_value(disk).unwrap()).unwrap();
    let request = DiskResize { size: Some(Bytes(8 << 40)), shrink: Shrink::Never };
    let error = control.resize_disk(&name("c"), request).unwrap_err();
    assert!(matches!(error, ControlError::Overcommitted { .. }), "{error}");
}

#[test]
fn a_moving_disk_keeps_its_size_and_one_that_gets_another_does_not_move() {
    let bench = bench();
    let control = &bench.control;
    let there = bench.temp.path().join("there");
    fs::create_dir(&there).unwrap();
    let datastore = json!({"name": "there", "backend": {"dir": there}});
    control.add_datastore(serde_json::from_value(datastore).unwrap()).unwrap();
    let migrate = || {
        let request: DiskMigrate = serde_json::from_value(json!({"to": "there"})).unwrap();
        control.migrate_disk(&name("a"), request)
    };
    {
        let mut record = control.model().disk(&name("a")).unwrap().record.clone();
        record.state = DiskState::Resizing;
        control.model_mut().set_record(record.clone());
        let error = migrate().unwrap_err();
        assert!(error.to_string().contains("is being given another size"), "{error}");
        record.state = DiskState::Ready;
        control.model_mut().set_record(record);
    }
    migrate().unwrap();
    let error = resize(control, Some(8 * MIB), Shrink::Never).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.hint().unwrap().contains("--cancel"), "{error}");
    assert_eq!(fs::metadata(image(&bench)).unwrap().len(), 4 * MIB);
}

/// The instants of a change of size, in their order.
const INSTANTS: [&str; 2] = ["resize written down", "image resized"];

#[test]
fn a_crash_at_any_instant_leaves_one_of_the_two_sizes() {
    for (before, after) in [(4 * MIB, 8 * MIB), (4 * MIB, MIB)] {
        for (instant, when) in INSTANTS.iter().enumerate() {
            let bench = bench();
            let killed =
                killed_after(instant, || resize(&bench.control, Some(after), Shrink::DiscardData));
            assert_eq!(killed, Some(*when));
            let bench = Bench::start_again(bench.killed());
            let size = if instant == 0 { before } else { after };
            assert_eq!(sizes(&bench), all(size), "{when}");
            assert!(bench.control.disk(&name("a")).unwrap().reason.is_none(), "{when}");
            // What was asked for can be asked for again.
            resize(&bench.control, Some(after), Shrink::DiscardData).unwrap();
            assert_eq!(sizes(&bench), all(after), "{when}");
        }
    }
}

#[test]
fn a_change_of_the_policy_meanwhile_stays() {
    let bench = bench();
    let killed = killed_after(0, || resize(&bench.control, Some(8 * MIB), Shrink::Never));
    assert_eq!(killed, Some(INSTANTS[0]));
    let shares = serde_json::from_value(json!({"shares": 7})).unwrap();
    bench.control.set_disk(&name("a"), shares).unwrap();
    let bench = Bench::start_again(bench.killed());
    assert_eq!(sizes(&bench), all(4 * MIB));
    assert_eq!(bench.control.disk(&name("a")).unwrap().policy.shares.get(), 7);
}

#[test]
fn a_disk_whose_image_has_another_size_takes_it_when_told() {
    for (size, asked) in [(8 * MIB, Shrink::Never), (MIB, Shrink::UnlessData)] {
        let temp = bench().killed();
        let path = temp.path().join("default/a.img");
        File::options().write(true).open(path).unwrap().set_len(size).unwrap();
        let bench = Bench::start_again(temp);
        let control = &bench.control;
        let disk = control.disk(&name("a")).unwrap();
        assert!(disk.reason.unwrap().contains("the image has"), "not by itself");
        assert_eq!(disk.size, Bytes(4 * MIB));
        let error = resize(control, Some(2 * MIB), asked).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        if asked != Shrink::Never {
            let error = resize(control, None, Shrink::Never).unwrap_err();
            assert!(error.hint().unwrap().contains("--shrink"), "{error}");
        }
        assert_eq!(resize(control, None, asked).unwrap(), Bytes(size));
        assert_eq!(sizes(&bench), all(size));
        assert_eq!(control.model().disk(&name("a")).unwrap().service, Service::Serving);
        bench.records.wait(Duration::from_secs(60));
        assert_eq!(sizes(&bench.restart()), all(size));
    }
}

/// Disks of one tenant on two datastores, of which each has its own worker.
fn of_one_tenant() -> Bench {
    let bench = Bench::new();
    let control = &bench.control;
    let quota = json!({"max_space": 10 * MIB, "max_reserved": 70});
    control.set_tenant(&name("red"), &serde_json::from_value(quota).unwrap()).unwrap();
    let patch = serde_json::from_value(json!({"tenant": "red"})).unwrap();
    control.set_vm(&name("web"), &patch).unwrap();
    for (disk, datastore) in [("a", "default"), ("b", "array")] {
        let disk = json!({"name": disk, "size": 4 * MIB, "datastore": datastore, "vm": "web"});
        control.create_disk(serde_json::from_value(disk).unwrap()).unwrap();
    }
    bench
}

fn grow(control: &Control, disk: &str, size: u64) -> Result<Bytes, ControlError> {
    let request = DiskResize { size: Some(Bytes(size)), shrink: Shrink::Never };
    control.resize_disk(&name(disk), request).map(|changed| changed.now.size)
}

/// What the tenant has.
fn used(bench: &Bench) -> u64 {
    bench.control.tenant(&name("red")).unwrap().usage.size.0
}

#[test]
fn two_that_grow_at_once_do_not_pass_a_quota_together() {
    let bench = of_one_tenant();
    let control = &bench.control;
    let (began, end) = bench.plane.hold_next("resize");
    std::thread::scope(|scope| {
        let first = scope.spawn(|| grow(control, "a", 6 * MIB));
        began.recv().unwrap();
        let second = grow(control, "b", 6 * MIB);
        end.send(()).unwrap();
        assert_eq!(first.join().unwrap().unwrap(), Bytes(6 * MIB));
        let refused = second.unwrap_err().to_string();
        assert!(refused.contains("12 MiB in its disks, and may have 10 MiB"), "{refused}");
    });
    assert_eq!(used(&bench), 10 * MIB);

    // What did not grow in the end counts no more.
    let quota = serde_json::from_value(json!({"max_space": 12 * MIB})).unwrap();
    control.set_tenant(&name("red"), &quota).unwrap();
    bench.plane.break_down("resize_disk");
    grow(control, "b", 6 * MIB).unwrap_err();
    assert_eq!(used(&bench), 10 * MIB);
    bench.plane.repair();
    assert_eq!(grow(control, "a", 8 * MIB).unwrap(), Bytes(8 * MIB));
    assert_eq!(used(&bench), 12 * MIB);
}

/// A class may promise more for each GB.
#[test]
fn what_a_larger_disk_will_be_promised_counts_while_it_grows() {
    let bench = of_one_tenant();
    let control = &bench.control;
    let gold = serde_json::from_value(json!({"reservation_per_gb": 5_000})).unwrap();
    control.set_class(&name("gold"), gold).unwrap();
    for disk in ["a", "b"] {
        let patch = serde_json::from_value(json!({"class": "gold"})).unwrap();
        control.set_disk(&name(disk), patch).unwrap();
    }
    let promised = |disk: &str| bench.plane.policy(disk).reservation.unwrap().get();
    assert_eq!((promised("a"), promised("b")), (20, 20));
    let quota = serde_json::from_value(json!({"max_space": null})).unwrap();
    control.set_tenant(&name("red"), &quota).unwrap();
    let (began, end) = bench.plane.hold_next("resize");
    std::thread::scope(|scope| {
        let first = scope.spawn(|| grow(control, "a", 8 * MIB));
        began.recv().unwrap();
        let second = grow(control, "b", 8 * MIB);
        end.send(()).unwrap();
        first.join().unwrap().unwrap();
        let refused = second.unwrap_err().to_string();
        assert!(refused.contains("80 IOPS reserved, and may have 70 IOPS"), "{refused}");
    });
    assert_eq!((promised("a"), promised("b")), (40, 20));
    bench.plane.break_down("resize_disk");
    grow(control, "b", 5 * MIB).unwrap_err();
    bench.plane.repair();
    assert_eq!((promised("a"), promised("b")), (40, 20));
    assert_eq!(bench.control.tenant(&name("red")).unwrap().usage.reserved_iops, 60);
}
