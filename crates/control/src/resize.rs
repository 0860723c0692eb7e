//! Disks that get another size.
//!
//! The size of an image and that in the catalog cannot change in one step. So the row says first
//! that the disk is [`Resizing`](DiskState::Resizing): from then on the size that the image has is
//! the disk's, whatever the row says, and a crash leaves one of the two.

use crate::new_disk::NewDisk;
use crate::preconditions::in_earnest;
use crate::terms::{self, Run};
use crate::workers::Ticket;
use crate::{
    Control, ControlError, DiskEntry, Model, Service, block_device, crash, flash, images, size,
};
use headgate_api::resize::{DiskResize, Shrink};
use headgate_api::terms::DryRun;
use headgate_api::types::{Changed, Disk, Force};
use headgate_catalog::PolicyChange;
use headgate_mirror::Operation;
use headgate_model::{Backend, CutOff, DiskRecord, DiskState, Name, NotResized};
use headgate_units::Bytes;
use std::fs;
use std::time::Duration;
use tracing::{info, warn};

/// How long the storage may take for it.
const PATIENCE: Duration = Duration::from_secs(20);

impl DiskEntry {
    /// That its image is not being given another size.
    pub(crate) fn check_size_stays(&self) -> Result<(), ControlError> {
        let name = &self.record.name;
        if self.record.state != DiskState::Resizing {
            return Ok(());
        }
        Err(ControlError::Busy {
            error: format!("disk '{name}' is being given another size"),
            hint: format!(
                "ask again in a moment; if that fails, give 'headgate disk resize {name}' \
                           again"
            ),
        })
    }
}

/// What was found of a disk before it gets another size.
struct Found {
    record: DiskRecord,
    backend: Backend,
    service: Service,
}

impl Model {
    /// A disk that may get another size, as far as one sees that here.
    fn resizable(&self, name: &Name) -> Result<Found, ControlError> {
        let entry = self.disk(name)?;
        if let Service::Creating = entry.service {
            return Err(crate::disks::being_created(name));
        }
        self.check_not_moving(name, Operation::Resize)?;
        let record = entry.record.clone();
        if !record.state.has_image() {
            return Err(ControlError::DiskFailed {
                name: name.clone(),
                reason: "it is being removed".into(),
            });
        }
        let datastore = self.datastore(&record.datastore)?;
        if let Some(reason) = datastore.service.reason() {
            let (name, reason) = (datastore.record.name.clone(), reason.to_owned());
            return Err(ControlError::DatastoreFailed { name, reason });
        }
        let reason = entry.service.reason();
        if let Some(reason) = reason.filter(|_| !entry.service.is_tried_again()) {
            let (name, reason) = (name.clone(), reason.to_owned());
            return Err(ControlError::DiskFailed { name, reason });
        }
        let backend = datastore.record.backend.clone();
        if let Backend::Stripe { .. } = backend {
            return Err(ControlError::Busy {
                error: format!("disk '{name}' is striped, and its labels say its size"),
                hint: "create a larger disk, and have the guest copy to it".into(),
            });
        }
        if let Backend::Nbd { .. } = backend {
            return Err(ControlError::Busy {
                error: format!(
                    "disk '{name}' is an export of an NBD server, which decides over its size"
                ),
                hint: format!(
                    "give the export another size at the server, and then serve it anew: remove \
                     disk '{name}', which leaves the export as it is, and create it again"
                ),
            });
        }
        Ok(Found { record, backend, service: entry.service.clone() })
    }
}

fn not_smaller(record: &DiskRecord, found: Bytes, whose: &str) -> ControlError {
    let name = &record.name;
    ControlError::Busy {
        error: format!("{whose} has {found}, and disk '{name}' {}", record.size),
        hint: format!(
            "if that is right, the disk takes the size with 'headgate disk resize {name} --shrink'"
        ),
    }
}

