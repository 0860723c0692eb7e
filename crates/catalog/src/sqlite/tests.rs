use super::*;
use crate::RecordFile;
use headgate_model::{
    Backend, Capacity, CapacitySource, ClassRecord, Confidence, DatastorePlacement, DiskPlacement,
    DiskSettings, DiskState, GroupPolicy, LimitMode, MovePace, MoveRecord, MoveStep, PlannedRecord,
    Policy, PriorityRecord, PriorityScope, Quota, ReadErrors, RemoteRecord, RemovedId,
    RemovedRecord, RemovedStep, Scheduler, SocketRecord, TenantRecord, Threshold, VmPromise,
    WindowRecord, WriteErrors, Writes,
};
use headgate_placement::{Group, Mobility};
use headgate_qos::CostModel;
use headgate_qos::ioprio::{IoprioMap, Nice};
use headgate_units::{Bytes, BytesPerSec, Iops, Nanos, Priority, Shares};

fn name<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> T {
    text.parse().unwrap()
}

fn datastore(text: &str) -> DatastoreRecord {
    DatastoreRecord {
        name: name(text),
        backend: Backend::Emulated { model: "rate=1600".into(), path: "/x".into() },
        scheduler: Scheduler::Sfq,
        queue_depth: 32,
        capacity: Some(Capacity {
            iops: Iops::new(1600).unwrap(),
            source: CapacitySource::Measured {
                at: 1,
                spread_percent: 3,
                confidence: Confidence::High,
            },
        }),
        cost_model: CostModel::Unit,
        plug: Nanos::from_micros(100),
        batch: Some(name("6,span=512K")),
        window: WindowRecord { threshold: Threshold::Auto, max: Some(48), ..WindowRecord::unset() },
        placement: DatastorePlacement { class: Some(name("fast")), ..Default::default() },
        layers: vec![name("delay=5ms,on=read"), name("trace=100")],
    }
}

