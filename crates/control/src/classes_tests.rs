use crate::testing::Bench;
use crate::{ControlError, ErrorKind, crash};
use headgate_api::classes::ClassPut;
use headgate_api::types::{Disk, DiskPatch, Force, ImageFate};
use headgate_model::{FieldSource, Name};
use serde_json::{Value, json};

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn class(value: Value) -> ClassPut {
    serde_json::from_value(value).unwrap()
}

/// A class of so much reservation, and disks of it and others on the 1,600-IOPS array.
fn with_gold(disks: &[(&str, Value)], reservation: u64) -> Bench {
    let bench = Bench::new();
    let gold = json!({"policy": {"reservation": reservation}});
    bench.control.set_class(&name("gold"), class(gold)).unwrap();
    for (disk, further) in disks {
        let mut request =
            json!({"name": disk, "size": 1 << 20, "datastore": "array", "class": "gold"});
        request.as_object_mut().unwrap().extend(further.as_object().unwrap().clone());
        bench.control.create_disk(serde_json::from_value(request).unwrap()).unwrap();
    }
    bench
}

fn set(bench: &Bench, disk: &str, patch: Value) -> Result<Disk, ControlError> {
    let patch: DiskPatch = serde_json::from_value(patch).unwrap();
    bench.control.set_disk(&name(disk), patch).map(|changed| changed.now)
}

/// Name, reservation set and in force of each disk.
fn reserved(bench: &Bench) -> Vec<(String, Option<u64>, Option<u64>)> {
    let disks = bench.control.disks().unwrap().into_iter();
    let of = |disk: Disk| {
        let in_force = disk.effective_policy.unwrap().reservation.map(|rate| rate.get());
        (disk.name.to_string(), disk.policy.reservation.map(|rate| rate.get()), in_force)
    };
    disks.map(of).collect()
}

fn all(disks: &[(&str, u64)]) -> Vec<(String, Option<u64>, Option<u64>)> {
    let of = |(name, rate): &(&str, u64)| ((*name).to_owned(), Some(*rate), Some(*rate));
    disks.iter().map(of).collect()
}

#[test]
fn a_class_changes_all_its_disks_and_what_is_set_at_one_stays() {
    let own = json!({"policy": {"reservation": 70}});
    let other = json!({"class": null, "policy": {"reservation": 5}});
    let bench = with_gold(&[("a", json!({})), ("b", own), ("c", other)], 100);
    assert_eq!(reserved(&bench), all(&[("a", 100), ("b", 70), ("c", 5)]));
    let changed = class(json!({"policy": {"reservation": 200, "shares": 7}}));
    let now = bench.control.set_class(&name("gold"), changed).unwrap();
    assert_eq!((now.now.disks, now.now.reserved_iops), (2, 270));
    assert_eq!(reserved(&bench), all(&[("a", 200), ("b", 70), ("c", 5)]));
    let b = bench.control.disk(&name("b")).unwrap();
    let from = |field: &str| b.policy_sources[field];
    assert_eq!(from("reservation"), FieldSource::Disk);
    assert_eq!((from("shares"), from("limit")), (FieldSource::Class, FieldSource::Default));
    // After a restart, too.
    let bench = bench.restart();
    assert_eq!(reserved(&bench), all(&[("a", 200), ("b", 70), ("c", 5)]));
    assert_eq!(bench.control.disk(&name("b")).unwrap().policy.shares.get(), 7);
    // What is its own no more is the class's; a disk of no class keeps its own alone.
    set(&bench, "b", json!({"inherit": ["reservation"]})).unwrap();
    set(&bench, "a", json!({"class": null, "shares": 3})).unwrap();
    let a = bench.control.disk(&name("a")).unwrap();
    assert_eq!((a.policy.reservation, a.policy.shares.get()), (None, 3));
    assert_eq!(bench.control.disk(&name("b")).unwrap().policy.reservation.unwrap().get(), 200);
    let none = set(&bench, "a", json!({"class": "iron"})).unwrap_err();
    assert_eq!(
        (none.to_string(), none.kind()),
        ("there is no class 'iron'".into(), ErrorKind::Missing)
    );
}

