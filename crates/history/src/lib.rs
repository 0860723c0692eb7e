//! The history of disks and datastores, kept over restarts. Placement learns from it.
//!
//! The observer's samples, a few seconds apart, become intervals: for a disk its workload profile,
//! for a datastore a point of its model ([`headgate_placement::DatastoreJudge`]) and its totals
//! (`totals`). They are gathered in memory (`recorder`), written every five minutes and at the end
//! by a thread of their own (`store`), and combined on demand ([`Learnt`], workloads). What the
//! placement of a new disk needs is kept in memory ([`Known`]).
//!
//! | what | resolution | kept for |
//! |---|---|---|
//! | intervals of disks and datastores | each | 24 h |
//! | distributions of a disk's workload profile | an hour | 30 days |
//! | accounts of a disk: what it was promised and got, and what it waited for | a minute | 24 h |
//! | the same | an hour | 62 days |
//! | totals of a datastore, with a few points for its model | an hour | 30 days |
//! | intervals in which one disk alone was busy on a datastore: what it did, and its latency | each | 7 days |
//! | the last valid model of a datastore | | until there is a better one |
//! | the history of a removed disk, for one that continues it | | 7 days |
//! | moves | | a year |
//!
//! A daemon that is killed loses at most the last five minutes. Disks are served even if history
//! cannot be written; the log reports it.

mod account;
mod accountant;
mod alone;
mod clock;
mod intervals;
mod known;
mod learnt;
mod measured;
mod places;
mod recorder;
mod still;
#[cfg(test)]
mod still_tests;
mod store;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod totals;
mod writer;

pub use account::{Account, CAUSES};
pub use clock::wall_clock;
pub use known::{Known, Predecessor};
pub use learnt::{Learnt, Source};
pub use recorder::{DiskInterval, PERIOD_MAX, PERIOD_MIN, StoreInterval};
pub use store::SamplesError;
pub use totals::{Done, Latencies, StoreHour};

use headgate_model::{DatastoreSample, Lookback, Name};
use headgate_placement::{DeviceInterval, WorkloadMeter, WorkloadProfile};
use headgate_units::Nanos;
use known::{Shared, lock};
use learnt::Before;
use recorder::{Chunk, Recorder, hour_of};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use store::SamplesFile;
use writer::{HistorySource, Writer};

/// How long the accounts are that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// Of one minute each.
    Minute,
    /// Of one hour each.
    Hour,
}

impl Span {
    /// How many seconds.
    pub fn seconds(self) -> i64 {
        match self {
            Span::Minute => 60,
            Span::Hour => 3_600,
        }
    }

    /// When the one began that this second is in.
    pub fn begin(self, second: i64) -> i64 {
        second.div_euclid(self.seconds()) * self.seconds()
    }
}

/// All samples of a daemon.
pub struct Samples {
    recorder: Mutex<Recorder>,
    file: Arc<Mutex<SamplesFile>>,
    known: Shared,
    writer: Writer,
}

impl Samples {
    /// Opens the file, creating it if needed. One that is damaged is kept under another name, and a
    /// new one begun.
    ///
    /// # Errors
    /// If the file can neither be used nor be put aside, a later version wrote it, or a thread
    /// cannot be started.
    pub fn open(path: &Path, period: Duration) -> Result<Samples, SamplesError> {
        let file = Arc::new(Mutex::new(SamplesFile::open(path)?));
        let known = Shared::default();
        let writer =
            Writer::start(SamplesFile::open(path)?, known.clone()).map_err(SamplesError::Thread)?;
        Ok(Samples { recorder: Mutex::new(Recorder::new(period)), file, known, writer })
    }

    /// Takes in what the shards report now. Those that come sooner than the period are passed over.
    pub fn record(&self, sample: &Arc<Vec<DatastoreSample>>) {
        self.record_at(wall_clock(), sample);
    }

    /// The same at an instant of another clock, in nanoseconds since 1970.
    pub fn record_at(&self, now: Nanos, sample: &Arc<Vec<DatastoreSample>>) {
        if let Some(chunk) = lock(&self.recorder).observe(now, sample) {
            self.writer.write(chunk);
        }
    }

