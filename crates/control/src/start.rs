use super::capacity;
use super::images::{self, Recovery};
use super::{
    Control, ControlError, DatastoreEntry, DiskEntry, Model, Options, Parts, Service, StateDir,
};
use headgate_api::types::Force;
use headgate_cluster::Identity;
use headgate_model::{
    Backend, DatastorePlacement, DatastoreRecord, DiskRecord, DiskState, Scheduler, WindowRecord,
};
use headgate_qos::CostModel;
use std::path::PathBuf;
use std::sync::{Mutex, RwLock};
use tracing::{info, warn};

impl Control {
    /// Reads the catalog, finishes or undoes what a crash cut, and brings everything into service.
    ///
    /// A datastore or disk that cannot be opened is kept with the reason, and the others serve.
    ///
    /// # Errors
    /// When the catalog fails. Storage that fails is not an error here.
    pub fn start(
        dir: StateDir,
        identity: Identity,
        options: Options,
        parts: Parts,
    ) -> Result<Control, ControlError> {
        let Parts { plane, windows, leases, samples, mut catalog } = parts;
        let mut contents = catalog.load()?;
        if contents.datastores.is_empty()
            && let Some(record) = first_datastore(&dir)
        {
            catalog.insert_datastore(&record)?;
            contents.datastores.push(record);
        }
        let control = Control {
            dir,
            identity,
            options,
            plane,
            windows,
            leases,
            samples,
            service: Default::default(),
            catalog: Mutex::new(catalog),
            model: RwLock::new(Model::default()),
        };
        control.model_mut().rules = contents.rules;
        control.model_mut().vms =
            contents.vms.into_iter().map(|vm| (vm.name, vm.priorities)).collect();
        for mut record in contents.datastores {
            record.capacity = capacity::current(&record);
            let service = match control.serve_datastore(&record) {
                Ok(()) => Service::Serving,
                Err(e) => {
                    warn!(datastore = %record.name, error = %e, "datastore is not serving");
                    Service::Failed(e.to_string())
                }
            };
            control
                .model_mut()
                .datastores
                .insert(record.name.clone(), DatastoreEntry::new(record, service));
        }
        {
            let model = control.model();
            let backend = |record: &DiskRecord| {
                let entry = model
                    .datastores
                    .get(&record.datastore)
                    .filter(|d| d.service == Service::Serving)?;
                Some(entry.record.backend.clone())
            };
            let disks: Vec<_> =
                contents.disks.iter().filter_map(|r| Some((r, backend(r)?))).collect();
            control.hold_all(disks.iter().map(|(record, backend)| (*record, backend)));
        }
        for record in contents.disks {
            control.recover_disk(record)?;
        }
        control.serve_exports(contents.exports);
        let model = control.model();
        info!(datastores = model.datastores.len(), disks = model.disks.len(), "catalog loaded");
        drop(model);
        Ok(control)
    }

    fn recover_disk(&self, record: DiskRecord) -> Result<(), ControlError> {
        let name = record.name.clone();
        let datastore = self.model().datastore(&record.datastore)?.clone();
        if let Some(reason) = datastore.service.reason() {
            let service = Service::Failed(format!(
                "its datastore '{}' is not serving: {reason}",
                record.datastore
            ));
            self.model_mut().disks.insert(name, DiskEntry { record, service });
            return Ok(());
        }
        let backend = &datastore.record.backend;
        let recovery = match self.directory(backend) {
            Some(directory) => images::recovery(&record, &directory),
            None if record.state == DiskState::Removing => Recovery::Remove,
            None if record.state == DiskState::Creating => Recovery::Finish,
            None => Recovery::Keep,
        };
        let mut record = record;
        let service = match self.recover_image(&mut record, backend, &recovery) {
            Ok(Some(service)) => service,
            Ok(None) => return Ok(()),
            Err(ControlError::Catalog(e)) => return Err(e.into()),
            Err(e) => Service::Failed(e.to_string()),
        };
        if let Some(reason) = service.reason() {
            warn!(disk = %name, error = reason, "disk is not serving");
        }
        self.model_mut().disks.insert(name, DiskEntry { record, service });
        Ok(())
    }

    /// Answers `None` when the disk is no more.
    fn recover_image(
        &self,
        record: &mut DiskRecord,
        backend: &Backend,
        recovery: &Recovery,
    ) -> Result<Option<Service>, ControlError> {
        let directory = self.directory(backend);
        match recovery {
            Recovery::Keep => {}
            Recovery::Finish => {
                info!(disk = %record.name, "finishing a creation that was cut");
                if let Some(directory) = &directory {
                    images::discard_unfinished(directory, &record.name)?;
                }
                record.state = DiskState::Ready;
                self.catalog().update_disk(record)?;
            }
            Recovery::Undo => {
                info!(disk = %record.name, "undoing a creation that was cut");
                // If another host has the name by now, what is there is that one's.
                if self.hold_to_remove(&record.name, backend, Force::No).is_ok() {
                    if let Some(directory) = &directory {
                        images::discard_unfinished(directory, &record.name)?;
                    }
                    self.let_go(&record.name, backend);
                }
                self.catalog().delete_disk(&record.name)?;
                return Ok(None);
            }
            Recovery::Remove => {
                info!(disk = %record.name, "finishing a removal that was cut");
                self.hold_to_remove(&record.name, backend, Force::No)?;
                self.finish_removal(self.catalog().as_mut(), record, backend)?;
                return Ok(None);
            }
        }
        Ok(Some(match self.serve_disk(record, backend, None) {
            Ok(()) => Service::Serving,
            Err(e) => Service::Failed(e.to_string()),
        }))
    }

    /// Takes everything out of service, waiting for requests under way. Changes that come later are
    /// not made.
    pub fn shutdown(&self) {
        let _no_more_changes = self.catalog();
        self.windows.stop();
        self.plane.shutdown(self.options.patience);
        self.leases.release_all();
    }
}

/// The datastore that a new state directory gets. An existing directory for it means that there was
/// one before and that the operator removed it, so it is not created again.
fn first_datastore(dir: &StateDir) -> Option<DatastoreRecord> {
    let path = PathBuf::from(super::disks::DEFAULT_DATASTORE);
    if dir.resolve(&path).exists() {
        return None;
    }
    Some(DatastoreRecord {
        name: super::disks::DEFAULT_DATASTORE.parse().ok()?,
        backend: Backend::Dir { path },
        scheduler: Scheduler::Mclock,
        queue_depth: super::datastores::QUEUE_DEPTH_FILES,
        capacity: None,
        cost_model: CostModel::default(),
        plug: headgate_units::Nanos::ZERO,
        window: WindowRecord::unset(),
        placement: DatastorePlacement::default(),
        layers: Vec::new(),
    })
}
