use super::recorder::{Chunk, DiskFine, StoreFine, with_ends};
use crate::name::Name;
use headgate_placement::{DeviceModel, WorkloadMeter};
use headgate_units::Nanos;
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use thiserror::Error;
use tracing::warn;

/// The version of the tables and of what is in them. An older file is put aside: samples are learnt again in a day.
const VERSION: i64 = 1;

const SECOND: u64 = 1_000_000_000;
const HOUR: u64 = 3_600;
const DAY: u64 = 24 * HOUR;

const TABLES: &str = "
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

/// Why samples cannot be kept or read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SamplesError {
    /// Written by a later version.
    #[error("{} has samples of version {found}, this headgate knows version {VERSION}: start the newer headgate that wrote it, or move the file away", .path.display())]
    TooNew {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
    },
    /// The store failed.
    #[error("the samples in {} failed: {source}", .path.display())]
    Store {
        /// The file.
        path: PathBuf,
        /// The store's answer.
        source: rusqlite::Error,
    },
    /// A damaged file cannot be put aside.
    #[error("the samples in {} are damaged, and cannot be put aside: {source}", .path.display())]
    Aside {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// There is no thread to be had.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] io::Error),
}

/// Intervals of one length, one after the other.
#[derive(Serialize, Deserialize)]
struct Row<T> {
    /// When the last ended.
    ended: Nanos,
    period: Nanos,
    intervals: Vec<T>,
}

/// Samples in one SQLite file, apart from the catalog: it is written often, and may be lost.
pub(super) struct SamplesFile {
    connection: Connection,
    path: PathBuf,
}

impl SamplesFile {
    pub fn open(path: &Path) -> Result<SamplesFile, SamplesError> {
        match SamplesFile::try_open(path) {
            Err(SamplesError::Store { source, .. }) if is_damaged(&source) => {
                let aside = put_aside(path)
                    .map_err(|source| SamplesError::Aside { path: path.to_owned(), source })?;
                warn!(error = %source, kept = %aside.display(), "the file with samples was damaged: learning begins anew");
                SamplesFile::try_open(path)
            }
            other => other,
        }
    }

