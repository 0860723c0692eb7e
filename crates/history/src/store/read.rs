use super::row::{Row, SECOND, decode, seconds};
use super::{SamplesError, SamplesFile};
use crate::learnt::Before;
use crate::recorder::{DiskInterval, StoreInterval, hour_of, with_ends};
use crate::totals::StoreHour;
use headgate_model::Name;
use headgate_placement::{DeviceModel, WorkloadMeter};
use headgate_units::Nanos;
use rusqlite::{OptionalExtension, Transaction, params};
use std::collections::{BTreeMap, BTreeSet};

impl SamplesFile {
    /// The workload of each disk since an instant, by interval or in whole hours.
    pub fn workloads(
        &mut self,
        from: Nanos,
        fine: bool,
    ) -> Result<BTreeMap<Name, WorkloadMeter>, SamplesError> {
        self.read(|tx| {
            let mut meters: BTreeMap<Name, WorkloadMeter> = BTreeMap::new();
            let (sql, from_second) = if fine {
                ("SELECT disk, intervals FROM disk_intervals WHERE at >= ?1", seconds(from))
            } else {
                // The hour in which the window begins is counted whole.
                ("SELECT disk, meter FROM disk_hours WHERE hour >= ?1", hour_of(from))
            };
            let mut rows = tx.prepare(sql)?;
            let mut rows = rows.query([from_second])?;
            while let Some(found) = rows.next()? {
                let name: String = found.get(0)?;
                let blob: Vec<u8> = found.get(1)?;
                // A name that cannot be is that of a disk which was removed.
                let Ok(disk) = name.parse::<Name>() else { continue };
                let meter = meters.entry(disk).or_default();
                if fine {
                    let Some(row) = decode::<Row<DiskInterval>>(&blob) else { continue };
                    with_ends(&row.intervals, row.ended, row.period)
                        .filter(|&(at, _)| at >= from)
                        .for_each(|(_, interval)| interval.count_in(meter));
                } else if let Some(hour) = decode::<WorkloadMeter>(&blob) {
                    meter.merge(&hour);
                }
            }
            Ok(meters)
        })
    }

    /// What one disk did since an instant, in whole hours; the name may be that of one which was
    /// removed.
    pub fn hours_of(&mut self, disk: &str, from: Nanos) -> Result<WorkloadMeter, SamplesError> {
        self.read(|tx| {
            let mut rows =
                tx.prepare_cached("SELECT meter FROM disk_hours WHERE disk = ?1 AND hour >= ?2")?;
            let mut rows = rows.query(params![disk, hour_of(from)])?;
            let mut meter = WorkloadMeter::new();
            while let Some(row) = rows.next()? {
                let blob: Vec<u8> = row.get(0)?;
                if let Some(hour) = decode(&blob) {
                    meter.merge(&hour);
                }
            }
            Ok(meter)
        })
    }

    /// A disk's intervals that ended within a time, each with its end, in the order of time.
    pub fn disk_intervals(
        &mut self,
        disk: &Name,
        within: &std::ops::Range<Nanos>,
    ) -> Result<Vec<(Nanos, DiskInterval)>, SamplesError> {
        self.read(|tx| {
            let mut rows = tx.prepare_cached(
                "SELECT intervals FROM disk_intervals WHERE disk = ?1 AND at >= ?2 ORDER BY at",
            )?;
            let mut rows = rows.query(params![disk.as_str(), seconds(within.start)])?;
            let mut found = Vec::new();
            while let Some(row) = rows.next()? {
                let blob: Vec<u8> = row.get(0)?;
                let Some(row) = decode::<Row<DiskInterval>>(&blob) else { continue };
                let ends = with_ends(&row.intervals, row.ended, row.period);
                found.extend(ends.filter(|(at, _)| within.contains(at)));
            }
            Ok(found)
        })
    }