/// Nothing is changed by what is refused, in the catalog, the model or the shards.
#[test]
fn a_class_that_does_not_fit_changes_nothing_and_the_error_has_the_figures() {
    let own = json!({"policy": {"limit": 150}});
    let bench = with_gold(&[("a", json!({})), ("b", json!({})), ("c", own)], 100);
    let before = reserved(&bench);
    for (put, words) in [
        (json!({"policy": {"reservation": 600, "limit": 700}}), "disk c: a reservation of 600"),
        (json!({"policy": {"reservation": 100, "limit": 50}}), "class 'gold'"),
        (json!({"policy": {"reservation": 5}, "reservation_per_gb": 5}), "5 for each GiB"),
    ] {
        let error = bench.control.set_class(&name("gold"), class(put)).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
        assert_eq!(reserved(&bench), before);
    }
    set(&bench, "c", json!({"inherit": ["limit"]})).unwrap();
    let put = class(json!({"policy": {"reservation": 600}}));
    let error = bench.control.set_class(&name("gold"), put.clone()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert_eq!(
        error.to_string(),
        "the promises do not fit: datastore 'array' can promise 1600 IOPS, has promised 300, and \
         would have promised 1800: 200 too many, for 'a' (+500), 'b' (+500), 'c' (+500)"
    );
    assert_eq!(reserved(&bench), before);
    let bench = bench.restart();
    assert_eq!(reserved(&bench), before);
    // Each alone fits: they are counted together. By force they are promised all the same.
    let forced = bench.control.set_class(&name("gold"), ClassPut { force: Force::Yes, ..put });
    assert!(forced.unwrap().warnings[0].contains("200 too many"));
    assert_eq!(reserved(&bench), all(&[("a", 600), ("b", 600), ("c", 600)]));
}

#[test]
fn a_shard_that_does_not_confirm_one_disk_leaves_all_as_they_were() {
    let disks = [("a", json!({})), ("b", json!({})), ("c", json!({}))];
    for confirmed in 0..3 {
        let bench = with_gold(&disks, 100);
        bench.plane.break_down_after("set_policy", confirmed);
        let put = class(json!({"policy": {"reservation": 200}}));
        bench.control.set_class(&name("gold"), put).unwrap_err();
        let before = all(&[("a", 100), ("b", 100), ("c", 100)]);
        assert_eq!(reserved(&bench), before, "{confirmed}");
        let bench = bench.restart();
        assert_eq!(reserved(&bench), before, "{confirmed}");
        assert_eq!(bench.control.class(&name("gold")).unwrap().reserved_iops, 300);
    }
}

#[test]
fn a_daemon_that_is_killed_has_changed_all_disks_of_a_class_or_none() {
    let disks = [("a", json!({})), ("b", json!({}))];
    let bench = with_gold(&disks, 100);
    let put = class(json!({"policy": {"reservation": 200}}));
    let killed = crash::testing::killed_after(0, || bench.control.set_class(&name("gold"), put));
    assert_eq!(killed, Some("policies written down"));
    let bench = bench.restart();
    assert_eq!(reserved(&bench), all(&[("a", 200), ("b", 200)]));
    assert_eq!(bench.control.class(&name("gold")).unwrap().reserved_iops, 400);
}

#[test]
fn a_class_that_disks_have_is_removed_by_force_only_and_they_keep_what_they_have() {
    let bench = with_gold(&[("a", json!({})), ("b", json!({"policy": {"shares": 5}}))], 100);
    let error = bench.control.remove_class(&name("gold"), Force::No).unwrap_err();
    assert_eq!(error.to_string(), "2 disk(s) have class 'gold': a, b");
    assert!(error.hint().unwrap().contains("class remove gold --force"));
    bench.control.remove_class(&name("gold"), Force::Yes).unwrap();
    let bench = bench.restart();
    assert_eq!(reserved(&bench), all(&[("a", 100), ("b", 100)]));
    let b = bench.control.disk(&name("b")).unwrap();
    assert_eq!((b.class, b.policy.shares.get()), (None, 5));
    assert_eq!(b.policy_sources["reservation"], FieldSource::Disk);
    assert!(bench.control.classes().is_empty());
    let missing = bench.control.remove_class(&name("gold"), Force::No).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::Missing);
}

