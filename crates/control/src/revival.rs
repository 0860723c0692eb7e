//! Brings datastores and disks into service: at start, and again later where that failed.
//!
//! All of it is done by the workers of the datastores.

use super::hangs::Facts;
use super::images::{self, Recovery};
use super::state::Ground;
use super::stripe_leases::stripe_of;
use super::to_tend::ToTend;
use super::workers::Ticket;
use super::{Control, ControlError, DiskEntry, Service};
use crate::leases::{Eviction, LOOK, LeaseLocation, Next};
use headgate_api::types::Force;
use headgate_cluster::lease::LeaseError;
use headgate_model::{Backend, DatastoreRecord, DiskRecord, DiskState, Name};
use headgate_units::Bytes;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::PoisonError;
use std::time::Instant;
use tracing::{info, warn};

/// What a file system says of a datastore's directory and of images in it. Blocks.
pub(super) fn facts(directory: &Path, disks: &[Name]) -> Facts {
    let device = fs::metadata(directory).ok().map(|meta| meta.dev());
    let space = Some(images::space(directory).map_err(|e| e.to_string()));
    let allocated = |disk: &Name| {
        let image = fs::symlink_metadata(images::image_path(directory, disk));
        // A file system may say any number of blocks, which are of 512 bytes here.
        let size = image.map_or(0, |meta| meta.blocks().saturating_mul(512));
        (disk.clone(), Bytes(size))
    };
    Facts { device, space, allocated: disks.iter().map(allocated).collect() }
}

/// Where a backend's storage is. Blocks.
pub(super) fn ground(control: &Control, backend: &Backend) -> Option<Ground> {
    let (path, device) = match backend {
        Backend::Dir { path } => {
            let path = control.state_dir().resolve(path);
            let device = fs::metadata(&path).ok().map(|meta| meta.dev());
            (path, device)
        }
        Backend::Block { device, .. } => {
            (device.clone(), fs::metadata(device).ok().map(|meta| meta.rdev()))
        }
        Backend::Emulated { .. }
        | Backend::Nbd { .. }
        | Backend::Stripe { .. }
        | Backend::Memory { .. } => return None,
    };
    Some(Ground { path: fs::canonicalize(&path).unwrap_or(path), device })
}

impl Control {
    /// Looks after what does not serve and should. Waits for nobody. Returns when to call it again.
    pub fn tend(&self) -> Next {
        self.resume();
        self.revive();
        self.settle_moves();
        self.probe();
        match self.to_tend(ToTend::is_nothing) && !self.leases.wants_any() {
            true => Next::WhenRung,
            false => Next::After(LOOK),
        }
    }

    /// Asks what is to be looked after by the model. O(1) while that is not changed.
    fn to_tend<T>(&self, ask: impl FnOnce(&ToTend) -> T) -> T {
        let mut to_tend = self.to_tend.lock().unwrap_or_else(PoisonError::into_inner);
        let model = self.model();
        ask(to_tend.at(self.changes(), || ToTend::of(&model, |backend| self.directory(backend))))
    }

    /// Has workers try again what could not be opened, where that is due.
    pub(super) fn revive(&self) {
        let now = Instant::now();
        let due: BTreeSet<Name> = self.to_tend(|to_tend| {
            let hangs = self.hangs();
            let stores = to_tend.unserved.iter().filter(|store| hangs.is_due(now, store, None));
            let disks = to_tend.waiting.iter();
            let disks = disks.filter(|(store, disk)| hangs.is_due(now, store, Some(disk)));
            stores.chain(disks.map(|(store, _)| store)).cloned().collect()
        });
        for name in due {
            if !self.workers.is_idle(&name) {
                continue;
            }
            let (me, its) = (self.me.clone(), name.clone());
            let started = self.workers.start(&name, "opening it", move |ticket| {
                if let Some(control) = me.upgrade() {
                    control.revive_datastore(&its, ticket);
                }
            });
            if let Err(e) = started {
                warn!(datastore = %name, error = ?e, "it cannot be opened");
            }
        }
    }

    /// Has a datastore's worker bring one disk into service.
    pub(super) fn revive_disk(&self, datastore: &Name, disk: Name) {
        let me = self.me.clone();
        // Without a thread the next call tries again.
        let _ = self.workers.start(datastore, format!("opening disk '{disk}'"), move |ticket| {
            if let Some(control) = me.upgrade() {
                control.recover_disk(&disk, ticket);
            }
        });
    }