fn disk(text: &str, on: &str) -> DiskRecord {
    DiskRecord {
        name: name(text),
        datastore: name(on),
        vm: Some(name("web")),
        size: Bytes::from_gib(1),
        policy: Policy {
            reservation: Some(Iops::new(250).unwrap()),
            limit_bandwidth: Some(BytesPerSec::MAX),
            limit_read: Some(Iops::new(70).unwrap()),
            limit_write_bandwidth: Some(BytesPerSec::new(1 << 30).unwrap()),
            limit_mode: LimitMode::Soft,
            limit_peak: Some(Iops::new(3_000).unwrap()),
            limit_peak_bandwidth: Some(BytesPerSec::new(1 << 40).unwrap()),
            limit_peak_time: 3_600,
            shares: Shares::new(200).unwrap(),
            burst: 256,
            latency_target: "p99.9=1500us".parse().ok(),
            werror: WriteErrors::Stop,
            rerror: ReadErrors::Stop,
            ..Policy::default()
        },
        state: DiskState::Creating,
        remote: None,
        placement: DiskPlacement { mobility: Mobility::Pinned, ..Default::default() },
        writes: if text.ends_with('b') { Writes::Refused } else { Writes::Allowed },
        origin: text
            .ends_with('b')
            .then(|| headgate_model::Origin { disk: name("db0"), at: u64::MAX >> 1 }),
        set: DiskSettings {
            class: None,
            policy: serde_json::from_str(r#"{"limit": null, "shares": 200}"#).unwrap(),
            applied_by: text.ends_with('b').then(|| name("site")),
        },
        set_by: text.ends_with('b').then(|| headgate_model::PolicySource {
            peer: "gw1.example".into(),
            stripe: "0f".repeat(16),
            lease: u64::MAX,
            epoch: 1 << 40,
            servers: 64,
        }),
    }
}

fn strict() -> PriorityRecord {
    PriorityRecord {
        max: Priority::new(8).unwrap(),
        default: Priority::new(3).unwrap(),
        scope: PriorityScope::Across,
        map: "rt0=9,idle=1".parse::<IoprioMap>().unwrap().with_nice(Nice::Ignored),
    }
}

fn vm(text: &str, priorities: PriorityRecord) -> VmRecord {
    VmRecord { priorities, ..VmRecord::unset(name(text)) }
}

fn export(text: &str, disk: &str, priority: u64) -> ExportRecord {
    let priority = Priority::new(priority).unwrap();
    // Some of each.
    let writes = if text.ends_with('x') { Writes::Allowed } else { Writes::Refused };
    ExportRecord { name: name(text), disk: name(disk), priority, writes }
}

fn fresh() -> (tempfile::TempDir, SqliteCatalog) {
    let dir = tempfile::tempdir().unwrap();
    let catalog = SqliteCatalog::open(&dir.path().join("catalog.sqlite")).unwrap();
    (dir, catalog)
}

#[test]
fn what_was_written_is_there_after_a_restart() {
    let (dir, mut catalog) = fresh();
    catalog.insert_datastore(&datastore("ds")).unwrap();
    catalog.insert_disk(&disk("a", "ds")).unwrap();
    let ready = DiskRecord { state: DiskState::Ready, vm: None, ..disk("a", "ds") };
    catalog.update_disk(&ready).unwrap();
    catalog.put_vm(&vm("web", PriorityRecord::unset())).unwrap();
    let sockets = SocketRecord { user: Some("vm7".into()), group: None };
    let web = VmRecord { sockets, ..vm("web", strict()) };
    catalog.put_vm(&web).unwrap();
    let remote = RemoteRecord { export: "their name/0".into(), block_size: 4096, stripe: None };
    let away = DiskRecord { remote: Some(remote), ..disk("b", "ds") };
    catalog.insert_disk(&away).unwrap();
    catalog.update_disk(&away).unwrap();
    catalog.insert_export(&export("a-fast", "a", 200)).unwrap();
    catalog.update_export(&export("a-fast", "a", 201)).unwrap();
    drop(catalog);

    let mut catalog = SqliteCatalog::open(&dir.path().join("catalog.sqlite")).unwrap();
    let rules = Rules {
        anti_affinity: vec![Group { name: "r".into(), disks: vec!["a".into()] }],
        ..Rules::default()
    };
    catalog.put_rules(&Rules::default()).unwrap();
    catalog.put_rules(&rules).unwrap();
    let expected = Contents {
        datastores: vec![datastore("ds")],
        disks: vec![ready, away],
        vms: vec![web],
        exports: vec![export("a-fast", "a", 201)],
        rules,
        ..Contents::default()
    };
    assert_eq!(catalog.load().unwrap(), expected);
}

#[test]
fn an_export_goes_with_its_disk_and_needs_one() {
    let (_dir, mut catalog) = fresh();
    catalog.insert_datastore(&datastore("ds")).unwrap();
    catalog.insert_disk(&disk("a", "ds")).unwrap();
    catalog.insert_export(&export("x", "a", 1)).unwrap();
    let again = catalog.insert_export(&export("x", "a", 1)).unwrap_err();
    assert_eq!(again.to_string(), "export 'x' exists already");
    let nowhere = catalog.insert_export(&export("y", "b", 1)).unwrap_err();
    assert_eq!(nowhere.to_string(), "there is no disk 'b'");
    let missing = catalog.update_export(&export("y", "a", 1)).unwrap_err();
    assert_eq!(missing.to_string(), "there is no export 'y'");
    catalog.delete_disk(&name("a")).unwrap();
    assert_eq!(catalog.load().unwrap().exports, []);
    catalog.delete_export(&name("x")).unwrap();
    catalog.delete_vm(&name("nothing-was-set")).unwrap();
}

#[test]
fn a_taken_name_and_a_missing_datastore_are_told_apart() {
    let (_dir, mut catalog) = fresh();
    catalog.insert_datastore(&datastore("ds")).unwrap();
    catalog.insert_disk(&disk("a", "ds")).unwrap();
    let again = catalog.insert_disk(&disk("a", "ds")).unwrap_err();
    assert_eq!(again.to_string(), "disk 'a' exists already");
    let nowhere = catalog.insert_disk(&disk("b", "elsewhere")).unwrap_err();
    assert_eq!(nowhere.to_string(), "there is no datastore 'elsewhere'");
    let used = catalog.delete_datastore(&name("ds")).unwrap_err();
    assert_eq!(used.to_string(), "datastore 'ds' still has disks");
    let gone = catalog.update_disk(&disk("c", "ds")).unwrap_err();
    assert_eq!(gone.to_string(), "there is no disk 'c'");
}

#[test]
fn a_catalog_of_a_later_version_is_left_alone() {
    let (dir, catalog) = fresh();
    catalog.connection.pragma_update(None, "user_version", 99).unwrap();
    drop(catalog);
    let error = SqliteCatalog::open(&dir.path().join("catalog.sqlite")).err().unwrap().to_string();
    assert!(error.contains("has catalog version 99"), "{error}");
}

#[test]
fn a_migration_that_fails_changes_nothing() {
    let (_dir, mut catalog) = fresh();
    let bad = "CREATE TABLE extra (x INTEGER) STRICT; INSERT INTO nowhere VALUES (1)";
    catalog.migrate(&[MIGRATIONS, &[bad]].concat()).unwrap_err();
    let version: i64 =
        catalog.connection.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
    assert_eq!(version, MIGRATIONS.len() as i64);
    catalog.connection.query_row("SELECT count(*) FROM extra", [], |_| Ok(())).unwrap_err();
}

#[test]
fn datastores_of_the_first_version_are_charged_as_before() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("catalog.sqlite");
    let connection = Connection::open(&path).unwrap();
    connection.execute_batch(MIGRATIONS[0]).unwrap();
    connection.execute_batch("CREATE TABLE migrations (version INTEGER PRIMARY KEY NOT NULL, applied_at TEXT NOT NULL,
        headgate TEXT NOT NULL) STRICT; INSERT INTO migrations VALUES (1, '', ''); PRAGMA user_version = 1;
        INSERT INTO datastores VALUES ('old', '{\"kind\":\"dir\",\"path\":\"/x\"}', 'mclock', 32, NULL)").unwrap();
    connection
        .execute_batch(
            "INSERT INTO disks VALUES ('d', 'old', NULL, 4096, 'ready');
             INSERT INTO policies VALUES ('d', NULL, NULL, NULL, 1000, 1)",
        )
        .unwrap();
    drop(connection);
    let contents = SqliteCatalog::open(&path).unwrap().load().unwrap();
    assert_eq!((contents.disks.len(), &contents.disks[0].remote), (1, &None));
    assert_eq!(contents.datastores[0].cost_model, CostModel::default());
    assert_eq!(contents.datastores[0].plug, Nanos::ZERO);
}

