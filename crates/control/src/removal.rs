//! Removes disks: their content is kept for a while, given to another host, or deleted.

use crate::configuration::Thing;
use crate::disks::being_created;
use crate::preconditions::in_earnest;
use crate::workers::Ticket;
use crate::{Control, ControlError, DiskEntry, Service, crash, images};
use headgate_api::types::{Force, ImageFate};
use headgate_catalog::{DiskChange, RemovedChange};
use headgate_mirror::Operation;
use headgate_model::{
    Backend, DiskRecord, DiskState, LiveDisk, Name, RemovedId, RemovedRecord, RemovedStep,
};
use headgate_units::Bytes;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;

/// How long a removal may take beside the time that clients have to finish: the data plane closes a
/// disk within 35 s of that.
const REMOVAL: Duration = Duration::from_secs(60);

impl Control {
    /// Takes a disk out of service. Its image is kept for a while, removed, or left for another
    /// host; a block device and the export of a server keep their content.
    ///
    /// # Errors
    /// [`ControlError::InUse`] while clients are connected, [`ControlError::DatastoreFailed`] while
    /// the image cannot be reached, unless `force` says otherwise; or the storage refuses.
    /// [`ControlError::Hung`] when it does not answer: a removal that has begun is finished when it
    /// does.
    pub fn remove_disk(
        &self,
        name: &Name,
        force: Force,
        image: ImageFate,
    ) -> Result<(), ControlError> {
        let datastore = self.removable(name, force, image)?.0.record.datastore;
        let (disk, doing) = (name.clone(), format!("removing disk '{name}'"));
        let patience = self.options.patience + REMOVAL;
        self.on_storage(&datastore, doing, patience, move |control, ticket| {
            // It may have changed since.
            let (entry, backend) = control.removable(&disk, force, image)?;
            let thing = Thing::Disk(disk.clone());
            drop(control.catalog_for(&thing)?);
            in_earnest(|| control.would_go(&thing))?;
            match image {
                ImageFate::Keep => control.give_up_disk(&disk, &entry, ticket),
                ImageFate::Remove => {
                    let keep = control.to_be_kept(&disk, &backend)?;
                    control.remove_image(entry, &backend, keep, force, ticket)
                }
                ImageFate::Purge => control.remove_image(entry, &backend, None, force, ticket),
            }
        })
    }

    /// A disk that may be removed, and what it lies on.
    fn removable(
        &self,
        name: &Name,
        force: Force,
        image: ImageFate,
    ) -> Result<(DiskEntry, Backend), ControlError> {
        let (entry, backend) = {
            let model = self.model();
            let entry = model.disk(name)?.clone();
            if let Service::Creating = entry.service {
                return Err(being_created(name));
            }
            model.check_not_moving(name, Operation::Remove)?;
            let datastore = model.datastore(&entry.record.datastore)?;
            // Storage that is not there now would keep the image for ever.
            if let (Some(reason), Force::No, ImageFate::Remove | ImageFate::Purge) =
                (datastore.service.reason(), force, image)
            {
                let (name, reason) = (datastore.record.name.clone(), reason.to_owned());
                return Err(ControlError::DatastoreFailed { name, reason });
            }
            (entry, datastore.record.backend.clone())
        };
        if entry.service == Service::Serving {
            let clients = self.live()?.get(name).map_or(0, |live: &LiveDisk| live.clients);
            if clients > 0 && force == Force::No {
                return Err(ControlError::InUse { name: name.clone(), clients });
            }
        }
        Ok((entry, backend))
    }

    /// Leaves a disk to other hosts.
    fn give_up_disk(
        &self,
        name: &Name,
        entry: &DiskEntry,
        ticket: &Ticket,
    ) -> Result<(), ControlError> {
        if entry.service == Service::Serving {
            ticket.rest(|| self.plane.close_disk(name, self.options.patience))?;
        }
        let forgotten = self
            .catalog_for(&Thing::Disk(name.clone()))
            .and_then(|mut catalog| Ok(catalog.delete_disk(name)?));
        if let Err(e) = forgotten {
            let why = if let ControlError::Changed { .. } = e {
                "it was changed"
            } else {
                "the catalog failed"
            };
            let reason = format!("it was to be left to other hosts, and {why}");
            self.set_service(name, Service::Failed(reason));
            return Err(e);
        }
        self.leases.release(name);
        ticket.rest(|| self.give_labels_back(&entry.record));
        self.forget_disk(name, &entry.record.datastore);
        Ok(())
    }

    fn remove_image(
        &self,
        entry: DiskEntry,
        backend: &Backend,
        keep: Option<RemovedId>,
        force: Force,
        ticket: &Ticket,
    ) -> Result<(), ControlError> {
        let DiskRecord { name, datastore, .. } = entry.record.clone();
        self.hold_to_remove(&name, backend, force, ticket)?;
        self.begin_removal(&name, keep.as_ref())?;
        crash::point("removal written down");
        if entry.service == Service::Serving {
            let closed = ticket.rest(|| self.plane.close_disk(&name, self.options.patience));
            if let Err(e) = closed {
                self.abort_removal(&name, keep.as_ref())?;
                return Err(e.into());
            }
        }
        self.set_service(&name, Service::Failed("it is being removed".into()));
        ticket.step(format!("removing the image of disk '{name}'"));
        self.finish_removal(&name, backend)?;
        ticket.rest(|| self.give_labels_back(&entry.record));
        self.forget_disk(&name, &datastore);
        Ok(())
    }

