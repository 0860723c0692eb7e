//! What disks and datastores did, kept over restarts: what placement learns from.
//!
//! The [`Observer`](crate::observe::Observer)'s samples, some seconds apart, become intervals: of a disk its traits, of a datastore a point of its
//! model ([`judge`]). They are gathered in memory ([`recorder`]), written every five minutes and at the end by a thread of
//! their own ([`store`]), and put together when somebody asks ([`Learnt`], workloads).
//!
//! | what | how fine | how long |
//! |---|---|---|
//! | intervals of disks and datastores | each | 24 h |
//! | distributions of a disk's traits | an hour | 30 days |
//! | the last model of a datastore that made sense | | until there is a better |
//!
//! A daemon that is killed forgets at most the last five minutes. Samples are no promises: when they cannot be written the log says so, and
//! disks are served.

mod judge;
mod learnt;
mod recorder;
mod store;
mod writer;

pub use learnt::{Learnt, UnknownWindow, Window};
pub use recorder::{DiskFine, PERIOD_MAX, PERIOD_MIN, StoreFine};
pub use store::SamplesError;

use crate::control::DatastoreSample;
use crate::name::Name;
use headgate_placement::{DeviceModel, DevicePoint, WorkloadMeter};
use headgate_units::Nanos;
use recorder::{Chunk, Recorder};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use store::SamplesFile;
use writer::Writer;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Nanoseconds since 1970: a clock that outlives the daemon.
pub(crate) fn wall_clock() -> Nanos {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// All samples of a daemon.
pub struct Samples {
    recorder: Mutex<Recorder>,
    file: Arc<Mutex<SamplesFile>>,
    writer: Writer,
}

impl Samples {
    /// Opens the file, creating it if needed. One that is damaged is kept under another name, and a new one begun.
    ///
    /// # Errors
    /// When the file can neither be used nor be put aside, a later version wrote it, or there is no thread to be had.
    pub fn open(path: &Path, period: Duration) -> Result<Samples, SamplesError> {
        let file = Arc::new(Mutex::new(SamplesFile::open(path)?));
        let writer = Writer::start(SamplesFile::open(path)?).map_err(SamplesError::Thread)?;
        Ok(Samples { recorder: Mutex::new(Recorder::new(period)), file, writer })
    }

    /// Takes in what the shards report now. Those that come sooner than the period are passed over.
    pub(crate) fn record(&self, sample: &Arc<Vec<DatastoreSample>>) {
        if let Some(chunk) = lock(&self.recorder).observe(wall_clock(), sample) {
            self.writer.write(chunk);
        }
    }

    /// Forgets a disk that is no more: another of its name begins anew.
    pub fn forget_disk(&self, disk: &Name) {
        lock(&self.recorder).forget_disk(disk);
        self.writer.forget_disk(disk);
    }

    /// Forgets a datastore that is no more.
    pub fn forget_datastore(&self, datastore: &Name) {
        lock(&self.recorder).forget_datastore(datastore);
        self.writer.forget_datastore(datastore);
    }

    /// What each disk did within the window before now; a disk nobody has seen is not there. Linear in disks times hours.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn workloads(&self, window: Window) -> Result<BTreeMap<Name, WorkloadMeter>, SamplesError> {
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

    /// What is known of a datastore by the intervals of the last 24 hours.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn learnt(&self, datastore: &Name) -> Result<Learnt, SamplesError> {
        let intervals = self.intervals(datastore)?;
        let before = lock(&self.file).model(datastore)?;
        Ok(Learnt::from(intervals.iter().map(|(_, interval)| interval), before))
    }

    /// The last models that were written, at most five minutes old.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn models(&self) -> Result<BTreeMap<Name, DeviceModel>, SamplesError> {
        lock(&self.file).models()
    }

    /// The points of a datastore's model with their instants, in nanoseconds since 1970.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn points(&self, datastore: &Name) -> Result<Vec<(Nanos, DevicePoint)>, SamplesError> {
        let intervals = self.intervals(datastore)?;
        Ok(intervals.into_iter().filter_map(|(at, interval)| Some((at, interval.point()?))).collect())
    }

    fn intervals(&self, datastore: &Name) -> Result<Vec<(Nanos, StoreFine)>, SamplesError> {
        let now = wall_clock();
        self.writer.settle();
        let mut intervals = lock(&self.file).store_intervals(datastore, Window::DAY.from(now))?;
        let recorder = lock(&self.recorder);
        intervals.extend(recorder.chunk().store_intervals(datastore));
        Ok(intervals)
    }

    /// Writes what there is, and waits for it.
    pub fn flush(&self) {
        let chunk: Chunk = lock(&self.recorder).take();
        self.writer.write(chunk);
        self.writer.settle();
    }
}

impl Drop for Samples {
    fn drop(&mut self) {
        self.flush();
    }
}
