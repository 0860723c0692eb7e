//! The control plane's model of datastores and disks, in memory.

use crate::ControlError;
use crate::copying::Copying;
use crate::moving::Moving;
use crate::snapshots::{Known, Tracked};
use headgate_devices::ModelSpec;
use headgate_model::{
    Backend, ClassRecord, DatastoreRecord, DiskRecord, ExportRecord, Name, PlannedRecord,
    RemovedId, RemovedRecord, TenantRecord, VmRecord,
};
use headgate_placement::Rules;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// In service, or why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    Serving,
    /// It is being opened.
    Starting,
    /// Of a disk: it is being made.
    Creating,
    /// It could not be opened, and is tried again.
    Failed(String),
    /// Of a disk: it is not tried again without an operator, or without its lease.
    Stopped(String),
    /// Of a disk: its device, or its labels, were taken from this host. As `Stopped`.
    Evicted(String),
}

impl Service {
    pub(crate) fn reason(&self) -> Option<&str> {
        match self {
            Service::Serving => None,
            Service::Starting => Some("it is being opened"),
            Service::Creating => Some("it is being created"),
            Service::Failed(reason) | Service::Stopped(reason) | Service::Evicted(reason) => {
                Some(reason)
            }
        }
    }

    /// Whether it comes into service by itself, once its storage lets it.
    pub(crate) fn is_tried_again(&self) -> bool {
        matches!(self, Service::Starting | Service::Failed(_))
    }
}

#[derive(Clone, Debug)]
pub(crate) struct DatastoreEntry {
    pub(crate) record: DatastoreRecord,
    pub(crate) service: Service,
    /// The device model that its record names; `None` on other storage, and where the name is none:
    /// then it is not served.
    pub(crate) device: Option<ModelSpec>,
    /// Where its storage is, as it was found when it came into service.
    pub(crate) ground: Option<Ground>,
}

/// Where a datastore's storage is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ground {
    /// Its directory or device, without links.
    pub(crate) path: PathBuf,
    /// The number of the device that its IO goes to.
    pub(crate) device: Option<u64>,
}

impl DatastoreEntry {
    pub(crate) fn new(record: DatastoreRecord, service: Service) -> DatastoreEntry {
        let device = match &record.backend {
            Backend::Emulated { model, .. } => model.parse().ok(),
            Backend::Dir { .. }
            | Backend::Block { .. }
            | Backend::Nbd { .. }
            | Backend::Stripe { .. }
            | Backend::Memory { .. } => None,
        };
        DatastoreEntry { record, service, device, ground: None }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct DiskEntry {
    pub(crate) record: DiskRecord,
    pub(crate) service: Service,
}

#[derive(Default)]
pub(crate) struct Model {
    pub(crate) datastores: BTreeMap<Name, DatastoreEntry>,
    pub(crate) disks: BTreeMap<Name, DiskEntry>,
    /// The virtual machines that something was set for.
    pub(crate) vms: BTreeMap<Name, VmRecord>,
    pub(crate) exports: BTreeMap<Name, ExportRecord>,
    pub(crate) rules: Rules,
    pub(crate) classes: BTreeMap<Name, ClassRecord>,
    pub(crate) tenants: BTreeMap<Name, TenantRecord>,
    /// Disks that are to be made. What they are promised counts until they are there.
    pub(crate) planned: BTreeMap<Name, PlannedRecord>,
    /// Removed disks whose content is kept.
    pub(crate) removed: BTreeMap<RemovedId, RemovedRecord>,
    /// Moves of disks that have two copies.
    pub(crate) moves: BTreeMap<Name, Moving>,
    /// Copies that are being made, by the disks that they become.
    pub(crate) copies: BTreeMap<Name, Copying>,
    /// Disks whose changes are noted since their last snapshot.
    pub(crate) tracked: BTreeMap<Name, Tracked>,
    /// What snapshots know of those before them.
    pub(crate) known_changes: BTreeMap<Name, Known>,
}

impl Model {
    /// Changes what is known of a disk, if it is there still. One that has its content is to be
    /// made no more.
    pub(crate) fn set_record(&mut self, record: DiskRecord) {
        if record.state.has_image() {
            self.planned.remove(&record.name);
        }
        if let Some(entry) = self.disks.get_mut(&record.name) {
            entry.record = record;
        }
    }

    pub(crate) fn datastore(&self, name: &Name) -> Result<&DatastoreEntry, ControlError> {
        self.datastores.get(name).ok_or_else(|| ControlError::Missing {
            kind: "datastore",
            name: name.clone(),
            known: self.datastores.keys().cloned().collect(),
        })
    }

    pub(crate) fn disk(&self, name: &Name) -> Result<&DiskEntry, ControlError> {
        self.disks.get(name).ok_or_else(|| ControlError::Missing {
            kind: "disk",
            name: name.clone(),
            known: self.disks.keys().cloned().collect(),
        })
    }

    pub(crate) fn class(&self, name: &Name) -> Result<&ClassRecord, ControlError> {
        self.classes.get(name).ok_or_else(|| ControlError::Missing {
            kind: "class",
            name: name.clone(),
            known: self.classes.keys().cloned().collect(),
        })
    }

    pub(crate) fn disks_on<'a>(
        &'a self,
        datastore: &'a Name,
    ) -> impl Iterator<Item = &'a DiskEntry> {
        self.disks.values().filter(move |disk| disk.record.datastore == *datastore)
    }
}
