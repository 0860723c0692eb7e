mod rows;
mod tags;

use super::{Catalog, CatalogError, Contents, DatastoreRecord, DiskRecord, ExportRecord, VmRecord};
use crate::error::corrupt;
use headgate_model::Name;
use headgate_placement::Rules;
use rows::{RawDatastore, RawDisk, integer, json, layer_texts};
use rusqlite::types::Value;
use rusqlite::{Connection, ErrorCode, OptionalExtension, Transaction, params};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tags::{RawExport, RawVm};

/// One step per schema version: entry `i` leads from version `i` to `i + 1`. Entries are never
/// changed, only added.
const MIGRATIONS: &[&str] = &[
    "
    CREATE TABLE datastores (
        name TEXT PRIMARY KEY NOT NULL,
        backend TEXT NOT NULL,
        scheduler TEXT NOT NULL,
        queue_depth INTEGER NOT NULL,
        capacity TEXT
    ) STRICT;
    CREATE TABLE disks (
        name TEXT PRIMARY KEY NOT NULL,
        datastore TEXT NOT NULL REFERENCES datastores(name),
        vm TEXT,
        size INTEGER NOT NULL,
        state TEXT NOT NULL
    ) STRICT;
    CREATE INDEX disks_by_datastore ON disks(datastore);
    CREATE TABLE policies (
        disk TEXT PRIMARY KEY NOT NULL REFERENCES disks(name) ON DELETE CASCADE,
        reservation INTEGER,
        limit_iops INTEGER,
        limit_bandwidth INTEGER,
        shares INTEGER NOT NULL,
        burst INTEGER NOT NULL
    ) STRICT;
    ",
    "ALTER TABLE datastores ADD COLUMN cost_model TEXT NOT NULL DEFAULT 'affine=300K';",
    "
    CREATE TABLE vms (
        name TEXT PRIMARY KEY NOT NULL,
        max_priority INTEGER NOT NULL,
        default_priority INTEGER NOT NULL,
        priority_scope TEXT NOT NULL,
        nice TEXT NOT NULL,
        ioprio_map TEXT NOT NULL
    ) STRICT;
    CREATE TABLE exports (
        name TEXT PRIMARY KEY NOT NULL,
        disk TEXT NOT NULL REFERENCES disks(name) ON DELETE CASCADE,
        priority INTEGER NOT NULL
    ) STRICT;
    CREATE INDEX exports_by_disk ON exports(disk);
    ",
    "ALTER TABLE datastores ADD COLUMN plug INTEGER NOT NULL DEFAULT 0;",
    "ALTER TABLE datastores ADD COLUMN window_control TEXT;",
    "ALTER TABLE disks ADD COLUMN export TEXT; ALTER TABLE disks ADD COLUMN export_block INTEGER;",
    "
    ALTER TABLE datastores ADD COLUMN placement TEXT;
    ALTER TABLE disks ADD COLUMN placement TEXT;
    CREATE TABLE rules (id INTEGER PRIMARY KEY CHECK (id = 1), document TEXT NOT NULL) STRICT;
    ",
    "ALTER TABLE datastores ADD COLUMN layers TEXT NOT NULL DEFAULT '[]';",
    "ALTER TABLE policies ADD COLUMN limit_mode TEXT NOT NULL DEFAULT 'strict';",
    "
    ALTER TABLE policies ADD COLUMN limit_peak INTEGER;
    ALTER TABLE policies ADD COLUMN limit_peak_bandwidth INTEGER;
    ALTER TABLE policies ADD COLUMN limit_peak_time INTEGER NOT NULL DEFAULT 1;
    ",
    // A policy is one document, as placement is: what a new version adds to it has a default there.
    // The highest bandwidth, 2^63, was stored by its bits.
    "
    ALTER TABLE disks ADD COLUMN policy TEXT NOT NULL DEFAULT '{}';
    UPDATE disks SET policy = (
        SELECT json_object(
            'reservation', reservation, 'limit', limit_iops,
            'limit_bandwidth', CASE WHEN limit_bandwidth < 0
                THEN json('9223372036854775808') ELSE limit_bandwidth END,
            'limit_mode', limit_mode, 'limit_peak', limit_peak,
            'limit_peak_bandwidth', CASE WHEN limit_peak_bandwidth < 0
                THEN json('9223372036854775808') ELSE limit_peak_bandwidth END,
            'limit_peak_time', limit_peak_time, 'shares', shares, 'burst', burst)
        FROM policies WHERE policies.disk = disks.name);
    DROP TABLE policies;
    ",
    "ALTER TABLE vms ADD COLUMN socket_user TEXT; ALTER TABLE vms ADD COLUMN socket_group TEXT;",
];

