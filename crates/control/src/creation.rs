//! Creates disks, and undoes a creation that failed.

use crate::datastores::volatile;
use crate::disks::datastore_of;
use crate::leases::{Before, Eviction};
use crate::remote::Found;
use crate::{Control, ControlError, DiskEntry, Model, Service, images};
use headgate_api::placement::Created;
use headgate_api::types::{Disk, DiskCreate};
use headgate_catalog::Catalog;
use headgate_model::{Backend, DiskRecord, DiskState, Name};
use std::path::PathBuf;
use std::sync::MutexGuard;
use tracing::warn;

/// A creation under way, which holds the catalog. Dropped before [`Creation::finish`], it undoes in
/// reverse order the steps that were made.
///
/// A step that cannot be undone is logged. The disk's row is then left in state `creating`, and the
/// next start undoes the rest.
struct Creation<'a> {
    control: &'a Control,
    catalog: MutexGuard<'a, Box<dyn Catalog>>,
    disk: Name,
    /// The backend by which the disk's lease was acquired.
    lease: Option<Backend>,
    /// Whether the catalog has a row of the disk.
    row: Row,
    /// The directory in which its image was made.
    image: Option<PathBuf>,
    service: Service,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Row {
    Absent,
    Inserted,
}

impl Creation<'_> {
    /// Keeps everything.
    fn finish(mut self) {
        self.lease = None;
        self.row = Row::Absent;
        self.image = None;
        self.service = Service::Failed(String::new());
    }

    fn undo(&mut self) -> Result<(), ControlError> {
        if self.service == Service::Serving {
            self.control.plane.close_disk(&self.disk, self.control.options.patience)?;
        }
        if let Some(directory) = self.image.take() {
            images::remove(&directory, &self.disk)?;
        }
        if let Some(backend) = self.lease.take() {
            self.control.let_go(&self.disk, &backend);
        }
        if self.row == Row::Inserted {
            self.catalog.delete_disk(&self.disk)?;
        }
        Ok(())
    }
}

impl Drop for Creation<'_> {
    fn drop(&mut self) {
        if let Err(e) = self.undo() {
            warn!(disk = %self.disk, error = %e, "a failed creation could not be undone");
        }
    }
}

impl Control {
    /// Creates a disk and brings it into service.
    ///
    /// An NBD server is dialled before the catalog is locked: one that does not answer delays no
    /// other change.
    ///
    /// # Errors
    /// When a value makes no sense, the name is taken, the reservation does not fit or the storage
    /// refuses. Nothing is left behind then.
    pub fn create_disk(&self, mut request: DiskCreate) -> Result<Created<Disk>, ControlError> {
        let found = match request.datastore.clone() {
            Some(target) => self.find_export(&target, &request)?,
            None => None,
        };
        let mut creation = Creation {
            control: self,
            catalog: self.catalog(),
            disk: request.name.clone(),
            lease: None,
            row: Row::Absent,
            image: None,
            service: Service::Failed(String::new()),
        };
        let old = self.predecessor(&request)?;
        let mut placement_chosen = None;
        if request.datastore.is_none() {
            let (target, chosen) = self.place(&request, old.as_ref())?;
            request.datastore = Some(target);
            placement_chosen = Some(chosen);
        }
        creation.lease = self.hold_device(&request)?;
        let (record, backend, mut warnings) = {
            let model = self.model();
            if let Some(found) = &found {
                self.check_found(&model, &request, found)?;
            }
            self.plan_disk(&model, request, found.as_ref())?
        };
        creation.catalog.insert_disk(&record)?;
        creation.row = Row::Inserted;
        self.hold(&record.name, &backend, Before::New, Eviction::Never)?;
        creation.lease = Some(backend.clone());
        if let Some(directory) = self.directory(&backend) {
            images::create(self.plane.as_ref(), &directory, &record.name, record.size)?;
            creation.image = Some(directory);
        }
        let session = found.and_then(|found| found.session);
        self.open_held_disk(&record, &backend, session)?;
        creation.service = Service::Serving;
        let record = DiskRecord { state: DiskState::Ready, ..record };
        creation.catalog.update_disk(&record)?;
        let name = record.name.clone();
        if let Some(old) = &old {
            self.take_over_history(&name, &record.datastore, old);
        }
        self.model_mut()
            .disks
            .insert(name.clone(), DiskEntry { record, service: Service::Serving });
        creation.finish();
        let now = self.disk(&name)?;
        if now.overbooked && warnings.is_empty() {
            warnings.push(format!("datastore '{}' is overbooked", now.datastore));
        }
        Ok(Created { now, warnings, placement_chosen })
    }

