//! Rows of classes, of disks that are to be made and of tenants: documents by their names.

use super::rows::{forget_planned, is_constraint_failure, json, update_datastore, update_disk};
use super::tags;
use crate::contents::PolicyChange;
use crate::error::{CatalogError, corrupt};
use headgate_model::Name;
use rusqlite::{Transaction, params};
use serde::de::DeserializeOwned;

type Documents = Vec<String>;

/// The documents of classes, of disks that are to be made, and of tenants.
pub(super) fn read_all(tx: &Transaction<'_>) -> Result<[Documents; 3], rusqlite::Error> {
    let all = |query: &str| -> Result<Documents, rusqlite::Error> {
        tx.prepare(query)?.query_map([], |row| row.get(0))?.collect()
    };
    Ok([
        all("SELECT document FROM classes ORDER BY name")?,
        all("SELECT document FROM planned ORDER BY disk")?,
        all("SELECT document FROM tenants ORDER BY name")?,
    ])
}

pub(super) fn check<T: DeserializeOwned>(
    table: &str,
    documents: &[String],
) -> Result<Vec<T>, CatalogError> {
    documents.iter().map(|text| serde_json::from_str(text).map_err(|e| corrupt(table, e))).collect()
}

/// All of a change. One that cannot be made is answered with why, and nothing of it is kept.
pub(super) fn change(
    tx: &Transaction<'_>,
    change: &PolicyChange,
) -> Result<Result<(), CatalogError>, rusqlite::Error> {
    let missing = |kind, name: &Name| Ok(Err(CatalogError::Missing { kind, name: name.clone() }));
    for class in &change.classes {
        // A class that is replaced keeps its row: disks refer to it.
        tx.execute(
            "INSERT INTO classes VALUES (?1, ?2)
             ON CONFLICT (name) DO UPDATE SET document = excluded.document",
            params![class.name.as_str(), json(class)],
        )?;
    }
    for record in &change.datastores {
        if update_datastore(tx, record)? == 0 {
            return missing("datastore", &record.name);
        }
    }
    for record in &change.disks {
        match update_disk(tx, record) {
            Ok(0) => return missing("disk", &record.name),
            Err(e) if is_foreign(&e) => return Ok(Err(CatalogError::ClassInUse)),
            other => other.map(drop)?,
        }
    }
    for name in &change.gone_classes {
        match tx.execute("DELETE FROM classes WHERE name = ?1", [name.as_str()]) {
            Err(e) if is_foreign(&e) => return Ok(Err(CatalogError::ClassInUse)),
            other => other.map(drop)?,
        }
    }
    for record in &change.planned {
        tx.execute(
            "INSERT OR REPLACE INTO planned VALUES (?1, ?2)",
            params![record.name.as_str(), json(record)],
        )?;
    }
    for name in &change.gone_planned {
        forget_planned(tx, name)?;
    }
    change_groups(tx, change)?;
    Ok(Ok(()))
}

/// What changes of tenants and virtual machines.
fn change_groups(tx: &Transaction<'_>, change: &PolicyChange) -> Result<(), rusqlite::Error> {
    for tenant in &change.tenants {
        tx.execute(
            "INSERT OR REPLACE INTO tenants VALUES (?1, ?2)",
            params![tenant.name.as_str(), json(tenant)],
        )?;
    }
    for name in &change.gone_tenants {
        tx.execute("DELETE FROM tenants WHERE name = ?1", [name.as_str()])?;
    }
    for vm in &change.vms {
        tags::put_vm(tx, vm)?;
    }
    for name in &change.gone_vms {
        tags::delete_vm(tx, name)?;
    }
    Ok(())
}

fn is_foreign(error: &rusqlite::Error) -> bool {
    is_constraint_failure(error, rusqlite::ffi::SQLITE_CONSTRAINT_FOREIGNKEY)
}
