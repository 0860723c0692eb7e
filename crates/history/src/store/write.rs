use super::accounts::{add_accounts, forget_old_accounts};
use super::departed::set_aside_name;
use super::measured::{add_measured, forget_old_measured};
use super::moves::forget_old_moves;
use super::read::{before, hours_since, store_intervals};
use super::row::{DAY, HOUR, Row, SECOND, decode, encode, seconds};
use super::{SamplesError, SamplesFile};
use crate::Learnt;
use crate::learnt::Source;
use crate::recorder::{Chunk, DiskInterval, hour_of, with_ends};
use crate::totals::StoreHour;
use headgate_model::Name;
use headgate_placement::{Coarse, DeviceModel, WorkloadMeter};
use headgate_units::Nanos;
use rusqlite::{OptionalExtension, Transaction, params};
use serde::Serialize;
use std::collections::BTreeMap;

/// How long hours are kept.
const MONTH: u64 = 30 * DAY;

impl SamplesFile {
    /// Adds what was gathered, learns from it, and forgets what is too old. One transaction.
    /// Answers what is known of the datastores now.
    pub fn write(&mut self, chunk: &Chunk) -> Result<BTreeMap<Name, Learnt>, SamplesError> {
        let at = seconds(chunk.ended);
        self.change(|tx| {
            {
                let mut add =
                    tx.prepare("INSERT OR REPLACE INTO disk_intervals VALUES (?1, ?2, ?3)")?;
                for (disk, intervals) in &chunk.disks {
                    add.execute(params![disk.as_str(), at, row(chunk, intervals)])?;
                }
                let mut add =
                    tx.prepare("INSERT OR REPLACE INTO datastore_intervals VALUES (?1, ?2, ?3)")?;
                for (datastore, intervals) in &chunk.stores {
                    add.execute(params![datastore.as_str(), at, row(chunk, intervals)])?;
                }
            }
            for (disk, intervals) in &chunk.disks {
                add_to_hours(tx, disk, chunk, intervals)?;
            }
            for (datastore, hours) in &chunk.hours {
                for (&hour, totals) in hours {
                    add_to_store_hour(tx, datastore, hour, totals)?;
                }
            }
            for (disk, minutes) in &chunk.accounts {
                add_accounts(tx, disk, minutes)?;
            }
            forget_old_accounts(tx, at)?;
            for (datastore, measured) in &chunk.measured {
                add_measured(tx, datastore, at, measured)?;
            }
            forget_old_measured(tx, at)?;
            let mut learnt = BTreeMap::new();
            for datastore in chunk.stores.keys() {
                learnt.insert(datastore.clone(), learn(tx, datastore, chunk.ended)?);
            }
            let (day, month) = (at - DAY as i64, at - MONTH as i64);
            tx.execute("DELETE FROM disk_intervals WHERE at < ?1", [day])?;
            tx.execute("DELETE FROM datastore_intervals WHERE at < ?1", [day])?;
            tx.execute("DELETE FROM disk_hours WHERE hour < ?1", [month])?;
            tx.execute("DELETE FROM datastore_hours WHERE hour < ?1", [month])?;
            forget_old_moves(tx, at)?;
            Ok(learnt)
        })
    }

    /// Sets a disk's samples aside, in the place of those of an earlier one of its name.
    pub fn depart(
        &mut self,
        disk: &Name,
        datastore: &Name,
        now: Nanos,
    ) -> Result<(), SamplesError> {
        let aside = set_aside_name(disk);
        self.change(|tx| {
            for table in ["disk_intervals", "disk_hours", "moves"] {
                tx.execute(&format!("DELETE FROM {table} WHERE disk = ?1"), [&aside])?;
                tx.execute(
                    &format!("UPDATE {table} SET disk = ?1 WHERE disk = ?2"),
                    [aside.as_str(), disk.as_str()],
                )?;
            }
            tx.execute(
                "INSERT OR REPLACE INTO departed VALUES (?1, ?2, ?3)",
                params![disk.as_str(), seconds(now), datastore.as_str()],
            )
        })?;
        Ok(())
    }

    pub fn forget_datastore(&mut self, datastore: &Name) -> Result<(), SamplesError> {
        self.change(|tx| {
            let tables = [
                "datastore_intervals",
                "datastore_hours",
                "models",
                "coarse_models",
                "measurements",
            ];
            for table in tables {
                tx.execute(
                    &format!("DELETE FROM {table} WHERE datastore = ?1"),
                    [datastore.as_str()],
                )?;
            }
            Ok(())
        })
    }
}

