use super::ErrorKind;
use super::testing::Bench;
use crate::ControlError;
use headgate_api::health::HealthStatus;
use headgate_api::placement::Created;
use headgate_api::types::{Change, Disk, DiskCreate, DiskPatch, Force, ImageFate, ServiceState};
use headgate_catalog::{Catalog, SqliteCatalog};
use headgate_devices::{LayerSpec, ModelSpec};
use headgate_model::{DiskRecord, DiskState};
use headgate_qos::CostModel;
use headgate_units::{Iops, Shares};
use serde_json::json;

fn iops(n: u64) -> Iops {
    Iops::new(n).unwrap()
}

fn create(bench: &Bench, body: serde_json::Value) -> Result<Created<Disk>, ControlError> {
    let mut request = json!({"name": "d", "size": 1 << 20, "datastore": "array"});
    for (key, value) in body.as_object().unwrap() {
        request[key] = value.clone();
    }
    bench.control.create_disk(serde_json::from_value::<DiskCreate>(request).unwrap())
}

fn image(bench: &Bench, disk: &str) -> std::path::PathBuf {
    bench.temp.path().join("emulated/array").join(format!("{disk}.img"))
}

/// Writes a row as a daemon killed in the middle would have left it.
fn leave_row(bench: &Bench, disk: &str, state: DiskState) {
    let mut catalog = SqliteCatalog::open(&bench.temp.path().join("catalog.sqlite")).unwrap();
    let record = DiskRecord {
        name: disk.parse().unwrap(),
        datastore: "array".parse().unwrap(),
        vm: None,
        size: headgate_units::Bytes::from_mib(1),
        policy: headgate_model::Policy::default(),
        state,
        remote: None,
        placement: Default::default(),
        writes: Default::default(),
        origin: None,
        set: Default::default(),
        set_by: None,
    };
    catalog.delete_disk(&record.name).unwrap();
    catalog.insert_disk(&record).unwrap();
}

#[test]
fn disks_are_back_after_a_restart_with_their_policies() {
    let bench = Bench::new();
    create(&bench, json!({"vm": "web", "policy": {"reservation": 250, "shares": 300}})).unwrap();
    let before = bench.control.disks().unwrap();
    let bench = bench.restart();
    assert_eq!(bench.control.disks().unwrap(), before);
    assert_eq!(before[0].effective_policy, Some(before[0].policy));
    assert_eq!(bench.control.health().status, HealthStatus::Ok);
}

#[test]
fn a_creation_cut_before_the_image_was_whole_is_undone() {
    let bench = Bench::new();
    leave_row(&bench, "d", DiskState::Creating);
    let unfinished = image(&bench, ".d").with_extension("img.unfinished");
    std::fs::write(&unfinished, "half").unwrap();
    let bench = bench.restart();
    assert!(bench.control.disks().unwrap().is_empty());
    assert!(!unfinished.exists());
    create(&bench, json!({})).unwrap();
}

#[test]
fn a_creation_cut_after_the_image_was_whole_is_finished() {
    let bench = Bench::new();
    leave_row(&bench, "d", DiskState::Creating);
    std::fs::File::create(image(&bench, "d")).unwrap().set_len(1 << 20).unwrap();
    let bench = bench.restart().restart();
    assert_eq!(bench.control.disks().unwrap()[0].state, ServiceState::Serving);
}

#[test]
fn a_creation_cut_beside_a_foreign_file_leaves_that_file() {
    let bench = Bench::new();
    leave_row(&bench, "d", DiskState::Creating);
    std::fs::write(image(&bench, "d"), "somebody's").unwrap();
    let bench = bench.restart();
    assert!(bench.control.disks().unwrap().is_empty());
    assert_eq!(std::fs::read(image(&bench, "d")).unwrap(), b"somebody's");
}

#[test]
fn a_removal_that_was_cut_is_finished() {
    let bench = Bench::new();
    create(&bench, json!({})).unwrap();
    leave_row(&bench, "d", DiskState::Removing);
    let bench = bench.restart();
    assert!(bench.control.disks().unwrap().is_empty());
    assert!(!image(&bench, "d").exists());
}