/// The catalog in one SQLite file: write-ahead log, synchronised at every commit.
pub struct SqliteCatalog {
    connection: Connection,
    path: PathBuf,
}

impl SqliteCatalog {
    /// Opens the catalog, creating or migrating it as needed.
    ///
    /// # Errors
    /// When the file cannot be opened, or a later version wrote it.
    pub fn open(path: &Path) -> Result<SqliteCatalog, CatalogError> {
        let store = |source| CatalogError::Store { path: path.to_owned(), source };
        let connection = Connection::open(path).map_err(store)?;
        connection.busy_timeout(Duration::from_secs(5)).map_err(store)?;
        // Answers the mode in force, which is not WAL on file systems without shared memory; those
        // are correct, slower.
        connection
            .pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))
            .map_err(store)?;
        connection.pragma_update(None, "synchronous", "FULL").map_err(store)?;
        connection.pragma_update(None, "foreign_keys", "ON").map_err(store)?;
        let mut catalog = SqliteCatalog { connection, path: path.to_owned() };
        catalog.migrate(MIGRATIONS)?;
        Ok(catalog)
    }

    /// Brings the schema up to `migrations`, one transaction per step.
    fn migrate(&mut self, migrations: &[&str]) -> Result<(), CatalogError> {
        let known = migrations.len() as i64;
        let found: i64 = self
            .connection
            .query_row("PRAGMA user_version", [], |row| row.get(0))
            .map_err(|source| self.store(source))?;
        if found > known {
            return Err(CatalogError::TooNew { path: self.path.clone(), found, known });
        }
        for (version, sql) in (1i64..).zip(migrations).skip(usize::try_from(found).unwrap_or(0)) {
            self.change(|tx| {
                tx.execute_batch(
                    "CREATE TABLE IF NOT EXISTS migrations (
                        version INTEGER PRIMARY KEY NOT NULL, applied_at TEXT NOT NULL, headgate TEXT NOT NULL) STRICT",
                )?;
                tx.execute_batch(sql)?;
                tx.execute(
                    "INSERT INTO migrations VALUES (?1, datetime('now'), ?2)",
                    params![version, env!("CARGO_PKG_VERSION")],
                )?;
                tx.pragma_update(None, "user_version", version)
            })?;
        }
        Ok(())
    }

    fn store(&self, source: rusqlite::Error) -> CatalogError {
        CatalogError::Store { path: self.path.clone(), source }
    }

    fn change<T>(
        &mut self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, rusqlite::Error>,
    ) -> Result<T, CatalogError> {
        let path = self.path.clone();
        let run = || {
            let tx = self
                .connection
                .transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
            let result = work(&tx)?;
            tx.commit()?;
            Ok(result)
        };
        run().map_err(|source| CatalogError::Store { path, source })
    }
}

fn is_constraint(error: &CatalogError, extended: i32) -> bool {
    matches!(error, CatalogError::Store { source: rusqlite::Error::SqliteFailure(e, _), .. }
        if e.code == ErrorCode::ConstraintViolation && e.extended_code == extended)
}

/// A datastore's columns, in the order of its table.
fn datastore_row(record: &DatastoreRecord) -> [Value; 10] {
    [
        record.name.as_str().to_owned().into(),
        json(&record.backend).into(),
        record.scheduler.as_str().to_owned().into(),
        record.queue_depth.into(),
        record.capacity.as_ref().map(json).into(),
        record.cost_model.to_string().into(),
        record.plug.0.cast_signed().into(),
        json(&record.window).into(),
        json(&record.placement).into(),
        json(&layer_texts(&record.layers)).into(),
    ]
}