fn row<T: Serialize + Clone>(chunk: &Chunk, intervals: &[T]) -> Vec<u8> {
    encode(&Row { ended: chunk.ended, period: chunk.period, intervals: intervals.to_vec() })
}

fn add_to_hours(
    tx: &Transaction<'_>,
    disk: &Name,
    chunk: &Chunk,
    intervals: &[DiskInterval],
) -> Result<(), rusqlite::Error> {
    let mut hours: BTreeMap<i64, WorkloadMeter> = BTreeMap::new();
    for (at, interval) in with_ends(intervals, chunk.ended, chunk.period) {
        interval.count_in(hours.entry(hour_of(at)).or_default());
    }
    for (hour, mut meter) in hours {
        let before: Option<Vec<u8>> = tx
            .prepare_cached("SELECT meter FROM disk_hours WHERE disk = ?1 AND hour = ?2")?
            .query_row(params![disk.as_str(), hour], |row| row.get(0))
            .optional()?;
        if let Some(before) = before.and_then(|blob| decode(&blob)) {
            meter.merge(&before);
        }
        tx.prepare_cached("INSERT OR REPLACE INTO disk_hours VALUES (?1, ?2, ?3)")?
            .execute(params![disk.as_str(), hour, encode(&meter)])?;
    }
    Ok(())
}

/// Counters add up; points are made anew of the hour's intervals, which are all there yet.
fn add_to_store_hour(
    tx: &Transaction<'_>,
    datastore: &Name,
    hour: i64,
    more: &StoreHour,
) -> Result<(), rusqlite::Error> {
    let before: Option<Vec<u8>> = tx
        .prepare_cached("SELECT tally FROM datastore_hours WHERE datastore = ?1 AND hour = ?2")?
        .query_row(params![datastore.as_str(), hour], |row| row.get(0))
        .optional()?;
    let begin = Nanos(hour.cast_unsigned().saturating_mul(SECOND));
    let end = Nanos(begin.0.saturating_add(HOUR * SECOND));
    let until = Nanos(end.0.saturating_add(HOUR * SECOND));
    // A row is found by its last interval, which may be of the next hour.
    let intervals = store_intervals(tx, datastore, begin, until)?;
    let of_hour = intervals
        .iter()
        .filter(|(at, _)| (begin..end).contains(at))
        .map(|(_, interval)| interval.0);
    let mut totals: StoreHour = before.and_then(|blob| decode(&blob)).unwrap_or_default();
    totals.merge(&StoreHour { points: Coarse::of(of_hour), ..more.clone() });
    tx.prepare_cached("INSERT OR REPLACE INTO datastore_hours VALUES (?1, ?2, ?3)")?
        .execute(params![datastore.as_str(), hour, encode(&totals)])?;
    Ok(())
}

/// Learns from the last 24 hours, and once an hour from what is left of the last 30 days.
fn learn(tx: &Transaction<'_>, datastore: &Name, now: Nanos) -> Result<Learnt, rusqlite::Error> {
    let hour = hour_of(now);
    let learnt_in: Option<i64> = tx
        .query_row(
            "SELECT hour FROM coarse_models WHERE datastore = ?1",
            [datastore.as_str()],
            |row| row.get(0),
        )
        .optional()?;
    if learnt_in != Some(hour) {
        let from = Nanos(now.0.saturating_sub(MONTH * SECOND));
        let hours: Vec<Coarse> =
            hours_since(tx, datastore, from)?.into_values().map(|hour| hour.points).collect();
        let model: Option<DeviceModel> = DeviceModel::learn_coarsely(&hours).ok();
        tx.execute(
            "INSERT OR REPLACE INTO coarse_models VALUES (?1, ?2, ?3)",
            params![datastore.as_str(), hour, encode(&model)],
        )?;
    }
    let intervals =
        store_intervals(tx, datastore, Nanos(now.0.saturating_sub(DAY * SECOND)), Nanos(u64::MAX))?;
    let learnt =
        Learnt::from(intervals.iter().map(|(_, interval)| interval), &before(tx, datastore)?);
    if let (Some(model), Source::Day) = (&learnt.model, learnt.source) {
        tx.execute(
            "INSERT OR REPLACE INTO models VALUES (?1, ?2, ?3)",
            params![datastore.as_str(), seconds(now), encode(model)],
        )?;
    }
    Ok(learnt)
}
