//! Creates disks, and undoes creations that fail.

use super::datastores::volatile;
use super::disks::{datastore_of, writes_of};
use super::images;
use super::meaningless;
use super::placing::Predecessor;
use super::remote::Found;
use super::workers::Ticket;
use super::{Control, ControlError, DiskEntry, Model, Service, crash};
use crate::configuration::{Thing, of_disk, tell};
use crate::leases::{Before, Eviction};
use crate::new_disk::NewDisk;
use crate::preconditions::in_earnest;
use crate::terms::{self, Run};
use headgate_api::placement::Created;
use headgate_api::terms::DryRun;
use headgate_api::types::{Disk, DiskCreate};
use headgate_model::{
    Backend, DiskRecord, DiskSettings, DiskState, Name, Origin, PlannedRecord, PolicyPart,
};
use headgate_placement::Placement;
use headgate_units::Bytes;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tracing::warn;

/// How long a creation may take once it has begun: a former holder of the lease is waited for, and
/// a server dialled.
const PATIENCE: Duration = Duration::from_secs(45);

/// A creation under way. Dropped before [`Creation::finish`], it undoes in reverse order the steps
/// that were made.
///
/// A step that cannot be undone is logged. The disk's row is then left in state `creating`, and the
/// next start undoes the rest.
pub(crate) struct Creation {
    control: Arc<Control>,
    disk: Name,
    /// The backend by which the disk's lease was acquired.
    lease: Option<Backend>,
    /// What the catalog and the model have of it.
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

/// A disk that is known and reserved, and not made.
pub(crate) struct Planned {
    pub(crate) creation: Creation,
    pub(crate) record: DiskRecord,
    pub(crate) backend: Backend,
    pub(crate) warnings: Vec<String>,
}

/// What a new disk holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// What its storage has: zeroes, where that is made.
    Storage,
    /// Another disk as of one instant, once it is copied.
    CopyOf(Origin),
}

/// What was made of a disk by a creation that another thread goes on with. It undoes nothing.
pub(crate) struct HandedOver {
    disk: Name,
    lease: Option<Backend>,
    image: Option<PathBuf>,
}

impl Creation {
    pub(crate) fn new(control: Arc<Control>, disk: Name) -> Creation {
        let service = Service::Failed(String::new());
        Creation { control, disk, lease: None, row: Row::Absent, image: None, service }
    }

    /// The disk's lease was acquired by this backend.
    pub(crate) fn holds(&mut self, backend: Backend) {
        self.lease = Some(backend);
    }

    /// Its image was made in this directory.
    pub(crate) fn made(&mut self, directory: PathBuf) {
        self.image = Some(directory);
    }

    /// It is in service.
    pub(crate) fn serves(&mut self) {
        self.service = Service::Serving;
    }

    /// For whoever goes on with it.
    pub(crate) fn hand_over(mut self) -> HandedOver {
        let (disk, lease, image) = (self.disk.clone(), self.lease.take(), self.image.take());
        self.finish();
        HandedOver { disk, lease, image }
    }

    /// A creation that was handed over, after its row was inserted.
    pub(crate) fn of(control: Arc<Control>, made: HandedOver) -> Creation {
        let HandedOver { disk, lease, image } = made;
        let service = Service::Failed(String::new());
        Creation { control, disk, lease, row: Row::Inserted, image, service }
    }

    /// Keeps everything.
    pub(crate) fn finish(mut self) {
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
            let mut catalog = self.control.catalog();
            catalog.delete_disk(&self.disk)?;
            self.control.model_mut().disks.remove(&self.disk);
        }
        Ok(())
    }
}

impl Drop for Creation {
    fn drop(&mut self) {
        if crash::has_happened() {
            return;
        }
        if let Err(e) = self.undo() {
            warn!(disk = %self.disk, error = %e, "a failed creation could not be undone");
            let mut model = self.control.model_mut();
            if let Some(entry) = model.disks.get_mut(&self.disk) {
                let reason = format!("its creation failed, and could not be undone: {e}");
                entry.service = Service::Failed(reason);
            }
        }
    }
}

