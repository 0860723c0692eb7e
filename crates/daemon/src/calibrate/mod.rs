//! Measures a datastore's capacity: worst-case random IO through the engine, at the datastore's
//! queue depth.
//!
//! A scratch disk is made on the datastore, filled where it can have holes, and asked for random
//! requests of 4 KiB, half reads and half writes, until the rate has settled (`steady`). On a block
//! device, whose content is an operator's, only reads are made.

mod knee;
mod steady;

use crate::engine_plane::{EnginePlane, Internal};
use crate::inproc::{Counts, LoadPort, Order, Pattern};
use headgate_api::calibration::{Calibration, CalibrationCreate, CalibrationState};
use headgate_api::flash::Space;
use headgate_api::types::Force;
use headgate_control::{Control, ControlError};
use headgate_devices::ModelSpec;
use headgate_engine::port::Detach;
use headgate_engine::{Image, PortRef};
use headgate_model::Name;
use headgate_model::PlaneError;
use headgate_model::{Backend, Capacity, CapacitySource, DatastoreRecord, FoundThreshold};
use headgate_units::{Bytes, Iops};
use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use steady::Steadiness;

/// The size of requests that are counted, in bytes.
const BLOCK: u32 = 4096;

/// The size of requests that fill the scratch disk, in bytes.
const FILL_BLOCK: u32 = 1 << 20;

/// The scratch disk: larger than any array's cache would be better, but nobody waits for that.
const SCRATCH: Bytes = Bytes::from_gib(1);

/// The scratch disk on emulated spindles, whose file stays sparse: so wide that heads have to
/// travel.
const SCRATCH_SPINDLES: Bytes = Bytes::from_gib(1 << 10);

/// The scratch disk where the model knows no places.
const SCRATCH_MODEL: Bytes = Bytes::from_mib(64);

/// Distance of two samples.
const PERIOD: Duration = Duration::from_millis(500);

/// How long may be measured, in seconds: at least what the judgement needs.
const SECONDS: RangeInclusive<u16> = 6..=3_600;

/// How long the last requests may take to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// Calibrations by datastore: those that run, and the last ones.
pub struct Calibrator {
    control: Arc<Control>,
    plane: Arc<EnginePlane>,
    jobs: Mutex<HashMap<Name, Arc<Job>>>,
}

struct Job {
    cancelled: AtomicBool,
    state: Mutex<Calibration>,
}

impl Job {
    fn update(&self, change: impl FnOnce(&mut Calibration)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn get(&self) -> Calibration {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }
}

/// Why a calibration gave no result.
enum End {
    Cancelled,
    Failed(ControlError),
}

impl<E: Into<ControlError>> From<E> for End {
    fn from(e: E) -> End {
        End::Failed(e.into())
    }
}

impl Calibrator {
    /// None runs yet.
    pub fn new(control: Arc<Control>, plane: Arc<EnginePlane>) -> Calibrator {
        Calibrator { control, plane, jobs: Mutex::default() }
    }

    fn jobs(&self) -> MutexGuard<'_, HashMap<Name, Arc<Job>>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn job(&self, datastore: &Name) -> Result<Arc<Job>, ControlError> {
        self.jobs().get(datastore).cloned().ok_or_else(|| ControlError::Missing {
            kind: "calibration of datastore",
            name: datastore.clone(),
            known: Vec::new(),
        })
    }

