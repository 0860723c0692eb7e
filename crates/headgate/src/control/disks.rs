use super::admission::{Admission, admit};
use super::plane::{RemoteDisk, scheduler_policy};
use super::remote::{self, Found};
use super::{
    Control, ControlError, DatastoreEntry, DiskEntry, LiveDisk, Model, OpenDisk, Service, flash, images,
};
use crate::api::placement::Created;
use crate::api::types::{Changed, Disk, DiskCreate, DiskPatch, Force, ImageFate};
use crate::catalog::{Backend, Catalog, DiskRecord, DiskState, PolicyRecord, Scheduler};
use crate::leases::{Eviction, Sight};
use crate::name::Name;
use headgate_engine::remote::Connection;
use headgate_qos::PolicyError;
use headgate_units::{Bytes, BytesPerSec};
use std::path::PathBuf;

/// The datastore of disks that name none.
pub const DEFAULT_DATASTORE: &str = "default";

/// Below this a guest's own timeouts (30 s in Linux) come near under a full queue of large requests.
const CAUTIOUS_IOPS: u64 = 20;

/// The same in bytes per second; QEMU's documentation gives it as the least that is safe.
const CAUTIOUS_BANDWIDTH: u64 = 2 << 20;

/// Disk sizes are multiples of this, in bytes.
pub const SIZE_STEP: u64 = 4096;

fn check_policy(policy: &PolicyRecord) -> Result<(), ControlError> {
    match scheduler_policy(policy) {
        Ok(_) => Ok(()),
        Err(e @ PolicyError::ReservationAboveLimit { .. }) => {
            Err(ControlError::invalid(e.to_string(), "a reservation at most as high as the limit"))
        }
        Err(e @ PolicyError::Burst(_)) => Err(ControlError::invalid(e.to_string(), "0 to 256")),
    }
}

/// What an operator may not have meant.
fn policy_warnings(policy: &PolicyRecord, datastore: &DatastoreEntry) -> Vec<String> {
    let mut warnings = Vec::new();
    if let Some(limit) = policy.limit.filter(|l| l.get() < CAUTIOUS_IOPS) {
        warnings.push(format!(
            "a limit of {limit} IOPS is very low: a guest gives up a request after 30 s, so keep its queue short or set \
             {CAUTIOUS_IOPS} IOPS or more"
        ));
    }
    if let Some(limit) = policy.limit_bandwidth.filter(|b| b.get() < CAUTIOUS_BANDWIDTH) {
        warnings.push(format!(
            "a limit of {limit} is very low: a guest gives up a request after 30 s; {} or more is safe",
            BytesPerSec::new(CAUTIOUS_BANDWIDTH).map(|b| b.to_string()).unwrap_or_default()
        ));
    }
    let (name, scheduler) = (&datastore.record.name, datastore.record.scheduler);
    let keeps = super::views::effective(*policy, datastore);
    // Burst credit is of use with limits only, and those that are lost are seen by themselves.
    let keeps = PolicyRecord { burst: policy.burst, ..keeps };
    if keeps != *policy && scheduler != Scheduler::Mclock {
        warnings.push(format!(
            "datastore '{name}' is divided by {}, which enforces {}: see effective_policy",
            scheduler.as_str(),
            if scheduler == Scheduler::Sfq { "shares only" } else { "nothing" }
        ));
    }
    warnings
}

/// Where a new disk goes.
fn datastore_of(request: &DiskCreate) -> Result<Name, ControlError> {
    match &request.datastore {
        Some(name) => Ok(name.clone()),
        None => DEFAULT_DATASTORE.parse().map_err(|e| ControlError::invalid(format!("{e}"), "a datastore")),
    }
}

impl Control {
    fn check_admission(
        &self,
        model: &Model,
        datastore: &DatastoreEntry,
        policy: &PolicyRecord,
        before: Option<&PolicyRecord>,
        force: Force,
    ) -> Result<Vec<String>, ControlError> {
        let Some(asked) = policy.reservation else { return Ok(Vec::new()) };
        let held = before.and_then(|p| p.reservation);
        if held.is_some_and(|held| asked <= held) {
            return Ok(Vec::new());
        }
        let mut target = self.room(model, datastore);
        target.reserved -= held.map_or(0, |h| h.get());
        let others: Vec<_> = model
            .datastores
            .values()
            .filter(|other| other.service == Service::Serving)
            .map(|other| self.room(model, other))
            .collect();
        let name = &datastore.record.name;
        match admit(&target, asked, &others) {
            Admission::Fits => Ok(Vec::new()),
            Admission::Unchecked => Ok(vec![format!(
                "the capacity of datastore '{name}' is unknown, so nobody checked that {asked} IOPS can be kept: \
                 measure it with 'headgate datastore calibrate {name}'"
            )]),
            Admission::Refused { shortfall, .. } if force == Force::Yes => Ok(vec![format!(
                "datastore '{name}' is now overbooked by {shortfall} IOPS: when all its disks are busy, reservations \
                 are missed in proportion"
            )]),
            Admission::Refused { shortfall, better } => Err(ControlError::NotAdmitted {
                datastore: name.clone(),
                asked,
                reserved: target.reserved,
                reservable: target.reservable.unwrap_or(0),
                shortfall,
                better,
            }),
        }
    }

