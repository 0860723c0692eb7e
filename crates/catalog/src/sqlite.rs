mod classes;
mod inspect;
mod moves;
mod removed;
mod rows;
mod schema;
mod tags;
#[cfg(test)]
mod tests;

pub(crate) use inspect::copy_into;
pub use inspect::{Inspection, Which, inspect};

use crate::contents::{Catalog, Contents, DiskChange, PolicyChange, RemovedChange};
use crate::error::{CatalogError, corrupt};
use headgate_model::{DatastoreRecord, DiskRecord, ExportRecord, MoveRecord, Name, VmRecord};
use headgate_placement::Rules;
use moves::RawMove;
use removed::RawRemoved;
use rows::{
    RawDatastore, RawDisk, datastore_row, disk_row, forget_if_made, is_constraint_failure, json,
    update_datastore, update_disk,
};
use rusqlite::{Connection, OpenFlags, OptionalExtension, Transaction, params};
use schema::MIGRATIONS;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tags::{RawExport, RawVm};

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
        // The daemon may have no other directory to write to.
        connection.pragma_update(None, "temp_store", "MEMORY").map_err(store)?;
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

    /// Closes the catalog so that all of it is in its one file, without a log beside it.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn into_one_file(self) -> Result<(), CatalogError> {
        let left =
            self.connection.pragma_update_and_check(None, "journal_mode", "DELETE", |_| Ok(()));
        left.map_err(|source| self.store(source))?;
        let SqliteCatalog { connection, path } = self;
        connection.close().map_err(|(_, source)| CatalogError::Store { path, source })
    }

    /// Has a catalog that is open elsewhere, and not being changed, have all of it in its file: the
    /// log beside it is empty then.
    ///
    /// # Errors
    /// When the file cannot be written, or somebody reads it for longer than 5 s.
    pub fn checkpoint(path: &Path) -> Result<(), CatalogError> {
        let store = |source| CatalogError::Store { path: path.to_owned(), source };
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags).map_err(store)?;
        connection.busy_timeout(Duration::from_secs(5)).map_err(store)?;
        let busy: i64 = connection
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))
            .map_err(store)?;
        match busy {
            0 => Ok(()),
            _ => Err(store(rusqlite::Error::SqliteFailure(
                rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY),
                Some("it is in use".to_owned()),
            ))),
        }
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
    matches!(error, CatalogError::Store { source, .. } if is_constraint_failure(source, extended))
}

fn insert_disk(tx: &Transaction<'_>, record: &DiskRecord) -> Result<usize, rusqlite::Error> {
    forget_if_made(tx, record)?;
    tx.execute(
        "INSERT INTO disks VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14,
             ?15, ?16)",
        disk_row(record),
    )
}