    /// Starts one, on a thread of its own.
    ///
    /// # Errors
    /// When one runs, the datastore cannot be measured, or its disks are busy and `force` does not
    /// say otherwise.
    pub fn start(
        self: &Arc<Self>,
        name: &Name,
        request: CalibrationCreate,
    ) -> Result<Calibration, ControlError> {
        let CalibrationCreate { force, seconds } = request;
        if !SECONDS.contains(&seconds) {
            return Err(ControlError::invalid(
                format!("{seconds} seconds are not a time to measure for"),
                format!("{} to {} seconds", SECONDS.start(), SECONDS.end()),
            ));
        }
        let record = self.control.measurable(name)?;
        if force == Force::No {
            self.check_idle(name)?;
        }
        let running = |job: &Arc<Job>| job.get().state == CalibrationState::Running;
        let job = {
            let mut jobs = self.jobs();
            if jobs.get(name).is_some_and(running) {
                return Err(ControlError::Busy {
                    error: format!("datastore '{name}' is being calibrated already"),
                    hint: "wait for its end, or stop it with Ctrl-C where it was started".into(),
                });
            }
            let job = Arc::new(Job {
                cancelled: AtomicBool::new(false),
                state: Mutex::new(Calibration::begun()),
            });
            jobs.insert(name.clone(), job.clone());
            job
        };
        let begun = job.get();
        let (calibrator, worker) = (self.clone(), job.clone());
        let thread = std::thread::Builder::new().name("headgate-calibrate".into());
        let spawned = thread.spawn(move || calibrator.run(&record, seconds, &worker));
        if let Err(source) = spawned {
            self.jobs().remove(name);
            return Err(ControlError::Io { doing: "start a thread".into(), source });
        }
        Ok(begun)
    }

    /// How far it is, or how it ended.
    ///
    /// # Errors
    /// When none was started since the daemon was.
    pub fn get(&self, datastore: &Name) -> Result<Calibration, ControlError> {
        Ok(self.job(datastore)?.get())
    }

    /// Tells it to end; the capacity stays as it was.
    ///
    /// # Errors
    /// When none was started since the daemon was.
    pub fn cancel(&self, datastore: &Name) -> Result<(), ControlError> {
        self.job(datastore)?.cancelled.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Tells all to end.
    pub fn cancel_all(&self) {
        self.jobs().values().for_each(|job| job.cancelled.store(true, Ordering::Relaxed));
    }

    fn check_idle(&self, name: &Name) -> Result<(), ControlError> {
        let busy = |disk: &headgate_model::DiskSample| disk.queued > 0 || disk.in_flight > 0;
        let first = self.control.sample()?;
        // One request at a time is easily missed by one look.
        std::thread::sleep(Duration::from_millis(200));
        let second = self.control.sample()?;
        let find =
            |all: &[headgate_model::DatastoreSample]| all.iter().find(|s| s.name == *name).cloned();
        let (Some(first), Some(second)) = (find(&first), find(&second)) else { return Ok(()) };
        let worked = second.stats.since(&first.stats).iops > 0.0;
        if !worked && !second.disks.iter().any(busy) {
            return Ok(());
        }
        Err(ControlError::Busy {
            error: format!(
                "disks on datastore '{name}' are in use: they would disturb the figure, and it them"
            ),
            hint: "calibrate while they are idle, or use --force".into(),
        })
    }

    fn run(&self, record: &DatastoreRecord, seconds: u16, job: &Job) {
        let result = self.measure(record, seconds, job);
        job.update(|state| {
            state.permille = 1_000;
            match result {
                Ok((capacity, threshold)) => {
                    state.state = CalibrationState::Done;
                    state.capacity = Some(capacity.into());
                    state.threshold = Some(threshold);
                }
                Err(End::Cancelled) => state.state = CalibrationState::Cancelled,
                Err(End::Failed(e)) => {
                    tracing::warn!(datastore = %record.name, error = %e, "calibration failed");
                    state.state = CalibrationState::Failed;
                    state.error = Some(e.to_string());
                }
            }
        });
    }

    fn measure(
        &self,
        record: &DatastoreRecord,
        seconds: u16,
        job: &Job,
    ) -> Result<(Capacity, FoundThreshold), End> {
        let scratch = Scratch::open(self, record)?;
        if scratch.may_have_holes {
            scratch.fill(self, job)?;
        }
        let reads = if scratch.is_ours() { 50 } else { 100 };
        let pattern =
            Pattern { depth: record.queue_depth, read_percent: reads, order: Order::Random };
        let aside = Aside::set(&self.control, record)?;
        let (counts, port) = scratch.load(self, pattern, BLOCK)?;
        job.update(|state| "measuring".clone_into(&mut state.phase));
        let measured = observe(&counts, seconds, job);
        port.detach(Detach::Drain);
        port.wait_gone(PATIENCE);
        let threshold = match &measured {
            Ok(_) => knee::find(self, record, &scratch, job),
            Err(_) => Err(End::Cancelled),
        };
        job.update(|state| "cleaning up".clone_into(&mut state.phase));
        drop(aside);
        drop(scratch);
        let (finding, threshold) = (measured?, threshold?);
        let iops = Iops::new(finding.iops)
            .map_err(|_| PlaneError::new("the storage did nothing at all"))?;
        let at = seconds_now();
        let steady::Finding { spread_percent, confidence, .. } = finding;
        let capacity =
            Capacity { iops, source: CapacitySource::Measured { at, spread_percent, confidence } };
        self.control.set_measured(&record.name, capacity.clone(), Some(threshold))?;
        tracing::info!(datastore = %record.name, iops = iops.get(), spread_percent, threshold = %threshold.threshold, "calibrated");
        Ok((capacity, threshold))
    }
}

/// Samples the rate until it has settled.
fn observe(counts: &Counts, seconds: u16, job: &Job) -> Result<steady::Finding, End> {
    let most = Duration::from_secs(u64::from(seconds)).as_millis() / PERIOD.as_millis();
    let mut steadiness = Steadiness::new(usize::try_from(most).unwrap_or(usize::MAX));
    let (mut last, mut at) = (counts.done(), Instant::now());
    loop {
        std::thread::sleep(PERIOD);
        if job.is_cancelled() {
            return Err(End::Cancelled);
        }
        if counts.errors() > 0 {
            return Err(
                PlaneError::new("the storage failed under the load: see the kernel's log").into()
            );
        }
        let (done, now) = (counts.done(), Instant::now());
        let micros = u64::try_from((now - at).as_micros()).unwrap_or(u64::MAX).max(1);
        let iops = (done - last).saturating_mul(1_000_000) / micros;
        (last, at) = (done, now);
        let finding = steadiness.on_sample(iops);
        job.update(|state| {
            state.iops = Some(iops);
            state.permille = 100 + steadiness.permille() * 6 / 10;
        });
        if let Some(finding) = finding {
            return Ok(finding);
        }
    }
}

fn seconds_now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// A datastore's window at its queue depth, whatever the latency, as long as this value lives.
struct Aside<'a> {
    control: &'a Control,
    record: &'a DatastoreRecord,
}

