//! Catalogs that earlier versions left, as dumps of their SQLite files.

use headgate_catalog::{Catalog, Contents, SqliteCatalog};
use headgate_model::{
    Backend, BoardPlace, Capacity, CapacitySource, Confidence, DatastoreRecord, DiskPlacement,
    DiskRecord, DiskSettings, DiskState, ExportRecord, FoundThreshold, LimitMode, Policy,
    PriorityRecord, PriorityScope, RemoteRecord, Scheduler, Threshold, VmRecord, WindowRecord,
    Writes,
};
use headgate_placement::{Affinity, Mobility, Rules, State};
use headgate_qos::CostModel;
use headgate_qos::ioprio::{IoprioMap, Nice};
use headgate_units::{Bytes, BytesPerSec, Iops, Nanos, Priority, Shares};
use rusqlite::Connection;
use std::path::Path;

fn name<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> T {
    text.parse().unwrap()
}

fn datastore(text: &str, backend: Backend) -> DatastoreRecord {
    DatastoreRecord {
        name: name(text),
        backend,
        scheduler: Scheduler::Mclock,
        queue_depth: 128,
        capacity: None,
        cost_model: CostModel::default(),
        plug: Nanos::ZERO,
        batch: None,
        window: WindowRecord::unset(),
        placement: Default::default(),
        layers: Vec::new(),
    }
}

fn emulated(model: &str, path: &str) -> Backend {
    Backend::Emulated { model: format!("{model},depth=1024"), path: path.into() }
}

fn disk(text: &str, on: &str, size: u64) -> DiskRecord {
    DiskRecord {
        name: name(text),
        datastore: name(on),
        vm: None,
        size: Bytes(size),
        policy: Policy::default(),
        state: DiskState::Ready,
        remote: None,
        placement: DiskPlacement::default(),
        writes: Writes::Allowed,
        origin: None,
        set: Default::default(),
        set_by: None,
    }
}

fn datastores() -> Vec<DatastoreRecord> {
    let array = DatastoreRecord {
        queue_depth: 32,
        capacity: Some(Capacity { iops: Iops::new(1500).unwrap(), source: CapacitySource::Set }),
        cost_model: CostModel::Unit,
        window: WindowRecord {
            threshold: Threshold::Fixed(Nanos::from_millis(30)),
            min: 2,
            max: Some(24),
            period: Some(Nanos::from_secs(2)),
            ..WindowRecord::unset()
        },
        ..datastore("array", emulated("rate=1600,latency=5ms", "emulated/array"))
    };
    let arrival = DatastoreRecord {
        scheduler: Scheduler::Fifo,
        cost_model: name("chunks=16K"),
        window: WindowRecord {
            threshold: Threshold::Auto,
            board: BoardPlace::None,
            ..WindowRecord::unset()
        },
        ..datastore("arrival", Backend::Dir { path: "/srv/arrival".into() })
    };
    let files = DatastoreRecord {
        scheduler: Scheduler::Sfq,
        window: WindowRecord { board: BoardPlace::None, ..WindowRecord::unset() },
        ..datastore("files", Backend::Dir { path: "/srv/files".into() })
    };
    let measured = CapacitySource::Measured {
        at: 1_795_368_956,
        spread_percent: 1,
        confidence: Confidence::High,
    };
    let found = FoundThreshold {
        threshold: Nanos(3_319_662),
        peak: 3_971,
        unloaded: Nanos(2_213_108),
        saturated: true,
        at: 1_795_368_944,
    };
    let lab = DatastoreRecord {
        queue_depth: 32,
        capacity: Some(Capacity { iops: Iops::new(3999).unwrap(), source: measured }),
        cost_model: name("affine=64K"),
        plug: Nanos::from_micros(200),
        window: WindowRecord { found: Some(found), ..WindowRecord::unset() },
        ..datastore("lab", emulated("rate=4000,latency=2ms", "emulated/lab"))
    };
    let server = "nbd+unix:///?socket=/var/lib/headgate/nbd.sock".to_owned();
    let mut all = vec![
        array,
        arrival,
        datastore("default", Backend::Dir { path: "default".into() }),
        files,
        lab,
        datastore("server", Backend::Nbd { server, connections: Default::default() }),
    ];
    all[0].placement.class = Some(name("fast"));
    all[0].placement.spindles = Some(name("shelf1"));
    all[3].placement.state = State::Maintenance;
    all
}

