//! Leases of disks: acquires, loses, releases and takes them over, so that two hosts never serve
//! one disk.

use super::disks::DEFAULT_DATASTORE;
use super::workers::Ticket;
use super::{
    Control, ControlError, DatastoreEntry, DiskEntry, Model, Service, images, meaningless,
};
use crate::leases::{Before, Eviction, LeaseLocation, Leases, Next};
use crate::meaningless::{Etcd, Taken};
use crate::new_disk::NewDisk;
use headgate_api::leases::{DiskTakeover, ImageFormat, Lease, LeaseHolder, LeasePlace};
use headgate_api::types::{Changed, Disk, Force};
use headgate_cluster::lease::{FileLease, Holder, LeaseError};
use headgate_model::Name;
use headgate_model::{Backend, DiskRecord, DiskSettings, DiskState};
use headgate_units::Bytes;
use std::fs;
use std::path::Path;
use std::time::Duration;
use tracing::{error, warn};

/// What is known of a block device wherever it is attached, of the kinds that say.
const WORLD_WIDE: [&str; 4] = ["wwid", "device/wwid", "dm/uuid", "device/serial"];

/// A block device's name in etcd: the same on all hosts that share it. Devices that have no name of
/// their own (loop devices, say) go by the path that the operator gave.
pub(super) fn name_of_device(device: &Path) -> String {
    use std::os::unix::fs::MetadataExt;
    let of_its_own = fs::metadata(device).ok().and_then(|meta| {
        let (major, minor) = (rustix::fs::major(meta.rdev()), rustix::fs::minor(meta.rdev()));
        let device = Path::new("/sys/dev/block").join(format!("{major}:{minor}"));
        let said = WORLD_WIDE.iter().find_map(|file| fs::read_to_string(device.join(file)).ok());
        said.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
    });
    let name = of_its_own.unwrap_or_else(|| device.display().to_string());
    let fit = |c: char| if c.is_ascii_alphanumeric() || "-_.:".contains(c) { c } else { '_' };
    name.chars().map(fit).take(200).collect()
}

fn holder_view(holder: Holder) -> LeaseHolder {
    let printable = |text: &str| text.chars().filter(|c| !c.is_control()).take(64).collect();
    LeaseHolder { name: printable(&holder.name), id: printable(&holder.host), pid: holder.pid }
}

/// How long a takeover may take once it has begun: a former holder's term is waited for.
const TAKEOVER: Duration = Duration::from_secs(60);

fn datastore_named(request: &DiskTakeover) -> Result<Name, ControlError> {
    match &request.datastore {
        Some(name) => Ok(name.clone()),
        None => DEFAULT_DATASTORE
            .parse()
            .map_err(|e| ControlError::invalid(format!("{e}"), "a datastore")),
    }
}

/// Nobody waits for it any more.
fn too_late(record: &DiskRecord) -> ControlError {
    let reason = "its storage did not answer in time".into();
    ControlError::Cut { name: record.datastore.clone(), reason }
}

impl Control {
    /// Where a disk's lease is; `None` for one that no other host can reach.
    pub(super) fn lease_location(&self, disk: &Name, backend: &Backend) -> Option<LeaseLocation> {
        match backend {
            Backend::Dir { .. } => {
                let directory = self.directory(backend)?;
                Some(LeaseLocation::File(FileLease::path_of(&images::image_path(&directory, disk))))
            }
            Backend::Block { device, .. } if self.leases.has_etcd() => {
                Some(LeaseLocation::Etcd(name_of_device(device)))
            }
            _ => None,
        }
    }

    /// The leases that this daemon holds.
    pub fn leases(&self) -> &Leases {
        &self.leases
    }

    /// Becomes the disk's holder, if it has a lease and is not held yet, and waits until it may be
    /// served.
    pub(super) fn hold(
        &self,
        disk: &Name,
        backend: &Backend,
        before: Before,
        eviction: Eviction,
        ticket: &Ticket,
    ) -> Result<(), ControlError> {
        let Some(location) = self.lease_location(disk, backend) else { return Ok(()) };
        ticket.step(format!("acquiring the lease of disk '{disk}'"));
        self.leases.acquire(disk, &location, before, eviction)?;
        ticket.rest(|| self.leases.wait(disk));
        Ok(())
    }

