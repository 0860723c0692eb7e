//! Removed disks whose content is kept: shown, brought back, and purged when their time is over.

use crate::leases::{Before, Eviction};
use crate::new_disk::NewDisk;
use crate::purge_failures::Told;
use crate::workers::Ticket;
use crate::{Control, ControlError, DiskEntry, Model, Service, clock, crash, images};
use headgate_api::removed::{DiskRestore, RemovedDisk, RemovedSpace};
use headgate_api::types::{Changed, Disk};
use headgate_catalog::{DiskChange, RemovedChange};
use headgate_events::{Entry, Outcome, Who};
use headgate_model::{Backend, DiskRecord, DiskState, Name, RemovedId, RemovedRecord, RemovedStep};
use headgate_units::Bytes;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;
use tracing::{info, warn};

/// How long a restoration or a purge may take once it has begun: a former holder of the lease is
/// waited for, and a large image is deleted.
const PATIENCE: Duration = Duration::from_secs(60);

impl Model {
    /// A removed disk, by its id, or the one that had this name last.
    fn removed(&self, which: &str) -> Result<&RemovedRecord, ControlError> {
        let kept = || self.removed.values().filter(|one| one.step != RemovedStep::Moving);
        let by_id = which.parse::<RemovedId>().ok().and_then(|id| self.removed.get(&id));
        by_id.or_else(|| kept().rfind(|one| one.id.name.as_str() == which)).ok_or_else(|| {
            let known: Vec<String> = kept().take(10).map(|one| one.id.to_string()).collect();
            ControlError::NotRemoved { which: which.chars().take(100).collect(), known }
        })
    }

    /// Removed disks on a datastore.
    pub(super) fn removed_on<'a>(
        &'a self,
        datastore: &'a Name,
    ) -> impl Iterator<Item = &'a RemovedRecord> {
        self.removed.values().filter(move |one| one.disk.datastore == *datastore)
    }

    /// What removed disks take of a datastore; `None` when there are none.
    pub(super) fn removed_space(&self, datastore: &Name) -> Option<RemovedSpace> {
        let on = || self.removed_on(datastore);
        let sum = on().fold(0u64, |sum, one| sum.saturating_add(one.allocated.0));
        let disks = on().count();
        (disks > 0).then_some(RemovedSpace { disks, allocated: Bytes(sum) })
    }
}

/// How a removed disk is put back where a restoration ends before its end.
fn back(record: &RemovedRecord) -> RemovedRecord {
    RemovedRecord {
        step: RemovedStep::Kept,
        disk: DiskRecord { name: record.id.name.clone(), ..record.disk.clone() },
        ..record.clone()
    }
}

impl Control {
    fn view_removed(&self, record: &RemovedRecord) -> RemovedDisk {
        RemovedDisk {
            id: record.id.to_string(),
            name: record.id.name.clone(),
            datastore: record.disk.datastore.clone(),
            vm: record.disk.vm.clone(),
            size: record.disk.size,
            allocated: record.allocated,
            policy: record.disk.policy,
            removed_at: record.id.at,
            purged_at: record.id.at.saturating_add(self.options.keep_removed.as_secs()),
        }
    }

    /// Removed disks whose content is kept, by name and time.
    pub fn removed_disks(&self) -> Vec<RemovedDisk> {
        self.model().removed.values().map(|record| self.view_removed(record)).collect()
    }

    /// A removed disk that nothing is being done with, and what its image is on. Asks no storage.
    fn kept(&self, which: &str) -> Result<(RemovedRecord, Backend), ControlError> {
        let model = self.model();
        let record = model.removed(which)?.clone();
        let datastore = model.datastore(&record.disk.datastore)?;
        if let Some(reason) = datastore.service.reason() {
            let (name, reason) = (datastore.record.name.clone(), reason.to_owned());
            return Err(ControlError::DatastoreFailed { name, reason });
        }
        let backend = datastore.record.backend.clone();
        if record.step != RemovedStep::Kept {
            return Err(ControlError::Busy {
                error: format!("removed disk '{}' is {} already", record.id, record.step.as_str()),
                hint: "wait for its end: see 'headgate disk list --removed'".into(),
            });
        }
        Ok((record, backend))
    }