#[test]
fn one_bad_disk_does_not_keep_the_others_from_serving() {
    let bench = Bench::new();
    create(&bench, json!({"name": "bad"})).unwrap();
    create(&bench, json!({"name": "good"})).unwrap();
    std::fs::remove_file(image(&bench, "bad")).unwrap();
    let bench = bench.restart();
    let disks = bench.control.disks().unwrap();
    assert_eq!((disks[0].state, disks[1].state), (ServiceState::Failed, ServiceState::Serving));
    assert!(disks[0].reason.as_ref().unwrap().contains("does not exist"), "{:?}", disks[0].reason);
    assert_eq!(bench.control.health().status, HealthStatus::Degraded);
    bench.control.remove_disk(&"bad".parse().unwrap(), Force::No, ImageFate::Remove).unwrap();
    assert_eq!(bench.control.health().status, HealthStatus::Ok);
}

#[test]
fn an_image_that_is_there_already_is_never_replaced() {
    let bench = Bench::new();
    std::fs::write(image(&bench, "d"), "precious").unwrap();
    let error = create(&bench, json!({})).unwrap_err();
    assert!(error.hint().unwrap().contains("move that file away"), "{error}");
    assert_eq!(std::fs::read(image(&bench, "d")).unwrap(), b"precious");
    std::fs::remove_file(image(&bench, "d")).unwrap();
    create(&bench, json!({})).unwrap();
}

#[test]
fn a_creation_that_fails_leaves_nothing_behind() {
    for operation in ["create_image", "open_disk"] {
        let bench = Bench::new();
        bench.plane.break_down(operation);
        create(&bench, json!({})).unwrap_err();
        assert!(!image(&bench, "d").exists(), "{operation}");
        bench.plane.repair();
        create(&bench, json!({})).unwrap();
    }
}

#[test]
fn a_reservation_that_does_not_fit_is_refused_with_the_shortfall() {
    let bench = Bench::new();
    let big = json!({"name": "big", "backend": {"emulated": "rate=9000"}});
    bench.control.add_datastore(serde_json::from_value(big).unwrap()).unwrap();
    create(&bench, json!({"name": "a", "policy": {"reservation": 1500}})).unwrap();
    let error = create(&bench, json!({"name": "b", "policy": {"reservation": 400}})).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert_eq!(
        error.to_string(),
        "a reservation of 400 IOPS does not fit on datastore 'array': 1500 of 1600 IOPS are reserved already, 300 \
         IOPS are missing"
    );
    assert!(error.hint().unwrap().contains("--datastore big, which has room for 9000 IOPS"));

    let forced =
        create(&bench, json!({"name": "b", "policy": {"reservation": 400}, "force": "yes"}))
            .unwrap();
    assert!(forced.now.overbooked);
    assert!(forced.warnings[0].contains("overbooked by 300 IOPS"), "{:?}", forced.warnings);
    assert_eq!(bench.control.datastore(&"array".parse().unwrap()).unwrap().overbooked_iops, 300);
}

/// The parser's sentence says what was expected: a second line would only repeat it.
#[test]
fn a_text_that_does_not_parse_is_reported_once() {
    let bench = Bench::new();
    for (field, text) in [
        ("model", "ratte=5"),
        ("model", "rate=0"),
        ("model", "rate=5,depth=3,depth=4"),
        ("model", "rate=5,speed=3"),
        ("model", "array=2,raid=5"),
        ("model", "ssd=1M"),
        ("layers", "ratte=5"),
        ("layers", "rate=5,speed=3"),
        ("cost_model", "affine=x"),
    ] {
        let mut request = json!({"name": "x", "backend": {"emulated": "rate=5"}});
        let mut said = match field {
            "model" => {
                request["backend"]["emulated"] = json!(text);
                text.parse::<ModelSpec>().unwrap_err().to_string()
            }
            "layers" => {
                request["layers"] = json!([text]);
                text.parse::<LayerSpec>().unwrap_err().to_string()
            }
            _ => {
                request["cost_model"] = json!(text);
                text.parse::<CostModel>().unwrap_err().to_string()
            }
        };
        let error =
            bench.control.add_datastore(serde_json::from_value(request).unwrap()).unwrap_err();
        assert_eq!((error.to_string(), error.expected()), (said.clone(), None));
        assert_eq!(error.kind(), ErrorKind::Invalid);
        // What was wrong comes first, what would fit behind it.
        let expected = said.split_off(said.find("; ").expect("two halves"));
        assert!(expected.len() > 8, "{error}");
    }
}