    fn try_open(path: &Path) -> Result<SamplesFile, SamplesError> {
        let store = |source| SamplesError::Store { path: path.to_owned(), source };
        let mut connection = Connection::open(path).map_err(store)?;
        connection.busy_timeout(Duration::from_secs(5)).map_err(store)?;
        connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(())).map_err(store)?;
        // What is lost in a power cut is the last five minutes.
        connection.pragma_update(None, "synchronous", "NORMAL").map_err(store)?;
        let make = |connection: &mut Connection| {
            let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let found: i64 = tx.query_row("PRAGMA user_version", [], |row| row.get(0))?;
            if found == 0 {
                tx.execute_batch(TABLES)?;
                tx.pragma_update(None, "user_version", VERSION)?;
            }
            tx.commit()?;
            Ok(found)
        };
        let found = make(&mut connection).map_err(store)?;
        if found > VERSION {
            return Err(SamplesError::TooNew { path: path.to_owned(), found });
        }
        Ok(SamplesFile { connection, path: path.to_owned() })
    }

    fn change<T>(
        &mut self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, rusqlite::Error>,
    ) -> Result<T, SamplesError> {
        self.run(TransactionBehavior::Immediate, work)
    }

    /// Who reads does not wait for who writes.
    fn read<T>(
        &mut self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, rusqlite::Error>,
    ) -> Result<T, SamplesError> {
        self.run(TransactionBehavior::Deferred, work)
    }

    fn run<T>(
        &mut self,
        behavior: TransactionBehavior,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, rusqlite::Error>,
    ) -> Result<T, SamplesError> {
        let run = || {
            let tx = self.connection.transaction_with_behavior(behavior)?;
            let result = work(&tx)?;
            tx.commit()?;
            Ok(result)
        };
        run().map_err(|source| SamplesError::Store { path: self.path.clone(), source })
    }

    /// Adds what was gathered, learns from it, and forgets what is too old. One transaction.
    pub fn write(&mut self, chunk: &Chunk) -> Result<(), SamplesError> {
        let at = seconds(chunk.ended);
        self.change(|tx| {
            {
                let mut add = tx.prepare("INSERT OR REPLACE INTO disk_intervals VALUES (?1, ?2, ?3)")?;
                for (disk, intervals) in &chunk.disks {
                    add.execute(params![disk.as_str(), at, row(chunk, intervals)])?;
                }
                let mut add = tx.prepare("INSERT OR REPLACE INTO datastore_intervals VALUES (?1, ?2, ?3)")?;
                for (datastore, intervals) in &chunk.stores {
                    add.execute(params![datastore.as_str(), at, row(chunk, intervals)])?;
                }
            }
            for (disk, intervals) in &chunk.disks {
                add_to_hours(tx, disk, chunk, intervals)?;
            }
            for datastore in chunk.stores.keys() {
                let from = Nanos(chunk.ended.0.saturating_sub(DAY * SECOND));
                let intervals = store_intervals(tx, datastore, from)?;
                let known = model(tx, datastore)?;
                let learnt = super::Learnt::from(intervals.iter().map(|(_, interval)| interval), known);
                if let Some(model) = learnt.model {
                    tx.execute(
                        "INSERT OR REPLACE INTO models VALUES (?1, ?2, ?3)",
                        params![datastore.as_str(), at, encode(&model)],
                    )?;
                }
            }
            let day = at - DAY as i64;
            tx.execute("DELETE FROM disk_intervals WHERE at < ?1", [day])?;
            tx.execute("DELETE FROM datastore_intervals WHERE at < ?1", [day])?;
            tx.execute("DELETE FROM disk_hours WHERE hour < ?1", [at - 30 * DAY as i64])
        })?;
        Ok(())
    }

    pub fn forget_disk(&mut self, disk: &Name) -> Result<(), SamplesError> {
        self.change(|tx| {
            tx.execute("DELETE FROM disk_intervals WHERE disk = ?1", [disk.as_str()])?;
            tx.execute("DELETE FROM disk_hours WHERE disk = ?1", [disk.as_str()])
        })?;
        Ok(())
    }

    pub fn forget_datastore(&mut self, datastore: &Name) -> Result<(), SamplesError> {
        self.change(|tx| {
            tx.execute("DELETE FROM datastore_intervals WHERE datastore = ?1", [datastore.as_str()])?;
            tx.execute("DELETE FROM models WHERE datastore = ?1", [datastore.as_str()])
        })?;
        Ok(())
    }

    /// What each disk did since an instant: interval by interval, or in whole hours.
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
                // A name that cannot be was not written by us.
                let Ok(disk) = name.parse::<Name>() else { continue };
                let meter = meters.entry(disk).or_default();
                if fine {
                    let Some(row) = decode::<Row<DiskFine>>(&blob) else { continue };
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

    /// A datastore's intervals since an instant, each with its end, in the order of time.
    pub fn store_intervals(
        &mut self,
        datastore: &Name,
        from: Nanos,
    ) -> Result<Vec<(Nanos, StoreFine)>, SamplesError> {
        self.read(|tx| store_intervals(tx, datastore, from))
    }

    /// The last model of each datastore.
    pub fn models(&mut self) -> Result<BTreeMap<Name, DeviceModel>, SamplesError> {
        self.read(|tx| {
            let mut rows = tx.prepare("SELECT datastore, model FROM models")?;
            let found =
                rows.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, Vec<u8>>(1)?)))?;
            let mut models = BTreeMap::new();
            for row in found {
                let (name, blob) = row?;
                if let (Ok(name), Some(model)) = (name.parse(), decode(&blob)) {
                    models.insert(name, model);
                }
            }
            Ok(models)
        })
    }

    /// The last model that made sense.
    pub fn model(&mut self, datastore: &Name) -> Result<Option<DeviceModel>, SamplesError> {
        self.read(|tx| model(tx, datastore))
    }
}

fn is_damaged(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
    matches!(error, rusqlite::Error::SqliteFailure(e, _) if matches!(e.code, DatabaseCorrupt | NotADatabase))
}

fn put_aside(path: &Path) -> io::Result<PathBuf> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".damaged-{}", seconds(super::wall_clock())));
    let aside = PathBuf::from(name);
    std::fs::rename(path, &aside)?;
    for end in ["-wal", "-shm"] {
        let mut name = path.as_os_str().to_owned();
        name.push(end);
        match std::fs::remove_file(PathBuf::from(name)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
    }
    Ok(aside)
}

fn seconds(at: Nanos) -> i64 {
    (at.0 / SECOND).cast_signed()
}

fn hour_of(at: Nanos) -> i64 {
    (at.0 / SECOND / HOUR * HOUR).cast_signed()
}

fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    postcard::to_stdvec(value).expect("samples are plain data")
}

/// What does not decode was not written by us, and counts as not there.
fn decode<T: DeserializeOwned>(blob: &[u8]) -> Option<T> {
    postcard::from_bytes(blob).ok()
}