#[test]
fn after_a_checkpoint_the_file_is_whole_without_its_log() {
    let (dir, mut catalog) = fresh();
    catalog.insert_datastore(&datastore("ds")).unwrap();
    let (path, copy) = (catalog.path.clone(), dir.path().join("copy"));
    SqliteCatalog::checkpoint(&path).unwrap();
    std::fs::copy(&path, &copy).unwrap();
    assert_eq!(SqliteCatalog::open(&copy).unwrap().load().unwrap().datastores.len(), 1);
    catalog.insert_datastore(&datastore("later")).unwrap();
    assert_eq!(catalog.load().unwrap().datastores.len(), 2);
}

#[test]
fn commits_are_synchronised_to_storage() {
    let (_dir, catalog) = fresh();
    let synchronous: i64 =
        catalog.connection.query_row("PRAGMA synchronous", [], |row| row.get(0)).unwrap();
    let journal: String =
        catalog.connection.query_row("PRAGMA journal_mode", [], |row| row.get(0)).unwrap();
    assert_eq!((synchronous, journal.as_str()), (2, "wal"));
}

#[test]
fn a_value_that_no_version_writes_is_named() {
    let (_dir, mut catalog) = fresh();
    catalog.insert_datastore(&datastore("ds")).unwrap();
    catalog.connection.execute("UPDATE datastores SET scheduler = 'magic'", []).unwrap();
    let error = catalog.load().unwrap_err().to_string();
    assert!(error.contains("scheduler 'magic'"), "{error}");
    let (_dir, mut catalog) = fresh();
    catalog.put_vm(&vm("web", strict())).unwrap();
    catalog.connection.execute("UPDATE vms SET max_priority = 255", []).unwrap();
    let error = catalog.load().unwrap_err().to_string();
    assert!(error.contains("in vms: a priority must be 1 to 254, not 255"), "{error}");
    let (_dir, mut catalog) = fresh();
    catalog.insert_datastore(&datastore("ds")).unwrap();
    catalog.insert_disk(&disk("a", "ds")).unwrap();
    catalog.connection.execute("UPDATE disks SET policy = '{\"limitt\":1}'", []).unwrap();
    let error = catalog.load().unwrap_err().to_string();
    assert!(error.contains("in disks: the policy of 'a': unknown field `limitt`"), "{error}");
}

fn removed(text: &str, at: u64, step: RemovedStep) -> RemovedRecord {
    let disk = DiskRecord { state: DiskState::Ready, ..disk(text, "ds") };
    let id = RemovedId { name: name(text), at };
    RemovedRecord { id, step, allocated: Bytes(4096), disk }
}

