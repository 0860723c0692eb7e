//! Begins copies: makes the storage, and hands it to the data path.

use super::watch::Watch;
use crate::copying::{Copying, Phase};
use crate::creation::{Content, Creation, Planned};
use crate::disks::{being_created, datastore_of};
use crate::leases::{Before, Eviction};
use crate::remote::{self, Found};
use crate::workers::Ticket;
use crate::{Control, ControlError, Model, Service, block_device, clock, crash, images, targets};
use headgate_api::copies::{Copy, DiskCopy};
use headgate_api::types::{Changed, DiskCreate, Force};
use headgate_mirror::Operation;
use headgate_model::{
    Backend, Blocks, CopyOrder, DiskRecord, MovePace, Name, Origin, Policy, Reflink, Writes,
};
use headgate_units::Bytes;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use tracing::{info, warn};

/// How long the making of the storage may take.
const PATIENCE: Duration = Duration::from_secs(45);

/// How long requests from before the instant may take. A guest's changes wait for them.
#[cfg(not(test))]
const DRAIN: Duration = Duration::from_secs(20);
#[cfg(test)]
const DRAIN: Duration = Duration::from_millis(200);

/// How a disk is to be copied.
#[derive(Clone, Copy)]
struct Manner {
    /// The disk's size: the copy may be larger in the end.
    size: Bytes,
    pace: MovePace,
    reflink: Reflink,
}

/// A copy that the data path has begun.
struct Begun {
    watch: Watch,
    warnings: Vec<String>,
}

impl Model {
    /// A disk that is copied keeps what it is until that is over.
    pub(crate) fn check_not_copied(&self, disk: &Name) -> Result<(), ControlError> {
        let found = self.copies.iter().find(|(_, copying)| copying.source == *disk);
        let Some((copy, _)) = found else { return Ok(()) };
        Err(ControlError::Busy {
            error: format!("disk '{disk}' is being copied to disk '{copy}'"),
            hint: format!(
                "wait for its end ('headgate disk copies'), or end it with 'headgate disk copy \
                 --cancel {copy}'"
            ),
        })
    }
}

impl Control {
    /// Begins to copy a disk as of one instant while it is used. Answers when the instant has
    /// passed: what clients had an answer for before the call is in the copy, and what they ask for
    /// after it is not.
    ///
    /// # Errors
    /// When the disk does not serve, is moved or copied already, or the copy cannot be where it is
    /// to be. Nothing is left behind then. [`ControlError::Hung`] when the storage of the copy does
    /// not answer: what was begun is undone when it does.
    pub fn copy_disk(
        &self,
        source: &Name,
        request: DiskCopy,
    ) -> Result<Changed<Copy>, ControlError> {
        let copied = self.check_copied(&self.model(), source)?;
        let mut new = request.as_new(&copied);
        check_not_smaller(&new, &copied)?;
        // Until the disk is in the model: the next one is placed with it in view.
        let turn = new.datastore.is_none().then(|| self.placing());
        if new.datastore.is_none() {
            new.datastore = Some(self.place(&new, None)?.0);
        }
        let copy = new.name.clone();
        let (size, reflink) = (copied.size, request.reflink);
        let manner = Manner { size, pace: request.pace(), reflink };
        let target = datastore_of(&new)?;
        let backend = self.model().datastore(&target)?.record.backend.clone();
        check_can_grow(&backend, &new, &copied)?;
        let planned = match backend {
            // What they need to know is with the storage.
            Backend::Nbd { .. } | Backend::Stripe { .. } | Backend::Block { .. } => None,
            Backend::Dir { .. } | Backend::Emulated { .. } | Backend::Memory { .. } => {
                // One that names an export is refused here.
                self.find_export(&target, &new)?;
                let me = self.me.upgrade().ok_or_else(ControlError::stopping)?;
                let creation = Creation::new(me, copy.clone());
                Some(self.plan_copy(creation, source, new.clone(), (None, None), manner)?)
            }
        };
        drop(turn);
        let doing = format!("making the storage of disk '{copy}'");
        let from = source.clone();
        let Begun { watch, warnings } = self.on_storage(&target, doing, PATIENCE, {
            move |control, ticket| {
                let (planned, found) = match planned {
                    Some(planned) => (planned, None),
                    None => control.look_and_plan_copy(&from, new, manner, ticket)?,
                };
                control.begin_copy(&from, planned, found, manner, ticket)
            }
        })?;
        self.await_instant(&copy, watch)?;
        Ok(Changed { now: self.view_of_copy(&copy)?, warnings })
    }

    /// What a disk is, if it can be copied now by all that can be said without asking storage.
    fn check_copied(&self, model: &Model, source: &Name) -> Result<DiskRecord, ControlError> {
        let entry = model.disk(source)?;
        if let Service::Creating = entry.service {
            return Err(being_created(source));
        }
        if let Some(reason) = entry.service.reason() {
            let (name, reason) = (source.clone(), reason.to_owned());
            return Err(ControlError::DiskFailed { name, reason });
        }
        model.check_not_moving(source, Operation::Snapshot)?;
        entry.check_size_stays()?;
        Ok(entry.record.clone())
    }