#[test]
fn stalls_and_layers_lower_what_can_be_promised_and_are_named() {
    let bench = Bench::new();
    let name = "shaky".parse().unwrap();
    let stalls = json!({"name": "shaky", "backend": {"emulated": "rate=2000,stall=1s/5s"}});
    let added = bench.control.add_datastore(serde_json::from_value(stalls).unwrap()).unwrap();
    assert_eq!(added.now.reservable_iops, Some(1600));
    assert!(added.warnings[0].contains("of which stalls leave 1600"), "{:?}", added.warnings);
    let asked = |iops| json!({"datastore": "shaky", "policy": {"reservation": iops}});
    let error = create(&bench, asked(1700)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "a reservation of 1700 IOPS does not fit on datastore 'shaky': 0 of 1600 IOPS are reserved already, 100 \
         IOPS are missing: its device model serves 2000 IOPS, of which stalls leave 1600"
    );
    create(&bench, asked(1600)).unwrap();

    let set = |patch| bench.control.set_datastore(&name, serde_json::from_value(patch).unwrap());
    let slower = set(json!({"layers": ["rate=500"]})).unwrap();
    assert_eq!((slower.now.reservable_iops, slower.now.overbooked_iops), (Some(400), 1200));
    assert!(slower.warnings[0].contains("a layer lets 500 IOPS through"), "{:?}", slower.warnings);
    let again = set(json!({"layers": []})).unwrap();
    assert_eq!((again.now.reservable_iops, again.now.overbooked_iops), (Some(1600), 0));
    let shallow = set(json!({"queue_depth": 1, "layers": ["delay=9900us"]})).unwrap();
    assert_eq!(shallow.now.reservable_iops, Some(80));
    // Nor does a capacity that is set get past a layer.
    let told = set(json!({"capacity": 5000, "layers": ["rate=500"], "queue_depth": 32})).unwrap();
    assert_eq!(
        (told.now.capacity.unwrap().iops.get(), told.now.reservable_iops),
        (5000, Some(500))
    );
    let bench = bench.restart();
    assert_eq!(bench.control.datastore(&name).unwrap().reservable_iops, Some(500));
}

#[test]
fn lowering_a_reservation_is_always_admitted() {
    let bench = Bench::new();
    create(&bench, json!({"policy": {"reservation": 1600}})).unwrap();
    let array = "array".parse().unwrap();
    bench
        .control
        .set_datastore(&array, serde_json::from_value(json!({"capacity": 100})).unwrap())
        .unwrap();
    let lower = DiskPatch { reservation: Change::Set(iops(800)), ..Default::default() };
    let changed = bench.control.set_disk(&"d".parse().unwrap(), lower).unwrap();
    assert_eq!(changed.now.policy.reservation, Some(iops(800)));
}

#[test]
fn an_unknown_capacity_is_accepted_with_a_warning() {
    let bench = Bench::new();
    let created =
        create(&bench, json!({"datastore": "default", "policy": {"reservation": 5}})).unwrap();
    assert!(
        created.warnings[0].contains("headgate datastore calibrate default"),
        "{:?}",
        created.warnings
    );
}

#[test]
fn a_reservation_above_the_limit_is_refused() {
    let bench = Bench::new();
    let error = create(&bench, json!({"policy": {"reservation": 500, "limit": 400}})).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    create(&bench, json!({"policy": {"limit": 400}})).unwrap();
    let patch = DiskPatch { reservation: Change::Set(iops(500)), ..Default::default() };
    let name = "d".parse().unwrap();
    bench.control.set_disk(&name, patch.clone()).unwrap_err();
    bench.control.set_disk(&name, DiskPatch { limit: Change::Remove, ..patch }).unwrap();
}