    /// Where the image of a removed disk is, as it may be used now.
    fn directory_of_removed(&self, backend: &Backend) -> Result<PathBuf, ControlError> {
        self.image_directory(backend)?.ok_or_else(|| {
            ControlError::invalid(
                "this datastore has no directory, so it keeps no removed disks",
                "a datastore on a directory, or an emulated one",
            )
        })
    }

    /// Serves a removed disk again, with its content and its policy.
    ///
    /// # Errors
    /// [`ControlError::NotRemoved`], or when its name is taken, its reservation does not fit any
    /// more, or the storage refuses. It is kept then.
    pub fn restore_disk(
        &self,
        which: &str,
        request: DiskRestore,
    ) -> Result<Changed<Disk>, ControlError> {
        let RemovedRecord { id, disk, .. } = self.kept(which)?.0;
        let doing = format!("restoring disk '{}'", id.name);
        self.on_storage(&disk.datastore, doing, PATIENCE, move |control, ticket| {
            control.bring_back(&id, request, ticket)
        })
    }

    fn bring_back(
        &self,
        id: &RemovedId,
        request: DiskRestore,
        ticket: &Ticket,
    ) -> Result<Changed<Disk>, ControlError> {
        let returning = self.plan_return(id, request)?;
        crash::point("return written down");
        let mut service = Service::Creating;
        if let Err(e) = self.carry_back(&returning, &mut service, ticket) {
            self.undo_return(&returning, &service);
            return Err(e);
        }
        crash::point("disk restored");
        let now = self.disk(&returning.record.disk.name)?;
        Ok(Changed { now, warnings: returning.warnings })
    }

    /// Brings a disk into service that was planned. `service` says how far that went.
    fn carry_back(
        &self,
        returning: &Returning,
        service: &mut Service,
        ticket: &Ticket,
    ) -> Result<(), ControlError> {
        let Returning { record, backend, directory, .. } = returning;
        let (id, ready) = (&record.id, &record.disk);
        let name = &ready.name;
        self.hold(name, backend, Before::New, Eviction::Never, ticket)?;
        crash::point("lease acquired");
        ticket.step(format!("bringing the image of disk '{name}' back"));
        images::bring_back(directory, id, name)?;
        crash::point("image brought back");
        self.open_held_disk(ready, backend, None, Eviction::Never)?;
        *service = Service::Serving;
        let mut catalog = self.catalog();
        if !ticket.commit() {
            // Who asked was told so.
            return Err(ControlError::Cut {
                name: ready.datastore.clone(),
                reason: "its storage did not answer in time".into(),
            });
        }
        catalog.change_removed(DiskChange::Update(ready), RemovedChange::Delete(id))?;
        let mut model = self.model_mut();
        model.removed.remove(id);
        let entry = DiskEntry { record: ready.clone(), service: Service::Serving };
        model.disks.insert(name.clone(), entry);
        Ok(())
    }

    /// Gives a removed disk its name, or another, before anything is done at its storage.
    fn plan_return(&self, id: &RemovedId, request: DiskRestore) -> Result<Returning, ControlError> {
        let id_text = id.to_string();
        let directory = self.directory_of_removed(&self.kept(&id_text)?.1)?;
        let mut catalog = self.catalog();
        let (removed, backend) = self.kept(&id_text)?;
        let taken = |error| match error {
            ControlError::Exists { kind: "disk", name } if request.name.is_none() => {
                ControlError::NameTaken { name, id: id.clone() }
            }
            other => other,
        };
        let name = request.name.clone().unwrap_or_else(|| id.name.clone());
        let ready = DiskRecord { name, state: DiskState::Ready, ..removed.disk.clone() };
        let (ready, warnings) = {
            let model = self.model();
            let force = request.force;
            let ready = model.with_class_of_now(ready);
            model.check_not_planned(&ready.name)?;
            self.check_new(&model, &NewDisk::of(&ready), force)
                .map_err(taken)
                .map(|warnings| (ready, warnings))?
        };
        let disk = DiskRecord { state: DiskState::Creating, ..ready.clone() };
        let record = RemovedRecord { step: RemovedStep::Returning, disk: ready, ..removed };
        catalog.change_removed(DiskChange::Insert(&disk), RemovedChange::Put(&record))?;
        let mut model = self.model_mut();
        model.removed.insert(id.clone(), record.clone());
        let entry = DiskEntry { record: disk, service: Service::Creating };
        model.disks.insert(entry.record.name.clone(), entry);
        Ok(Returning { record, backend, directory, warnings })
    }