    /// Acquires the lease of a disk on a block device before the device is opened for its size:
    /// while another host holds the device, it must not be touched. Returns the backend, if
    /// there is one.
    fn hold_device(&self, request: &DiskCreate) -> Result<Option<Backend>, ControlError> {
        let backend = {
            let model = self.model();
            let on = request.datastore.as_ref().and_then(|target| model.datastores.get(target));
            match on {
                Some(on) if !model.disks.contains_key(&request.name) => on.record.backend.clone(),
                _ => return Ok(None),
            }
        };
        if !matches!(backend, Backend::Block { .. }) {
            return Ok(None);
        }
        self.hold(&request.name, &backend, Before::New, Eviction::Never)?;
        Ok(Some(backend))
    }

    /// Everything about a new disk that can be checked before anything is changed.
    fn plan_disk(
        &self,
        model: &Model,
        request: DiskCreate,
        found: Option<&Found>,
    ) -> Result<(DiskRecord, Backend, Vec<String>), ControlError> {
        let target = datastore_of(&request)?;
        let name = request.name;
        let policy = request.policy;
        let mut warnings = self.check_new(model, &name, &target, &policy, request.force)?;
        let datastore = model.datastore(&target)?;
        warnings.extend(volatile(&datastore.record));
        let size = match found {
            Some(found) => found.size,
            None => self.disk_size(model, request.size, datastore)?,
        };
        let (state, remote) = (DiskState::Creating, found.map(|found| found.record.clone()));
        let record = DiskRecord {
            name,
            datastore: target,
            vm: request.vm,
            size,
            policy,
            state,
            remote,
            placement: request.placement,
        };
        Ok((record, datastore.record.backend.clone(), warnings))
    }
}

#[cfg(test)]
mod tests {
    use crate::images;
    use crate::testing::Bench;
    use crate::{ControlError, ErrorKind};
    use headgate_api::placement::Created;
    use headgate_api::types::{Change, Disk, DiskPatch};
    use headgate_cluster::lease::FileLease;
    use serde_json::json;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    fn with_server() -> Bench {
        let bench = Bench::new();
        let server =
            json!({"name": "far", "backend": {"nbd": "nbd+unix:///?socket=/run/none.sock"}});
        bench.control.add_datastore(serde_json::from_value(server).unwrap()).unwrap();
        bench
    }

    fn create(bench: &Bench, body: serde_json::Value) -> Result<Created<Disk>, ControlError> {
        bench.control.create_disk(serde_json::from_value(body).unwrap())
    }

    #[test]
    fn a_server_that_does_not_answer_delays_no_other_change() {
        let bench = with_server();
        create(&bench, json!({"name": "a", "size": 4096, "datastore": "array"})).unwrap();
        let (began, end) = bench.plane.hold_connect();
        std::thread::scope(|scope| {
            let remote = json!({"name": "r", "datastore": "far", "export": "x"});
            let bench = &bench;
            let created = scope.spawn(move || create(bench, remote));
            began.recv().unwrap();
            let (done, changed) = channel();
            scope.spawn(move || {
                let shares = Some(headgate_units::Shares::new(5).unwrap());
                let patch = DiskPatch { shares, limit: Change::Keep, ..DiskPatch::default() };
                done.send(bench.control.set_disk(&"a".parse().unwrap(), patch)).unwrap();
            });
            // The creation is under way until `end` is sent to. The deadline only ends a failure.
            let changed = changed.recv_timeout(Duration::from_secs(60));
            end.send(()).unwrap();
            assert_eq!(changed.unwrap().unwrap().now.policy.shares.get(), 5);
            assert_eq!(created.join().unwrap().unwrap().now.export.as_deref(), Some("x"));
        });
    }

    #[test]
    fn an_export_that_was_taken_while_its_server_was_dialled_is_refused() {
        let bench = with_server();
        let (began, end) = bench.plane.hold_connect();
        std::thread::scope(|scope| {
            let bench = &bench;
            let late = scope.spawn(move || {
                create(bench, json!({"name": "late", "datastore": "far", "export": "x"}))
            });
            began.recv().unwrap();
            create(bench, json!({"name": "first", "datastore": "far", "export": "x"})).unwrap();
            end.send(()).unwrap();
            let error = late.join().unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Conflict);
            assert!(error.to_string().contains("is disk 'first' already"), "{error}");
        });
        let names = bench.control.disks().unwrap();
        assert_eq!(names.iter().map(|disk| disk.name.as_str()).collect::<Vec<_>>(), ["first"]);
    }

    #[test]
    fn every_step_that_fails_undoes_those_before_it() {
        for step in ["create_image", "open_disk"] {
            let bench = Bench::new();
            let disk = json!({"name": "a", "size": 4096, "datastore": "default"});
            bench.plane.break_down(step);
            create(&bench, disk.clone()).unwrap_err();
            assert_eq!(bench.control.disks().unwrap().len(), 0, "{step}");
            let image =
                images::image_path(&bench.temp.path().join("default"), &"a".parse().unwrap());
            assert!(!image.exists(), "{step}: an image is left");
            assert!(!FileLease::path_of(&image).exists(), "{step}: a lease is left");
            bench.plane.repair();
            // No row is in the way.
            create(&bench, disk).unwrap_or_else(|e| panic!("after {step}: {e}"));
        }
    }
}
