use super::admission::{Admission, admit};
use super::block_device;
use super::capacity;
use super::error::because;
use super::remote;
use super::server_policy::next_epoch;
use super::workers::Ticket;
use super::{
    Control, ControlError, DatastoreEntry, DiskEntry, Model, Service, flash, images, size,
};
use crate::configuration::Thing;
use crate::leases::{Before, DeviceOf, Eviction};
use crate::new_disk::NewDisk;
use crate::preconditions::in_earnest;
use crate::tenants::groups::{Member, WhatIf};
use crate::terms::{self, Run};
use headgate_api::types::{Change, Changed, Disk, DiskCreate, DiskPatch, Force};
use headgate_catalog::PolicyChange;
use headgate_model::Name;
use headgate_model::RemoteDisk;
use headgate_model::{
    Backend, DiskRecord, DiskSettings, DiskState, Policy, PolicyPart, Scheduler, Writes,
};
use headgate_model::{Fence, OpenDisk, Session, SizeRule};
use headgate_placement::State;
use headgate_qos::{Narrow, PolicyError};
use headgate_units::{Bytes, BytesPerSec, Iops};
use std::path::PathBuf;
use std::sync::Arc;
use tracing::warn;

/// The datastore of disks that name none.
pub const DEFAULT_DATASTORE: &str = "default";

/// Below this a guest's own timeouts (30 s in Linux) come near under a full queue of large
/// requests.
const CAUTIOUS_IOPS: u64 = 20;

/// The same in bytes per second; QEMU's documentation gives it as the least that is safe.
const CAUTIOUS_BANDWIDTH: u64 = 2 << 20;

pub(super) fn check_policy(policy: &Policy) -> Result<(), ControlError> {
    match policy.for_scheduler() {
        Ok(_) => Ok(()),
        Err(e @ PolicyError::ReservationAboveLimit { .. }) => {
            Err(ControlError::invalid(e.to_string(), "a reservation at most as high as the limit"))
        }
        Err(e @ PolicyError::ReservationAboveDirections { .. }) => Err(ControlError::invalid(
            e.to_string(),
            "a reservation at most as high as both limits together",
        )),
        Err(e @ PolicyError::PeakWithoutLimit { .. }) => Err(ControlError::invalid(
            e.to_string(),
            "a limit beside the peak, or no peak ('none')",
        )),
        Err(e @ PolicyError::Peak { .. }) => {
            Err(ControlError::invalid(e.to_string(), "a peak above the limit, or none"))
        }
        Err(e @ PolicyError::TargetWithoutReservation { .. }) => Err(ControlError::invalid(
            e.to_string(),
            "a reservation beside the latency target, or no target ('none')",
        )),
        Err(e @ PolicyError::PeakTime(_)) => Err(ControlError::invalid(e.to_string(), "1 to 3600")),
        Err(e @ PolicyError::Burst(_)) => Err(ControlError::invalid(e.to_string(), "0 to 256")),
    }
}

/// Warnings about settings that the operator may not have intended.
pub(super) fn policy_warnings(policy: &Policy, datastore: &DatastoreEntry) -> Vec<String> {
    let mut warnings = Vec::new();
    let iops = [policy.limit, policy.limit_read, policy.limit_write];
    for limit in iops.into_iter().flatten().filter(|l| l.get() < CAUTIOUS_IOPS) {
        warnings.push(format!(
            "a limit of {limit} IOPS is very low: a guest gives up a request after 30 s, so keep its queue short or set \
             {CAUTIOUS_IOPS} IOPS or more"
        ));
    }
    let bandwidths =
        [policy.limit_bandwidth, policy.limit_read_bandwidth, policy.limit_write_bandwidth];
    for limit in bandwidths.into_iter().flatten().filter(|b| b.get() < CAUTIOUS_BANDWIDTH) {
        warnings.push(format!(
            "a limit of {limit} is very low: a guest gives up a request after 30 s; {} or more is safe",
            BytesPerSec::new(CAUTIOUS_BANDWIDTH).map(|b| b.to_string()).unwrap_or_default()
        ));
    }
    let (name, scheduler) = (&datastore.record.name, datastore.record.scheduler);
    let window = &datastore.record.window;
    if policy.latency_target.is_some() && scheduler == Scheduler::Mclock {
        if window.latency().is_some() {
            warnings.push(format!(
                "the window of datastore '{name}' follows its latency threshold, so it does not give way to a \
                 latency target: the target is judged and shown, no more"
            ));
        } else if window.narrow == Narrow::Never {
            warnings.push(format!(
                "the window of datastore '{name}' gives way to nothing (--narrow-window never): the latency target \
                 is judged and shown, no more"
            ));
        }
    }
    let keeps = super::views::effective(*policy, datastore);
    // Burst credit is of use with limits only, and those that are lost are seen by themselves.
    let keeps = Policy { burst: policy.burst, ..keeps };
    if keeps != *policy && scheduler != Scheduler::Mclock {
        warnings.push(format!(
            "datastore '{name}' is divided by {}, which enforces {}: see effective_policy",
            scheduler.as_str(),
            if scheduler == Scheduler::Sfq { "shares only" } else { "nothing" }
        ));
    }
    warnings
}