impl<'a> Aside<'a> {
    fn set(control: &'a Control, record: &'a DatastoreRecord) -> Result<Aside<'a>, ControlError> {
        control.windows().suspend(&record.name, record.queue_depth)?;
        Ok(Aside { control, record })
    }
}

impl Drop for Aside<'_> {
    fn drop(&mut self) {
        let name = &self.record.name;
        // It may have been set otherwise meanwhile. One that was removed has no window.
        let Ok(now) = self.control.datastore_record(name) else { return };
        let resumed = self.control.windows().resume(name, now.queue_depth, now.window.narrow);
        if let Err(e) = resumed {
            tracing::debug!(datastore = %name, error = %e, "its window was not set back");
        }
    }
}

/// The disk that is measured; goes with this value.
struct Scratch<'a> {
    plane: &'a EnginePlane,
    disk: Option<Internal>,
    /// The file to remove; none on a block device.
    file: Option<PathBuf>,
    size: u64,
    may_have_holes: bool,
}

impl<'a> Scratch<'a> {
    fn open(
        calibrator: &'a Calibrator,
        record: &DatastoreRecord,
    ) -> Result<Scratch<'a>, ControlError> {
        let plane = &*calibrator.plane;
        let mut scratch = Scratch { plane, disk: None, file: None, size: 0, may_have_holes: false };
        let path = match &record.backend {
            Backend::Block { device, .. } => device.clone(),
            // The control side refuses it.
            Backend::Nbd { .. } | Backend::Stripe { .. } | Backend::Memory { .. } => {
                return Err(PlaneError::new("there is nothing to measure on").into());
            }
            backend @ (Backend::Dir { .. } | Backend::Emulated { .. }) => {
                let directory = calibrator.control.image_directory(backend)?.unwrap_or_default();
                let path = headgate_control::scratch_path(&directory);
                remove(&path)?;
                let space = calibrator.control.datastore(&record.name)?.space;
                let size = scratch_size(backend, &directory, space)?;
                scratch.file = Some(path.clone());
                Image::create(&path, size).map_err(PlaneError::new)?;
                // A model does not care what is below it, but a flash drive whether a page was ever
                // written.
                scratch.may_have_holes = matches!(backend, Backend::Dir { .. }) || space.is_some();
                path
            }
        };
        let (disk, size) = plane.open_internal(&record.name, &path)?;
        (scratch.disk, scratch.size) = (Some(disk), size.0);
        Ok(scratch)
    }

    fn is_ours(&self) -> bool {
        self.file.is_some()
    }

    fn load(
        &self,
        calibrator: &Calibrator,
        pattern: Pattern,
        block: u32,
    ) -> Result<(Arc<Counts>, PortRef), ControlError> {
        let disk = self.disk.as_ref().ok_or_else(|| PlaneError::new("the scratch disk is gone"))?;
        let counts = Arc::new(Counts::default());
        let shared = counts.clone();
        let port = calibrator.plane.attach_internal(disk, move |info| {
            Box::new(LoadPort::new(info, pattern, block, pattern.depth, 1, shared))
        })?;
        Ok((counts, port))
    }

    /// Writes the disk once, so that reads find data and not holes.
    fn fill(&self, calibrator: &Calibrator, job: &Job) -> Result<(), End> {
        job.update(|state| "preparing".clone_into(&mut state.phase));
        let pattern = Pattern { depth: 8, read_percent: 0, order: Order::Sequential };
        let (counts, port) = self.load(calibrator, pattern, FILL_BLOCK)?;
        let all = self.size / u64::from(FILL_BLOCK);
        let result = loop {
            let done = counts.done().min(all);
            job.update(|state| state.permille = done * 100 / all.max(1));
            if counts.errors() > 0 {
                break Err(PlaneError::new(
                    "the scratch disk cannot be filled: is the datastore full?",
                )
                .into());
            }
            if done >= all {
                break Ok(());
            }
            if job.is_cancelled() {
                break Err(End::Cancelled);
            }
            std::thread::sleep(Duration::from_millis(50));
        };
        port.detach(Detach::Drain);
        port.wait_gone(PATIENCE);
        result
    }
}

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        if let Some(disk) = self.disk.take() {
            self.plane.close_internal(disk, PATIENCE);
        }
        if let Some(file) = &self.file
            && let Err(e) = remove(file)
        {
            tracing::warn!(error = %e, "a scratch file is left");
        }
    }
}