impl Control {
    /// Creates a disk and brings it into service.
    ///
    /// # Errors
    /// When a value makes no sense, the name is taken, the reservation does not fit or the storage
    /// refuses. Nothing is left behind then. [`ControlError::Hung`] when the storage does not
    /// answer: what was begun is undone when it does.
    pub fn create_disk(&self, mut request: DiskCreate) -> Result<Created<Disk>, ControlError> {
        let old = self.predecessor(&request)?;
        // Until the disk is in the model: the next one is placed with it in view.
        let turn = request.datastore.is_none().then(|| self.placing());
        let mut placement_chosen = None;
        if request.datastore.is_none() {
            let (target, chosen) = self.place(&request, old.as_ref())?;
            request.datastore = Some(target);
            placement_chosen = Some(chosen);
        }
        let target = datastore_of(&request)?;
        let backend = self.model().datastore(&target)?.record.backend.clone();
        meaningless::check_create(&request, &target, &backend)?;
        let me = self.me.upgrade().ok_or_else(ControlError::stopping)?;
        let planned = match backend {
            // What they need to know is with the storage.
            Backend::Nbd { .. } | Backend::Stripe { .. } | Backend::Block { .. } => None,
            Backend::Dir { .. } | Backend::Emulated { .. } | Backend::Memory { .. } => {
                let creation = Creation::new(me, request.name.clone());
                // One that names an export is refused here.
                self.find_export(&target, &request)?;
                Some(self.plan(creation, request.clone(), Content::Storage, None, None)?)
            }
        };
        drop(turn);
        let doing = format!("creating disk '{}'", request.name);
        self.on_storage(&target, doing, PATIENCE, move |control, ticket| {
            let me = control.me.upgrade().ok_or_else(ControlError::stopping)?;
            let (planned, found) = match planned {
                Some(planned) => (planned, None),
                None => {
                    let mut creation = Creation::new(me, request.name.clone());
                    let found = match &request.datastore {
                        Some(target) => control.find_export(target, &request)?,
                        None => None,
                    };
                    if terms::run() == Run::Real {
                        creation.lease = control.hold_device(&request, ticket)?;
                    }
                    let size = control.size_of_device(&request)?;
                    (
                        control.plan(creation, request, Content::Storage, found.as_ref(), size)?,
                        found,
                    )
                }
            };
            control.make(planned, found, old.as_ref(), placement_chosen, ticket)
        })
    }

    /// Makes a disk that was planned.
    fn make(
        &self,
        planned: Planned,
        found: Option<Found>,
        old: Option<&Predecessor>,
        placement_chosen: Option<Placement>,
        ticket: &Ticket,
    ) -> Result<Created<Disk>, ControlError> {
        let Planned { mut creation, record, backend, mut warnings } = planned;
        let directory = self.image_directory(&backend)?;
        ticket.step(format!("looking for the space of disk '{}'", record.name));
        self.look_at_space(&record.datastore);
        warnings.extend(self.check_overcommit(&record)?);
        self.end_dry_creation(&record, directory.as_deref(), &warnings)?;
        self.hold(&record.name, &backend, Before::New, Eviction::Never, ticket)?;
        creation.lease = Some(backend.clone());
        if let Some(directory) = directory {
            ticket.step(format!("making the image of disk '{}'", record.name));
            images::create(self.plane.as_ref(), &directory, &record.name, record.size)?;
            creation.image = Some(directory);
        }
        ticket.step(format!("opening disk '{}'", record.name));
        let session = match found {
            Some(mut found) => self.label_found(&mut found)?,
            None => None,
        };
        self.open_held_disk(&record, &backend, session, Eviction::Never)?;
        creation.service = Service::Serving;
        let record = DiskRecord { state: DiskState::Ready, ..record };
        let name = record.name.clone();
        {
            let mut catalog = self.catalog();
            if !ticket.commit() {
                drop(catalog);
                // Who asked was told so.
                return Err(ControlError::Cut {
                    name: record.datastore.clone(),
                    reason: "its storage did not answer in time".into(),
                });
            }
            catalog.update_disk(&record)?;
            if let Some(old) = old {
                self.take_over_history(&name, &record.datastore, old);
            }
            let entry = DiskEntry { record, service: Service::Serving };
            let mut model = self.model_mut();
            model.disks.insert(name.clone(), entry);
            model.planned.remove(&name);
            drop(model);
            creation.finish();
        }
        let now = self.disk(&name)?;
        if now.overbooked && warnings.is_empty() {
            warnings.push(format!("datastore '{}' is overbooked", now.datastore));
        }
        Ok(Created { now, warnings, placement_chosen })
    }

    /// A dry run ends here, once no image is in the way.
    fn end_dry_creation(
        &self,
        record: &DiskRecord,
        directory: Option<&Path>,
        warnings: &[String],
    ) -> Result<(), ControlError> {
        if let (Run::Dry, Some(directory)) = (terms::run(), directory) {
            images::check_vacant(directory, &record.name)?;
        }
        in_earnest(|| {
            let made = tell(&Thing::Disk(record.name.clone()), None, Some(&of_disk(record)));
            let (changes, warnings) = (made.into_iter().collect(), warnings.to_vec());
            DryRun { changes, warnings, ..DryRun::default() }
        })
    }

    /// Acquires the lease of a disk on a block device before the device is opened for its size:
    /// while another host holds the device, it must not be touched. Returns the backend, if
    /// there is one.
    pub(crate) fn hold_device(
        &self,
        request: &DiskCreate,
        ticket: &Ticket,
    ) -> Result<Option<Backend>, ControlError> {
        let Some(backend @ Backend::Block { .. }) = self.backend_of_new(request) else {
            return Ok(None);
        };
        self.hold(&request.name, &backend, Before::New, Eviction::Never, ticket)?;
        Ok(Some(backend))
    }