    /// The row of a copy on a device or an export, which is looked at first. Blocks.
    fn look_and_plan_copy(
        &self,
        source: &Name,
        new: DiskCreate,
        manner: Manner,
        ticket: &Ticket,
    ) -> Result<(Planned, Option<Found>), ControlError> {
        let me = self.me.upgrade().ok_or_else(ControlError::stopping)?;
        let mut creation = Creation::new(me, new.name.clone());
        let target = datastore_of(&new)?;
        let found = self.find_export(&target, &new)?;
        let device = match self.hold_device(&new, ticket)? {
            Some(backend) => {
                creation.holds(backend.clone());
                self.look_at_device_of_copy(&target, &backend, new.force)?
            }
            None => None,
        };
        let planned = self.plan_copy(creation, source, new, (found.as_ref(), device), manner)?;
        Ok((planned, found))
    }

    /// The size of the device that a copy is to be. What it holds is overwritten.
    fn look_at_device_of_copy(
        &self,
        target: &Name,
        backend: &Backend,
        force: Force,
    ) -> Result<Option<Bytes>, ControlError> {
        let Backend::Block { device, .. } = backend else { return Ok(None) };
        self.check_device_allowed(device)?;
        self.check_vacant(&self.model(), target)?;
        block_device::check_new(device, force)?;
        Ok(Some(self.plane.device_size(device)?))
    }

    /// The row, before anything is made.
    fn plan_copy(
        &self,
        creation: Creation,
        source: &Name,
        new: DiskCreate,
        (found, device): (Option<&Found>, Option<Bytes>),
        manner: Manner,
    ) -> Result<Planned, ControlError> {
        let began = clock::seconds_since_1970();
        let (copy, origin) = (new.name.clone(), Origin { disk: source.clone(), at: began });
        let planned = self.plan(creation, new, Content::CopyOf(origin), found, device)?;
        let copying = Copying {
            source: source.clone(),
            datastore: planned.record.datastore.clone(),
            size: manner.size,
            phase: Phase::Preparing,
            instant: None,
            copied: None,
            pace: manner.pace,
            blocks: Blocks::default(),
            speed: Default::default(),
            began,
        };
        let mut model = self.model_mut();
        // Of two that want to copy it, one does, and none copies what it was before it grew.
        let now = self.check_copied(&model, source);
        if let Some(e) = now.map(|now| size_changed(&now, manner.size)).unwrap_or_else(Some) {
            drop(model);
            return Err(e);
        }
        model.copies.insert(copy, copying);
        drop(model);
        Ok(planned)
    }

    /// Makes the storage and begins. An error undoes all.
    fn begin_copy(
        &self,
        source: &Name,
        planned: Planned,
        found: Option<Found>,
        manner: Manner,
        ticket: &Ticket,
    ) -> Result<Begun, ControlError> {
        let copy = planned.record.name.clone();
        let begun = self.make_and_begin(source, planned, found, manner, ticket);
        if let Err(e) = &begun {
            self.forget_copy_of(&copy, Some(e.to_string()));
        }
        begun
    }

    fn make_and_begin(
        &self,
        source: &Name,
        planned: Planned,
        found: Option<Found>,
        manner: Manner,
        ticket: &Ticket,
    ) -> Result<Begun, ControlError> {
        let Planned { mut creation, record, backend, mut warnings } = planned;
        let copy = record.name.clone();
        let directory = self.image_directory(&backend)?;
        ticket.step(format!("looking for the space of disk '{copy}'"));
        self.look_at_space(&record.datastore);
        warnings.extend(self.check_overcommit(&record)?);
        self.hold(&copy, &backend, Before::New, Eviction::Never, ticket)?;
        creation.holds(backend.clone());
        if let Some(directory) = &directory {
            ticket.step(format!("making the image of disk '{copy}'"));
            images::create(self.plane.as_ref(), directory, &copy, manner.size)?;
            creation.made(directory.clone());
        }
        crash::point("storage of a copy made");
        if !ticket.commit() {
            // Who asked was told so.
            let reason = "its storage did not answer in time".into();
            return Err(ControlError::Cut { name: record.datastore, reason });
        }
        let (events, heard) = channel();
        let order = self.order_of_copy(source, &record, (&backend, directory, found), manner)?;
        self.set_phase_of_copy(&copy, Phase::UnderWay);
        let opened = match record.writes {
            // What is larger is not the disk as it was: no later snapshot is compared with it.
            Writes::Refused if record.size == manner.size => self.open_changes(source, record.size),
            Writes::Refused | Writes::Allowed => None,
        };
        self.plane.begin_copy(order, events)?;
        info!(disk = %source, %copy, datastore = %record.datastore, "the disk is being copied");
        crash::point("copy begun");
        let watch =
            Watch::new(self.me.clone(), record, backend, creation.hand_over(), opened, heard);
        Ok(Begun { watch, warnings })
    }

