//! The history that placement needs, in memory: creating a disk waits for no file.

use super::SamplesError;
use super::learnt::Learnt;
use super::recorder::{Chunk, hour_of};
use super::store::{Departed, SamplesFile, set_aside_name};
use headgate_model::Lookback;
use headgate_model::Name;
use headgate_placement::{DeviceModel, PastMove, WorkloadMeter, WorkloadProfile};
use headgate_units::Nanos;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A disk that was removed, and may be continued by another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Predecessor {
    /// Where it was.
    pub datastore: Name,
    /// Its workload.
    pub workload: Option<WorkloadProfile>,
}

/// The state when samples were last written, at most five minutes ago.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// The workload of each disk in the busier time of the last 24 hours.
    pub workloads: BTreeMap<Name, WorkloadProfile>,
    /// The models of datastores.
    pub models: BTreeMap<Name, DeviceModel>,
    /// Moves of disks that are there.
    pub moves: Vec<PastMove>,
    /// Disks that were removed in the last days.
    pub departed: BTreeMap<Name, Predecessor>,
}

/// Where [`Known`] is left for others; `None` until the file has been read.
pub(super) type Shared = Arc<Mutex<Option<Arc<Known>>>>;

/// Keeps [`Known`] true to the file. The meters of all disks over the last 24 hours are read once
/// an hour, and what comes in between is added.
pub(super) struct Keeper {
    shared: Shared,
    /// The hour in which the meters were read.
    hour: i64,
    meters: BTreeMap<Name, WorkloadMeter>,
    /// What they say.
    workloads: BTreeMap<Name, WorkloadProfile>,
    models: BTreeMap<Name, DeviceModel>,
    departed: BTreeMap<Name, Predecessor>,
}

impl Keeper {
    pub fn new(shared: Shared) -> Keeper {
        Keeper {
            shared,
            hour: 0,
            meters: BTreeMap::new(),
            workloads: BTreeMap::new(),
            models: BTreeMap::new(),
            departed: BTreeMap::new(),
        }
    }

    /// Reads all.
    pub fn begin(&mut self, file: &mut SamplesFile, now: Nanos) -> Result<(), SamplesError> {
        self.read_meters(file, now)?;
        let before = file.all_before()?;
        self.models =
            before.into_iter().filter_map(|(name, known)| Some((name, known.model()?.1))).collect();
        self.read_departed(file, now)?;
        self.publish(file)
    }

    fn read_meters(&mut self, file: &mut SamplesFile, now: Nanos) -> Result<(), SamplesError> {
        self.meters = file.workloads(Lookback::DAY.from(now), false)?;
        let profile =
            self.meters.iter().filter_map(|(disk, meter)| Some((disk.clone(), meter.profile()?)));
        self.workloads = profile.collect();
        self.hour = hour_of(now);
        Ok(())
    }

    fn read_departed(&mut self, file: &mut SamplesFile, now: Nanos) -> Result<(), SamplesError> {
        let mut departed = BTreeMap::new();
        for Departed { disk, datastore } in file.departed()? {
            let meter = file.hours_of(&set_aside_name(&disk), Lookback::DAY.from(now))?;
            departed.insert(disk, Predecessor { datastore, workload: meter.profile() });
        }
        self.departed = departed;
        Ok(())
    }

    /// A chunk was written.
    pub fn wrote(
        &mut self,
        file: &mut SamplesFile,
        chunk: &Chunk,
        learnt: BTreeMap<Name, Learnt>,
    ) -> Result<(), SamplesError> {
        if hour_of(chunk.ended) == self.hour {
            for (disk, intervals) in &chunk.disks {
                let meter = self.meters.entry(disk.clone()).or_default();
                intervals.iter().for_each(|interval| interval.count_in(meter));
                self.workloads.extend(meter.profile().map(|profile| (disk.clone(), profile)));
            }
        } else {
            self.read_meters(file, chunk.ended)?;
            self.read_departed(file, chunk.ended)?;
        }
        for (datastore, learnt) in learnt {
            match learnt.model {
                Some(model) => self.models.insert(datastore, model),
                None => self.models.remove(&datastore),
            };
        }
        self.publish(file)
    }

    /// A disk was set aside.
    pub fn departed(
        &mut self,
        file: &mut SamplesFile,
        disk: &Name,
        datastore: &Name,
    ) -> Result<(), SamplesError> {
        self.meters.remove(disk);
        let workload = self.workloads.remove(disk);
        self.departed.insert(disk.clone(), Predecessor { datastore: datastore.clone(), workload });
        self.publish(file)
    }

    /// A disk continues another.
    pub fn inherited(
        &mut self,
        file: &mut SamplesFile,
        disk: &Name,
        now: Nanos,
    ) -> Result<(), SamplesError> {
        let meter = file.hours_of(disk.as_str(), Lookback::DAY.from(now))?;
        self.workloads.extend(meter.profile().map(|profile| (disk.clone(), profile)));
        self.meters.insert(disk.clone(), meter);
        self.read_departed(file, now)?;
        self.publish(file)
    }

    pub fn forgot_datastore(
        &mut self,
        file: &mut SamplesFile,
        datastore: &Name,
    ) -> Result<(), SamplesError> {
        self.models.remove(datastore);
        self.publish(file)
    }

    fn publish(&self, file: &mut SamplesFile) -> Result<(), SamplesError> {
        let known = Known {
            workloads: self.workloads.clone(),
            models: self.models.clone(),
            moves: file.moves()?,
            departed: self.departed.clone(),
        };
        *lock(&self.shared) = Some(Arc::new(known));
        Ok(())
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