/// The policy of a disk is set here: one that a gateway has set is that gateway's matter, and
/// another epoch begins for one that servers are told of.
fn set_here(record: &mut DiskRecord, force: Force) -> Result<(), ControlError> {
    if let (Some(by), Force::No) = (&record.set_by, force) {
        return Err(ControlError::Busy {
            error: format!(
                "the policy of disk '{}' is set by gateway '{}', for {} servers together",
                record.name, by.peer, by.servers
            ),
            hint: "set it there; or here with --force, until the gateway connects again".into(),
        });
    }
    record.set_by = None;
    if let Some(stripe) = record.remote.as_mut().and_then(|remote| remote.stripe.as_mut()) {
        stripe.epoch = next_epoch(stripe.epoch);
    }
    Ok(())
}

/// What is set at a disk after a change, and the policy that this makes.
pub(super) fn changed_policy(
    model: &Model,
    before: &DiskRecord,
    patch: &DiskPatch,
) -> Result<(DiskSettings, Policy), ControlError> {
    let says = !patch.policy().is_empty() || !patch.inherit.is_empty() || !patch.class.is_keep();
    if !says {
        return Ok((before.set.clone(), before.policy));
    }
    let was = match before.set_by {
        // What a gateway has set is what it has, and becomes its own.
        Some(_) => DiskSettings { policy: PolicyPart::of(&before.policy), ..before.set.clone() },
        None => before.set.clone(),
    };
    let set = patch.settings(was);
    let class = set.class.as_ref().map(|class| model.class(class)).transpose()?;
    if let Change::Set(_) = &patch.class
        && let Some(class) = class
    {
        model.check_place_of_class(class, &before.datastore, patch.force)?;
    }
    let policy = set.policy(class, before.size);
    Ok((set, policy))
}

/// Where a new disk goes.
pub(super) fn datastore_of(request: &DiskCreate) -> Result<Name, ControlError> {
    match &request.datastore {
        Some(name) => Ok(name.clone()),
        None => DEFAULT_DATASTORE
            .parse()
            .map_err(|e| ControlError::invalid(format!("{e}"), "a datastore")),
    }
}

impl Control {
    pub(super) fn check_admission(
        &self,
        model: &Model,
        datastore: &DatastoreEntry,
        disk: Member<'_>,
        force: Force,
    ) -> Result<Vec<String>, ControlError> {
        // Each of these adds up all disks.
        let (record, then) = (&datastore.record, WhatIf::is(disk));
        let promised = model.promised_in(record, then);
        model.check_promised(record, then, &promised)?;
        // A group may have promised all of it already.
        if promised.all <= model.promised_in(record, WhatIf::default()).all {
            return Ok(Vec::new());
        }
        let without = WhatIf { without: Some(disk.disk), with: None };
        let target = self.reservable_rate_if(model, datastore, without);
        let asked = promised.all.saturating_sub(target.reserved);
        let Ok(asked) = Iops::new(asked) else { return Ok(Vec::new()) };
        let others: Vec<_> = match admit(&target, asked, &[]) {
            Admission::Fits | Admission::Unchecked => Vec::new(),
            Admission::Refused { .. } => {
                let all = model.datastores.values();
                let serving = all.filter(|other| other.service == Service::Serving);
                serving.map(|other| self.reservable_rate(model, other)).collect()
            }
        };
        let name = &datastore.record.name;
        let reason = capacity::reason(&datastore.record);
        match admit(&target, asked, &others) {
            Admission::Fits => Ok(Vec::new()),
            Admission::Unchecked => Ok(vec![format!(
                "the capacity of datastore '{name}' is unknown, so nobody checked that {asked} IOPS can be kept: \
                 measure it with 'headgate datastore calibrate {name}'"
            )]),
            Admission::Refused { shortfall, .. } if force == Force::Yes => Ok(vec![format!(
                "datastore '{name}' is now overbooked by {shortfall} IOPS: when all its disks are busy, reservations \
                 are missed in proportion{}",
                because(reason)
            )]),
            Admission::Refused { shortfall, better } => Err(ControlError::NotAdmitted {
                datastore: name.clone(),
                asked,
                reserved: target.reserved,
                reservable: target.bound().unwrap_or(0),
                shortfall,
                better,
                reason,
            }),
        }
    }