    /// Puts a disk that could not be restored back among the removed. Where that fails too, it is
    /// shown with the reason, and tried again.
    fn undo_return(&self, returning: &Returning, service: &Service) {
        let Returning { record, backend, directory, .. } = returning;
        let (id, name) = (&record.id, &record.disk.name);
        let undo = || -> Result<(), ControlError> {
            if *service == Service::Serving {
                self.plane.close_disk(name, self.options.patience)?;
            }
            if !images::is_kept(directory, id)? {
                images::keep(directory, name, id)?;
            }
            self.let_go(name, backend);
            self.put_back(record)
        };
        if let Err(e) = undo() {
            warn!(disk = %name, error = %e, "a failed restoration could not be undone");
            let reason = format!("its restoration failed, and could not be undone: {e}");
            self.set_service(name, Service::Failed(reason));
        }
    }

    /// Forgets the disk that a removed one was to be again.
    fn put_back(&self, record: &RemovedRecord) -> Result<(), ControlError> {
        let (kept, name) = (back(record), &record.disk.name);
        let mut catalog = self.catalog();
        catalog.change_removed(DiskChange::Delete(name), RemovedChange::Put(&kept))?;
        let mut model = self.model_mut();
        model.disks.remove(name);
        model.removed.insert(kept.id.clone(), kept);
        Ok(())
    }

    /// Deletes the content of a removed disk.
    ///
    /// # Errors
    /// [`ControlError::NotRemoved`], or when the storage refuses.
    pub fn purge_removed(&self, which: &str) -> Result<(), ControlError> {
        let RemovedRecord { id, disk, .. } = self.kept(which)?.0;
        let doing = format!("purging removed disk '{id}'");
        self.on_storage(&disk.datastore, doing, PATIENCE, move |control, _| {
            let (removed, backend) = control.kept(&id.to_string())?;
            control.purge(&removed, &backend)
        })
    }

    /// What fails is tried again by [`purge_expired`](Self::purge_expired): the catalog knows the
    /// disk until its image is gone.
    fn purge(&self, removed: &RemovedRecord, backend: &Backend) -> Result<(), ControlError> {
        let directory = self.directory_of_removed(backend)?;
        let purging = RemovedRecord { step: RemovedStep::Purging, ..removed.clone() };
        let id = &purging.id;
        {
            let mut catalog = self.catalog();
            catalog.change_removed(DiskChange::None, RemovedChange::Put(&purging))?;
            self.model_mut().removed.insert(id.clone(), purging.clone());
        }
        crash::point("purge written down");
        images::purge(&directory, id)?;
        crash::point("image purged");
        let mut catalog = self.catalog();
        catalog.change_removed(DiskChange::None, RemovedChange::Delete(id))?;
        self.model_mut().removed.remove(id);
        drop(catalog);
        crash::point("removed disk forgotten");
        Ok(())
    }