#[test]
fn a_reservation_above_the_limits_of_reads_and_writes_together_is_refused() {
    let bench = Bench::new();
    let policy =
        |read| json!({"policy": {"reservation": 500, "limit_read": read, "limit_write": 200}});
    let error = create(&bench, policy(299)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    create(&bench, policy(300)).unwrap();
    let name = "d".parse().unwrap();
    let lowered = DiskPatch { limit_write: Change::Set(iops(199)), ..Default::default() };
    bench.control.set_disk(&name, lowered.clone()).unwrap_err();
    let patch = DiskPatch { limit_read: Change::Remove, ..lowered };
    let changed = bench.control.set_disk(&name, patch).unwrap();
    assert_eq!(changed.now.effective_policy.unwrap().limit_write, Some(iops(199)));
    let restarted = bench.restart().control.disk(&name).unwrap().policy;
    assert_eq!((restarted.limit_read, restarted.limit_write), (None, Some(iops(199))));
}

#[test]
fn a_policy_that_the_shard_did_not_take_is_not_remembered() {
    let bench = Bench::new();
    create(&bench, json!({})).unwrap();
    bench.plane.break_down("set_policy");
    let name = "d".parse().unwrap();
    let patch = DiskPatch { shares: Some(Shares::new(7).unwrap()), ..Default::default() };
    bench.control.set_disk(&name, patch).unwrap_err();
    assert_eq!(bench.control.disk(&name).unwrap().policy.shares, Shares::default());
    let bench = bench.restart();
    assert_eq!(bench.control.disk(&name).unwrap().policy.shares, Shares::default());
}

#[test]
fn a_policy_can_be_changed_any_number_of_times() {
    let bench = Bench::new();
    create(&bench, json!({})).unwrap();
    let name = "d".parse().unwrap();
    for n in 1..=100 {
        let patch = DiskPatch { limit: Change::Set(iops(n)), ..Default::default() };
        let changed = bench.control.set_disk(&name, patch).unwrap();
        assert_eq!(changed.now.effective_policy.unwrap().limit, Some(iops(n)));
    }
}

#[test]
fn what_a_scheduler_does_not_enforce_is_said_and_not_shown_as_effective() {
    let bench = Bench::new();
    let sfq = json!({"name": "sfq", "backend": {"emulated": "rate=100"}, "scheduler": "sfq"});
    bench.control.add_datastore(serde_json::from_value(sfq).unwrap()).unwrap();
    let policy = json!({"reservation": 10, "limit": 50, "shares": 5});
    let created = create(&bench, json!({"datastore": "sfq", "policy": policy})).unwrap();
    assert!(
        created.warnings[0].contains("divided by sfq, which enforces shares only"),
        "{:?}",
        created.warnings
    );
    let effective = created.now.effective_policy.unwrap();
    assert_eq!((effective.reservation, effective.limit, effective.shares.get()), (None, None, 5));
}

fn with_drive(bench: &Bench) {
    let drive = "ssd=8M,op=50%,dies=2,planes=2,block=16,isolation=dynamic";
    let flash = json!({"name": "flash", "backend": {"emulated": drive}, "scheduler": "fifo"});
    let added = bench.control.add_datastore(serde_json::from_value(flash).unwrap()).unwrap();
    assert_eq!(added.now.space.map(|space| (space.size.0, space.left.0)), Some((8 << 20, 8 << 20)));
}

#[test]
fn a_drive_takes_as_many_bytes_as_it_has() {
    let bench = Bench::new();
    with_drive(&bench);
    let on = |name: &str, mib: u64| {
        create(&bench, json!({"name": name, "datastore": "flash", "size": mib << 20}))
    };
    on("a", 5).unwrap();
    let error = on("b", 4).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert_eq!(
        error.to_string(),
        "a disk of 4 MiB does not fit on datastore 'flash': 3 MiB of its 8 MiB are left"
    );
    assert_eq!(error.expected().unwrap(), "a size of at most 3145728 bytes");
    assert!(error.hint().is_some());
    let catalog =
        SqliteCatalog::open(&bench.temp.path().join("catalog.sqlite")).unwrap().load().unwrap();
    assert_eq!(catalog.disks.len(), 1, "nothing is left of it");
    on("b", 3).unwrap();
    bench.control.remove_disk(&"a".parse().unwrap(), Force::No, ImageFate::Remove).unwrap();
    on("c", 5).unwrap();
    let bench = bench.restart();
    let space = bench.control.datastore(&"flash".parse().unwrap()).unwrap().space.unwrap();
    assert_eq!(space.left.0, 0);
}

#[test]
fn a_drive_that_divides_by_shares_keeps_them_under_fifo() {
    let bench = Bench::new();
    with_drive(&bench);
    let made = create(&bench, json!({"datastore": "flash", "policy": {"shares": 6000}})).unwrap();
    assert!(!made.warnings.iter().any(|warning| warning.contains("fifo")), "{:?}", made.warnings);
    assert_eq!(made.now.effective_policy.unwrap().shares.get(), 6000);
}

#[test]
fn a_low_limit_is_warned_about() {
    let bench = Bench::new();
    let policy = json!({"limit": 7, "limit_bandwidth": 1_000_000});
    let created = create(&bench, json!({"policy": policy})).unwrap();
    assert_eq!(created.warnings.len(), 2, "{:?}", created.warnings);
}

#[test]
fn a_latency_target_needs_a_reservation_and_a_window_that_gives_way() {
    let bench = Bench::new();
    let target = |reservation: Option<u64>| {
        create(&bench, json!({"policy": {"reservation": reservation, "latency_target": "p99=5ms"}}))
    };
    let error = target(None).unwrap_err();
    assert!(error.to_string().contains("p99=5ms needs a reservation"), "{error}");
    let made = target(Some(10)).unwrap();
    assert!(!made.warnings.iter().any(|w| w.contains("judged and shown")), "{:?}", made.warnings);
    let unreserved = DiskPatch { reservation: Change::Remove, ..Default::default() };
    bench.control.set_disk(&"d".parse().unwrap(), unreserved).unwrap_err();

    for (patch, why) in [
        (json!({"window": {"narrow": "never"}}), "--narrow-window never"),
        (json!({"window": {"latency_threshold": "5ms"}}), "follows its latency threshold"),
    ] {
        let patch = serde_json::from_value(patch).unwrap();
        bench.control.set_datastore(&"array".parse().unwrap(), patch).unwrap();
        let same = DiskPatch { shares: Some(Shares::default()), ..Default::default() };
        let set = bench.control.set_disk(&"d".parse().unwrap(), same).unwrap();
        assert!(set.warnings.iter().any(|w| w.contains(why)), "{:?}", set.warnings);
    }
}

#[test]
fn a_disk_in_use_is_removed_only_by_force() {
    let bench = Bench::new();
    create(&bench, json!({})).unwrap();
    bench.plane.connect("d", 2);
    let name = "d".parse().unwrap();
    let error = bench.control.remove_disk(&name, Force::No, ImageFate::Remove).unwrap_err();
    assert_eq!(error.to_string(), "disk 'd' is in use by 2 client(s)");
    bench.control.remove_disk(&name, Force::Yes, ImageFate::Remove).unwrap();
    assert!(!image(&bench, "d").exists());
}

#[test]
fn a_removal_whose_drain_fails_leaves_the_disk_in_service() {
    let bench = Bench::new();
    create(&bench, json!({})).unwrap();
    bench.plane.break_down("close_disk");
    bench.control.remove_disk(&"d".parse().unwrap(), Force::No, ImageFate::Remove).unwrap_err();
    let bench = bench.restart();
    assert_eq!(bench.control.disks().unwrap()[0].state, ServiceState::Serving);
}

#[test]
fn a_datastore_with_disks_stays() {
    let bench = Bench::new();
    create(&bench, json!({})).unwrap();
    let array = "array".parse().unwrap();
    let error = bench.control.remove_datastore(&array).unwrap_err();
    assert_eq!(error.to_string(), "datastore 'array' still has 1 disk(s): d");
    bench.control.remove_disk(&"d".parse().unwrap(), Force::No, ImageFate::Purge).unwrap();
    bench.control.remove_datastore(&array).unwrap();
    assert!(!bench.temp.path().join("emulated/array").exists());
}

#[test]
fn two_datastores_on_one_directory_are_refused() {
    let bench = Bench::new();
    let dir = bench.temp.path().join("default");
    let again = json!({"name": "again", "backend": {"dir": dir}});
    let error = bench.control.add_datastore(serde_json::from_value(again).unwrap()).unwrap_err();
    assert_eq!(error.to_string(), "datastore 'default' is on that storage already");
    let beside = bench.temp.path().join("beside");
    std::fs::create_dir(&beside).unwrap();
    let beside = json!({"name": "beside", "backend": {"dir": beside}});
    let added = bench.control.add_datastore(serde_json::from_value(beside).unwrap()).unwrap();
    assert!(added.warnings[0].contains("is on the same device"), "{:?}", added.warnings);
}

#[test]
fn sizes_that_no_disk_can_have_are_refused() {
    let bench = Bench::new();
    for size in [json!(0), json!(4095), json!(null)] {
        let error = create(&bench, json!({"size": size})).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{size}");
    }
}

#[test]
fn a_vm_is_the_disks_that_name_it() {
    let bench = Bench::new();
    create(&bench, json!({"name": "a", "vm": "web", "policy": {"reservation": 10}})).unwrap();
    create(&bench, json!({"name": "b", "vm": "web", "policy": {"reservation": 5}})).unwrap();
    create(&bench, json!({"name": "c"})).unwrap();
    let vm = bench.control.vm(&"web".parse().unwrap()).unwrap();
    assert_eq!((vm.disks.len(), vm.reserved_iops, vm.size.0), (2, 15, 2 << 20));
    let error = bench.control.vm(&"db".parse().unwrap()).unwrap_err();
    assert_eq!(error.expected().unwrap(), "one of web");
}

#[test]
fn a_data_path_that_does_not_answer_is_no_health() {
    let bench = Bench::new();
    bench.plane.break_down("sample");
    let health = bench.control.health();
    assert_eq!(health.status, HealthStatus::Failed);
    assert_eq!(health.failed, ["the data path: sample is broken"]);
}

#[test]
fn a_datastore_that_stands_still_is_told_of_and_the_others_are_as_before() {
    let bench = Bench::new();
    create(&bench, json!({"name": "a"})).unwrap();
    let other = json!({"name": "other", "backend": {"memory": 1 << 30}});
    bench.control.add_datastore(serde_json::from_value(other).unwrap()).unwrap();
    create(&bench, json!({"name": "b", "datastore": "other"})).unwrap();
    bench.plane.stall("other");
    let health = bench.control.health();
    assert_eq!(health.status, HealthStatus::Failed);
    assert_eq!(health.failed, ["the data path: shard 0 has not answered for 4 s"]);
    let is_failed = |state, reason: &Option<String>| {
        (state == ServiceState::Failed).then(|| reason.clone().expect("a reason"))
    };
    let disks: Vec<_> =
        bench.control.disks().unwrap().iter().map(|d| is_failed(d.state, &d.reason)).collect();
    assert_eq!(disks, [None, Some("shard 0 has not answered for 4 s".into())]);
    let stores: Vec<_> =
        bench.control.datastores().iter().map(|d| is_failed(d.state, &d.reason)).collect();
    assert_eq!(stores.iter().flatten().count(), 1, "{stores:?}");
    let one = bench.control.disk(&"b".parse().unwrap()).unwrap();
    assert_eq!(one.state, ServiceState::Failed);
}

#[test]
fn an_image_on_storage_that_is_not_there_is_not_forgotten_without_force() {
    let bench = Bench::new();
    let outside = tempfile::tempdir().unwrap();
    let mount = outside.path().join("mount");
    std::fs::create_dir(&mount).unwrap();
    let away = json!({"name": "away", "backend": {"dir": mount}});
    bench.control.add_datastore(serde_json::from_value(away).unwrap()).unwrap();
    create(&bench, json!({"datastore": "away"})).unwrap();
    std::fs::rename(&mount, outside.path().join("unmounted")).unwrap();
    let bench = bench.restart();
    let name = "d".parse().unwrap();
    let error = bench.control.remove_disk(&name, Force::No, ImageFate::Remove).unwrap_err();
    assert!(error.to_string().starts_with("datastore 'away' is not serving"), "{error}");
    std::fs::rename(outside.path().join("unmounted"), &mount).unwrap();
    let bench = bench.restart();
    assert_eq!(bench.control.disk(&name).unwrap().state, ServiceState::Serving);
}