fn remove(path: &std::path::Path) -> Result<(), ControlError> {
    Ok(Image::remove(path).map_err(PlaneError::new)?)
}

/// As much as is wanted, but no more than a quarter of what is free.
fn scratch_size(
    backend: &Backend,
    directory: &std::path::Path,
    space: Option<Space>,
) -> Result<Bytes, ControlError> {
    const LEAST: u64 = 64 << 20;
    let free = headgate_control::free_space(directory)?.0 / 4;
    if free < LEAST {
        return Err(ControlError::Busy {
            error: format!("{} has too little free space to measure on", directory.display()),
            hint: "free 256 MiB, or set the capacity with 'headgate datastore set NAME --capacity IOPS'"
                .into(),
        });
    }
    if let Some(Space { left, .. }) = space {
        let size = left.0.min(SCRATCH_MODEL.0) / u64::from(FILL_BLOCK) * u64::from(FILL_BLOCK);
        if size == 0 {
            return Err(ControlError::Busy {
                error: format!("{left} of the drive are left, too little to measure on"),
                hint: "remove a disk, or set the capacity with 'headgate datastore set NAME --capacity IOPS'"
                    .into(),
            });
        }
        return Ok(Bytes(size));
    }
    if let Backend::Emulated { model, .. } = backend {
        let spindles = !matches!(model.parse(), Ok(ModelSpec::Rate { .. }));
        return Ok(if spindles { SCRATCH_SPINDLES } else { SCRATCH_MODEL });
    }
    Ok(Bytes(free.min(SCRATCH.0) / u64::from(FILL_BLOCK) * u64::from(FILL_BLOCK)))
}