fn row<T: Serialize + Clone>(chunk: &Chunk, intervals: &[T]) -> Vec<u8> {
    encode(&Row { ended: chunk.ended, period: chunk.period, intervals: intervals.to_vec() })
}

fn add_to_hours(
    tx: &Transaction<'_>,
    disk: &Name,
    chunk: &Chunk,
    intervals: &[DiskFine],
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
        tx.prepare_cached("INSERT OR REPLACE INTO disk_hours VALUES (?1, ?2, ?3)")?.execute(params![
            disk.as_str(),
            hour,
            encode(&meter)
        ])?;
    }
    Ok(())
}

fn model(tx: &Transaction<'_>, datastore: &Name) -> Result<Option<DeviceModel>, rusqlite::Error> {
    let found: Option<Vec<u8>> = tx
        .query_row("SELECT model FROM models WHERE datastore = ?1", [datastore.as_str()], |row| row.get(0))
        .optional()?;
    Ok(found.and_then(|blob| decode(&blob)))
}

fn store_intervals(
    tx: &Transaction<'_>,
    datastore: &Name,
    from: Nanos,
) -> Result<Vec<(Nanos, StoreFine)>, rusqlite::Error> {
    let mut found = Vec::new();
    let mut rows = tx.prepare_cached(
        "SELECT intervals FROM datastore_intervals WHERE datastore = ?1 AND at >= ?2 ORDER BY at",
    )?;
    let mut rows = rows.query(params![datastore.as_str(), seconds(from)])?;
    while let Some(row) = rows.next()? {
        let blob: Vec<u8> = row.get(0)?;
        let Some(row) = decode::<Row<StoreFine>>(&blob) else { continue };
        found.extend(with_ends(&row.intervals, row.ended, row.period).filter(|&(at, _)| at >= from));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use headgate_placement::{DevicePoint, Outstanding, Permille, Traits};
    use headgate_units::Bytes;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    fn at(second: u64) -> Nanos {
        // The beginning of an hour.
        Nanos::from_secs(500_000 * HOUR + second)
    }

    fn busy(outstanding: u32) -> DiskFine {
        let (size, read, random) = (Bytes::from_kib(8), Permille(700), Permille::WHOLE);
        DiskFine(Some(Traits { outstanding: Outstanding::whole(outstanding), size, read, random }))
    }

    fn point(outstanding: u32) -> StoreFine {
        let latency = Nanos::from_micros(5_000 + 1_000 * u64::from(outstanding));
        let (size, random) = (Bytes::from_kib(8), Permille::WHOLE);
        StoreFine(Ok(DevicePoint { outstanding: Outstanding::whole(outstanding), latency, size, random }))
    }

    /// Five minutes that end then.
    fn chunk(ended: Nanos, outstanding: u32) -> Chunk {
        Chunk {
            ended,
            period: Nanos::from_secs(5),
            disks: BTreeMap::from([
                (name("a"), vec![busy(outstanding); 60]),
                (name("b"), vec![DiskFine(None); 60]),
            ]),
            stores: BTreeMap::from([(name("array"), (0..60).map(|n| point(n % 8 + 1)).collect())]),
        }
    }

    fn file() -> (tempfile::TempDir, SamplesFile) {
        let dir = tempfile::tempdir().unwrap();
        let file = SamplesFile::open(&dir.path().join("samples.sqlite")).unwrap();
        (dir, file)
    }

    fn outstanding(meter: &WorkloadMeter) -> f64 {
        meter.traits().unwrap().outstanding.as_f64()
    }

    #[test]
    fn what_was_written_is_there_after_a_restart() {
        let (dir, mut file) = file();
        file.write(&chunk(at(300), 4)).unwrap();
        file.write(&chunk(at(600), 4)).unwrap();
        drop(file);
        let mut file = SamplesFile::open(&dir.path().join("samples.sqlite")).unwrap();
        for fine in [false, true] {
            let meters = file.workloads(at(0), fine).unwrap();
            assert_eq!(meters[&name("a")].intervals(), 120);
            assert!((outstanding(&meters[&name("a")]) - 4.0).abs() < 0.3);
            assert_eq!(outstanding(&meters[&name("b")]), 0.0);
        }
        let intervals = file.store_intervals(&name("array"), at(0)).unwrap();
        assert_eq!((intervals.len(), intervals[0].0, intervals[119].0), (120, at(5), at(600)));
        let model = file.model(&name("array")).unwrap().unwrap();
        assert_eq!(file.models().unwrap(), BTreeMap::from([(name("array"), model)]));
        assert!((model.slope.as_millis_f64() - 1.0).abs() < 0.01, "{model}");
    }

    #[test]
    fn a_window_begins_where_it_says() {
        let (_dir, mut file) = file();
        file.write(&chunk(at(300), 4)).unwrap();
        file.write(&chunk(at(600), 8)).unwrap();
        assert_eq!(file.workloads(at(301), true).unwrap()[&name("a")].intervals(), 60);
        assert_eq!(file.workloads(at(600), true).unwrap()[&name("a")].intervals(), 1);
        assert_eq!(file.store_intervals(&name("array"), at(596)).unwrap().len(), 1);
        // An hour is counted whole.
        assert_eq!(file.workloads(at(1_000), false).unwrap()[&name("a")].intervals(), 120);
        assert!(file.workloads(at(HOUR), false).unwrap().is_empty());
    }

    #[test]
    fn intervals_are_kept_for_a_day_and_hours_for_thirty() {
        let (_dir, mut file) = file();
        file.write(&chunk(at(300), 4)).unwrap();
        file.write(&chunk(at(DAY + 299), 4)).unwrap();
        assert_eq!(file.workloads(at(0), true).unwrap()[&name("a")].intervals(), 120);
        file.write(&chunk(at(DAY + 301), 4)).unwrap();
        assert_eq!(file.workloads(at(0), true).unwrap()[&name("a")].intervals(), 120, "the first is gone");
        assert_eq!(file.workloads(at(0), false).unwrap()[&name("a")].intervals(), 180);
        file.write(&chunk(at(31 * DAY), 4)).unwrap();
        // The chunk of the second day began a minute before its hour.
        assert_eq!(file.workloads(at(0), false).unwrap()[&name("a")].intervals(), 60 + 60 + 60);
    }

    #[test]
    fn what_is_forgotten_is_gone() {
        let (_dir, mut file) = file();
        file.write(&chunk(at(300), 4)).unwrap();
        file.forget_disk(&name("a")).unwrap();
        file.forget_datastore(&name("array")).unwrap();
        for fine in [false, true] {
            assert_eq!(file.workloads(at(0), fine).unwrap().keys().collect::<Vec<_>>(), [&name("b")]);
        }
        assert!(file.store_intervals(&name("array"), at(0)).unwrap().is_empty());
        assert_eq!(file.model(&name("array")).unwrap(), None);
    }

    #[test]
    fn a_model_stays_while_there_is_no_better() {
        let (_dir, mut file) = file();
        file.write(&chunk(at(300), 4)).unwrap();
        let before = file.model(&name("array")).unwrap();
        // Two days later the datastore is idle.
        let mut idle = chunk(at(2 * DAY), 4);
        idle.stores.insert(name("array"), vec![StoreFine(Err(headgate_placement::LeftOut::FewReads)); 60]);
        file.write(&idle).unwrap();
        assert!(before.is_some());
        assert_eq!(file.model(&name("array")).unwrap(), before);
    }

    #[test]
    fn a_damaged_file_is_put_aside_and_one_of_a_later_version_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("samples.sqlite");
        std::fs::write(&path, "no database at all, but long enough to be looked at").unwrap();
        SamplesFile::open(&path).unwrap().write(&chunk(at(300), 4)).unwrap();
        let kept = std::fs::read_dir(dir.path())
            .unwrap()
            .any(|entry| entry.unwrap().file_name().to_string_lossy().starts_with("samples.sqlite.damaged-"));
        assert!(kept);
        Connection::open(&path).unwrap().pragma_update(None, "user_version", VERSION + 1).unwrap();
        assert!(matches!(SamplesFile::open(&path), Err(SamplesError::TooNew { .. })));
    }

    #[test]
    fn rows_that_nobody_wrote_count_as_not_there() {
        let (_dir, mut file) = file();
        file.write(&chunk(at(300), 4)).unwrap();
        for table in ["disk_intervals", "datastore_intervals"] {
            file.connection
                .execute(&format!("UPDATE {table} SET intervals = x'FFFFFFFFFFFFFFFFFF'"), [])
                .unwrap();
        }
        file.connection.execute("UPDATE models SET model = x'00'", []).unwrap();
        assert!(file.workloads(at(0), true).unwrap().values().all(|meter| meter.intervals() == 0));
        assert!(file.store_intervals(&name("array"), at(0)).unwrap().is_empty());
        assert_eq!(file.model(&name("array")).unwrap(), None);
    }
}