    pub(super) fn open_request(
        &self,
        record: &DiskRecord,
        image: PathBuf,
        remote: Option<RemoteDisk>,
    ) -> OpenDisk {
        let priorities = self.model().priorities(record.vm.as_ref());
        OpenDisk {
            name: record.name.clone(),
            datastore: record.datastore.clone(),
            image,
            remote,
            size: record.size,
            size_rule: match record.state {
                DiskState::Resizing => SizeRule::AsFound,
                DiskState::Creating
                | DiskState::Ready
                | DiskState::Removing
                | DiskState::Copying => SizeRule::Exactly,
            },
            writes: record.writes,
            policy: record.policy,
            priorities,
            machine: self.machine(record.vm.as_ref()),
            vhost_socket: self.dir.vhost_socket(&record.name),
            access: self.access(record.vm.as_ref()),
            term: self.leases.term(&record.name),
            fence: None,
            noted: None,
        }
    }

    /// Brings a disk whose image exists into service, and answers with its record: it may have got
    /// the size of its image. A remote disk dials until it has a session. On failure its lease is
    /// released.
    pub(super) fn serve_disk(
        &self,
        record: &DiskRecord,
        backend: &Backend,
        eviction: Eviction,
        ticket: &Ticket,
    ) -> Result<DiskRecord, ControlError> {
        self.image_directory(backend)?;
        self.hold(&record.name, backend, Before::Existing, Eviction::Never, ticket)?;
        ticket.step(format!("opening disk '{}'", record.name));
        let opened = self.open_held_disk(record, backend, None, eviction);
        if let Err(ControlError::Plane(_) | ControlError::Reserved { .. }) = &opened {
            self.expect_on(&record.name);
            self.leases.release(&record.name);
        }
        Ok(self.settle_size(record, opened?))
    }

    /// Brings a disk whose image exists and whose lease is held into service. Answers what size it
    /// has.
    pub(super) fn open_held_disk(
        &self,
        record: &DiskRecord,
        backend: &Backend,
        session: Option<Session>,
        eviction: Eviction,
    ) -> Result<Bytes, ControlError> {
        let remote = remote::disk(record, backend, session, &self.leases)?;
        let image = match backend {
            Backend::Block { device, .. } => {
                self.check_device_allowed(device)?;
                block_device::check_unused(device)?;
                device.clone()
            }
            Backend::Nbd { .. } | Backend::Stripe { .. } | Backend::Memory { .. } => PathBuf::new(),
            Backend::Dir { .. } | Backend::Emulated { .. } => {
                let directory = self.image_directory(backend)?.unwrap_or_default();
                images::image_path(&directory, &record.name)
            }
        };
        self.check_hold(&record.name, backend)?;
        let fence = self.fence((&record.name, DeviceOf::Disk), backend, eviction);
        let request = OpenDisk {
            fence: fence.clone().map(|fence| fence as Arc<dyn Fence>),
            noted: self.noted_before(&record.name),
            ..self.open_request(record, image, remote)
        };
        self.group_disk(record)?;
        let opened = self.plane.open_disk(request);
        if opened.is_ok() {
            self.go_on_noting(&record.name);
        }
        opened.map_err(|e| self.not_opened(record, fence.as_ref(), e))
    }

    /// A block device is one disk.
    pub(super) fn check_vacant(&self, model: &Model, datastore: &Name) -> Result<(), ControlError> {
        let Some(other) = model.copies_on(datastore).next() else { return Ok(()) };
        Err(ControlError::Busy {
            error: format!(
                "datastore '{datastore}' is a block device and holds disk '{}' already",
                other.record.name
            ),
            hint: "a block device is one disk: use another datastore, or make a file system and use --dir"
                .into(),
        })
    }