    /// A disk is no more that was on this datastore: another of its name begins anew, unless it is
    /// said to continue it.
    pub fn forget_disk(&self, disk: &Name, datastore: &Name) {
        if let Some(rest) = lock(&self.recorder).forget_disk(disk) {
            self.writer.write(rest);
        }
        self.writer.depart(disk, datastore, wall_clock());
    }

    /// A disk that was removed within the last 7 days.
    pub fn predecessor(&self, disk: &Name) -> Option<Predecessor> {
        self.writer.settle();
        self.known().departed.get(disk).cloned()
    }

    /// Lets a new disk continue one that still exists, with a copy of its samples. `origin` is the
    /// datastore of the old one if it is another than the new one's: then the disk has moved.
    pub fn continue_disk(&self, disk: &Name, old: &Name, origin: Option<&Name>) {
        self.writer.inherit(disk, HistorySource::Of(old.clone()), origin, wall_clock());
        if let Some(rest) = lock(&self.recorder).as_of(old, disk) {
            self.writer.write(rest);
        }
    }

    /// The same for one that was removed.
    pub fn continue_removed(&self, disk: &Name, old: &Name, origin: Option<&Name>) {
        self.writer.inherit(disk, HistorySource::Left(old.clone()), origin, wall_clock());
    }

    /// A disk is on another datastore than before, with its name and its history.
    pub fn move_disk(&self, disk: &Name, origin: &Name) {
        self.writer.inherit(disk, HistorySource::Of(disk.clone()), Some(origin), wall_clock());
    }

    /// Forgets a datastore that is no more.
    pub fn forget_datastore(&self, datastore: &Name) {
        lock(&self.recorder).forget_datastore(datastore);
        self.writer.forget_datastore(datastore);
    }

    /// What was known when samples were last written. Reads no file, but after the start it waits
    /// until that has been read once.
    pub fn known(&self) -> Arc<Known> {
        if lock(&self.known).is_none() {
            self.writer.settle();
        }
        lock(&self.known).clone().unwrap_or_default()
    }

    /// What each disk does in its busier time, as of the last 24 hours: of disks that are new since
    /// samples were last written, as of since then. Reads no file.
    pub fn usual_workloads(&self) -> BTreeMap<Name, WorkloadProfile> {
        let mut workloads = self.known().workloads.clone();
        let mut recorder = lock(&self.recorder);
        for (disk, intervals) in &recorder.chunk().disks {
            if !workloads.contains_key(disk) {
                let mut meter = WorkloadMeter::new();
                intervals.iter().for_each(|interval| interval.count_in(&mut meter));
                workloads.extend(meter.profile().map(|profile| (disk.clone(), profile)));
            }
        }
        workloads
    }

    /// What each datastore can do, likewise.
    pub fn usual_models(&self, datastores: &[Name]) -> BTreeMap<Name, Learnt> {
        let known = self.known();
        let mut recorder = lock(&self.recorder);
        let chunk = recorder.chunk();
        let of = |datastore: &Name| match known.models.get(datastore) {
            Some(model) => Learnt::of_model(*model),
            None => {
                let lately: Vec<StoreInterval> =
                    chunk.store_intervals(datastore).map(|(_, interval)| interval).collect();
                Learnt::from(lately.iter(), &Before::default())
            }
        };
        datastores.iter().map(|datastore| (datastore.clone(), of(datastore))).collect()
    }