    /// Writes down that a disk is being removed, by its record of now: it may have been changed
    /// while its lease was waited for.
    fn begin_removal(&self, name: &Name, keep: Option<&RemovedId>) -> Result<(), ControlError> {
        let mut catalog = self.catalog_for(&Thing::Disk(name.clone()))?;
        let now = self.model().disk(name)?.record.clone();
        let moving = keep.map(|id| RemovedRecord {
            id: id.clone(),
            step: RemovedStep::Moving,
            allocated: Bytes(0),
            disk: DiskRecord { state: DiskState::Ready, ..now.clone() },
        });
        let record = DiskRecord { state: DiskState::Removing, ..now };
        match &moving {
            Some(moving) => {
                let put = RemovedChange::Put(moving);
                catalog.change_removed(DiskChange::Update(&record), put)?;
            }
            None => catalog.update_disk(&record)?,
        }
        // A change of it from here on says `removing` too.
        let mut model = self.model_mut();
        model.set_record(record);
        model.removed.extend(moving.map(|moving| (moving.id.clone(), moving)));
        Ok(())
    }

    /// The disk could not be closed, and stays, with what was changed meanwhile.
    fn abort_removal(&self, name: &Name, keep: Option<&RemovedId>) -> Result<(), ControlError> {
        let mut catalog = self.catalog();
        let now = self.model().disk(name)?.record.clone();
        let ready = DiskRecord { state: DiskState::Ready, ..now };
        match keep {
            Some(id) => {
                let delete = RemovedChange::Delete(id);
                catalog.change_removed(DiskChange::Update(&ready), delete)?;
            }
            None => catalog.update_disk(&ready)?,
        }
        let mut model = self.model_mut();
        model.set_record(ready);
        if let Some(id) = keep {
            model.removed.remove(id);
        }
        Ok(())
    }

    /// Forgets a disk that the catalog has no more.
    pub(super) fn forget_disk(&self, name: &Name, datastore: &Name) {
        self.model_mut().disks.remove(name);
        self.tidy_groups();
        self.forget_known_changes(name);
        self.samples.forget_disk(name, datastore);
        self.forget_exports_of(name);
    }

    /// What a disk is called whose image is to be kept: `None` when there is no image of its own,
    /// or nothing is kept. Asks the storage, under no lock.
    fn to_be_kept(
        &self,
        name: &Name,
        backend: &Backend,
    ) -> Result<Option<RemovedId>, ControlError> {
        let Some(directory) = self.directory_if_there(backend)? else { return Ok(None) };
        if self.options.keep_removed.is_zero() {
            return Ok(None);
        }
        let ids = |at| RemovedId { name: name.clone(), at };
        let is_known = |id: &RemovedId| self.model().removed.contains_key(id);
        for id in (crate::clock::seconds_since_1970()..).map(ids) {
            if !is_known(&id) && !images::is_kept(&directory, &id)? {
                return Ok(Some(id));
            }
        }
        Ok(None)
    }

    /// The directory of a datastore's images; `None` where storage is not there, for it has no
    /// image either.
    pub(super) fn directory_if_there(
        &self,
        backend: &Backend,
    ) -> Result<Option<PathBuf>, ControlError> {
        match self.image_directory(backend) {
            Err(ControlError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
                Ok(None)
            }
            found => found,
        }
    }

    /// The second half of a removal, also of one that a crash cut.
    pub(super) fn finish_removal(
        &self,
        name: &Name,
        backend: &Backend,
    ) -> Result<(), ControlError> {
        let moving = {
            let model = self.model();
            let mut moving = model
                .removed
                .values()
                .filter(|removed| removed.step == RemovedStep::Moving && removed.id.name == *name);
            moving.next().cloned()
        };
        let mut kept = None;
        if let Some(directory) = self.directory_if_there(backend)? {
            images::discard_unfinished(&directory, name)?;
            match &moving {
                Some(moving) => {
                    kept = images::keep(&directory, name, &moving.id)?;
                    crash::point("image kept");
                }
                None => {
                    images::remove(&directory, name)?;
                    crash::point("image removed");
                }
            }
        }
        let location = self.lease_location(name, backend);
        self.leases.remove(name, location.as_ref()).map_err(|source| ControlError::Io {
            doing: format!("remove the lease of disk '{name}'"),
            source,
        })?;
        crash::point("lease removed");
        let mut catalog = self.catalog();
        match (moving, kept) {
            (None, _) => catalog.delete_disk(name)?,
            (Some(moving), Some(allocated)) => {
                // With what was changed while it was being removed.
                let now = self.model().disk(name)?.record.clone();
                let disk = DiskRecord { state: DiskState::Ready, ..now };
                let record = RemovedRecord { step: RemovedStep::Kept, allocated, disk, ..moving };
                let put = RemovedChange::Put(&record);
                catalog.change_removed(DiskChange::Delete(name), put)?;
                self.model_mut().removed.insert(record.id.clone(), record);
            }
            // There was no image to keep.
            (Some(RemovedRecord { id, .. }), None) => {
                catalog.change_removed(DiskChange::Delete(name), RemovedChange::Delete(&id))?;
                self.model_mut().removed.remove(&id);
            }
        }
        drop(catalog);
        crash::point("disk forgotten");
        Ok(())
    }
}