pub(crate) fn not_resized(record: &DiskRecord, refusal: NotResized) -> ControlError {
    let name = &record.name;
    let busy = |hint: String| ControlError::Busy {
        error: format!("disk '{name}' keeps its size: {refusal}"),
        hint,
    };
    match &refusal {
        NotResized::Clients(_) => {
            busy("shut the guest down, or disconnect the clients, first".into())
        }
        NotResized::Data(_) => busy(
            "if nobody needs it, cut it off with --shrink --discard-data; else make the file \
             system in the guest smaller first, and have it discard what it gives up"
                .into(),
        ),
        NotResized::NoRoom(_) => busy(format!(
            "ask for less, or remove other disks from datastore '{}'",
            record.datastore
        )),
        NotResized::Failed(error) => ControlError::Plane(error.clone()),
    }
}

/// The size that a disk in service is to have.
fn size_asked(backend: &Backend, request: DiskResize) -> Result<Bytes, ControlError> {
    let Backend::Block { device, .. } = backend else {
        let asked = request.size.ok_or_else(|| {
            ControlError::invalid("the disk has no new size", "a size in bytes, such as 20G")
        })?;
        size::check(asked)?;
        return Ok(asked);
    };
    let found = block_device::length(device)?;
    match request.size {
        Some(asked) if asked != found => Err(ControlError::invalid(
            format!("a size of {asked} differs from that of {}", device.display()),
            format!("no size, or {} bytes", found.0),
        )),
        _ => Ok(found),
    }
}

impl Control {
    /// Gives a disk another size. Clients are told of a larger one and notice nothing else; a
    /// smaller one it gets only while it has none. On a block device the disk takes the size of the
    /// device. One that does not serve because its image has another size takes that.
    ///
    /// # Errors
    /// When there is no such disk, it moves, it would be smaller and the request does not say so,
    /// there is data in what would be cut off, or there is no room. It has the size that it had
    /// then. [`ControlError::Hung`] when the storage does not answer: then it has one of the two.
    pub fn resize_disk(
        &self,
        name: &Name,
        request: DiskResize,
    ) -> Result<Changed<Disk>, ControlError> {
        let Found { record, .. } = self.model().resizable(name)?;
        let (doing, of) = (format!("giving disk '{name}' another size"), name.clone());
        let warnings =
            self.on_storage(&record.datastore, doing, PATIENCE, move |control, ticket| {
                control.resize(&of, request, ticket)
            })?;
        Ok(Changed { now: self.disk(name)?, warnings })
    }

    fn resize(
        &self,
        name: &Name,
        request: DiskResize,
        ticket: &Ticket,
    ) -> Result<Vec<String>, ControlError> {
        let Found { record, backend, service } = self.model().resizable(name)?;
        if service != Service::Serving {
            self.take_size_of_image(&record, &backend, request, ticket)?;
            return Ok(Vec::new());
        }
        let size = size_asked(&backend, request)?;
        let cut_off = match request.shrink {
            Shrink::DiscardData => CutOff::Discard,
            Shrink::Never | Shrink::UnlessData => CutOff::Keep,
        };
        let warning = match size > record.size {
            true => {
                self.look_at_space(&record.datastore);
                self.check_overcommit(&DiskRecord { size, ..record.clone() })?
            }
            false if size < record.size && request.shrink == Shrink::Never => {
                return Err(ControlError::invalid(
                    format!("{size} is less than the {} that disk '{name}' has", record.size),
                    "a larger size, or --shrink beside it",
                ));
            }
            false => self.check_no_clients_of_smaller(&record, size).map(|()| None)?,
        };
        let warnings: Vec<String> = warning.into_iter().collect();
        self.begin_resize(&record, size, ticket, |model, now, larger| {
            self.check_growth(model, now, larger)
        })
        .map_err(|e| e.with_warnings(&warnings))?;
        crash::point("resize written down");
        let resized = self.plane.resize_disk(name, size, cut_off);
        crash::point("image resized");
        match resized {
            Ok(()) => drop(self.settle_size(&record, size)),
            // Whoever failed may have got as far as the image. Then it decides still.
            Err(_) if self.image_of(&record, &backend)?.0 == record.size => {
                drop(self.settle_size(&record, record.size));
            }
            Err(_) => warn!(disk = %name, "its image has another size than the disk has"),
        }
        resized.map_err(|refusal| not_resized(&record, refusal))?;
        Ok(warnings)
    }