#[test]
fn a_disk_and_a_removed_disk_change_in_one_step_or_not_at_all() {
    let (dir, mut catalog) = fresh();
    catalog.insert_datastore(&datastore("ds")).unwrap();
    catalog.insert_disk(&disk("a", "ds")).unwrap();
    catalog.insert_export(&export("x", "a", 1)).unwrap();
    let moving = removed("a", 7, RemovedStep::Moving);
    let removing = DiskRecord { state: DiskState::Removing, ..disk("a", "ds") };
    let put = RemovedChange::Put(&moving);
    catalog.change_removed(DiskChange::Update(&removing), put).unwrap();
    let kept = RemovedRecord { step: RemovedStep::Kept, ..moving.clone() };
    catalog.change_removed(DiskChange::Delete(&name("a")), RemovedChange::Put(&kept)).unwrap();
    drop(catalog);
    let mut catalog = SqliteCatalog::open(&dir.path().join("catalog.sqlite")).unwrap();
    let now = catalog.load().unwrap();
    assert_eq!((now.disks, now.exports, now.removed), (vec![], vec![], vec![kept.clone()]));
    let used = catalog.delete_datastore(&name("ds")).unwrap_err();
    assert!(matches!(used, CatalogError::InUse { .. }), "{used}");

    // What fails changes neither.
    catalog.insert_disk(&disk("a", "ds")).unwrap();
    let taken = catalog
        .change_removed(DiskChange::Insert(&disk("a", "ds")), RemovedChange::Delete(&kept.id));
    assert_eq!(taken.unwrap_err().to_string(), "disk 'a' exists already");
    let gone = catalog
        .change_removed(DiskChange::Update(&disk("b", "ds")), RemovedChange::Delete(&kept.id));
    assert_eq!(gone.unwrap_err().to_string(), "there is no disk 'b'");
    assert_eq!(catalog.load().unwrap().removed, std::slice::from_ref(&kept));
    catalog.change_removed(DiskChange::None, RemovedChange::Delete(&kept.id)).unwrap();
    catalog.delete_disk(&name("a")).unwrap();
    catalog.delete_datastore(&name("ds")).unwrap();
}

fn moving(text: &str, step: MoveStep) -> MoveRecord {
    let pace = MovePace { limit_bandwidth: BytesPerSec::new(1 << 20).ok(), ..MovePace::default() };
    MoveRecord { disk: name(text), source: name("ds"), target: name("new"), step, pace, began: 7 }
}

#[test]
fn a_disk_and_its_move_change_in_one_step_or_not_at_all() {
    let (dir, mut catalog) = fresh();
    catalog.insert_datastore(&datastore("ds")).unwrap();
    let nowhere = catalog.put_move(&moving("a", MoveStep::Preparing), None).unwrap_err();
    assert_eq!(nowhere.to_string(), "there is no datastore 'new'");
    catalog.insert_datastore(&datastore("new")).unwrap();
    catalog.insert_disk(&disk("a", "ds")).unwrap();
    for step in MoveStep::ALL {
        catalog.put_move(&moving("a", step), None).unwrap();
        assert_eq!(catalog.find_move(&name("a")).unwrap(), Some(moving("a", step)));
    }
    catalog.put_move(&moving("a", MoveStep::Started), None).unwrap();
    let switched = moving("a", MoveStep::Switched);
    // What fails changes neither.
    let gone = catalog.put_move(&switched, Some(&disk("b", "new"))).unwrap_err();
    assert_eq!(gone.to_string(), "there is no disk 'b'");
    assert_eq!(catalog.load().unwrap().moves, [moving("a", MoveStep::Started)]);
    catalog.put_move(&switched, Some(&disk("a", "new"))).unwrap();
    drop(catalog);
    let mut catalog = SqliteCatalog::open(&dir.path().join("catalog.sqlite")).unwrap();
    let now = catalog.load().unwrap();
    assert_eq!((now.disks, now.moves), (vec![disk("a", "new")], vec![switched]));
    // The copy on the old datastore is still to be reclaimed, whatever becomes of the disk.
    catalog.delete_disk(&name("a")).unwrap();
    let used = catalog.delete_datastore(&name("ds")).unwrap_err();
    assert!(matches!(used, CatalogError::InUse { .. }), "{used}");
    catalog.delete_move(&name("a")).unwrap();
    catalog.delete_move(&name("a")).unwrap();
    catalog.delete_datastore(&name("ds")).unwrap();
}