    /// A datastore's intervals since an instant, each with its end, in the order of time.
    pub fn store_intervals(
        &mut self,
        datastore: &Name,
        from: Nanos,
    ) -> Result<Vec<(Nanos, StoreInterval)>, SamplesError> {
        self.read(|tx| store_intervals(tx, datastore, from, Nanos(u64::MAX)))
    }

    /// A datastore's hours, by their first second, from that on in which an instant is.
    pub fn store_hours(
        &mut self,
        datastore: &Name,
        from: Nanos,
    ) -> Result<BTreeMap<i64, StoreHour>, SamplesError> {
        self.read(|tx| hours_since(tx, datastore, from))
    }

    /// The model of a datastore learnt before.
    pub fn before(&mut self, datastore: &Name) -> Result<Before, SamplesError> {
        self.read(|tx| before(tx, datastore))
    }

    /// The models of all datastores.
    pub fn all_before(&mut self) -> Result<BTreeMap<Name, Before>, SamplesError> {
        self.read(|tx| {
            let mut rows = tx.prepare(
                "SELECT datastore FROM models UNION SELECT datastore FROM coarse_models",
            )?;
            let names: BTreeSet<String> =
                rows.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
            let known = names.iter().filter_map(|name| name.parse::<Name>().ok());
            known.map(|name| Ok((name.clone(), before(tx, &name)?))).collect()
        })
    }
}

pub(super) fn before(tx: &Transaction<'_>, datastore: &Name) -> Result<Before, rusqlite::Error> {
    let day: Option<(i64, Vec<u8>)> = tx
        .prepare_cached("SELECT at, model FROM models WHERE datastore = ?1")?
        .query_row([datastore.as_str()], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let month: Option<Vec<u8>> = tx
        .prepare_cached("SELECT model FROM coarse_models WHERE datastore = ?1")?
        .query_row([datastore.as_str()], |row| row.get(0))
        .optional()?;
    let instant = |at: i64| Nanos(u64::try_from(at).unwrap_or(0).saturating_mul(SECOND));
    Ok(Before {
        day: day.and_then(|(at, blob)| Some((instant(at), decode(&blob)?))),
        month: month.and_then(|blob| decode::<Option<DeviceModel>>(&blob)).flatten(),
    })
}

pub(super) fn hours_since(
    tx: &Transaction<'_>,
    datastore: &Name,
    from: Nanos,
) -> Result<BTreeMap<i64, StoreHour>, rusqlite::Error> {
    let mut hours = BTreeMap::new();
    let mut rows = tx.prepare_cached(
        "SELECT hour, tally FROM datastore_hours WHERE datastore = ?1 AND hour >= ?2",
    )?;
    let mut rows = rows.query(params![datastore.as_str(), hour_of(from)])?;
    while let Some(row) = rows.next()? {
        let (hour, blob): (i64, Vec<u8>) = (row.get(0)?, row.get(1)?);
        if let Some(totals) = decode(&blob) {
            hours.insert(hour, totals);
        }
    }
    Ok(hours)
}

/// Intervals since an instant, in rows that end until another.
pub(super) fn store_intervals(
    tx: &Transaction<'_>,
    datastore: &Name,
    from: Nanos,
    until: Nanos,
) -> Result<Vec<(Nanos, StoreInterval)>, rusqlite::Error> {
    let mut found = Vec::new();
    let mut rows = tx.prepare_cached(
        "SELECT intervals FROM datastore_intervals WHERE datastore = ?1 AND at BETWEEN ?2 AND ?3 ORDER BY at",
    )?;
    let mut rows = rows.query(params![datastore.as_str(), seconds(from), seconds(until)])?;
    while let Some(row) = rows.next()? {
        let blob: Vec<u8> = row.get(0)?;
        let Some(row) = decode::<Row<StoreInterval>>(&blob) else { continue };
        found
            .extend(with_ends(&row.intervals, row.ended, row.period).filter(|&(at, _)| at >= from));
    }
    Ok(found)
}