    /// Of a dry run: that no client uses what would be cut off. A real one asks the shard.
    fn check_no_clients_of_smaller(
        &self,
        record: &DiskRecord,
        size: Bytes,
    ) -> Result<(), ControlError> {
        if terms::run() == Run::Real || size >= record.size {
            return Ok(());
        }
        match self.live()?.get(&record.name).map_or(0, |live| live.clients) {
            0 => Ok(()),
            clients => Err(not_resized(record, NotResized::Clients(clients))),
        }
    }

    /// What would be of a disk with this size.
    fn would_have_size(&self, resizing: &DiskRecord, size: Bytes) -> DryRun {
        let then = DiskRecord { size, ..resizing.clone() };
        let policy = self.model().policy_of(&then);
        let then = crate::classes::with_policy(then, policy);
        self.would(&PolicyChange::of_disk(&then), &[])
    }

    /// The size of a disk's image, and what it is called. Where there is none, the disk's.
    fn image_of(
        &self,
        record: &DiskRecord,
        backend: &Backend,
    ) -> Result<(Bytes, String), ControlError> {
        let Some(directory) = self.directory(backend) else {
            return Ok((record.size, format!("disk '{}'", record.name)));
        };
        let image = images::image_path(&directory, &record.name);
        let meta = fs::symlink_metadata(&image).map_err(|source| ControlError::Io {
            doing: format!("look at {}", image.display()),
            source,
        })?;
        Ok((Bytes(meta.len()), image.display().to_string()))
    }

    /// Whether there is room for a larger disk.
    fn check_growth(
        &self,
        model: &Model,
        now: &DiskRecord,
        larger: &DiskRecord,
    ) -> Result<(), ControlError> {
        let more = Bytes(larger.size.0.saturating_sub(now.size.0));
        let store = model.datastore(&now.datastore)?;
        flash::check_space(model, store, Some(more))?;
        crate::disks::check_policy(&larger.policy)?;
        let new = NewDisk::of(larger);
        model.check_quota(new.vm, new.counted())?;
        self.check_admission(model, store, new.member(), Force::No)?;
        self.check_latency(model, store, new.policy, Some((&now.name, &now.policy)), Force::No)
            .map(drop)
    }

    /// Writes down that the size of the image counts from now on. A disk that grows counts as
    /// what it will be, size and promises, in what others are checked against meanwhile; one that
    /// shrinks as what it is.
    fn begin_resize(
        &self,
        record: &DiskRecord,
        size: Bytes,
        ticket: &Ticket,
        check: impl FnOnce(&Model, &DiskRecord, &DiskRecord) -> Result<(), ControlError>,
    ) -> Result<(), ControlError> {
        let mut catalog = self.catalog();
        let resizing = {
            let model = self.model();
            // It may have begun to move, and have been changed, since it was looked at.
            let now = model.resizable(&record.name)?.record;
            let mut resizing = DiskRecord { state: DiskState::Resizing, ..now.clone() };
            if size > now.size {
                resizing.size = size;
                // Its class may promise more for each GB.
                let policy = model.policy_of(&resizing);
                resizing = crate::classes::with_policy(resizing, policy);
                check(&model, &now, &resizing)?;
            }
            resizing
        };
        in_earnest(|| self.would_have_size(&resizing, size))?;
        if !ticket.commit() {
            return Err(ControlError::Cut {
                name: record.datastore.clone(),
                reason: "its storage did not answer in time".into(),
            });
        }
        catalog.update_disk(&resizing)?;
        self.model_mut().set_record(resizing);
        Ok(())
    }

    /// Has a disk that does not serve take the size of its image, and serves it.
    fn take_size_of_image(
        &self,
        record: &DiskRecord,
        backend: &Backend,
        request: DiskResize,
        ticket: &Ticket,
    ) -> Result<(), ControlError> {
        let name = &record.name;
        let (found, whose) = match backend {
            Backend::Block { device, .. } => {
                (block_device::length(device)?, device.display().to_string())
            }
            _ => self.image_of(record, backend)?,
        };
        if let Some(asked) = request.size.filter(|asked| *asked != found) {
            return Err(ControlError::invalid(
                format!("disk '{name}' does not serve, and {whose} has {found}, not {asked}"),
                "no size: the disk takes that of its image, and serves",
            ));
        }
        if found < record.size && request.shrink == Shrink::Never {
            return Err(not_smaller(record, found, &whose));
        }
        self.begin_resize(record, found, ticket, |model, _, larger| {
            model.check_quota(larger.vm.as_ref(), NewDisk::of(larger).counted())
        })?;
        self.recover_disk(name, ticket);
        let model = self.model();
        let entry = model.disk(name)?;
        match entry.service.reason() {
            None => Ok(()),
            Some(reason) => {
                Err(ControlError::DiskFailed { name: name.clone(), reason: reason.to_owned() })
            }
        }
    }