#[test]
fn a_record_file_says_what_the_catalog_says() {
    let policy = Policy { limit: Some(Iops::new(2_000).unwrap()), ..disk("a", "ds").policy };
    let policy = Policy { limit_bandwidth: BytesPerSec::new(1 << 32).ok(), ..policy };
    let ready = DiskRecord { state: DiskState::Ready, policy, ..disk("a", "ds") };
    let remote = RemoteRecord { export: "their name/0".into(), block_size: 4096, stripe: None };
    let rules = Rules {
        anti_affinity: vec![Group { name: "r".into(), disks: vec!["a".into()] }],
        ..Rules::default()
    };
    let sockets = SocketRecord { user: Some("vm7".into()), group: Some("kvm".into()) };
    let contents = Contents {
        datastores: vec![datastore("ds")],
        disks: vec![
            ready.clone(),
            DiskRecord { remote: Some(remote), name: name("b"), ..ready.clone() },
        ],
        vms: vec![
            VmRecord { sockets, promise: of_red(90), ..vm("web", strict()) },
            vm("db", PriorityRecord::unset()),
        ],
        exports: vec![export("a-fast", "a", 200)],
        rules,
        removed: vec![RemovedRecord {
            disk: DiskRecord { name: name("c"), ..ready.clone() },
            ..removed("c", 12, RemovedStep::Kept)
        }],
        moves: vec![moving("a", MoveStep::Switched)],
        classes: vec![class("gold", 300)],
        planned: vec![planned("e")],
        tenants: vec![tenant("red", 600)],
    };
    let file = RecordFile { host: "0123abcd".into(), contents };
    let text = file.to_text();
    assert_eq!(RecordFile::parse(text.as_bytes()).unwrap(), file);
    let later = text.replace("\"headgate_record\": 1", "\"headgate_record\": 2, \"news\": 3");
    let error = RecordFile::parse(later.as_bytes()).unwrap_err().to_string();
    assert!(error.contains("format 2"), "{error}");
    for (from, to) in [
        ("\"shares\": 200", "\"shares\": 0"),
        ("\"queue_depth\": 32", "\"queue_depth\": -1"),
        ("\"name\": \"a\"", "\"name\": \"../a\""),
        ("\"c@12\"", "\"c\""),
        ("\"vm\": \"web\"", "\"vmm\": \"web\""),
        ("0123abcd", "\\u001b[2J"),
        ("\"delay=5ms,on=read\"", "\"delay\""),
        ("\"switched\"", "\"gone\""),
    ] {
        let wrong = text.replacen(from, to, 1);
        assert_ne!(wrong, text, "{from}");
        RecordFile::parse(wrong.as_bytes()).unwrap_err();
    }
    for cut in 0..text.len() - 1 {
        if text.is_char_boundary(cut) {
            RecordFile::parse(text[..cut].trim_end().as_bytes()).unwrap_err();
        }
    }
}

fn class(text: &str, reservation: u64) -> ClassRecord {
    let mut class = ClassRecord::new(name(text));
    class.policy.reservation = headgate_model::Change::Set(Iops::new(reservation).unwrap());
    class.limit_per_gb = Some(Iops::new(9).unwrap());
    class.datastore_class = Some(name("fast"));
    class.applied_by = Some(name("site"));
    class
}