    fn open_request(&self, record: &DiskRecord, image: PathBuf, remote: Option<RemoteDisk>) -> OpenDisk {
        OpenDisk {
            name: record.name.clone(),
            datastore: record.datastore.clone(),
            image,
            remote,
            size: record.size,
            policy: record.policy,
            priorities: self.model().priorities(record.vm.as_ref()),
            vhost_socket: self.dir.vhost_socket(&record.name),
        }
    }

    /// Brings a disk whose image is there into service; a remote one without a connection tries until it has one.
    pub(super) fn serve_disk(
        &self,
        record: &DiskRecord,
        backend: &Backend,
        connection: Option<Connection>,
    ) -> Result<(), ControlError> {
        let remote = remote::disk(record, backend, connection)?;
        let image = match backend {
            Backend::Block { device } => device.clone(),
            Backend::Nbd { .. } => PathBuf::new(),
            Backend::Dir { .. } | Backend::Emulated { .. } => {
                let directory = self.directory(backend).unwrap_or_default();
                images::image_path(&directory, &record.name)
            }
        };
        self.hold(&record.name, backend, Sight::Existing, Eviction::Never)?;
        let opened = self.check_hold(&record.name, backend);
        let opened =
            opened.and_then(|()| Ok(self.plane.open_disk(self.open_request(record, image, remote))?));
        if let Err(ControlError::Plane(_)) = &opened {
            self.leases.release(&record.name);
        }
        opened
    }

    /// A block device is one disk.
    pub(super) fn check_vacant(&self, model: &Model, datastore: &Name) -> Result<(), ControlError> {
        let Some(other) = model.disks_on(datastore).next() else { return Ok(()) };
        Err(ControlError::Busy {
            error: format!(
                "datastore '{datastore}' is a block device and holds disk '{}' already",
                other.record.name
            ),
            hint: "a block device is one disk: use another datastore, or make a file system and use --dir"
                .into(),
        })
    }

    fn disk_size(
        &self,
        model: &Model,
        asked: Option<Bytes>,
        datastore: &DatastoreEntry,
    ) -> Result<Bytes, ControlError> {
        let Backend::Block { device } = &datastore.record.backend else {
            let size = asked.ok_or_else(|| {
                ControlError::invalid("the disk has no size", "a size in bytes, such as --size 10G")
            })?;
            if size.0 == 0 || !size.0.is_multiple_of(SIZE_STEP) {
                let error = format!("a size of {} bytes is not a multiple of {SIZE_STEP}", size.0);
                return Err(ControlError::invalid(
                    error,
                    format!("a multiple of {SIZE_STEP} bytes, at least {SIZE_STEP}"),
                ));
            }
            flash::check_room(model, datastore, asked)?;
            return Ok(size);
        };
        let name = &datastore.record.name;
        self.check_vacant(model, name)?;
        let size = self.plane.device_size(device)?;
        match asked {
            Some(asked) if asked != size => Err(ControlError::invalid(
                format!("a size of {asked} differs from that of {}", device.display()),
                format!("no size, or {} bytes", size.0),
            )),
            _ => Ok(size),
        }
    }

