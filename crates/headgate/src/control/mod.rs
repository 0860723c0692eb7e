//! The operations on datastores and disks: catalog, images and data path changed together.
//!
//! Readers look at a model in memory and never wait for the catalog or for a change under way. Changes are made one at a
//! time. A change is acknowledged when it is durable in the catalog and in force in the shard.

pub mod admission;
mod datastores;
mod disks;
mod error;
mod exports;
mod flash;
mod images;
mod leases;
#[cfg(test)]
mod moved_tests;
mod placing;
mod plane;
mod pools;
mod remote;
mod reviews;
#[cfg(test)]
mod space_tests;
mod start;
mod statedir;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod views;
mod vms;
mod windows;

pub use datastores::QUEUE_DEPTH_MAX;
pub(crate) use images::{free_space, scratch_path};

pub use error::{ControlError, ErrorKind};
pub use plane::{
    DataPlane, DatastoreSample, DiskSample, LiveDisk, OpenDisk, PlaneError, Probe, RemoteDisk, StreamSample,
    scheduler_policy,
};
pub use statedir::{SOCKET_PATH_MAX, StateDir, StateDirError, StateDirLock};

use crate::catalog::{Backend, Catalog, DatastoreRecord, DiskRecord, ExportRecord, PriorityRecord};
use crate::leases::Leases;
use crate::name::Name;
use crate::samples::Samples;
use crate::windows::Windows;
use headgate_cluster::Identity;
use headgate_devices::ModelSpec;
use headgate_placement::Rules;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

/// Knobs of the control side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// How much of a datastore's capacity may be reserved, in per cent: 1 to 100, default 100.
    pub reservable_percent: u32,
    /// How long a disk that is closed may take to finish its requests; default 10 s.
    pub patience: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options { reservable_percent: 100, patience: Duration::from_secs(10) }
    }
}

/// What the control side works with.
pub struct Parts {
    /// The data path.
    pub plane: Arc<dyn DataPlane>,
    /// The windows that follow their storage's latency.
    pub windows: Windows,
    /// Who serves which disk.
    pub leases: Leases,
    /// What disks and datastores did.
    pub samples: Arc<Samples>,
    /// What is remembered.
    pub catalog: Box<dyn Catalog>,
}

/// In service, or why not.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Service {
    Serving,
    Failed(String),
}

impl Service {
    fn reason(&self) -> Option<&str> {
        match self {
            Service::Serving => None,
            Service::Failed(reason) => Some(reason),
        }
    }
}

#[derive(Clone, Debug)]
struct DatastoreEntry {
    record: DatastoreRecord,
    service: Service,
    /// The device model that its record names; `None` on other storage, and where the name is none: then it is not served.
    device: Option<ModelSpec>,
}

impl DatastoreEntry {
    fn new(record: DatastoreRecord, service: Service) -> DatastoreEntry {
        let device = match &record.backend {
            Backend::Emulated { model, .. } => model.parse().ok(),
            Backend::Dir { .. } | Backend::Block { .. } | Backend::Nbd { .. } => None,
        };
        DatastoreEntry { record, service, device }
    }
}

#[derive(Clone, Debug)]
struct DiskEntry {
    record: DiskRecord,
    service: Service,
}

#[derive(Default)]
struct Model {
    datastores: BTreeMap<Name, DatastoreEntry>,
    disks: BTreeMap<Name, DiskEntry>,
    /// The virtual machines that something was set for.
    vms: BTreeMap<Name, PriorityRecord>,
    exports: BTreeMap<Name, ExportRecord>,
    rules: Rules,
}

impl Model {
    fn datastore(&self, name: &Name) -> Result<&DatastoreEntry, ControlError> {
        self.datastores.get(name).ok_or_else(|| ControlError::Missing {
            kind: "datastore",
            name: name.clone(),
            known: self.datastores.keys().cloned().collect(),
        })
    }

    fn disk(&self, name: &Name) -> Result<&DiskEntry, ControlError> {
        self.disks.get(name).ok_or_else(|| ControlError::Missing {
            kind: "disk",
            name: name.clone(),
            known: self.disks.keys().cloned().collect(),
        })
    }

    fn disks_on<'a>(&'a self, datastore: &'a Name) -> impl Iterator<Item = &'a DiskEntry> {
        self.disks.values().filter(move |disk| disk.record.datastore == *datastore)
    }
}

/// The control side of one daemon.
pub struct Control {
    dir: StateDir,
    identity: Identity,
    options: Options,
    plane: Arc<dyn DataPlane>,
    windows: Windows,
    leases: Leases,
    samples: Arc<Samples>,
    catalog: Mutex<Box<dyn Catalog>>,
    model: RwLock<Model>,
}

impl Control {
    fn catalog(&self) -> MutexGuard<'_, Box<dyn Catalog>> {
        // Whoever panicked left the catalog itself consistent: it is transactional.
        self.catalog.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn model(&self) -> RwLockReadGuard<'_, Model> {
        self.model.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn model_mut(&self) -> RwLockWriteGuard<'_, Model> {
        self.model.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The directory that everything is in.
    pub fn state_dir(&self) -> &StateDir {
        &self.dir
    }

    /// Who this host is among those that share its storage.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Where other hosts may find a datastore's images too.
    pub(crate) fn shared_directory(&self, backend: &Backend) -> Option<PathBuf> {
        match backend {
            Backend::Dir { path } => Some(self.dir.resolve(path)),
            Backend::Emulated { .. } | Backend::Block { .. } | Backend::Nbd { .. } => None,
        }
    }

    /// What disks and datastores did.
    pub(crate) fn samples(&self) -> &Samples {
        &self.samples
    }

    /// The windows that follow their storage's latency.
    pub(crate) fn windows(&self) -> &Windows {
        &self.windows
    }

    /// Where a datastore keeps its images, if it keeps files.
    pub(crate) fn directory(&self, backend: &Backend) -> Option<PathBuf> {
        match backend {
            Backend::Dir { path } | Backend::Emulated { path, .. } => Some(self.dir.resolve(path)),
            Backend::Block { .. } | Backend::Nbd { .. } => None,
        }
    }
}
