//! Rows of datastores and disks.

use crate::error::{CatalogError, corrupt};
use headgate_devices::LayerSpec;
use headgate_model::Name;
use headgate_model::{
    Backend, Capacity, DatastorePlacement, DatastoreRecord, DiskPlacement, DiskRecord, DiskState,
    RemoteRecord, Scheduler, WindowRecord, Writes,
};
use headgate_qos::Batch;
use headgate_units::{Bytes, Nanos};
use rusqlite::Row;

/// SQLite's integers are signed; the upper half of the range goes there and back by its bits.
pub(super) fn integer(value: u64) -> i64 {
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
pub(super) fn layer_texts(layers: &[LayerSpec]) -> Vec<String> {
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
        Ok(DiskRecord {
            name: self.name.parse().map_err(|e| bad(&e))?,
            datastore: self.datastore.parse().map_err(|e| bad(&e))?,
            vm: self.vm.map(|vm| vm.parse::<Name>()).transpose().map_err(|e| bad(&e))?,
            size: Bytes(self.size.cast_unsigned()),
            policy: serde_json::from_str(&self.policy)
                .map_err(|e| bad(&format_args!("the policy of '{}': {e}", self.name)))?,
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