    /// Acquires what disks need that will be served soon, so that they wait together.
    pub(super) fn hold_all<'a>(&self, disks: impl Iterator<Item = (&'a DiskRecord, &'a Backend)>) {
        for (record, backend) in disks {
            if record.state.has_image()
                && let Some(location) = self.lease_location(&record.name, backend)
            {
                // Whoever serves the disk asks again, and tells.
                let _ =
                    self.leases.acquire(&record.name, &location, Before::Existing, Eviction::Never);
            }
        }
    }

    /// Whether a disk that is held may be served at this moment.
    pub(super) fn check_hold(&self, disk: &Name, backend: &Backend) -> Result<(), ControlError> {
        match self.lease_location(disk, backend) {
            Some(location) if !self.leases.may_serve(disk, &location) => Err(ControlError::Busy {
                error: format!(
                    "the lease on disk '{disk}' is in doubt: it is served again as soon as etcd answers"
                ),
                hint: "see that etcd is reachable".into(),
            }),
            _ => Ok(()),
        }
    }

    /// Before an image is removed.
    pub(super) fn hold_to_remove(
        &self,
        disk: &Name,
        backend: &Backend,
        force: Force,
        ticket: &Ticket,
    ) -> Result<(), ControlError> {
        match self.hold(disk, backend, Before::Existing, Eviction::Never, ticket) {
            // Storage that is not there: the operator said that this is no reason.
            Err(ControlError::Lease(LeaseError::Io { .. })) if force == Force::Yes => Ok(()),
            held => held,
        }
    }

    /// After a creation that came to nothing: of a disk without an image no lease is left either.
    pub(super) fn let_go(&self, disk: &Name, backend: &Backend) {
        let image = self.directory(backend).map(|directory| images::image_path(&directory, disk));
        match (image, self.lease_location(disk, backend)) {
            (Some(image), Some(location)) if !image.exists() => {
                if let Err(e) = self.leases.remove(disk, Some(&location)) {
                    warn!(%disk, error = %e, "the lease of a disk that is none is left");
                }
            }
            _ => self.leases.release(disk),
        }
    }

    pub(super) fn view_lease(&self, disk: &Name, backend: &Backend) -> Option<Lease> {
        let location = self.lease_location(disk, backend)?;
        let state = self.leases.state(disk, &location);
        Some(Lease {
            place: match location {
                LeaseLocation::File(_) => LeasePlace::File,
                LeaseLocation::Etcd(_) => LeasePlace::Etcd,
            },
            number: state.own.map(|token| token.0),
            holder: state.other.map(holder_view),
        })
    }

    /// Checks the leases in files, and whose the block devices are. Disks whose lease was lost stop
    /// before the new holder starts.
    ///
    /// Each directory is looked at by a thread of its own, and waited for by nobody: one whose file
    /// system hangs is not looked at again before it answers.
    ///
    /// Returns when to call it again.
    pub fn look_at_leases(&self) -> Next {
        self.look_at_devices();
        let striped = self.stop_striped_evicted();
        for directory in self.leases.directories() {
            let Some(turn) = self.leases.turn(&directory) else { continue };
            let me = self.me.clone();
            let look = move || {
                if let Some(control) = me.upgrade() {
                    control.look_at(&directory);
                }
                drop(turn);
            };
            let started = std::thread::Builder::new().name("headgate-lease".into()).spawn(look);
            if let Err(e) = started {
                warn!(error = %e, "leases cannot be looked at: no thread");
            }
        }
        match self.leases.next_look() {
            Next::WhenRung => striped,
            next => next,
        }
    }

    fn look_at(&self, directory: &Path) {
        self.give_up_copies(self.leases.look_beside(directory));
        let lost = self.leases.look(directory);
        let reason = |to: &Option<Holder>| match to {
            Some(to) => format!("another has taken it over: {to}"),
            None => "another has taken it over, and left no name".to_owned(),
        };
        let stop = lost.iter().map(|(disk, to, _)| (disk.clone(), Service::Stopped(reason(to))));
        self.stop_at_once(stop.collect());
    }

    /// Stops disks whose leases in etcd are in doubt, or whose devices are another's. Returns when
    /// to call it again.
    pub fn keep_terms(&self) -> Next {
        let reason = "its lease in etcd could not be renewed in time, or is another's".to_owned();
        self.stop_evicted();
        for disk in self.leases.copies_in_doubt() {
            self.give_up_copy(&disk, &reason);
        }
        let stop = self.leases.in_doubt();
        let stop = stop.into_iter().map(|disk| (disk, Service::Stopped(reason.clone())));
        self.stop_at_once(stop.collect());
        self.leases.next_doubt()
    }

    /// Brings disks back into service that stopped because etcd could not be reached. Waits for no
    /// storage.
    pub fn resume(&self) {
        for disk in self.leases.wanted() {
            let Some((record, backend)) = self.stopped(&disk) else {
                // Served again or removed by somebody else meanwhile.
                self.leases.no_longer_wanted(&disk);
                if !self.model().disks.contains_key(&disk) {
                    self.leases.release(&disk);
                }
                continue;
            };
            // Etcd may take its time; the datastore's worker need not wait for that.
            let held =
                self.lease_location(&disk, &backend).map_or(Ok(()), |location| match location {
                    LeaseLocation::File(_) => Ok(()),
                    LeaseLocation::Etcd(_) => {
                        self.leases.acquire(&disk, &location, Before::Existing, Eviction::Never)
                    }
                });
            if let Err(LeaseError::Etcd(_)) = held {
                // Not yet; the others would fare no better.
                return;
            }
            if self.workers.is_idle(&record.datastore) {
                self.revive_disk(&record.datastore, disk);
            }
        }
    }

    /// A disk that is known and not served.
    fn stopped(&self, disk: &Name) -> Option<(DiskRecord, Backend)> {
        let model = self.model();
        let entry = model.disks.get(disk).filter(|entry| entry.service != Service::Serving)?;
        if !entry.record.state.has_image() {
            return None;
        }
        let datastore = model.datastores.get(&entry.record.datastore)?;
        Some((entry.record.clone(), datastore.record.backend.clone()))
    }

    pub(super) fn set_service(&self, disk: &Name, service: Service) {
        if let Some(entry) = self.model_mut().disks.get_mut(disk) {
            entry.service = service;
        }
    }

    /// Takes disks out of service, all at the same time. It waits for requests at the storage only,
    /// and not for a change of a disk under way.
    pub(super) fn stop_at_once(&self, disks: Vec<(Name, Service)>) {
        let serving = |disk: &Name| {
            self.model().disks.get(disk).is_some_and(|entry| entry.service == Service::Serving)
        };
        let disks: Vec<_> = disks.into_iter().filter(|(disk, _)| serving(disk)).collect();
        let stop = |disk: &Name, service: &Service| {
            error!(%disk, reason = service.reason(), "stopped at once");
            if let Err(e) = self.plane.abandon_disk(disk) {
                error!(%disk, error = %e, "requests are left at the storage");
            }
            self.set_service(disk, service.clone());
        };
        std::thread::scope(|scope| {
            for (disk, service) in &disks {
                let spawned =
                    std::thread::Builder::new().spawn_scoped(scope, || stop(disk, service));
                if spawned.is_err() {
                    stop(disk, service);
                }
            }
        });
    }

    /// Serves a disk that another daemon created or served: a disk that is known here and not in
    /// service, or one whose image is on the datastore.
    ///
    /// # Errors
    /// [`ControlError::Lease`] while another serves it. Nothing is changed then.
    /// [`ControlError::Hung`] when its storage does not answer; what was begun is undone then.
    pub fn take_over(
        &self,
        name: &Name,
        request: DiskTakeover,
    ) -> Result<Changed<Disk>, ControlError> {
        let known = self.model().disks.get(name).cloned();
        let datastore = match &known {
            Some(entry) => entry.record.datastore.clone(),
            None => datastore_named(&request)?,
        };
        let backend = self.model().datastore(&datastore)?.record.backend.clone();
        let taken = if known.is_some() { Taken::Known } else { Taken::Unknown };
        let etcd = if self.leases.has_etcd() { Etcd::Known } else { Etcd::Unknown };
        meaningless::check_takeover(&request, taken, &backend, etcd)?;
        let (disk, doing) = (name.clone(), format!("taking over disk '{name}'"));
        self.on_storage(&datastore, doing, TAKEOVER, move |control, ticket| {
            let eviction =
                if request.evict == Force::Yes { Eviction::IfHeld } else { Eviction::Never };
            let known = control.model().disks.get(&disk).cloned();
            let warnings = match known {
                Some(entry) => {
                    control.check_known(&entry, &request)?;
                    let force = request.force;
                    ticket.step(format!("asking the servers of disk '{disk}'"));
                    control.take_labels(&disk, eviction, force)?;
                    control.take_over_known(&disk, &entry.record.datastore, eviction, ticket)?;
                    Vec::new()
                }
                None => control.take_over_unknown(&disk, request, eviction, ticket)?,
            };
            Ok(Changed { now: control.disk(&disk)?, warnings })
        })
    }

    fn take_over_known(
        &self,
        name: &Name,
        datastore: &Name,
        eviction: Eviction,
        ticket: &Ticket,
    ) -> Result<(), ControlError> {
        let backend = self.model().datastore(datastore)?.record.backend.clone();
        self.hold(name, &backend, Before::Existing, eviction, ticket)?;
        let record = {
            // It may have been changed while the lease was waited for.
            let mut catalog = self.catalog();
            let now = self.model().disk(name)?.record.clone();
            // Another host may have given its file another size. A device of another size may be
            // another device.
            let state = match backend {
                Backend::Dir { .. } => DiskState::Resizing,
                _ => now.state,
            };
            let now = DiskRecord { state, ..now };
            // The record beside the image is this host's again.
            catalog.update_disk(&now)?;
            self.model_mut().set_record(now.clone());
            now
        };
        let record = self.serve_disk(&record, &backend, eviction, ticket)?;
        if !ticket.commit() {
            self.plane.close_disk(name, self.options.patience)?;
            self.leases.release(name);
            return Err(too_late(&record));
        }
        self.leases.no_longer_wanted(name);
        self.put_into_service(&record);
        Ok(())
    }

    fn take_over_unknown(
        &self,
        name: &Name,
        request: DiskTakeover,
        eviction: Eviction,
        ticket: &Ticket,
    ) -> Result<Vec<String>, ControlError> {
        let (format, asked) = (request.format, request.clone());
        let (record, backend, warnings) = self.plan_takeover(&self.model(), name, request)?;
        self.hold(name, &backend, Before::Existing, eviction, ticket)?;
        let served = self.size_of(&record, &backend, format).and_then(|size| {
            let record = self.enter_taken_over(name, asked, size)?;
            let served = self.serve_disk(&record, &backend, eviction, ticket).and_then(|_| {
                if ticket.commit() {
                    return Ok(());
                }
                self.plane.close_disk(name, self.options.patience)?;
                Err(too_late(&record))
            });
            if let Err(e) = served {
                let mut catalog = self.catalog();
                catalog.delete_disk(name)?;
                self.model_mut().disks.remove(name);
                return Err(e);
            }
            Ok(())
        });
        served.inspect_err(|_| self.leases.release(name))?;
        self.set_service(name, Service::Serving);
        self.put_groups_now()?;
        Ok(warnings)
    }

    /// Writes down a disk that is taken over, and knows of it: from here on it counts in what
    /// others are checked against. Until it is served it is as one that is being created.
    fn enter_taken_over(
        &self,
        name: &Name,
        asked: DiskTakeover,
        size: Bytes,
    ) -> Result<DiskRecord, ControlError> {
        let mut catalog = self.catalog();
        let record = {
            let model = self.model();
            // Much may have changed while its lease was waited for.
            let (record, ..) = self.plan_takeover(&model, name, asked)?;
            let record = DiskRecord { size, ..record };
            model.check_quota(record.vm.as_ref(), NewDisk::of(&record).counted())?;
            record
        };
        catalog.insert_disk(&record)?;
        let entry = DiskEntry { record: record.clone(), service: Service::Creating };
        self.model_mut().disks.insert(name.clone(), entry);
        Ok(record)
    }

    fn check_known(&self, entry: &DiskEntry, request: &DiskTakeover) -> Result<(), ControlError> {
        let DiskRecord { name, datastore, state, .. } = &entry.record;
        if entry.service == Service::Serving {
            return Err(ControlError::Busy {
                error: format!("disk '{name}' is served here already"),
                hint: format!("see 'headgate disk show {name}'"),
            });
        }
        if !state.has_image() {
            let reason = entry.service.reason().unwrap_or("it is being removed").to_owned();
            return Err(ControlError::DiskFailed { name: name.clone(), reason });
        }
        if request.datastore.as_ref().is_some_and(|given| given != datastore) {
            return Err(ControlError::invalid(
                format!("disk '{name}' is known here, on datastore '{datastore}'"),
                format!("no datastore, or '{datastore}'"),
            ));
        }
        if request.vm.is_some() || request.policy.is_some() {
            return Err(ControlError::invalid(
                format!("disk '{name}' is known here and keeps its policy and its virtual machine"),
                format!("neither policy nor machine; change them with 'headgate disk set {name}'"),
            ));
        }
        Ok(())
    }

    fn plan_takeover(
        &self,
        model: &Model,
        name: &Name,
        request: DiskTakeover,
    ) -> Result<(DiskRecord, Backend, Vec<String>), ControlError> {
        let target = datastore_named(&request)?;
        let DiskTakeover { vm, policy, force, .. } = request;
        let policy = policy.unwrap_or_default();
        let datastore: &DatastoreEntry = model.datastore(&target)?;
        let backend = datastore.record.backend.clone();
        if !matches!(backend, Backend::Dir { .. } | Backend::Block { .. }) {
            return Err(ControlError::invalid(
                format!("no image can be taken over on datastore '{target}'"),
                "a datastore on a directory or a block device; a disk over several servers is made \
                 known by 'headgate disk create --export', with --evict if another host holds it",
            ));
        }
        model.check_not_planned(name)?;
        let new = NewDisk {
            name,
            target: &target,
            vm: vm.as_ref(),
            size: Bytes(0),
            policy: &policy,
            reserved: policy.reservation,
        };
        let warnings = self.check_new(model, &new, force)?;
        if let Backend::Block { .. } = backend {
            self.check_vacant(model, &target)?;
        }
        let state = DiskState::Ready;
        Ok((
            DiskRecord {
                name: name.clone(),
                datastore: target,
                vm,
                size: Bytes(0),
                policy,
                state,
                remote: None,
                placement: Default::default(),
                writes: Default::default(),
                origin: None,
                set: DiskSettings::of(&policy),
                set_by: None,
            },
            backend,
            warnings,
        ))
    }

    /// Of an image or a device that is there.
    fn size_of(
        &self,
        record: &DiskRecord,
        backend: &Backend,
        format: ImageFormat,
    ) -> Result<Bytes, ControlError> {
        let directory = match backend {
            Backend::Block { device, .. } => return Ok(self.plane.device_size(device)?),
            _ => self.directory(backend).unwrap_or_default(),
        };
        let (path, name) = (images::image_path(&directory, &record.name), &record.name);
        match fs::symlink_metadata(&path) {
            Ok(meta) if meta.is_file() && format == ImageFormat::Raw => Ok(Bytes(meta.len())),
            Ok(meta) => images::check_raw(&path).map(|()| Bytes(meta.len())),
            Err(_) => Err(ControlError::invalid(
                format!("there is no image {}", path.display()),
                format!(
                    "the name of a disk whose image is on datastore '{}'; '{name}' would be a new one",
                    record.datastore
                ),
            )),
        }
    }
}