    /// The size of the device that a new disk shall be; `None` where it is none, and where its
    /// datastore has a disk already.
    fn size_of_device(&self, request: &DiskCreate) -> Result<Option<Bytes>, ControlError> {
        let Some(Backend::Block { device, .. }) = self.backend_of_new(request) else {
            return Ok(None);
        };
        let target = datastore_of(request)?;
        self.check_vacant(&self.model(), &target)?;
        super::block_device::check_unused(&device)?;
        Ok(Some(self.plane.device_size(&device)?))
    }

    /// The backend of a disk that is not there yet.
    fn backend_of_new(&self, request: &DiskCreate) -> Option<Backend> {
        let model = self.model();
        let on = request.datastore.as_ref().and_then(|target| model.datastores.get(target))?;
        (!model.disks.contains_key(&request.name)).then(|| on.record.backend.clone())
    }

    /// Checks everything about a new disk that can be checked before anything is made, and puts it
    /// into catalog and model: not in a dry run.
    pub(crate) fn plan(
        &self,
        mut creation: Creation,
        request: DiskCreate,
        content: Content,
        found: Option<&Found>,
        device: Option<Bytes>,
    ) -> Result<Planned, ControlError> {
        let mut catalog = self.catalog();
        // An error drops the creation, which must not find the catalog locked.
        let inserted: Result<_, ControlError> = (|| {
            let (record, backend, warnings) = {
                let model = self.model();
                if let Some(found) = found {
                    self.check_found(&model, &request, found)?;
                }
                self.plan_disk(&model, request, content, found, device)?
            };
            if terms::run() == Run::Real {
                catalog.insert_disk(&record)?;
            }
            Ok((record, backend, warnings))
        })();
        if let (Ok((record, ..)), Run::Real) = (&inserted, terms::run()) {
            creation.row = Row::Inserted;
            let entry = DiskEntry { record: record.clone(), service: Service::Creating };
            self.model_mut().disks.insert(record.name.clone(), entry);
            self.review_known_changes(&record.name);
            self.forget_import(&record.name);
        }
        drop(catalog);
        let (record, backend, warnings) = inserted?;
        Ok(Planned { creation, record, backend, warnings })
    }

    /// Everything about a new disk that can be checked before anything is changed.
    fn plan_disk(
        &self,
        model: &Model,
        request: DiskCreate,
        content: Content,
        found: Option<&Found>,
        device: Option<Bytes>,
    ) -> Result<(DiskRecord, Backend, Vec<String>), ControlError> {
        let target = datastore_of(&request)?;
        let name = request.name;
        let known_size = found.map(|found| found.size).or(request.size).or(device);
        let set = settings_of(model, &name, request.class, request.policy);
        let class = set.class.as_ref().map(|class| model.class(class)).transpose()?;
        if let Some(class) = class.filter(|_| request.placement.class.is_none()) {
            model.check_place_of_class(class, &target, request.force)?;
        }
        if let Content::CopyOf(_) = content {
            model.check_not_planned(&name)?;
        }
        let policy = set.policy(class, known_size.unwrap_or_default());
        let new = NewDisk {
            name: &name,
            target: &target,
            vm: request.vm.as_ref(),
            size: known_size.unwrap_or_default(),
            policy: &policy,
            reserved: policy.reservation,
        };
        let mut warnings = self.check_new(model, &new, request.force)?;
        let datastore = model.datastore(&target)?;
        warnings.extend(volatile(&datastore.record));
        let size = match found {
            Some(found) => found.size,
            None => self.disk_size(model, request.size, datastore, device)?,
        };
        let remote = found.map(|found| found.record.clone());
        let (state, origin) = match content {
            Content::Storage => (DiskState::Creating, None),
            Content::CopyOf(origin) => (DiskState::Copying, Some(origin)),
        };
        let record = DiskRecord {
            name,
            datastore: target,
            vm: request.vm,
            size,
            policy,
            set,
            state,
            remote,
            placement: request.placement,
            writes: writes_of(request.read_only),
            origin,
            set_by: None,
        };
        Ok((record, datastore.record.backend.clone(), warnings))
    }
}

/// What is set at a new disk. One that documents wanted as it is made is theirs.
fn settings_of(
    model: &Model,
    name: &Name,
    class: Option<Name>,
    policy: PolicyPart,
) -> DiskSettings {
    let policy = if class.is_some() { policy } else { policy.with_values_only() };
    let set = DiskSettings { class, policy, applied_by: None };
    let wanted = model.planned.get(name).map(PlannedRecord::settings);
    match wanted {
        Some(wanted) if wanted.class == set.class && wanted.policy == set.policy => wanted,
        _ => set,
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
        let (began, end) = bench.plane.hold_next("connect");
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
    fn of_two_creations_on_one_export_one_is_refused() {
        let bench = with_server();
        let (began, end) = bench.plane.hold_next("connect");
        std::thread::scope(|scope| {
            let bench = &bench;
            let on_x = |name: &'static str| {
                scope.spawn(move || {
                    create(bench, json!({"name": name, "datastore": "far", "export": "x"}))
                })
            };
            let first = on_x("first");
            began.recv().unwrap();
            let second = on_x("second");
            end.send(()).unwrap();
            first.join().unwrap().unwrap();
            let error = second.join().unwrap().unwrap_err();
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
