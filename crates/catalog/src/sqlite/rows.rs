//! Rows of datastores and disks.

use crate::error::{CatalogError, corrupt};
use headgate_devices::LayerSpec;
use headgate_model::Name;
use headgate_model::{
    Backend, Capacity, DatastorePlacement, DatastoreRecord, DiskPlacement, DiskRecord,
    DiskSettings, DiskState, Policy, PolicyPart, RemoteRecord, Scheduler, WindowRecord, Writes,
};
use headgate_qos::Batch;
use headgate_units::{Bytes, Nanos};
use rusqlite::types::Value;
use rusqlite::{ErrorCode, Row, Transaction};

/// SQLite's integers are signed; the upper half of the range goes there and back by its bits.
fn integer(value: u64) -> i64 {
    value.cast_signed()
}

/// A datastore's columns as SQLite gives them; the check comes after.
pub(super) struct RawDatastore {
    name: String,
    backend: String,
    scheduler: String,
    queue_depth: i64,
    capacity: Option<String>,
    cost_model: String,
    plug: i64,
    window: Option<String>,
    placement: Option<String>,
    layers: String,
    batch: Option<String>,
}

/// Layers as their texts.
fn layer_texts(layers: &[LayerSpec]) -> Vec<String> {
    layers.iter().map(LayerSpec::to_string).collect()
}

impl RawDatastore {
    pub(super) fn read(row: &Row<'_>) -> Result<RawDatastore, rusqlite::Error> {
        Ok(RawDatastore {
            name: row.get(0)?,
            backend: row.get(1)?,
            scheduler: row.get(2)?,
            queue_depth: row.get(3)?,
            capacity: row.get(4)?,
            cost_model: row.get(5)?,
            plug: row.get(6)?,
            window: row.get(7)?,
            placement: row.get(8)?,
            layers: row.get(9)?,
            batch: row.get(10)?,
        })
    }

    pub(super) fn check(self) -> Result<DatastoreRecord, CatalogError> {
        let bad = |e: &dyn std::fmt::Display| corrupt("datastores", e);
        let capacity: Option<Capacity> = self
            .capacity
            .map(|text| serde_json::from_str(&text))
            .transpose()
            .map_err(|e| bad(&e))?;
        let window: Option<WindowRecord> =
            self.window.map(|text| serde_json::from_str(&text)).transpose().map_err(|e| bad(&e))?;
        let placement: Option<DatastorePlacement> = self
            .placement
            .map(|text| serde_json::from_str(&text))
            .transpose()
            .map_err(|e| bad(&e))?;
        let backend: Backend = serde_json::from_str(&self.backend).map_err(|e| bad(&e))?;
        let layers: Vec<String> = serde_json::from_str(&self.layers).map_err(|e| bad(&e))?;
        let layers = layers.iter().map(|text| text.parse::<LayerSpec>().map_err(|e| bad(&e)));
        let batch = self.batch.map(|text| text.parse::<Batch>().map_err(|e| bad(&e)));
        let scheduler = [Scheduler::Mclock, Scheduler::Sfq, Scheduler::Fifo]
            .into_iter()
            .find(|s| s.as_str() == self.scheduler)
            .ok_or_else(|| bad(&format_args!("scheduler '{}'", self.scheduler)))?;
        Ok(DatastoreRecord {
            name: self.name.parse().map_err(|e| bad(&e))?,
            backend,
            scheduler,
            queue_depth: u32::try_from(self.queue_depth).map_err(|e| bad(&e))?,
            capacity,
            cost_model: self.cost_model.parse().map_err(|e| bad(&e))?,
            plug: Nanos(u64::try_from(self.plug).map_err(|e| bad(&e))?),
            batch: batch.transpose()?,
            window: window.unwrap_or_else(WindowRecord::unset),
            placement: placement.unwrap_or_default(),
            layers: layers.collect::<Result<_, _>>()?,
        })
    }
}

pub(super) struct RawDisk {
    name: String,
    datastore: String,
    vm: Option<String>,
    size: i64,
    state: String,
    export: Option<String>,
    export_block: Option<i64>,
    placement: Option<String>,
    policy: String,
    writes: String,
    origin: Option<String>,
    stripe: Option<String>,
    set_by: Option<String>,
    class: Option<String>,
    own_policy: Option<String>,
    applied_by: Option<String>,
}

impl RawDisk {
    pub(super) fn read(row: &Row<'_>) -> Result<RawDisk, rusqlite::Error> {
        Ok(RawDisk {
            name: row.get(0)?,
            datastore: row.get(1)?,
            vm: row.get(2)?,
            size: row.get(3)?,
            state: row.get(4)?,
            export: row.get(5)?,
            export_block: row.get(6)?,
            placement: row.get(7)?,
            policy: row.get(8)?,
            writes: row.get(9)?,
            origin: row.get(10)?,
            stripe: row.get(11)?,
            set_by: row.get(12)?,
            class: row.get(13)?,
            own_policy: row.get(14)?,
            applied_by: row.get(15)?,
        })
    }

