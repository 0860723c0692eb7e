use super::row::{Row, decode, encode};
use crate::recorder::{StoreInterval, hour_of, with_ends};
use crate::totals::StoreHour;
use headgate_placement::{
    Coarse, DeviceInterval, DeviceModel, DevicePoint, Doubts, Evidence, LeftOut, Permille, Slope,
};
use headgate_units::{Bytes, Nanos};
use rusqlite::{Transaction, params};
use serde::Deserialize;
use std::collections::BTreeMap;

/// The version of the tables and of what is in them.
pub(super) const VERSION: i64 = 4;

/// The tables of version 1.
pub(super) const FIRST: &str = "
    CREATE TABLE disk_intervals (
        disk TEXT NOT NULL, at INTEGER NOT NULL, intervals BLOB NOT NULL, PRIMARY KEY (disk, at)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE datastore_intervals (
        datastore TEXT NOT NULL, at INTEGER NOT NULL, intervals BLOB NOT NULL, PRIMARY KEY (datastore, at)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE disk_hours (
        disk TEXT NOT NULL, hour INTEGER NOT NULL, meter BLOB NOT NULL, PRIMARY KEY (disk, hour)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE models (
        datastore TEXT PRIMARY KEY NOT NULL, at INTEGER NOT NULL, model BLOB NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX disk_intervals_by_time ON disk_intervals(at);
    CREATE INDEX datastore_intervals_by_time ON datastore_intervals(at);
    CREATE INDEX disk_hours_by_time ON disk_hours(hour);
";

/// What version 2 adds. The model of `coarse_models` was learnt before that hour; it may be none.
const SECOND: &str = "
    CREATE TABLE datastore_hours (
        datastore TEXT NOT NULL, hour INTEGER NOT NULL, tally BLOB NOT NULL, PRIMARY KEY (datastore, hour)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE coarse_models (
        datastore TEXT PRIMARY KEY NOT NULL, hour INTEGER NOT NULL, model BLOB NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE moves (
        disk TEXT NOT NULL, at INTEGER NOT NULL, origin TEXT NOT NULL, PRIMARY KEY (disk, at)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE departed (
        disk TEXT PRIMARY KEY NOT NULL, at INTEGER NOT NULL, datastore TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX datastore_hours_by_time ON datastore_hours(hour);
";

/// What version 3 adds. `span` is the length in seconds.
const THIRD: &str = "
    CREATE TABLE accounts (
        disk TEXT NOT NULL, span INTEGER NOT NULL, at INTEGER NOT NULL, account BLOB NOT NULL,
        PRIMARY KEY (disk, span, at)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX accounts_by_time ON accounts(span, at);
";

/// What version 4 adds.
const FOURTH: &str = "
    CREATE TABLE measurements (
        datastore TEXT NOT NULL, at INTEGER NOT NULL, measured BLOB NOT NULL, PRIMARY KEY (datastore, at)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX measurements_by_time ON measurements(at);
";

/// Brings a file of an older version, or an empty one, up to this one.
pub(super) fn bring_up(tx: &Transaction<'_>, found: i64) -> Result<(), rusqlite::Error> {
    if found < 1 {
        tx.execute_batch(FIRST)?;
    }
    if found < 2 {
        tx.execute_batch(SECOND)?;
        keep_more_of_datastores(tx)?;
    }
    if found < 3 {
        tx.execute_batch(THIRD)?;
    }
    if found < 4 {
        tx.execute_batch(FOURTH)?;
    }
    tx.pragma_update(None, "user_version", VERSION)
}

/// A model as version 1 wrote it.
#[derive(Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
pub(super) struct FirstModel {
    pub slope: Slope,
    pub low: u64,
    pub high: u64,
    pub base: i64,
    pub floor: Nanos,
    pub explained: Permille,
    pub points: u32,
    pub evidence: Evidence,
    pub size: Bytes,
    pub random: Permille,
}

/// An interval of a datastore as version 1 wrote it.
pub(super) type FirstInterval = Result<DevicePoint, LeftOut>;

/// From version 1 to 2: intervals say more, models say what they were learnt from, and hours have
/// points. What does not decode goes.
fn keep_more_of_datastores(tx: &Transaction<'_>) -> Result<(), rusqlite::Error> {
    let mut rows = tx.prepare("SELECT datastore, at, intervals FROM datastore_intervals")?;
    let read: Vec<(String, i64, Vec<u8>)> = rows
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
        .collect::<Result<_, _>>()?;
    let mut hours: BTreeMap<(String, i64), (StoreHour, Vec<DeviceInterval>)> = BTreeMap::new();
    for (datastore, at, blob) in read {
        let Some(Row { ended, period, intervals }) = decode::<Row<FirstInterval>>(&blob) else {
            tx.execute(
                "DELETE FROM datastore_intervals WHERE datastore = ?1 AND at = ?2",
                params![datastore, at],
            )?;
            continue;
        };
        let intervals: Vec<StoreInterval> = intervals
            .into_iter()
            .map(|fine| {
                StoreInterval(fine.map_or_else(DeviceInterval::Nothing, DeviceInterval::Point))
            })
            .collect();
        for (at, fine) in with_ends(&intervals, ended, period) {
            let (hour, points) = hours.entry((datastore.clone(), hour_of(at))).or_default();
            hour.totals.count_why(fine.0.why());
            points.push(fine.0);
        }
        tx.execute(
            "UPDATE datastore_intervals SET intervals = ?3 WHERE datastore = ?1 AND at = ?2",
            params![datastore, at, encode(&Row { ended, period, intervals })],
        )?;
    }
    for ((datastore, hour), (totals, points)) in hours {
        let totals = StoreHour { points: Coarse::of(points), ..totals };
        tx.execute(
            "INSERT INTO datastore_hours VALUES (?1, ?2, ?3)",
            params![datastore, hour, encode(&totals)],
        )?;
    }
    let mut rows = tx.prepare("SELECT datastore, model FROM models")?;
    let read: Vec<(String, Vec<u8>)> =
        rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?;
    for (datastore, blob) in read {
        match decode::<FirstModel>(&blob) {
            Some(first) => tx.execute(
                "UPDATE models SET model = ?2 WHERE datastore = ?1",
                params![datastore, encode(&DeviceModel::from(first))],
            )?,
            None => tx.execute("DELETE FROM models WHERE datastore = ?1", [datastore])?,
        };
    }
    Ok(())
}

impl From<FirstModel> for DeviceModel {
    fn from(first: FirstModel) -> DeviceModel {
        let FirstModel { slope, low, high, base, floor, explained, points, evidence, size, random } =
            first;
        let doubts = Doubts::default();
        DeviceModel {
            slope,
            low,
            high,
            base,
            floor,
            explained,
            points,
            evidence,
            size,
            random,
            doubts,
        }
    }
}