/// A disk's columns, in the order of its table.
fn disk_row(record: &DiskRecord) -> [Value; 9] {
    let remote = record.remote.as_ref();
    [
        record.name.as_str().to_owned().into(),
        record.datastore.as_str().to_owned().into(),
        record.vm.as_ref().map(|vm| vm.as_str().to_owned()).into(),
        integer(record.size.0).into(),
        record.state.as_str().to_owned().into(),
        remote.map(|remote| remote.export.clone()).into(),
        remote.map(|remote| remote.block_size).into(),
        json(&record.placement).into(),
        json(&record.policy).into(),
    ]
}

impl Catalog for SqliteCatalog {
    fn load(&mut self) -> Result<Contents, CatalogError> {
        let (datastores, disks, vms, exports, rules) = self.change(|tx| {
            let datastores: Vec<RawDatastore> = tx
                .prepare(
                    "SELECT name, backend, scheduler, queue_depth, capacity, cost_model, plug,
                         window_control, placement, layers FROM datastores
                     ORDER BY name",
                )?
                .query_map([], RawDatastore::read)?
                .collect::<Result<_, _>>()?;
            let disks: Vec<RawDisk> = tx
                .prepare(
                    "SELECT name, datastore, vm, size, state, export, export_block, placement, policy
                     FROM disks ORDER BY name",
                )?
                .query_map([], RawDisk::read)?
                .collect::<Result<_, _>>()?;
            let rules: Option<String> =
                tx.query_row("SELECT document FROM rules", [], |row| row.get(0)).optional()?;
            Ok((datastores, disks, RawVm::read_all(tx)?, RawExport::read_all(tx)?, rules))
        })?;
        Ok(Contents {
            datastores: datastores
                .into_iter()
                .map(RawDatastore::check)
                .collect::<Result<_, _>>()?,
            disks: disks.into_iter().map(RawDisk::check).collect::<Result<_, _>>()?,
            vms: vms.into_iter().map(RawVm::check).collect::<Result<_, _>>()?,
            exports: exports.into_iter().map(RawExport::check).collect::<Result<_, _>>()?,
            rules: rules
                .map(|text| serde_json::from_str(&text).map_err(|e| corrupt("rules", e)))
                .transpose()?
                .unwrap_or_default(),
        })
    }

    fn insert_datastore(&mut self, record: &DatastoreRecord) -> Result<(), CatalogError> {
        let inserted = self.change(|tx| {
            tx.execute(
                "INSERT INTO datastores VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
                datastore_row(record),
            )
        });
        match inserted {
            Err(e) if is_constraint(&e, rusqlite::ffi::SQLITE_CONSTRAINT_PRIMARYKEY) => {
                Err(CatalogError::Exists { kind: "datastore", name: record.name.clone() })
            }
            other => other.map(drop),
        }
    }

    fn update_datastore(&mut self, record: &DatastoreRecord) -> Result<(), CatalogError> {
        let changed = self.change(|tx| {
            tx.execute(
                "UPDATE datastores SET backend = ?2, scheduler = ?3, queue_depth = ?4, capacity = ?5,
                     cost_model = ?6, plug = ?7, window_control = ?8, placement = ?9, layers = ?10
                 WHERE name = ?1",
                datastore_row(record),
            )
        })?;
        if changed == 0 {
            return Err(CatalogError::Missing { kind: "datastore", name: record.name.clone() });
        }
        Ok(())
    }

    fn delete_datastore(&mut self, name: &Name) -> Result<(), CatalogError> {
        let deleted =
            self.change(|tx| tx.execute("DELETE FROM datastores WHERE name = ?1", [name.as_str()]));
        match deleted {
            Err(e) if is_constraint(&e, rusqlite::ffi::SQLITE_CONSTRAINT_FOREIGNKEY) => {
                Err(CatalogError::InUse { name: name.clone() })
            }
            other => other.map(drop),
        }
    }