    /// A disk was opened, or given a size, and has this one: catalog and model say so from now on.
    /// Where the catalog fails it says that the image decides, as before.
    pub(super) fn settle_size(&self, record: &DiskRecord, found: Bytes) -> DiskRecord {
        let mut catalog = self.catalog();
        let known = self.model().disks.get(&record.name).map(|entry| entry.record.clone());
        let now = known.unwrap_or_else(|| record.clone());
        if now.size == found && now.state != DiskState::Resizing {
            return record.clone();
        }
        if now.size != found {
            info!(disk = %now.name, before = %now.size, now = %found, "the disk has another size");
        }
        // Its row has what it was to be promised, and the shard what it was.
        let (state, is_promised) = match now.state {
            DiskState::Resizing => (DiskState::Ready, now.set.class.is_none()),
            other => (other, true),
        };
        let before = now.policy;
        let mut settled = DiskRecord { size: found, state, ..now };
        let policy = self.model().policy_of(&settled);
        if policy.for_scheduler().is_ok() {
            settled = crate::classes::with_policy(settled, policy);
        } else {
            let disk = &settled.name;
            warn!(%disk, "its class says nothing sensible of its new size: its policy stays");
        }
        if let Err(error) = catalog.update_disk(&settled) {
            warn!(disk = %settled.name, %error, "its size is not in the catalog yet");
            settled.state = DiskState::Resizing;
        }
        self.model_mut().set_record(settled.clone());
        if (settled.policy != before || !is_promised)
            && let Err(error) = self.plane.set_policy(&settled.name, &settled.policy)
        {
            warn!(disk = %settled.name, %error, "it has not what its class says of its new size");
        }
        settled
    }

    /// Begins to look whether block devices have grown. Waits for none: each is looked at by its
    /// datastore's worker.
    pub fn watch_devices(&self) {
        let served: Vec<(Name, Name)> = {
            let model = self.model();
            let on_device = |entry: &&DiskEntry| {
                let datastore = model.datastores.get(&entry.record.datastore);
                let backend = datastore.map(|datastore| &datastore.record.backend);
                entry.service == Service::Serving && matches!(backend, Some(Backend::Block { .. }))
            };
            let name =
                |entry: &DiskEntry| (entry.record.datastore.clone(), entry.record.name.clone());
            model.disks.values().filter(on_device).map(name).collect()
        };
        for (datastore, disk) in served {
            // What it is asked next may be this still.
            if !self.workers.is_idle(&datastore) {
                continue;
            }
            let me = self.me.clone();
            let work = move |ticket: &Ticket| {
                if let Some(control) = me.upgrade() {
                    control.follow_device(&disk, ticket);
                }
            };
            if self.workers.start(&datastore, "looking at the size of its device", work).is_err() {
                warn!(%datastore, "nobody looks at the size of its device: there is no thread");
            }
        }
    }

    /// Has a disk follow its device, if that has grown. It has been open all the time, so it is no
    /// other device.
    fn follow_device(&self, disk: &Name, ticket: &Ticket) {
        let Ok(Found { record, backend: Backend::Block { device, .. }, service }) =
            self.model().resizable(disk)
        else {
            return;
        };
        let Ok(found) = block_device::length(&device) else { return };
        if service != Service::Serving || found <= record.size {
            return;
        }
        info!(%disk, device = %device.display(), before = %record.size, now = %found,
            "the device has grown");
        let request = DiskResize { size: Some(found), shrink: Shrink::Never };
        if let Err(error) = self.resize(disk, request, ticket) {
            warn!(%disk, %error, "the disk does not follow its device");
        }
    }
}