    /// Asks file systems now and then, so that one that hangs is known before it is needed. Those
    /// that no disk is on are asked for their space alone, which is less often.
    fn probe(&self) {
        for (datastore, directory) in self.to_tend(|to_tend| to_tend.in_use.clone()) {
            if !self.workers.is_idle(&datastore) {
                continue;
            }
            let _ = self.workers.start(&datastore, "asking its file system", move |_| {
                // An error is an answer; who needs the space asks again, and tells.
                let _ = images::space(&directory);
            });
        }
    }

    /// Brings a datastore and its disks into service, where they are not.
    fn revive_datastore(&self, name: &Name, ticket: &Ticket) {
        let Some(entry) = self.model().datastores.get(name).cloned() else { return };
        if entry.service != Service::Serving {
            let served = self.serve_datastore(&entry.record);
            let ground = served.is_ok().then(|| ground(self, &entry.record.backend)).flatten();
            if let Some(warning) = self.reservation_warning(name, &entry.record.backend) {
                warn!(datastore = %name, warning);
            }
            let service = match &served {
                Ok(()) => Service::Serving,
                Err(e) => Service::Failed(e.to_string()),
            };
            if !self.settle_datastore(&entry.record, service, ground) {
                return;
            }
        }
        self.recover_removed(name);
        let disks: Vec<(DiskRecord, Backend)> = {
            let (model, hangs) = (self.model(), self.hangs());
            let now = Instant::now();
            let due = |disk: &&DiskEntry| {
                disk.service.is_tried_again() && hangs.is_due(now, name, Some(&disk.record.name))
            };
            let disks = model.disks_on(name).filter(due);
            disks.map(|disk| (disk.record.clone(), entry.record.backend.clone())).collect()
        };
        ticket.step("acquiring the leases of its disks");
        self.hold_all(disks.iter().map(|(record, backend)| (record, backend)));
        for (record, _) in disks {
            self.recover_disk(&record.name, ticket);
        }
    }

    /// Writes down whether a datastore serves; answers whether it does. A change of its settings
    /// since it was opened is put into force.
    fn settle_datastore(
        &self,
        opened: &DatastoreRecord,
        service: Service,
        ground: Option<Ground>,
    ) -> bool {
        let name = &opened.name;
        let _no_change_meanwhile = self.catalog();
        let mut model = self.model_mut();
        let Some(entry) = model.datastores.get_mut(name) else { return false };
        let before = std::mem::replace(&mut entry.service, service.clone());
        if let Some(reason) = service.reason() {
            self.hangs().failed(Instant::now(), name, None);
            if before != service {
                warn!(datastore = %name, error = reason, "datastore is not serving");
            }
            let reason = format!("its datastore '{name}' is not serving: {reason}");
            for disk in model.disks.values_mut().filter(|disk| disk.record.datastore == *name) {
                if disk.service.is_tried_again() {
                    disk.service = Service::Failed(reason.clone());
                }
            }
            return false;
        }
        self.hangs().succeeded(name, None);
        entry.ground = ground;
        if let Service::Failed(_) = before {
            info!(datastore = %name, "serving again");
        }
        let now = entry.record.clone();
        drop(model);
        if let Err(e) = self.bring_into_force(opened, &now) {
            warn!(datastore = %name, error = %e, "its settings are not in force");
        }
        true
    }

    /// Finishes or undoes what a crash cut of a disk, and serves it.
    pub(super) fn recover_disk(&self, name: &Name, ticket: &Ticket) {
        let Some((mut record, backend)) = self.unserved(name) else { return };
        let datastore = record.datastore.clone();
        let recovery = match self.directory(&backend) {
            Some(directory) => images::recovery(&record, &directory),
            None if record.state == DiskState::Removing => Recovery::Remove,
            // Its labels say how far it was: whoever creates it again goes on from there.
            None if record.state == DiskState::Creating && stripe_of(&record).is_some() => {
                Recovery::Undo
            }
            None if record.state == DiskState::Creating => Recovery::Finish,
            None if record.state == DiskState::Copying => Recovery::Undo,
            None => Recovery::Keep,
        };
        match self.recover_image(&mut record, &backend, &recovery, ticket) {
            Ok(Standing::Open) => {
                self.hangs().succeeded(&datastore, Some(name));
                self.put_into_service(&record);
            }
            Ok(Standing::Gone) => self.forget_disk(name, &datastore),
            Err(e) => {
                self.hangs().failed(Instant::now(), &datastore, Some(name));
                let service = self.failure(&e);
                if let Some(entry) = self.model_mut().disks.get_mut(name)
                    && entry.service != service
                {
                    warn!(disk = %name, error = %e, "disk is not serving");
                    entry.service = service;
                }
                if let ControlError::Lease(LeaseError::Held { .. }) = e {
                    self.leases.no_longer_wanted(name);
                }
            }
        }
    }