fn planned(text: &str) -> PlannedRecord {
    PlannedRecord {
        name: name(text),
        datastore: name("ds"),
        size: Bytes::from_gib(1),
        vm: Some(name("web")),
        class: Some(name("gold")),
        policy: serde_json::from_str(r#"{"limit": null}"#).unwrap(),
        applied_by: name("site"),
    }
}

fn of_class(text: &str, class: Option<&str>) -> DiskRecord {
    let mut record = disk(text, "ds");
    record.set.class = class.map(name);
    record
}

#[test]
fn policies_change_together_or_not_at_all() {
    let (_dir, mut catalog) = fresh();
    catalog.insert_datastore(&datastore("ds")).unwrap();
    for text in ["a", "b"] {
        catalog.insert_disk(&disk(text, "ds")).unwrap();
    }
    let all = PolicyChange {
        classes: vec![class("gold", 100), class("iron", 5)],
        disks: vec![of_class("a", Some("gold")), of_class("b", Some("gold"))],
        planned: vec![planned("c"), planned("d")],
        ..PolicyChange::default()
    };
    catalog.change_policies(&all).unwrap();
    let before = catalog.load().unwrap();
    assert_eq!(before.classes, all.classes);
    assert_eq!((before.disks.clone(), before.planned.clone()), (all.disks, all.planned));
    // Each of these cannot be made, after a part that can.
    let further = PolicyChange {
        classes: vec![class("gold", 700), class("new", 1)],
        disks: vec![of_class("a", Some("new"))],
        gone_planned: vec![name("c")],
        ..PolicyChange::default()
    };
    let with = |disks: &[DiskRecord]| [&further.disks, disks].concat();
    let (missing, in_use) = ("there is no", "a class of disks is in use");
    for (change, words) in [
        (PolicyChange { disks: with(&[of_class("z", None)]), ..further.clone() }, missing),
        (PolicyChange { disks: with(&[of_class("b", Some("none"))]), ..further.clone() }, in_use),
        (PolicyChange { gone_classes: vec![name("gold")], ..further.clone() }, in_use),
        (PolicyChange { datastores: vec![datastore("none")], ..further.clone() }, missing),
    ] {
        let error = catalog.change_policies(&change).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
        assert_eq!(catalog.load().unwrap(), before);
    }
    let last = PolicyChange {
        disks: vec![of_class("a", None), of_class("b", Some("iron"))],
        gone_classes: vec![name("gold")],
        gone_planned: vec![name("c")],
        datastores: vec![DatastoreRecord { capacity: None, ..datastore("ds") }],
        ..PolicyChange::default()
    };
    catalog.change_policies(&last).unwrap();
    let now = catalog.load().unwrap();
    assert_eq!((now.classes, now.disks), (vec![class("iron", 5)], last.disks));
    assert_eq!((now.planned, now.datastores), (vec![planned("d")], last.datastores));
}

fn tenant(text: &str, reservation: u64) -> TenantRecord {
    let policy = GroupPolicy { reservation: Iops::new(reservation).ok(), ..Default::default() };
    let quota = Quota { max_disks: Some(7), max_space: Some(Bytes(1 << 40)), max_reserved: None };
    TenantRecord { policy, quota, ..TenantRecord::unset(name(text)) }
}

fn of_red(limit: u64) -> VmPromise {
    let policy = GroupPolicy { limit: Iops::new(limit).ok(), ..Default::default() };
    VmPromise { tenant: Some(name("red")), policy, applied_by: None }
}

#[test]
fn tenants_and_what_machines_are_promised_change_with_all_else_or_not_at_all() {
    let (_dir, mut catalog) = fresh();
    let web = VmRecord { promise: of_red(90), ..vm("web", strict()) };
    let both = PolicyChange {
        tenants: vec![tenant("blue", 5), tenant("red", 600)],
        vms: vec![web.clone()],
        ..PolicyChange::default()
    };
    catalog.change_policies(&both).unwrap();
    let before = catalog.load().unwrap();
    assert_eq!((&before.tenants, &before.vms), (&both.tenants, &both.vms));
    // Nothing of it where a disk is not there.
    let refused = PolicyChange {
        tenants: vec![tenant("red", 700)],
        gone_vms: vec![name("web")],
        disks: vec![disk("z", "ds")],
        ..PolicyChange::default()
    };
    assert!(catalog.change_policies(&refused).is_err());
    assert_eq!(catalog.load().unwrap(), before);
    let gone = PolicyChange {
        gone_tenants: vec![name("blue")],
        gone_vms: vec![name("web")],
        tenants: vec![tenant("red", 700)],
        ..PolicyChange::default()
    };
    catalog.change_policies(&gone).unwrap();
    let now = catalog.load().unwrap();
    assert_eq!((now.tenants, now.vms), (vec![tenant("red", 700)], Vec::new()));
}

#[test]
fn a_disk_is_planned_until_it_is_made() {
    let (_dir, mut catalog) = fresh();
    catalog.insert_datastore(&datastore("ds")).unwrap();
    let plans = vec![planned("a"), planned("b")];
    let plan = PolicyChange { planned: plans.clone(), ..PolicyChange::default() };
    catalog.change_policies(&plan).unwrap();
    let creating = DiskRecord { state: DiskState::Creating, ..disk("a", "ds") };
    catalog.insert_disk(&creating).unwrap();
    assert_eq!(catalog.load().unwrap().planned, plans);
    // A creation that was cut.
    catalog.delete_disk(&creating.name).unwrap();
    assert_eq!(catalog.load().unwrap().planned, plans);
    catalog.insert_disk(&creating).unwrap();
    catalog.update_disk(&DiskRecord { state: DiskState::Ready, ..creating }).unwrap();
    assert_eq!(catalog.load().unwrap().planned, [planned("b")]);
}