    pub(super) fn check(self) -> Result<DiskRecord, CatalogError> {
        let bad = |e: &dyn std::fmt::Display| corrupt("disks", e);
        let state = DiskState::ALL
            .into_iter()
            .find(|s| s.as_str() == self.state)
            .ok_or_else(|| bad(&format_args!("state '{}'", self.state)))?;
        let stripe = self.stripe.map(|text| serde_json::from_str(&text));
        let stripe = stripe.transpose().map_err(|e| bad(&e))?;
        let remote = match (self.export, self.export_block) {
            (None, None) if stripe.is_some() => return Err(bad(&"stripes without an export")),
            (None, None) => None,
            (Some(export), Some(block)) => Some(RemoteRecord {
                export,
                block_size: u32::try_from(block).map_err(|e| bad(&e))?,
                stripe,
            }),
            _ => return Err(bad(&"an export without its block size, or the other way round")),
        };
        let placement: Option<DiskPlacement> = self
            .placement
            .map(|text| serde_json::from_str(&text))
            .transpose()
            .map_err(|e| bad(&e))?;
        let policy: Policy = serde_json::from_str(&self.policy)
            .map_err(|e| bad(&format_args!("the policy of '{}': {e}", self.name)))?;
        let own = self.own_policy.map(|text| serde_json::from_str(&text)).transpose();
        let name = |text: Option<String>| text.map(|name| name.parse::<Name>()).transpose();
        let set = DiskSettings {
            class: name(self.class).map_err(|e| bad(&e))?,
            policy: own.map_err(|e| bad(&e))?.unwrap_or_else(|| PolicyPart::of(&policy)),
            applied_by: name(self.applied_by).map_err(|e| bad(&e))?,
        };
        Ok(DiskRecord {
            name: self.name.parse().map_err(|e| bad(&e))?,
            datastore: self.datastore.parse().map_err(|e| bad(&e))?,
            vm: self.vm.map(|vm| vm.parse::<Name>()).transpose().map_err(|e| bad(&e))?,
            size: Bytes(self.size.cast_unsigned()),
            policy,
            set,
            state,
            remote,
            placement: placement.unwrap_or_default(),
            writes: writes(&self.writes).map_err(|e| bad(&e))?,
            origin: self
                .origin
                .map(|text| serde_json::from_str(&text))
                .transpose()
                .map_err(|e| bad(&e))?,
            set_by: self
                .set_by
                .map(|text| serde_json::from_str(&text))
                .transpose()
                .map_err(|e| bad(&e))?,
        })
    }
}

/// A document as a column holds it.
pub(super) fn json<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("records are plain data, and their paths came as text")
}

/// In columns `writes`.
const ALLOWED: &str = "allowed";
const REFUSED: &str = "refused";

pub(super) fn word(writes: Writes) -> &'static str {
    match writes {
        Writes::Allowed => ALLOWED,
        Writes::Refused => REFUSED,
    }
}

pub(super) fn writes(word: &str) -> Result<Writes, String> {
    match word {
        ALLOWED => Ok(Writes::Allowed),
        REFUSED => Ok(Writes::Refused),
        other => Err(format!("writes are '{other}'")),
    }
}

pub(super) fn is_constraint_failure(error: &rusqlite::Error, extended: i32) -> bool {
    matches!(error, rusqlite::Error::SqliteFailure(e, _)
        if e.code == ErrorCode::ConstraintViolation && e.extended_code == extended)
}

pub(super) fn forget_planned(tx: &Transaction<'_>, disk: &Name) -> Result<usize, rusqlite::Error> {
    tx.execute("DELETE FROM planned WHERE disk = ?1", [disk.as_str()])
}

/// A disk that has its content is to be made no more.
pub(super) fn forget_if_made(
    tx: &Transaction<'_>,
    record: &DiskRecord,
) -> Result<(), rusqlite::Error> {
    if record.state.has_image() {
        forget_planned(tx, &record.name)?;
    }
    Ok(())
}

/// A datastore's columns, in the order of its table.
pub(super) fn datastore_row(record: &DatastoreRecord) -> [Value; 11] {
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
        record.batch.map(|batch| batch.to_string()).into(),
    ]
}

/// A disk's columns, in the order of its table.
pub(super) fn disk_row(record: &DiskRecord) -> [Value; 16] {
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
        word(record.writes).to_owned().into(),
        record.origin.as_ref().map(json).into(),
        remote.and_then(|remote| remote.stripe.as_ref()).map(json).into(),
        record.set_by.as_ref().map(json).into(),
        record.set.class.as_ref().map(|class| class.as_str().to_owned()).into(),
        json(&record.set.policy).into(),
        record.set.applied_by.as_ref().map(|set| set.as_str().to_owned()).into(),
    ]
}

pub(super) fn update_datastore(
    tx: &Transaction<'_>,
    record: &DatastoreRecord,
) -> Result<usize, rusqlite::Error> {
    tx.execute(
        "UPDATE datastores SET backend = ?2, scheduler = ?3, queue_depth = ?4, capacity = ?5,
             cost_model = ?6, plug = ?7, window_control = ?8, placement = ?9, layers = ?10,
             batch = ?11
         WHERE name = ?1",
        datastore_row(record),
    )
}

pub(super) fn update_disk(
    tx: &Transaction<'_>,
    record: &DiskRecord,
) -> Result<usize, rusqlite::Error> {
    forget_if_made(tx, record)?;
    tx.execute(
        "UPDATE disks SET datastore = ?2, vm = ?3, size = ?4, state = ?5, export = ?6, export_block = ?7,
             placement = ?8, policy = ?9, writes = ?10, origin = ?11, stripe = ?12,
             set_by = ?13, class = ?14, own_policy = ?15, applied_by = ?16
         WHERE name = ?1",
        disk_row(record),
    )
}