    /// The workload of each disk within the look-back before now; disks without samples are
    /// missing. Linear in disks times hours.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn workloads(
        &self,
        window: Lookback,
    ) -> Result<BTreeMap<Name, WorkloadMeter>, SamplesError> {
        let now = wall_clock();
        let from = window.from(now);
        self.writer.settle();
        let mut meters = lock(&self.file).workloads(from, window.is_fine())?;
        let chunk = lock(&self.recorder).chunk().clone();
        for (disk, intervals) in &chunk.disks {
            let meter = meters.entry(disk.clone()).or_default();
            let skip = chunk.older_than(from, intervals.len());
            intervals.iter().skip(skip).for_each(|interval| interval.count_in(meter));
        }
        Ok(meters)
    }

    /// What is known of a datastore by the intervals of the last 24 hours, and by what was learnt
    /// before.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn learnt(&self, datastore: &Name) -> Result<Learnt, SamplesError> {
        Ok(self.learnt_from(datastore)?.0)
    }

    fn learnt_from(
        &self,
        datastore: &Name,
    ) -> Result<(Learnt, Vec<(Nanos, StoreInterval)>), SamplesError> {
        let intervals = self.intervals(datastore)?;
        let before = lock(&self.file).before(datastore)?;
        Ok((Learnt::from(intervals.iter().map(|(_, interval)| interval), &before), intervals))
    }

    /// What a datastore's model is learnt from, with instants in nanoseconds since 1970: intervals,
    /// or points of whole hours, which are said to be at their beginnings.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn points(&self, datastore: &Name) -> Result<Vec<(Nanos, DeviceInterval)>, SamplesError> {
        let (learnt, intervals) = self.learnt_from(datastore)?;
        let taken =
            |(at, fine): (Nanos, StoreInterval)| learnt.takes(&fine.0).then_some((at, fine.0));
        if learnt.source != Source::Month {
            return Ok(intervals.into_iter().filter_map(taken).collect());
        }
        let month = Lookback::MONTH.from(wall_clock());
        let hours = lock(&self.file).store_hours(datastore, month)?;
        let begin = |hour: i64| Nanos(hour.cast_unsigned().saturating_mul(1_000_000_000));
        let points = hours.iter().flat_map(|(&hour, of_hour)| {
            of_hour.points.points().iter().map(move |point| (begin(hour), *point))
        });
        Ok(points.filter(|(_, point)| learnt.takes(point)).collect())
    }

    /// What a datastore did within the window before now, by the hour: by the first seconds of the
    /// hours, since 1970.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn history(
        &self,
        datastore: &Name,
        window: Lookback,
    ) -> Result<BTreeMap<i64, StoreHour>, SamplesError> {
        let from = window.from(wall_clock());
        self.writer.settle();
        let mut hours = lock(&self.file).store_hours(datastore, from)?;
        let mut recorder = lock(&self.recorder);
        for (&hour, more) in recorder.chunk().hours.get(datastore).into_iter().flatten() {
            if hour >= hour_of(from) {
                hours.entry(hour).or_default().merge(more);
            }
        }
        Ok(hours)
    }

    /// The accounts of all disks, or of one, that begin within these seconds since 1970: by the
    /// minute, of which a day is kept, or by the hour. Those of removed disks are among them.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn accounts(
        &self,
        disk: Option<&Name>,
        within: std::ops::Range<i64>,
        span: Span,
    ) -> Result<BTreeMap<Name, BTreeMap<i64, Account>>, SamplesError> {
        self.writer.settle();
        let mut accounts = lock(&self.file).accounts(disk, &within, span)?;
        let mut recorder = lock(&self.recorder);
        let lately = recorder.accounts().iter();
        for (name, minutes) in lately.filter(|(name, _)| disk.is_none_or(|disk| disk == *name)) {
            for (&minute, account) in minutes {
                let at = span.begin(minute);
                if within.contains(&at) {
                    let of_disk = accounts.entry(name.clone()).or_default();
                    of_disk.entry(at).or_default().merge(account);
                }
            }
        }
        Ok(accounts)
    }

    fn intervals(&self, datastore: &Name) -> Result<Vec<(Nanos, StoreInterval)>, SamplesError> {
        let now = wall_clock();
        self.writer.settle();
        let mut intervals = lock(&self.file).store_intervals(datastore, Lookback::DAY.from(now))?;
        let mut recorder = lock(&self.recorder);
        intervals.extend(recorder.chunk().store_intervals(datastore));
        Ok(intervals)
    }

    /// Waits until all is written that was handed over to be.
    pub fn settle(&self) {
        self.writer.settle();
    }

    /// Writes what there is, and waits for it.
    pub fn flush(&self) {
        let chunk: Chunk = lock(&self.recorder).take();
        self.writer.write(chunk);
        self.writer.settle();
    }

    /// How often a caller other than the writer accessed the file.
    #[cfg(any(test, feature = "testing"))]
    pub fn visits(&self) -> u64 {
        lock(&self.file).visits
    }
}