    /// A disk that does not serve and should, and what it lies on.
    fn unserved(&self, name: &Name) -> Option<(DiskRecord, Backend)> {
        let model = self.model();
        let entry = model.disks.get(name)?;
        if matches!(entry.service, Service::Serving | Service::Creating) {
            return None;
        }
        let datastore = model.datastores.get(&entry.record.datastore)?;
        let is_up = datastore.service == Service::Serving;
        is_up.then(|| (entry.record.clone(), datastore.record.backend.clone()))
    }

    /// What a disk is that could not be opened: some come back only with an operator, or with etcd.
    fn failure(&self, error: &ControlError) -> Service {
        let reason = error.to_string();
        match error {
            // This host's own: a daemon that was killed, of which something is in the kernel still.
            ControlError::Lease(LeaseError::Held { holder, .. })
                if holder.host == self.identity.host.to_string() =>
            {
                Service::Failed(reason)
            }
            ControlError::Lease(
                LeaseError::Held { .. } | LeaseError::HeldByUnknown { .. } | LeaseError::Etcd(_),
            )
            | ControlError::Reserved { .. } => Service::Stopped(reason),
            _ => Service::Failed(reason),
        }
    }

    fn recover_image(
        &self,
        record: &mut DiskRecord,
        backend: &Backend,
        recovery: &Recovery,
        ticket: &Ticket,
    ) -> Result<Standing, ControlError> {
        let directory = self.directory(backend);
        match recovery {
            Recovery::Keep => {}
            Recovery::Finish => {
                info!(disk = %record.name, "finishing a creation that was cut");
                if let Some(directory) = &directory {
                    images::discard_unfinished(directory, &record.name)?;
                }
                let mut catalog = self.catalog();
                // It may have been changed since it was looked at.
                let now = self.model().disk(&record.name)?.record.clone();
                *record = DiskRecord { state: DiskState::Ready, ..now };
                catalog.update_disk(record)?;
                self.model_mut().set_record(record.clone());
            }
            Recovery::Undo => {
                info!(disk = %record.name, "undoing a creation or a copy that was cut");
                // If another host has the name by now, what is there is that one's.
                if self.hold_to_remove(&record.name, backend, Force::No, ticket).is_ok() {
                    if let Some(directory) = &directory {
                        images::discard_unfinished(directory, &record.name)?;
                        if record.state == DiskState::Copying {
                            images::remove(directory, &record.name)?;
                        }
                    }
                    self.let_go(&record.name, backend);
                }
                self.catalog().delete_disk(&record.name)?;
                return Ok(Standing::Gone);
            }
            Recovery::Remove => {
                info!(disk = %record.name, "finishing a removal that was cut");
                self.hold_to_remove(&record.name, backend, Force::No, ticket)?;
                self.finish_removal(&record.name, backend)?;
                return Ok(Standing::Gone);
            }
        }
        *record = self.serve_disk(record, backend, Eviction::Never, ticket)?;
        Ok(Standing::Open)
    }

    /// A disk that was opened by this record serves from now on, by the record of now.
    pub(super) fn put_into_service(&self, opened: &DiskRecord) {
        let (name, catalog) = (&opened.name, self.catalog());
        let Some(now) = self.model().disks.get(name).map(|entry| entry.record.clone()) else {
            return;
        };
        let priorities = self.model().priorities(now.vm.as_ref());
        let in_force = self
            .put_disk_in_force(opened, &now)
            .and_then(|()| Ok(self.plane.set_priorities(name, &priorities)?));
        if let Err(e) = in_force {
            warn!(disk = %name, error = %e, "its policy is not in force");
        }
        let before = {
            let mut model = self.model_mut();
            let Some(entry) = model.disks.get_mut(name) else { return };
            entry.record.state = opened.state;
            std::mem::replace(&mut entry.service, Service::Serving)
        };
        drop(catalog);
        self.leases.no_longer_wanted(name);
        if matches!(before, Service::Failed(_) | Service::Stopped(_) | Service::Evicted(_)) {
            info!(disk = %name, "serving again");
        }
        // A lease that was lost before the disk was known to serve.
        let backend = self.model().datastore(&now.datastore).map(|d| d.record.backend.clone());
        let lost = backend.ok().filter(|backend| {
            let location = self.lease_location(name, backend);
            let file = matches!(location, Some(LeaseLocation::File(_)));
            file && self.check_hold(name, backend).is_err()
        });
        if lost.is_some() {
            let reason = "its lease was lost".to_owned();
            self.stop_at_once(vec![(name.clone(), Service::Stopped(reason))]);
        }
    }
}

/// What became of a disk that was found at start.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// It is open.
    Open,
    /// It is no more.
    Gone,
}