    pub(super) fn disk_size(
        &self,
        model: &Model,
        asked: Option<Bytes>,
        datastore: &DatastoreEntry,
        found: Option<Bytes>,
    ) -> Result<Bytes, ControlError> {
        let Backend::Block { device, .. } = &datastore.record.backend else {
            let size = asked.ok_or_else(|| {
                ControlError::invalid("the disk has no size", "a size in bytes, such as --size 10G")
            })?;
            size::check(size)?;
            flash::check_space(model, datastore, asked)?;
            return Ok(size);
        };
        let name = &datastore.record.name;
        self.check_vacant(model, name)?;
        let size = found.ok_or_else(|| ControlError::Busy {
            error: format!("datastore '{name}' was replaced while its storage was looked at"),
            hint: "look at 'headgate datastore list' and try again".into(),
        })?;
        match asked {
            Some(asked) if asked != size => Err(ControlError::invalid(
                format!("a size of {asked} differs from that of {}", device.display()),
                format!("no size, or {} bytes", size.0),
            )),
            _ => Ok(size),
        }
    }

    /// What holds for every disk that is to be known: its name, its policy, and that its datastore
    /// serves and has room for it.
    pub(super) fn check_new(
        &self,
        model: &Model,
        new: &NewDisk<'_>,
        force: Force,
    ) -> Result<Vec<String>, ControlError> {
        let NewDisk { name, policy, .. } = *new;
        model.check_export_name(name)?;
        model.check_no_copy(name)?;
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
        model.check_quota(new.vm, new.counted())?;
        self.check_place(model, new, force)
    }

    /// That a datastore serves and has room for one more disk's policy, of which it may have
    /// promised a part already.
    pub(super) fn check_place(
        &self,
        model: &Model,
        new: &NewDisk<'_>,
        force: Force,
    ) -> Result<Vec<String>, ControlError> {
        let NewDisk { target, policy, .. } = *new;
        self.check_takes_disks(model, target, force)?;
        let datastore = model.datastore(target)?;
        // What was promised to it before it is made is not promised twice.
        let mut warnings = self.check_admission(model, datastore, new.member(), force)?;
        warnings.extend(self.check_latency(model, datastore, policy, None, force)?);
        warnings.extend(policy_warnings(policy, datastore));
        Ok(warnings)
    }

    /// Whether a datastore serves, and is not to be emptied.
    pub(super) fn check_takes_disks(
        &self,
        model: &Model,
        target: &Name,
        force: Force,
    ) -> Result<(), ControlError> {
        let datastore = model.datastore(target)?;
        if let Some(reason) = datastore.service.reason() {
            return Err(ControlError::DatastoreFailed {
                name: target.clone(),
                reason: reason.to_owned(),
            });
        }
        if datastore.record.placement.state == State::Maintenance && force == Force::No {
            return Err(ControlError::Busy {
                error: format!("datastore '{target}' is in maintenance and takes no disks"),
                hint: format!(
                    "choose another datastore, or end it with 'headgate datastore maintenance \
                     {target} off'"
                ),
            });
        }
        Ok(())
    }

    /// Changes a disk. A policy is in force when the call returns.
    ///
    /// # Errors
    /// When there is none of this name, the values contradict each other, the reservation does not
    /// fit, or the shard does not confirm; the disk is as it was then.
    pub fn set_disk(&self, name: &Name, patch: DiskPatch) -> Result<Changed<Disk>, ControlError> {
        let mut catalog = self.catalog_for(&Thing::Disk(name.clone()))?;
        let (before, record, mut warnings) = {
            let model = self.model();
            let before = model.disk(name)?.clone();
            if let Service::Creating = before.service {
                return Err(being_created(name));
            }
            let mut record = before.record.clone();
            (record.set, record.policy) = changed_policy(&model, &before.record, &patch)?;
            if record.policy != before.record.policy {
                set_here(&mut record, patch.force)?;
            }
            record.vm = patch.vm.apply(record.vm);
            if record.vm != before.record.vm {
                self.check_not_cancelled(name)?;
            }
            record.placement = patch.placement.apply(record.placement);
            record.writes = patch.read_only.map_or(record.writes, writes_of);
            if record.writes != before.record.writes && model.moves.contains_key(name) {
                return Err(writes_while_moving(name));
            }
            check_policy(&record.policy)?;
            let mut warnings = Vec::new();
            let (old, force) = (&before.record.policy, patch.force);
            model.check_quota(record.vm.as_ref(), NewDisk::of(&record).counted())?;
            // One that moves is promised it on both.
            let arrives_at = model.moves.get(name).map(|moving| moving.arrives_at());
            for on in std::iter::once(&record.datastore).chain(arrives_at.flatten()) {
                let (datastore, new) = (model.datastore(on)?, &record.policy);
                let member = NewDisk::of(&record).member();
                warnings.extend(self.check_admission(&model, datastore, member, force)?);
                let disk = Some((name, old));
                warnings.extend(self.check_latency(&model, datastore, new, disk, force)?);
                warnings.extend(policy_warnings(new, datastore));
            }
            (before, record, warnings)
        };
        self.check_writes_change(&before, &record)?;
        in_earnest(|| self.would(&PolicyChange::of_disk(&record), &warnings))?;
        if (before.record.writes, record.writes) == (Writes::Refused, Writes::Allowed) {
            self.forget_snapshot(name);
        }
        catalog.update_disk(&record)?;
        let policy = record.policy;
        if before.service == Service::Serving {
            if let Err(e) = self.put_disk_in_force(&before.record, &record) {
                catalog.update_disk(&before.record)?;
                return Err(e);
            }
        } else {
            warnings.push("the disk is not serving: the policy takes effect when it does".into());
        }
        // It may have lost its lease meanwhile.
        self.model_mut().set_record(record.clone());
        if let Err(e) = self.put_groups_now() {
            self.model_mut().set_record(before.record.clone());
            self.put_disk_in_force(&record, &before.record)?;
            catalog.update_disk(&before.record)?;
            return Err(e);
        }
        drop(catalog);
        if before.service == Service::Serving && policy != before.record.policy {
            warnings.extend(self.announce(&self.model().disk(name)?.record.clone()));
        }
        Ok(Changed { now: self.disk(name)?, warnings })
    }