    fn insert_disk(&mut self, record: &DiskRecord) -> Result<(), CatalogError> {
        let inserted = self.change(|tx| {
            tx.execute(
                "INSERT INTO disks VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
                disk_row(record),
            )
        });
        match inserted {
            Err(e) if is_constraint(&e, rusqlite::ffi::SQLITE_CONSTRAINT_PRIMARYKEY) => {
                Err(CatalogError::Exists { kind: "disk", name: record.name.clone() })
            }
            Err(e) if is_constraint(&e, rusqlite::ffi::SQLITE_CONSTRAINT_FOREIGNKEY) => {
                Err(CatalogError::Missing { kind: "datastore", name: record.datastore.clone() })
            }
            other => other.map(drop),
        }
    }

    fn update_disk(&mut self, record: &DiskRecord) -> Result<(), CatalogError> {
        let changed = self.change(|tx| {
            tx.execute(
                "UPDATE disks SET datastore = ?2, vm = ?3, size = ?4, state = ?5, export = ?6, export_block = ?7,
                     placement = ?8, policy = ?9
                 WHERE name = ?1",
                disk_row(record),
            )
        })?;
        if changed == 0 {
            return Err(CatalogError::Missing { kind: "disk", name: record.name.clone() });
        }
        Ok(())
    }

    fn delete_disk(&mut self, name: &Name) -> Result<(), CatalogError> {
        self.change(|tx| tx.execute("DELETE FROM disks WHERE name = ?1", [name.as_str()])).map(drop)
    }

    fn put_vm(&mut self, record: &VmRecord) -> Result<(), CatalogError> {
        self.change(|tx| tags::put_vm(tx, record)).map(drop)
    }

    fn delete_vm(&mut self, name: &Name) -> Result<(), CatalogError> {
        self.change(|tx| tx.execute("DELETE FROM vms WHERE name = ?1", [name.as_str()])).map(drop)
    }

    fn put_rules(&mut self, rules: &Rules) -> Result<(), CatalogError> {
        self.change(|tx| tx.execute("INSERT OR REPLACE INTO rules VALUES (1, ?1)", [json(rules)]))
            .map(drop)
    }

    fn insert_export(&mut self, record: &ExportRecord) -> Result<(), CatalogError> {
        match self.change(|tx| tags::insert_export(tx, record)) {
            Err(e) if is_constraint(&e, rusqlite::ffi::SQLITE_CONSTRAINT_PRIMARYKEY) => {
                Err(CatalogError::Exists { kind: "export", name: record.name.clone() })
            }
            Err(e) if is_constraint(&e, rusqlite::ffi::SQLITE_CONSTRAINT_FOREIGNKEY) => {
                Err(CatalogError::Missing { kind: "disk", name: record.disk.clone() })
            }
            other => other.map(drop),
        }
    }

    fn update_export(&mut self, record: &ExportRecord) -> Result<(), CatalogError> {
        if self.change(|tx| tags::update_export(tx, record))? == 0 {
            return Err(CatalogError::Missing { kind: "export", name: record.name.clone() });
        }
        Ok(())
    }

    fn delete_export(&mut self, name: &Name) -> Result<(), CatalogError> {
        self.change(|tx| tx.execute("DELETE FROM exports WHERE name = ?1", [name.as_str()]))
            .map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headgate_model::{
        Backend, Capacity, CapacitySource, Confidence, DatastorePlacement, DiskPlacement,
        DiskState, LimitMode, Policy, PriorityRecord, PriorityScope, ReadErrors, RemoteRecord,
        Scheduler, SocketRecord, Threshold, WindowRecord, WriteErrors,
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
            window: WindowRecord {
                threshold: Threshold::Auto,
                max: Some(48),
                ..WindowRecord::unset()
            },
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
        ExportRecord {
            name: name(text),
            disk: name(disk),
            priority: Priority::new(priority).unwrap(),
        }
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
        let remote = RemoteRecord { export: "their name/0".into(), block_size: 4096 };
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
        let error =
            SqliteCatalog::open(&dir.path().join("catalog.sqlite")).err().unwrap().to_string();
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
}