    fn order_of_copy(
        &self,
        source: &Name,
        record: &DiskRecord,
        (backend, directory, found): (&Backend, Option<PathBuf>, Option<Found>),
        manner: Manner,
    ) -> Result<CopyOrder, ControlError> {
        let shares = self.model().disk(source)?.record.policy.shares;
        let (image, content) = targets::image_and_content(&record.name, backend, directory);
        // What a change of the disk has copied weighs at the copy as the disk does.
        let filled = DiskRecord {
            policy: Policy { shares, ..Policy::default() },
            writes: Writes::Allowed,
            size: manner.size,
            ..record.clone()
        };
        let session = found.and_then(|found| found.session);
        let remote = remote::disk(&filled, backend, session, &self.leases)?;
        let copy = self.open_request(&filled, image, remote);
        let Manner { size: _, pace, reflink } = manner;
        Ok(CopyOrder { source: source.clone(), copy, content, pace, reflink })
    }

    /// Waits for the instant, and leaves the rest to a thread.
    fn await_instant(&self, copy: &Name, watch: Watch) -> Result<(), ControlError> {
        let (told, instant) = channel();
        watch.start(told)?;
        match wait(&instant) {
            Some(Ok(())) => Ok(()),
            Some(Err(reason)) => {
                let name = copy.clone();
                Err(ControlError::Cut { name, reason })
            }
            None => {
                // Its watch undoes it.
                let _ = self.plane.cancel_copy(copy);
                Err(ControlError::Busy {
                    error: format!(
                        "requests that were under way when the copy '{copy}' began did not end \
                         within {} s: it is given up",
                        DRAIN.as_secs()
                    ),
                    hint: "see 'headgate datastore list' for storage that hangs, and try again"
                        .into(),
                })
            }
        }
    }

    pub(super) fn set_phase_of_copy(&self, copy: &Name, phase: Phase) {
        if let Some(copying) = self.model_mut().copies.get_mut(copy) {
            copying.phase = phase;
        }
    }

    /// The data path says what a copy is made of from now on.
    pub(super) fn note_blocks(&self, copy: &Name, blocks: Blocks) {
        if let Some(copying) = self.model_mut().copies.get_mut(copy) {
            copying.blocks = blocks;
        }
        match blocks {
            Blocks::Shared => info!(%copy, "the copy shares blocks with its disk (reflink)"),
            Blocks::Copied => warn!(
                %copy,
                "the file system shares no more blocks of the copy and its disk: the rest is copied"
            ),
        }
    }

    /// The instant of a copy has passed.
    pub(super) fn note_instant(&self, copy: &Name) {
        if let Some(copying) = self.model_mut().copies.get_mut(copy) {
            copying.instant = Some(clock::seconds_since_1970());
        }
    }

    /// The data path has ended a copy.
    pub(super) fn note_end(&self, copy: &Name) {
        let progress = self.plane.copy_progress(copy);
        if let Some(copying) = self.model_mut().copies.get_mut(copy) {
            copying.phase = Phase::Ended;
            copying.copied = progress.map(|progress| progress.copied);
        }
    }
}

/// A copy has all of its disk.
fn check_not_smaller(new: &DiskCreate, source: &DiskRecord) -> Result<(), ControlError> {
    let asked = new.size.unwrap_or(source.size);
    if asked >= source.size {
        return Ok(());
    }
    let (name, size) = (&source.name, source.size);
    Err(ControlError::invalid(
        format!("{asked} is less than the {size} of disk '{name}', all of which is copied"),
        format!("no size, or one of at least {} bytes", size.0),
    ))
}

/// A copy may be larger than its disk where the storage is made for it.
fn check_can_grow(
    backend: &Backend,
    new: &DiskCreate,
    source: &DiskRecord,
) -> Result<(), ControlError> {
    match backend {
        Backend::Dir { .. } | Backend::Emulated { .. } | Backend::Memory { .. } => return Ok(()),
        Backend::Nbd { .. } | Backend::Stripe { .. } | Backend::Block { .. } => {}
    }
    let asked = new.size.unwrap_or(source.size);
    if asked == source.size {
        return Ok(());
    }
    let target = new.datastore.as_ref().map(Name::as_str).unwrap_or_default();
    Err(ControlError::invalid(
        format!(
            "a copy on datastore '{target}' is as large as its disk, {}: nobody knows what a \
             device or an export holds behind that",
            source.size
        ),
        "no size, or a datastore whose disks are files",
    ))
}

fn size_changed(now: &DiskRecord, planned: Bytes) -> Option<ControlError> {
    (now.size != planned).then(|| ControlError::Busy {
        error: format!("disk '{}' has just been given another size", now.name),
        hint: "copy it now".into(),
    })
}

/// What became of the instant; `None`: nothing yet, and nobody waits any longer.
fn wait(instant: &Receiver<Result<(), String>>) -> Option<Result<(), String>> {
    instant.recv_timeout(DRAIN).ok()
}
