//! Rows of removed disks.

use crate::error::{CatalogError, corrupt};
use crate::record_file::DiskDocument;
use headgate_model::{RemovedId, RemovedRecord, RemovedStep};
use headgate_units::Bytes;
use rusqlite::{Row, Transaction, params};

/// A removed disk's columns as SQLite gives them; the check comes after.
pub(super) struct RawRemoved {
    id: String,
    step: String,
    allocated: i64,
    datastore: String,
    disk: String,
}

impl RawRemoved {
    pub(super) fn read_all(tx: &Transaction<'_>) -> Result<Vec<RawRemoved>, rusqlite::Error> {
        tx.prepare("SELECT id, step, allocated, datastore, disk FROM removed ORDER BY id")?
            .query_map([], |row: &Row<'_>| {
                Ok(RawRemoved {
                    id: row.get(0)?,
                    step: row.get(1)?,
                    allocated: row.get(2)?,
                    datastore: row.get(3)?,
                    disk: row.get(4)?,
                })
            })?
            .collect()
    }

    pub(super) fn check(self) -> Result<RemovedRecord, CatalogError> {
        let bad = |e: &dyn std::fmt::Display| corrupt("removed", e);
        let id: RemovedId = self.id.parse().map_err(|e| bad(&e))?;
        let step = RemovedStep::ALL
            .into_iter()
            .find(|step| step.as_str() == self.step)
            .ok_or_else(|| bad(&format_args!("step '{}'", self.step)))?;
        let disk: DiskDocument = serde_json::from_str(&self.disk)
            .map_err(|e| bad(&format_args!("the disk of '{id}': {e}")))?;
        let disk = disk.record().map_err(|e| bad(&format_args!("the disk of '{id}': {e}")))?;
        if disk.datastore.as_str() != self.datastore {
            return Err(bad(&format_args!("another disk under '{id}'")));
        }
        Ok(RemovedRecord { id, step, allocated: Bytes(self.allocated.cast_unsigned()), disk })
    }
}

pub(super) fn put(tx: &Transaction<'_>, record: &RemovedRecord) -> Result<usize, rusqlite::Error> {
    let disk = serde_json::to_string(&DiskDocument::of(&record.disk))
        .expect("records are plain data, and their paths came as text");
    tx.execute(
        "INSERT OR REPLACE INTO removed VALUES (?1, ?2, ?3, ?4, ?5)",
        params![
            record.id.to_string(),
            record.step.as_str(),
            record.allocated.0.cast_signed(),
            record.disk.datastore.as_str(),
            disk
        ],
    )
}

pub(super) fn delete(tx: &Transaction<'_>, id: &RemovedId) -> Result<usize, rusqlite::Error> {
    tx.execute("DELETE FROM removed WHERE id = ?1", [id.to_string()])
}