fn disks() -> Vec<DiskRecord> {
    let shares = |shares| Shares::new(shares).unwrap();
    let bandwidth = |bytes| Some(BytesPerSec::new(bytes).unwrap());
    let iops = |iops| Some(Iops::new(iops).unwrap());
    let db = DiskRecord {
        vm: Some(name("web")),
        policy: Policy {
            reservation: iops(250),
            limit: iops(1000),
            limit_bandwidth: bandwidth(50 << 20),
            shares: shares(200),
            burst: 8,
            ..Policy::default()
        },
        placement: DiskPlacement {
            class: Some(name("fast")),
            mobility: Mobility::Free,
            affinity: Affinity::Vm,
        },
        ..disk("db", "array", 1 << 20)
    };
    let logs = DiskRecord {
        vm: Some(name("web")),
        policy: Policy { shares: shares(50), burst: 0, ..Policy::default() },
        placement: DiskPlacement {
            class: None,
            mobility: Mobility::Pinned,
            affinity: Affinity::Vm,
        },
        ..disk("logs", "array", 64 << 10)
    };
    let policy = |policy, record| DiskRecord { policy, ..record };
    let remote = RemoteRecord { export: "plain".into(), block_size: 512, stripe: None };
    vec![
        db,
        logs,
        disk("plain", "default", 4096),
        policy(Policy { limit: iops(7), ..Policy::default() }, disk("quick", "lab", 8192)),
        DiskRecord {
            policy: Policy { limit_bandwidth: bandwidth(10 << 20), ..Policy::default() },
            remote: Some(remote),
            ..disk("remote", "server", 4096)
        },
        policy(Policy { shares: shares(4000), ..Policy::default() }, disk("shared", "files", 8192)),
    ]
}

fn vms() -> Vec<VmRecord> {
    let priority = |priority| Priority::new(priority).unwrap();
    let map: IoprioMap = name("be7=20,idle=1");
    let web = PriorityRecord {
        max: priority(200),
        default: priority(90),
        scope: PriorityScope::Across,
        map: map.with_nice(Nice::Ignored),
    };
    vec![
        VmRecord {
            priorities: PriorityRecord { max: priority(10), ..PriorityRecord::unset() },
            ..VmRecord::unset(name("idle"))
        },
        VmRecord { priorities: web, ..VmRecord::unset(name("web")) },
    ]
}

fn rules() -> Rules {
    let text = r#"{"together": [{"name": "pair", "disks": ["db", "logs"]}],
        "apart": [{"name": "sides", "disks": ["db", "plain"]}]}"#;
    let mut rules: Rules = serde_json::from_str(text).unwrap();
    rules.balance.start = serde_json::from_str("120").unwrap();
    rules
}

fn opens_and_holds(schema: u32, datastores: Vec<DatastoreRecord>, disks: Vec<DiskRecord>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("catalog.sqlite");
    let dump = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let dump = dump.join(format!("version-{schema}.sql"));
    let connection = Connection::open(&path).unwrap();
    connection.execute_batch(&std::fs::read_to_string(dump).unwrap()).unwrap();
    drop(connection);
    let backup = ExportRecord {
        name: name("db-backup"),
        disk: name("db"),
        priority: Priority::new(20).unwrap(),
        writes: Writes::Allowed,
    };
    // Nothing was known of whence policies are.
    let set = |disk: DiskRecord| DiskRecord { set: DiskSettings::of(&disk.policy), ..disk };
    let expected = Contents {
        datastores,
        disks: disks.into_iter().map(set).collect(),
        vms: vms(),
        exports: vec![backup],
        rules: rules(),
        removed: Vec::new(),
        moves: Vec::new(),
        ..Contents::default()
    };
    assert_eq!(SqliteCatalog::open(&path).unwrap().load().unwrap(), expected);
}

#[test]
fn a_catalog_of_schema_7_opens_and_holds_what_was_set() {
    opens_and_holds(7, datastores(), disks());
}

fn with_a_layer() -> Vec<DatastoreRecord> {
    let mut datastores = datastores();
    datastores[4].layers = vec![name("delay=5ms,on=read")];
    datastores
}

/// Limits were strict then, and had no peaks.
#[test]
fn a_catalog_of_schema_8_opens_and_holds_what_was_set() {
    opens_and_holds(8, with_a_layer(), disks());
    let db = &disks()[0];
    assert_eq!((db.policy.limit.is_some(), db.policy.limit_mode), (true, LimitMode::Strict));
    assert_eq!((db.policy.limit_peak, db.policy.limit_peak_time), (None, 1));
}

/// The last in which a policy had columns.
#[test]
fn a_catalog_of_schema_10_opens_and_holds_what_was_set() {
    let mut disks = disks();
    disks[0].policy.limit_peak = Iops::new(4_000).ok();
    disks[0].policy.limit_peak_bandwidth = BytesPerSec::new(100 << 20).ok();
    disks[0].policy.limit_peak_time = 60;
    disks[2].policy.limit_bandwidth = Some(BytesPerSec::MAX);
    disks[2].policy.limit_peak_bandwidth = Some(BytesPerSec::MAX);
    disks[3].policy.limit_mode = LimitMode::Soft;
    opens_and_holds(10, with_a_layer(), disks);
}
