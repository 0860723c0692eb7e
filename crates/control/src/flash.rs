//! Datastores with a capacity of their own: emulated flash drives, and memory.

use super::{Control, ControlError, DatastoreEntry, Model};
use headgate_api::flash::{Flash, Space};
use headgate_devices::{ModelSpec, SsdIsolation};
use headgate_model::{Backend, Name};
use headgate_units::Bytes;

/// The capacity for disks of a datastore, if its device or its operator sets one.
pub(super) fn capacity_for_disks(datastore: &DatastoreEntry) -> Option<Bytes> {
    if let Backend::Memory { size } = datastore.record.backend {
        return Some(size);
    }
    datastore.device.as_ref()?.capacity()
}

/// Whether the device under a datastore divides by shares, whatever the scheduler does.
pub(super) fn keeps_shares(datastore: &DatastoreEntry) -> bool {
    matches!(&datastore.device, Some(ModelSpec::Ssd(drive)) if drive.isolation() != SsdIsolation::None)
}

/// The space for disks of a datastore that has so much and no more.
pub(super) fn space(model: &Model, datastore: &DatastoreEntry) -> Option<Space> {
    let size = capacity_for_disks(datastore)?;
    let taken: u64 = model.copies_on(&datastore.record.name).map(|disk| disk.record.size.0).sum();
    Some(Space { size, left: Bytes(size.0.saturating_sub(taken)) })
}

/// Whether a new disk fits.
pub(super) fn check_space(
    model: &Model,
    datastore: &DatastoreEntry,
    asked: Option<Bytes>,
) -> Result<(), ControlError> {
    match (space(model, datastore), asked) {
        (Some(Space { size, left }), Some(asked)) if asked > left => Err(ControlError::NoSpace {
            datastore: datastore.record.name.clone(),
            asked,
            size,
            left,
        }),
        _ => Ok(()),
    }
}

impl Control {
    /// Counters and state of a datastore's flash drive; `None` without one.
    ///
    /// # Errors
    /// When there is no datastore of this name, or a shard does not answer.
    pub fn flash_of(&self, datastore: &Name) -> Result<Option<Flash>, ControlError> {
        if capacity_for_disks(self.model().datastore(datastore)?).is_none() {
            return Ok(None);
        }
        Ok(self.sample()?.iter().find(|sample| sample.name == *datastore).and_then(Flash::of))
    }
}
