//! Rows of moves.

use super::rows::json;
use crate::error::{CatalogError, corrupt};
use headgate_model::{MoveRecord, MoveStep, Name};
use rusqlite::{Row, Transaction, params};

/// A move's columns as SQLite gives them; the check comes after.
pub(super) struct RawMove {
    disk: String,
    source: String,
    target: String,
    step: String,
    pace: String,
    began: i64,
}

const COLUMNS: &str = "SELECT disk, source, target, step, pace, began FROM moves";

impl RawMove {
    fn read(row: &Row<'_>) -> Result<RawMove, rusqlite::Error> {
        Ok(RawMove {
            disk: row.get(0)?,
            source: row.get(1)?,
            target: row.get(2)?,
            step: row.get(3)?,
            pace: row.get(4)?,
            began: row.get(5)?,
        })
    }

    pub(super) fn read_all(tx: &Transaction<'_>) -> Result<Vec<RawMove>, rusqlite::Error> {
        let sql = format!("{COLUMNS} ORDER BY disk");
        tx.prepare(&sql)?.query_map([], RawMove::read)?.collect()
    }

    pub(super) fn find(
        tx: &Transaction<'_>,
        disk: &Name,
    ) -> Result<Option<RawMove>, rusqlite::Error> {
        let sql = format!("{COLUMNS} WHERE disk = ?1");
        tx.prepare(&sql)?.query_map([disk.as_str()], RawMove::read)?.next().transpose()
    }

    pub(super) fn check(self) -> Result<MoveRecord, CatalogError> {
        let bad = |e: &dyn std::fmt::Display| corrupt("moves", e);
        let step = MoveStep::ALL
            .into_iter()
            .find(|step| step.as_str() == self.step)
            .ok_or_else(|| bad(&format_args!("step '{}'", self.step)))?;
        Ok(MoveRecord {
            disk: self.disk.parse().map_err(|e| bad(&e))?,
            source: self.source.parse().map_err(|e| bad(&e))?,
            target: self.target.parse().map_err(|e| bad(&e))?,
            step,
            pace: serde_json::from_str(&self.pace)
                .map_err(|e| bad(&format_args!("the pace of '{}': {e}", self.disk)))?,
            began: u64::try_from(self.began).map_err(|e| bad(&e))?,
        })
    }
}

pub(super) fn put(tx: &Transaction<'_>, record: &MoveRecord) -> Result<usize, rusqlite::Error> {
    tx.execute(
        "INSERT OR REPLACE INTO moves VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        params![
            record.disk.as_str(),
            record.source.as_str(),
            record.target.as_str(),
            record.step.as_str(),
            json(&record.pace),
            record.began.cast_signed(),
        ],
    )
}

pub(super) fn delete(tx: &Transaction<'_>, disk: &Name) -> Result<usize, rusqlite::Error> {
    tx.execute("DELETE FROM moves WHERE disk = ?1", [disk.as_str()])
}