impl Drop for Samples {
    fn drop(&mut self) {
        self.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::testing::sample;
    use super::*;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    fn samples(dir: &tempfile::TempDir) -> Samples {
        Samples::open(&dir.path().join("samples.sqlite"), Duration::from_secs(5)).unwrap()
    }

    /// Seconds of the daemon's life from one to another; each sample is of one instant, `age` ago
    /// when the last is taken.
    fn observe(samples: &Samples, seconds: std::ops::Range<u64>, disks: &[(&str, u64)]) {
        let (now, end) = (wall_clock(), seconds.end);
        for second in seconds.step_by(5) {
            let ago = Nanos::from_secs(end - second);
            samples.record_at(Nanos(now.0 - ago.0), &sample(second, disks));
        }
    }

    #[test]
    fn what_placing_needs_is_in_memory_from_the_start_on() {
        let dir = tempfile::tempdir().unwrap();
        let names: Vec<String> = (0..40).map(|n| format!("d{n}")).collect();
        let disks: Vec<(&str, u64)> = names.iter().map(|name| (name.as_str(), 40)).collect();
        let before = samples(&dir);
        observe(&before, 1..120, &disks);
        assert_eq!(before.usual_workloads().len(), 40, "before anything was written");
        let learnt = before.usual_models(&[name("array")]).remove(&name("array")).unwrap();
        assert!(learnt.model.is_some(), "{learnt:?}");
        before.flush();
        assert_eq!(before.usual_workloads(), before.known().workloads);
        let (workloads, models) = (before.known().workloads.clone(), before.known().models.clone());
        assert_eq!(before.visits(), 0);
        drop(before);
        let after = samples(&dir);
        assert_eq!((&after.usual_workloads(), &after.known().models), (&workloads, &models));
        assert_eq!((workloads.len(), models.len(), after.visits()), (40, 1, 0));
        after.workloads(Lookback::DAY).unwrap();
        assert_eq!(after.visits(), 1, "which is counted");
    }

    #[test]
    fn a_disk_that_continues_another_has_its_past() {
        let dir = tempfile::tempdir().unwrap();
        let samples = samples(&dir);
        observe(&samples, 1..100, &[("a", 100), ("b", 50)]);
        let did = samples.usual_workloads();
        // It is made anew elsewhere: what was gathered since the last writing is part of its past.
        samples.forget_disk(&name("a"), &name("array"));
        let gone = samples.predecessor(&name("a")).unwrap();
        assert_eq!((gone.datastore, gone.workload), (name("array"), did.get(&name("a")).copied()));
        samples.continue_removed(&name("a"), &name("a"), Some(&name("array")));
        // It is copied, and the old one is there yet.
        samples.continue_disk(&name("c"), &name("b"), None);
        samples.flush();
        let known = samples.known();
        assert_eq!(known.workloads.get(&name("a")), did.get(&name("a")));
        assert_eq!(known.workloads.get(&name("c")), did.get(&name("b")));
        let moves: Vec<(&str, &str)> =
            known.moves.iter().map(|moved| (moved.disk.as_str(), moved.from.as_str())).collect();
        assert_eq!((moves, known.departed.len()), (vec![("a", "array")], 0));
        assert_eq!(samples.workloads(Lookback::DAY).unwrap()[&name("c")].intervals(), 19);
        assert_eq!(samples.predecessor(&name("a")), None, "it is there again");
    }

    #[test]
    fn history_has_what_is_not_written_yet() {
        let dir = tempfile::tempdir().unwrap();
        let samples = samples(&dir);
        observe(&samples, 1..100, &[("a", 100)]);
        let reads = |samples: &Samples| -> (u64, u64) {
            let hours = samples.history(&name("array"), Lookback::DAY).unwrap();
            (
                hours.values().map(|hour| hour.reads.count).sum(),
                hours.values().map(|hour| hour.totals.taken).sum(),
            )
        };
        assert_eq!(reads(&samples), (9_500, 19));
        samples.flush();
        assert_eq!(reads(&samples), (9_500, 19));
        assert_eq!(samples.points(&name("array")).unwrap().len(), 19);
    }
}
