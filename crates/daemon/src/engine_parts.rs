//! What the parts of the engine's plane share.

use headgate_devices::ModelSpec;
use headgate_engine::{CopyGauge, CopyId, DatastoreId, DiskId, ImageError, MoveGauge, MoveId};
use headgate_model::{DENIED, Name, PlaneError};
use std::collections::HashMap;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long an image may stay locked by a daemon that was just killed.
pub(crate) const LOCK_PATIENCE: Duration = Duration::from_secs(5);

pub(crate) fn failed(e: impl std::fmt::Display) -> PlaneError {
    PlaneError::new(e)
}

pub(crate) fn image_failed(e: ImageError) -> PlaneError {
    let is_denied = |source: &io::Error| source.kind() == io::ErrorKind::PermissionDenied;
    let hint = match &e {
        ImageError::Io { source, .. } if is_denied(source) => Some(DENIED.to_owned()),
        _ => None,
    };
    PlaneError { hint, ..failed(e) }
}

pub(crate) struct Store {
    pub(crate) id: DatastoreId,
    pub(crate) kind: StoreKind,
}

/// Where a datastore's images come from.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum StoreKind {
    /// Files or exports.
    Storage,
    /// A block device.
    Device,
    /// Files behind a device model.
    Model(ModelSpec),
    /// Memory.
    Memory,
}

/// The moves under way, by their disks.
#[derive(Default)]
pub(crate) struct Moves(Mutex<HashMap<Name, Moving>>);

/// One of them.
#[derive(Clone)]
pub(crate) struct Moving {
    pub(crate) id: MoveId,
    pub(crate) gauge: MoveGauge,
    pub(crate) source: DiskId,
    pub(crate) target: DiskId,
}

/// The copies under way, by the disks that they become.
#[derive(Default)]
pub(crate) struct Copies(Mutex<HashMap<Name, Copying>>);

/// One of them.
#[derive(Clone)]
pub(crate) struct Copying {
    pub(crate) id: CopyId,
    pub(crate) gauge: CopyGauge,
    pub(crate) source: DiskId,
    pub(crate) target: DiskId,
}

impl Copies {
    pub(crate) fn lock(&self) -> MutexGuard<'_, HashMap<Name, Copying>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, copy: &Name) -> Option<Copying> {
        self.lock().get(copy).cloned()
    }

    /// The copy that is being made of a disk.
    pub(crate) fn of(&self, source: DiskId) -> Option<(Name, Copying)> {
        let copies = self.lock();
        let found = copies.iter().find(|(_, copying)| copying.source == source);
        found.map(|(name, copying)| (name.clone(), copying.clone()))
    }
}

impl Moves {
    pub(crate) fn lock(&self) -> MutexGuard<'_, HashMap<Name, Moving>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, disk: &Name) -> Option<Moving> {
        self.lock().get(disk).cloned()
    }
}