    /// Creates a disk and brings it into service.
    ///
    /// # Errors
    /// When a value makes no sense, the name is taken, the reservation does not fit or the storage refuses. Nothing is
    /// left behind then.
    pub fn create_disk(&self, mut request: DiskCreate) -> Result<Created<Disk>, ControlError> {
        let mut catalog = self.catalog();
        let old = self.predecessor(&request)?;
        let (target, placement_chosen) = match request.datastore.clone() {
            Some(target) => (target, None),
            None => {
                let (target, chosen) = self.place(&request, old.as_ref())?;
                request.datastore = Some(target.clone());
                (target, Some(chosen))
            }
        };
        let device = self.hold_device(&request)?;
        let planned = self.find_export(&target, &request).and_then(|found| {
            let model = self.model();
            Ok((self.plan_disk(&model, request, found.as_ref())?, found))
        });
        let ((record, backend, mut warnings), mut found) = planned.inspect_err(|_| {
            device.iter().for_each(|disk| self.leases.release(disk));
        })?;
        catalog.insert_disk(&record).inspect_err(|_| self.let_go(&record.name, &backend))?;
        if let Err(e) = self.hold(&record.name, &backend, Sight::New, Eviction::Never) {
            catalog.delete_disk(&record.name)?;
            return Err(e);
        }
        let made = match self.directory(&backend) {
            Some(directory) => images::create(self.plane.as_ref(), &directory, &record.name, record.size)
                .map(|_| Some(directory)),
            None => Ok(None),
        };
        let directory = match made {
            Ok(directory) => directory,
            Err(e) => {
                self.let_go(&record.name, &backend);
                catalog.delete_disk(&record.name)?;
                return Err(e.into());
            }
        };
        let connection = found.as_mut().and_then(|found| found.connection.take());
        if let Err(e) = self.serve_disk(&record, &backend, connection) {
            if let Some(directory) = directory {
                images::remove(&directory, &record.name)?;
            }
            self.let_go(&record.name, &backend);
            catalog.delete_disk(&record.name)?;
            return Err(e);
        }
        let record = DiskRecord { state: DiskState::Ready, ..record };
        catalog.update_disk(&record)?;
        let name = record.name.clone();
        if let Some(old) = &old {
            self.take_over_history(&name, &record.datastore, old);
        }
        self.model_mut().disks.insert(name.clone(), DiskEntry { record, service: Service::Serving });
        drop(catalog);
        let now = self.disk(&name)?;
        if now.overbooked && warnings.is_empty() {
            warnings.push(format!("datastore '{}' is overbooked", now.datastore));
        }
        Ok(Created { now, warnings, placement_chosen })
    }