#[test]
fn a_disk_that_grows_has_what_its_class_says_of_its_size() {
    const GIB: u64 = 1 << 30;
    let bench = Bench::new();
    let put = class(json!({"reservation_per_gb": 100}));
    bench.control.set_class(&name("silver"), put).unwrap();
    let request = json!({"name": "a", "size": 2 * GIB, "datastore": "array", "class": "silver"});
    bench.control.create_disk(serde_json::from_value(request).unwrap()).unwrap();
    assert_eq!(reserved(&bench), all(&[("a", 200)]));
    let resize = |size: u64| {
        let request = serde_json::from_value(json!({"size": size})).unwrap();
        bench.control.resize_disk(&name("a"), request)
    };
    resize(5 * GIB).unwrap();
    assert_eq!(reserved(&bench), all(&[("a", 500)]));
    let error = resize(17 * GIB).unwrap_err();
    assert!(error.to_string().contains("1700 IOPS does not fit"), "{error}");
    assert_eq!(reserved(&bench), all(&[("a", 500)]));
    let bench = bench.restart();
    assert_eq!(reserved(&bench), all(&[("a", 500)]));
}

#[test]
fn a_disk_that_comes_back_has_its_class_as_it_is_then() {
    let bench = with_gold(&[("a", json!({})), ("b", json!({}))], 100);
    for disk in ["a", "b"] {
        bench.control.remove_disk(&name(disk), Force::No, ImageFate::Remove).unwrap();
    }
    let put = class(json!({"policy": {"reservation": 300}}));
    bench.control.set_class(&name("gold"), put).unwrap();
    bench.control.restore_disk("a", serde_json::from_value(json!({})).unwrap()).unwrap();
    assert_eq!(reserved(&bench), all(&[("a", 300)]));
    bench.control.remove_class(&name("gold"), Force::Yes).unwrap();
    bench.control.restore_disk("b", serde_json::from_value(json!({})).unwrap()).unwrap();
    assert_eq!(reserved(&bench), all(&[("a", 300), ("b", 100)]));
}

#[test]
fn a_class_of_datastores_keeps_its_disks_there() {
    let bench = Bench::new();
    let put = class(json!({"datastore_class": "ssd"}));
    bench.control.set_class(&name("gold"), put).unwrap();
    let request = |further: Value| {
        let mut request = json!({"name": "a", "size": 1 << 20, "class": "gold"});
        request.as_object_mut().unwrap().extend(further.as_object().unwrap().clone());
        bench.control.create_disk(serde_json::from_value(request).unwrap()).map(|made| made.now)
    };
    let error = request(json!({"datastore": "array"})).unwrap_err();
    assert!(error.to_string().contains("are on datastores of class 'ssd'"), "{error}");
    let error = request(json!({})).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    let patch = serde_json::from_value(json!({"placement": {"class": "ssd"}})).unwrap();
    bench.control.set_datastore(&name("array"), patch).unwrap();
    assert_eq!(request(json!({})).unwrap().datastore.as_str(), "array");
    let migrate = serde_json::from_value(json!({"to": "default"})).unwrap();
    let error = bench.control.migrate_disk(&name("a"), migrate).unwrap_err();
    assert!(error.to_string().contains("datastore 'default' has none"), "{error}");
}