/// What an insertion of a disk's row came to.
fn disk_inserted<T>(
    inserted: Result<T, CatalogError>,
    record: &DiskRecord,
) -> Result<(), CatalogError> {
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

fn delete_disk(tx: &Transaction<'_>, name: &Name) -> Result<usize, rusqlite::Error> {
    tx.execute("DELETE FROM disks WHERE name = ?1", [name.as_str()])
}

impl Catalog for SqliteCatalog {
    fn load(&mut self) -> Result<Contents, CatalogError> {
        let (datastores, disks, tags, rules, removed, moves, classes) = self.change(|tx| {
            let datastores: Vec<RawDatastore> = tx
                .prepare(
                    "SELECT name, backend, scheduler, queue_depth, capacity, cost_model, plug,
                         window_control, placement, layers, batch FROM datastores
                     ORDER BY name",
                )?
                .query_map([], RawDatastore::read)?
                .collect::<Result<_, _>>()?;
            let disks: Vec<RawDisk> = tx
                .prepare(
                    "SELECT name, datastore, vm, size, state, export, export_block, placement, policy,
                         writes, origin, stripe, set_by, class, own_policy, applied_by
                     FROM disks ORDER BY name",
                )?
                .query_map([], RawDisk::read)?
                .collect::<Result<_, _>>()?;
            let rules: Option<String> =
                tx.query_row("SELECT document FROM rules", [], |row| row.get(0)).optional()?;
            let (removed, moves) = (RawRemoved::read_all(tx)?, RawMove::read_all(tx)?);
            let tags = (RawVm::read_all(tx)?, RawExport::read_all(tx)?);
            let classes = classes::read_all(tx)?;
            Ok((datastores, disks, tags, rules, removed, moves, classes))
        })?;
        let ((vms, exports), [classes, planned, tenants]) = (tags, classes);
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
            removed: removed.into_iter().map(RawRemoved::check).collect::<Result<_, _>>()?,
            moves: moves.into_iter().map(RawMove::check).collect::<Result<_, _>>()?,
            classes: classes::check("classes", &classes)?,
            planned: classes::check("planned", &planned)?,
            tenants: classes::check("tenants", &tenants)?,
        })
    }

    fn insert_datastore(&mut self, record: &DatastoreRecord) -> Result<(), CatalogError> {
        let inserted = self.change(|tx| {
            tx.execute(
                "INSERT INTO datastores VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
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
        let changed = self.change(|tx| update_datastore(tx, record))?;
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

    fn change_policies(&mut self, change: &PolicyChange) -> Result<(), CatalogError> {
        let mut refused = None;
        let changed = self.change(|tx| match classes::change(tx, change)? {
            Ok(()) => Ok(()),
            Err(why) => {
                refused = Some(why);
                // Nothing is written: the transaction ends with this error.
                Err(rusqlite::Error::QueryReturnedNoRows)
            }
        });
        refused.map_or(changed, Err)
    }

    fn insert_disk(&mut self, record: &DiskRecord) -> Result<(), CatalogError> {
        let inserted = self.change(|tx| insert_disk(tx, record));
        disk_inserted(inserted, record)
    }

    fn update_disk(&mut self, record: &DiskRecord) -> Result<(), CatalogError> {
        if self.change(|tx| update_disk(tx, record))? == 0 {
            return Err(CatalogError::Missing { kind: "disk", name: record.name.clone() });
        }
        Ok(())
    }

    fn delete_disk(&mut self, name: &Name) -> Result<(), CatalogError> {
        self.change(|tx| delete_disk(tx, name)).map(drop)
    }

    fn put_vm(&mut self, record: &VmRecord) -> Result<(), CatalogError> {
        self.change(|tx| tags::put_vm(tx, record)).map(drop)
    }

    fn delete_vm(&mut self, name: &Name) -> Result<(), CatalogError> {
        self.change(|tx| tags::delete_vm(tx, name)).map(drop)
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

    fn change_removed(
        &mut self,
        disk: DiskChange<'_>,
        removed: RemovedChange<'_>,
    ) -> Result<(), CatalogError> {
        let changed = self.change(|tx| {
            let rows = match disk {
                DiskChange::None => 1,
                DiskChange::Insert(record) => insert_disk(tx, record)?,
                DiskChange::Update(record) => update_disk(tx, record)?,
                DiskChange::Delete(name) => delete_disk(tx, name)?.max(1),
            };
            if rows == 0 {
                // Nothing is written: the transaction ends with this error.
                return Err(rusqlite::Error::QueryReturnedNoRows);
            }
            match removed {
                RemovedChange::Put(record) => removed::put(tx, record),
                RemovedChange::Delete(id) => removed::delete(tx, id),
            }
        });
        match (disk, changed) {
            (DiskChange::Insert(record), inserted) => disk_inserted(inserted, record),
            (
                DiskChange::Update(record),
                Err(CatalogError::Store { source: rusqlite::Error::QueryReturnedNoRows, .. }),
            ) => Err(CatalogError::Missing { kind: "disk", name: record.name.clone() }),
            (_, other) => other.map(drop),
        }
    }

    fn put_move(
        &mut self,
        record: &MoveRecord,
        disk: Option<&DiskRecord>,
    ) -> Result<(), CatalogError> {
        let changed = self.change(|tx| {
            if let Some(disk) = disk
                && update_disk(tx, disk)? == 0
            {
                // Nothing is written: the transaction ends with this error.
                return Err(rusqlite::Error::QueryReturnedNoRows);
            }
            moves::put(tx, record)
        });
        match changed {
            Err(CatalogError::Store { source: rusqlite::Error::QueryReturnedNoRows, .. }) => {
                let name = disk.map_or(&record.disk, |disk| &disk.name).clone();
                Err(CatalogError::Missing { kind: "disk", name })
            }
            Err(e) if is_constraint(&e, rusqlite::ffi::SQLITE_CONSTRAINT_FOREIGNKEY) => {
                Err(CatalogError::Missing { kind: "datastore", name: record.target.clone() })
            }
            other => other.map(drop),
        }
    }

    fn find_move(&mut self, disk: &Name) -> Result<Option<MoveRecord>, CatalogError> {
        self.change(|tx| RawMove::find(tx, disk))?.map(RawMove::check).transpose()
    }

    fn delete_move(&mut self, disk: &Name) -> Result<(), CatalogError> {
        self.change(|tx| moves::delete(tx, disk)).map(drop)
    }
}