    /// Has what was kept long enough purged, and what a failure left of earlier purges, and waits
    /// for nobody. What fails is tried again at a later call.
    pub fn purge_expired(&self) {
        let due: BTreeSet<Name> = {
            let model = self.model();
            let due = model.removed.values().filter(|one| self.is_to_be_purged(one));
            let serves = |store: &&Name| {
                model.datastores.get(*store).is_some_and(|s| s.service == Service::Serving)
            };
            due.map(|one| &one.disk.datastore).filter(serves).cloned().collect()
        };
        for datastore in due {
            // Storage that hangs, or has something to do, is asked the next time.
            if !self.workers.is_idle(&datastore) {
                continue;
            }
            let (me, its) = (self.me.clone(), datastore.clone());
            let started = self.workers.start(&datastore, "purging removed disks", move |ticket| {
                if let Some(control) = me.upgrade() {
                    control.purge_due(&its, ticket);
                }
            });
            if let Err(e) = started {
                warn!(%datastore, error = ?e, "removed disks are not purged");
            }
        }
    }

    fn is_to_be_purged(&self, one: &RemovedRecord) -> bool {
        let over = one.id.at.saturating_add(self.options.keep_removed.as_secs());
        match one.step {
            RemovedStep::Kept => over <= clock::seconds_since_1970(),
            RemovedStep::Purging => true,
            RemovedStep::Moving | RemovedStep::Returning => false,
        }
    }

    /// Purges what is due on a datastore.
    fn purge_due(&self, datastore: &Name, ticket: &Ticket) {
        let (due, backend) = {
            let model = self.model();
            let Ok(store) = model.datastore(datastore) else { return };
            let due = model.removed_on(datastore).filter(|one| self.is_to_be_purged(one));
            (due.cloned().collect::<Vec<_>>(), store.record.backend.clone())
        };
        for removed in due {
            let id = &removed.id;
            ticket.step(format!("purging removed disk '{id}'"));
            let failed = self.purge(&removed, &backend).err().map(|e| e.to_string());
            match self.purge_failures().tell(id, failed) {
                Told::Done => {
                    info!(disk = %id, "a removed disk is purged");
                    let purged = Entry::done("removed disk purged").of_disk(&id.name);
                    self.note(purged.because("its time was over"));
                }
                Told::Failed(error) => {
                    let failed = Entry::new(Who::Daemon, "removed disk purged", Outcome::Failed);
                    self.note(failed.of_disk(&id.name).because(&error));
                    warn!(disk = %id, error,
                        "a removed disk could not be purged: it stays among the removed ones, and \
                         this is tried again");
                }
                Told::Already => {}
            }
        }
    }

    /// Finishes or undoes what was being done with removed disks of a datastore that serves, when
    /// a crash or a failure of storage cut it. Called by the datastore's worker.
    pub(super) fn recover_removed(&self, datastore: &Name) {
        let cut: Vec<RemovedRecord> = {
            let model = self.model();
            let cut = model
                .removed_on(datastore)
                .filter(|one| matches!(one.step, RemovedStep::Returning | RemovedStep::Purging));
            cut.cloned().collect()
        };
        for record in cut {
            if let Err(e) = self.recover_one(&record) {
                warn!(disk = %record.id, error = %e, "what was cut is not finished");
            }
        }
    }

    fn recover_one(&self, record: &RemovedRecord) -> Result<(), ControlError> {
        let backend = self.model().datastore(&record.disk.datastore)?.record.backend.clone();
        let (id, name) = (&record.id, &record.disk.name);
        if record.step == RemovedStep::Purging {
            info!(disk = %id, "finishing a purge that was cut");
            return self.purge(record, &backend);
        }
        let directory = self.directory_of_removed(&backend)?;
        if images::is_kept(&directory, id)? {
            info!(disk = %name, "undoing a restoration that was cut");
            return self.put_back(record);
        }
        info!(disk = %name, "finishing a restoration that was cut");
        let mut catalog = self.catalog();
        let now = self.model().disk(name)?.record.clone();
        let ready = DiskRecord { state: DiskState::Ready, ..now };
        catalog.change_removed(DiskChange::Update(&ready), RemovedChange::Delete(id))?;
        let mut model = self.model_mut();
        model.removed.remove(id);
        model.set_record(ready);
        Ok(())
    }
}

/// A disk that is on its way back.
struct Returning {
    record: RemovedRecord,
    backend: Backend,
    directory: PathBuf,
    warnings: Vec<String>,
}
