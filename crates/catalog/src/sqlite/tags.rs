//! Rows of virtual machines and exports.

use super::rows::{json, word, writes};
use crate::error::{CatalogError, corrupt};
use headgate_model::{ExportRecord, PriorityRecord, PriorityScope, SocketRecord, VmRecord};
use headgate_qos::ioprio::{IoprioMap, Nice};
use headgate_units::Priority;
use rusqlite::{Row, Transaction, params};

/// The words of the catalog and of the command line.
const NICE: [(Nice, &str); 2] = [(Nice::Honoured, "honour"), (Nice::Ignored, "ignore")];

fn priority(value: i64) -> Result<Priority, String> {
    let value = u64::try_from(value).map_err(|_| format!("priority {value}"))?;
    Priority::new(value).map_err(|e| e.to_string())
}

/// A virtual machine's columns as SQLite gives them; the check comes after.
pub(super) struct RawVm {
    name: String,
    max: i64,
    default: i64,
    scope: String,
    nice: String,
    map: String,
    user: Option<String>,
    group: Option<String>,
    promise: String,
}

impl RawVm {
    pub(super) fn read_all(tx: &Transaction<'_>) -> Result<Vec<RawVm>, rusqlite::Error> {
        tx.prepare(
            "SELECT name, max_priority, default_priority, priority_scope, nice, ioprio_map,
                 socket_user, socket_group, promise FROM vms ORDER BY name",
        )?
        .query_map([], |row: &Row<'_>| {
            Ok(RawVm {
                name: row.get(0)?,
                max: row.get(1)?,
                default: row.get(2)?,
                scope: row.get(3)?,
                nice: row.get(4)?,
                map: row.get(5)?,
                user: row.get(6)?,
                group: row.get(7)?,
                promise: row.get(8)?,
            })
        })?
        .collect()
    }

    pub(super) fn check(self) -> Result<VmRecord, CatalogError> {
        let bad = |e: &dyn std::fmt::Display| corrupt("vms", e);
        let scope = PriorityScope::ALL
            .into_iter()
            .find(|scope| scope.as_str() == self.scope)
            .ok_or_else(|| bad(&format_args!("priority scope '{}'", self.scope)))?;
        let (nice, _) = NICE
            .into_iter()
            .find(|(_, word)| *word == self.nice)
            .ok_or_else(|| bad(&format_args!("nice '{}'", self.nice)))?;
        let map: IoprioMap = self.map.parse().map_err(|e| bad(&e))?;
        Ok(VmRecord {
            name: self.name.parse().map_err(|e| bad(&e))?,
            priorities: PriorityRecord {
                max: priority(self.max).map_err(|e| bad(&e))?,
                default: priority(self.default).map_err(|e| bad(&e))?,
                scope,
                map: map.with_nice(nice),
            },
            sockets: SocketRecord { user: self.user, group: self.group },
            promise: serde_json::from_str(&self.promise).map_err(|e| bad(&e))?,
        })
    }
}

pub(super) fn put_vm(tx: &Transaction<'_>, record: &VmRecord) -> Result<usize, rusqlite::Error> {
    let PriorityRecord { max, default, scope, map } = record.priorities;
    let nice =
        NICE.into_iter().find(|(nice, _)| *nice == map.nice()).map_or("honour", |(_, word)| word);
    tx.execute(
        "INSERT OR REPLACE INTO vms VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        params![
            record.name.as_str(),
            max.get(),
            default.get(),
            scope.as_str(),
            nice,
            map.to_string(),
            record.sockets.user,
            record.sockets.group,
            json(&record.promise),
        ],
    )
}

pub(super) fn delete_vm(
    tx: &Transaction<'_>,
    name: &headgate_model::Name,
) -> Result<usize, rusqlite::Error> {
    tx.execute("DELETE FROM vms WHERE name = ?1", [name.as_str()])
}

/// An export's columns as SQLite gives them.
pub(super) struct RawExport {
    name: String,
    disk: String,
    priority: i64,
    writes: String,
}

impl RawExport {
    pub(super) fn read_all(tx: &Transaction<'_>) -> Result<Vec<RawExport>, rusqlite::Error> {
        tx.prepare("SELECT name, disk, priority, writes FROM exports ORDER BY name")?
            .query_map([], |row: &Row<'_>| {
                let (name, disk) = (row.get(0)?, row.get(1)?);
                Ok(RawExport { name, disk, priority: row.get(2)?, writes: row.get(3)? })
            })?
            .collect()
    }

    pub(super) fn check(self) -> Result<ExportRecord, CatalogError> {
        let bad = |e: &dyn std::fmt::Display| corrupt("exports", e);
        Ok(ExportRecord {
            name: self.name.parse().map_err(|e| bad(&e))?,
            disk: self.disk.parse().map_err(|e| bad(&e))?,
            priority: priority(self.priority).map_err(|e| bad(&e))?,
            writes: writes(&self.writes).map_err(|e| bad(&e))?,
        })
    }
}

pub(super) fn insert_export(
    tx: &Transaction<'_>,
    record: &ExportRecord,
) -> Result<usize, rusqlite::Error> {
    tx.execute(
        "INSERT INTO exports (name, disk, priority, writes) VALUES (?1, ?2, ?3, ?4)",
        params![
            record.name.as_str(),
            record.disk.as_str(),
            record.priority.get(),
            word(record.writes)
        ],
    )
}

pub(super) fn update_export(
    tx: &Transaction<'_>,
    record: &ExportRecord,
) -> Result<usize, rusqlite::Error> {
    tx.execute(
        "UPDATE exports SET disk = ?2, priority = ?3, writes = ?4 WHERE name = ?1",
        params![
            record.name.as_str(),
            record.disk.as_str(),
            record.priority.get(),
            word(record.writes)
        ],
    )
}