    /// A device's size is asked of the device, which is to be left alone while another host has it. Answers the disk whose lease was
    /// acquired for that.
    fn hold_device(&self, request: &DiskCreate) -> Result<Option<Name>, ControlError> {
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
        self.hold(&request.name, &backend, Sight::New, Eviction::Never)?;
        Ok(Some(request.name.clone()))
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
        let policy = PolicyRecord::from(request.policy);
        let warnings = self.check_new(model, &name, &target, &policy, request.force)?;
        let datastore = model.datastore(&target)?;
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

    /// What holds for every disk that is to be known: its name, its policy, and that its datastore serves and has room for it.
    pub(super) fn check_new(
        &self,
        model: &Model,
        name: &Name,
        target: &Name,
        policy: &PolicyRecord,
        force: Force,
    ) -> Result<Vec<String>, ControlError> {
        model.check_export_name(name)?;
        let longest = self.dir.longest_disk_name();
        if name.as_str().len() > longest {
            return Err(ControlError::invalid(
                format!(
                    "the name '{name}' is too long for this state directory: its socket {} would have more than {} \
                         bytes",
                    self.dir.vhost_socket(name).display(),
                    super::SOCKET_PATH_MAX
                ),
                format!("a name of at most {longest} characters, or a shorter --state-dir"),
            ));
        }
        check_policy(policy)?;
        let datastore = model.datastore(target)?;
        if let Some(reason) = datastore.service.reason() {
            return Err(ControlError::DatastoreFailed { name: target.clone(), reason: reason.to_owned() });
        }
        let mut warnings = self.check_admission(model, datastore, policy, None, force)?;
        warnings.extend(policy_warnings(policy, datastore));
        Ok(warnings)
    }

    /// Changes a disk. A policy is in force when the call returns.
    ///
    /// # Errors
    /// When there is none of this name, the values contradict each other, the reservation does not fit, or the shard
    /// does not confirm; the disk is as it was then.
    pub fn set_disk(&self, name: &Name, patch: DiskPatch) -> Result<Changed<Disk>, ControlError> {
        let mut catalog = self.catalog();
        let (before, record, mut warnings) = {
            let model = self.model();
            let before = model.disk(name)?.clone();
            let mut record = before.record.clone();
            record.vm = patch.vm.apply(record.vm);
            record.placement = patch.placement.apply(record.placement);
            let policy = &mut record.policy;
            policy.reservation = patch.reservation.apply(policy.reservation);
            policy.limit = patch.limit.apply(policy.limit);
            policy.limit_bandwidth = patch.limit_bandwidth.apply(policy.limit_bandwidth);
            policy.shares = patch.shares.unwrap_or(policy.shares);
            policy.burst = patch.burst.unwrap_or(policy.burst);
            check_policy(policy)?;
            let datastore = model.datastore(&record.datastore)?;
            let mut warnings = self.check_admission(
                &model,
                datastore,
                &record.policy,
                Some(&before.record.policy),
                patch.force,
            )?;
            warnings.extend(policy_warnings(&record.policy, datastore));
            (before, record, warnings)
        };
        catalog.update_disk(&record)?;
        if before.service == Service::Serving {
            if let Err(e) = self.put_disk_in_force(&before.record, &record) {
                catalog.update_disk(&before.record)?;
                return Err(e);
            }
        } else {
            warnings.push("the disk is not serving: the policy takes effect when it does".into());
        }
        // It may have lost its lease meanwhile.
        if let Some(entry) = self.model_mut().disks.get_mut(name) {
            entry.record = record;
        }
        drop(catalog);
        Ok(Changed { now: self.disk(name)?, warnings })
    }

    /// Hands a serving disk's new policy and its virtual machine's priorities to its shard; on failure it has the old ones.
    fn put_disk_in_force(&self, before: &DiskRecord, record: &DiskRecord) -> Result<(), ControlError> {
        let name = &record.name;
        if record.policy != before.policy {
            self.plane.set_policy(name, &record.policy)?;
        }
        if record.vm != before.vm {
            let priorities = self.model().priorities(record.vm.as_ref());
            if let Err(e) = self.plane.set_priorities(name, &priorities) {
                self.plane.set_policy(name, &before.policy)?;
                return Err(e.into());
            }
        }
        Ok(())
    }

    /// Takes a disk out of service and removes its image, or leaves it for another host; a block device and the export of a server
    /// keep their content.
    ///
    /// # Errors
    /// [`ControlError::InUse`] while clients are connected, [`ControlError::DatastoreFailed`] while the image cannot be
    /// reached, unless `force` says otherwise; or the storage refuses.
    pub fn remove_disk(&self, name: &Name, force: Force, image: ImageFate) -> Result<(), ControlError> {
        let mut catalog = self.catalog();
        let (entry, backend) = {
            let model = self.model();
            let entry = model.disk(name)?.clone();
            let datastore = model.datastore(&entry.record.datastore)?;
            // Storage that is not there now would keep the image for ever.
            if let (Some(reason), Force::No, ImageFate::Remove) = (datastore.service.reason(), force, image) {
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
        if image == ImageFate::Keep {
            if entry.service == Service::Serving {
                self.plane.close_disk(name, self.options.patience)?;
            }
            catalog.delete_disk(name)?;
            self.leases.release(name);
            self.model_mut().disks.remove(name);
            self.samples.forget_disk(name, &entry.record.datastore);
            self.forget_exports_of(name);
            return Ok(());
        }
        self.hold_to_remove(name, &backend, force)?;
        let record = DiskRecord { state: DiskState::Removing, ..entry.record };
        catalog.update_disk(&record)?;
        if entry.service == Service::Serving {
            if let Err(e) = self.plane.close_disk(name, self.options.patience) {
                catalog.update_disk(&DiskRecord { state: DiskState::Ready, ..record })?;
                return Err(e.into());
            }
            let service = Service::Failed("it is being removed".into());
            self.model_mut().disks.insert(name.clone(), DiskEntry { record: record.clone(), service });
        }
        self.finish_removal(catalog.as_mut(), &record, &backend)?;
        self.model_mut().disks.remove(name);
        self.samples.forget_disk(name, &record.datastore);
        self.forget_exports_of(name);
        Ok(())
    }

    /// The second half of a removal, also of one that a crash cut.
    pub(super) fn finish_removal(
        &self,
        catalog: &mut dyn Catalog,
        record: &DiskRecord,
        backend: &Backend,
    ) -> Result<(), ControlError> {
        if let Some(directory) = self.directory(backend) {
            images::remove(&directory, &record.name)?;
        }
        let seat = self.seat(&record.name, backend);
        self.leases.remove(&record.name, seat.as_ref()).map_err(|source| ControlError::Io {
            doing: format!("remove the lease of disk '{}'", record.name),
            source,
        })?;
        Ok(catalog.delete_disk(&record.name)?)
    }
}