    /// Of a dry run: that no client was told that it may write, or may not. A real one asks the
    /// shard, which then keeps new ones away.
    fn check_writes_change(
        &self,
        before: &DiskEntry,
        now: &DiskRecord,
    ) -> Result<(), ControlError> {
        let is_asked = before.service == Service::Serving && before.record.writes != now.writes;
        if !is_asked || terms::run() == Run::Real {
            return Ok(());
        }
        match self.live()?.get(&now.name).map_or(0, |live| live.clients) {
            0 => Ok(()),
            clients => Err(writes_in_use(&now.name, clients)),
        }
    }

    /// Hands what is new of a serving disk to its shard: whether clients may write, its policy, and
    /// its virtual machine's priorities; on failure it has the old ones.
    pub(super) fn put_disk_in_force(
        &self,
        before: &DiskRecord,
        record: &DiskRecord,
    ) -> Result<(), ControlError> {
        let name = &record.name;
        if record.writes == before.writes {
            return self.put_promises_in_force(before, record);
        }
        if let Some(clients) = self.plane.set_writes(name, record.writes)? {
            return Err(writes_in_use(name, clients));
        }
        self.put_promises_in_force(before, record).inspect_err(|_| {
            if let Err(error) = self.plane.set_writes(name, before.writes) {
                warn!(disk = %name, %error, "it is not as it was before a change that failed");
            }
        })
    }

    fn put_promises_in_force(
        &self,
        before: &DiskRecord,
        record: &DiskRecord,
    ) -> Result<(), ControlError> {
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
            if let Err(e) = self.put_machine_in_force(name, record) {
                self.put_machine_in_force(name, before)?;
                let priorities = self.model().priorities(before.vm.as_ref());
                self.plane.set_priorities(name, &priorities)?;
                self.plane.set_policy(name, &before.policy)?;
                return Err(e);
            }
        }
        Ok(())
    }

    /// Gives a disk's sockets to its machine.
    fn put_machine_in_force(&self, name: &Name, record: &DiskRecord) -> Result<(), ControlError> {
        let (vm, access) = (record.vm.as_ref(), self.access(record.vm.as_ref()));
        Ok(self.plane.set_machine(name, self.machine(vm).as_ref(), &access)?)
    }
}

pub(super) fn writes_of(read_only: bool) -> Writes {
    if read_only { Writes::Refused } else { Writes::Allowed }
}

fn writes_while_moving(disk: &Name) -> ControlError {
    ControlError::Busy {
        error: format!("disk '{disk}' is being moved: it becomes neither read-only nor writable"),
        hint: format!(
            "'headgate disk moves' says how far it is; 'headgate disk migrate {disk} --cancel' \
             ends it"
        ),
    }
}

fn writes_in_use(disk: &Name, clients: usize) -> ControlError {
    ControlError::Busy {
        error: format!(
            "disk '{disk}' has {clients} client(s), which were told whether they may write"
        ),
        hint: "shut the guest down, or disconnect the clients, first".into(),
    }
}

pub(super) fn being_created(disk: &Name) -> ControlError {
    ControlError::Busy {
        error: format!("disk '{disk}' is being created"),
        hint: format!("wait for its end: see 'headgate disk show {disk}'"),
    }
}
