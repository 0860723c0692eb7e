//! Begins moves: makes the copy at the target, and hands it to the data path.

use super::reclaim::Copy;
use super::watch::Watch;
use crate::leases::{Before, Beside, DeviceOf, Eviction};
use crate::moving::{Moving, Phase, Verdict};
use crate::preconditions::in_earnest;
use crate::remote::Found;
use crate::workers::Ticket;
use crate::{Control, ControlError, block_device, clock, crash, images, remote, targets};
use headgate_api::moves::{DiskMigrate, Move};
use headgate_api::terms::DryRun;
use headgate_api::types::{Changed, DiskCreate, Force};
use headgate_catalog::PolicyChange;
use headgate_mirror::Side;
use headgate_model::{
    Backend, DiskRecord, Fence, MoveOrder, MoveRecord, MoveStep, Name, OpenDisk, Writes,
};
use headgate_units::Bytes;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;
use tracing::{info, warn};

/// How long the beginning of a move may take: a server is dialled, or an image made.
const PATIENCE: Duration = Duration::from_secs(45);

/// A move that begins. Dropped before [`Making::finish`], it removes what was made, and then the
/// row. What cannot be undone is logged, and done when the storage lets it.
struct Making {
    control: Arc<Control>,
    disk: Name,
    /// What the catalog and the model have of it.
    row: Row,
    copy: Copy,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Row {
    Absent,
    Inserted,
}

/// What a move needs to know before anything is made.
struct Plan {
    /// The disk as it will be.
    record: DiskRecord,
    source: Backend,
    target: Backend,
    found: Option<Found>,
    warnings: Vec<String>,
}

impl Making {
    fn finish(mut self) {
        self.row = Row::Absent;
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        if self.row == Row::Absent {
            return;
        }
        if std::thread::panicking() {
            // What was made is not known: it is removed as after the end of a daemon.
            return self.control.put_phase(&self.disk, Phase::Found, None);
        }
        if let Err(e) = self.control.reclaim(&self.disk, Side::Target, self.copy) {
            warn!(disk = %self.disk, error = %e, "a move that did not begin could not be undone");
            let verdict = Verdict::cut(MoveStep::Preparing, "it could not begin");
            self.control.put_phase(&self.disk, Phase::Closed(verdict), Some(e.to_string()));
        }
    }
}

/// The disk as a new one on its target.
fn as_new(record: &DiskRecord, request: &DiskMigrate) -> DiskCreate {
    DiskCreate {
        name: record.name.clone(),
        size: Some(record.size),
        datastore: Some(request.to.clone()),
        export: request.export.clone(),
        vm: record.vm.clone(),
        class: record.set.class.clone(),
        policy: record.set.policy,
        placement: record.placement.clone(),
        read_only: record.writes == Writes::Refused,
        moved_from: None,
        force: request.force,
        overwrite: request.force,
        evict: Force::No,
    }
}

impl Control {
    /// Begins to move a disk to another datastore while it is used.
    ///
    /// # Errors
    /// When the disk does not serve, moves already, does not fit there or cannot be there, or the
    /// storage refuses. Nothing is left behind then. [`ControlError::Hung`] when it does not
    /// answer: what was begun is undone when it does.
    pub fn migrate_disk(
        &self,
        disk: &Name,
        request: DiskMigrate,
    ) -> Result<Changed<Move>, ControlError> {
        self.check_move(&self.model(), disk, &request)?;
        let (target, moved) = (request.to.clone(), disk.clone());
        let doing = format!("making the copy of disk '{disk}'");
        let warnings = self.on_storage(&target, doing, PATIENCE, move |control, ticket| {
            control.begin_watched(&moved, &request, ticket)
        })?;
        Ok(Changed { now: self.view_of_move(disk)?, warnings })
    }

    /// Whether a move would begin now, by all that [`migrate_disk`](Self::migrate_disk) asks
    /// before it makes anything. Answers what the operator should know.
    ///
    /// # Errors
    /// As that.
    pub(crate) fn try_move(
        &self,
        disk: &Name,
        request: &DiskMigrate,
    ) -> Result<Vec<String>, ControlError> {
        self.check_move(&self.model(), disk, request)?;
        let (target, moved, request) = (request.to.clone(), disk.clone(), request.clone());
        let doing = format!("looking whether disk '{disk}' can come");
        self.on_storage(&target, doing, PATIENCE, move |control, _| {
            Ok(control.look_at_target(&moved, &request)?.warnings)
        })
    }

    /// Begins a move with a thread that does what it asks for.
    fn begin_watched(
        &self,
        disk: &Name,
        request: &DiskMigrate,
        ticket: &Ticket,
    ) -> Result<Vec<String>, ControlError> {
        let (warnings, watch) = self.begin_move(disk, request, ticket)?;
        watch.start()?;
        Ok(warnings)
    }

    /// Begins a move. What comes of it must be watched.
    pub(super) fn begin_move(
        &self,
        disk: &Name,
        request: &DiskMigrate,
        ticket: &Ticket,
    ) -> Result<(Vec<String>, Watch), ControlError> {
        let plan = self.look_at_target(disk, request)?;
        in_earnest(|| self.would_go_to(&request.to, disk, &plan.warnings))?;
        let (mut making, mut plan) = self.write_down(disk, request, plan)?;
        crash::point("move written down");
        self.hold_copy(disk, &plan.target, ticket)?;
        crash::point("lease of the copy acquired");
        let directory = self.image_directory(&plan.target)?;
        if let Some(directory) = &directory {
            ticket.step(format!("making the copy of disk '{disk}'"));
            images::create(self.plane.as_ref(), directory, disk, plan.record.size)?;
            making.copy = Copy::Made;
        }
        crash::point("copy made");
        // From here on a crash has it removed, whatever it holds; and what it is is beside it.
        self.put_step(disk, MoveStep::Started, ticket)?;
        self.settle_records([&plan.source, &plan.target]);
        crash::point("move started");
        let order = self.order(&mut plan, directory, request)?;
        let (events, heard) = channel();
        self.put_phase(disk, Phase::UnderWay, None);
        // The copy is in the disk's group from its first request on.
        self.put_groups_now()?;
        self.plane.begin_move(order, events)?;
        making.finish();
        info!(%disk, to = %request.to, "the disk is being moved");
        Ok((plan.warnings, Watch::new(self.me.clone(), disk.clone(), heard)))
    }

    /// What would be of a disk on another datastore.
    fn would_go_to(&self, target: &Name, disk: &Name, warnings: &[String]) -> DryRun {
        let record = self.model().disks.get(disk).map(|entry| entry.record.clone());
        let Some(record) = record else { return DryRun::default() };
        let then = DiskRecord { datastore: target.clone(), ..record };
        self.would(&PolicyChange::of_disk(&then), warnings)
    }

    /// What only storage knows. Blocks.
    fn look_at_target(&self, disk: &Name, request: &DiskMigrate) -> Result<Plan, ControlError> {
        let (record, source, target, mut warnings) = {
            let model = self.model();
            let warnings = self.check_move(&model, disk, request)?;
            let record = model.disk(disk)?.record.clone();
            let source = model.datastore(&record.datastore)?.record.backend.clone();
            let target = model.datastore(&request.to)?.record.backend.clone();
            (record, source, target, warnings)
        };
        let found = self.find_export(&request.to, &as_new(&record, request))?;
        let device = self.look_at_device_for(&target, request)?;
        let remote = found.as_ref().map(|found| found.record.clone());
        let record = DiskRecord { datastore: request.to.clone(), remote, ..record };
        if found.is_none() {
            let model = self.model();
            let store = model.datastore(&request.to)?;
            self.disk_size(&model, Some(record.size), store, device)?;
        }
        self.look_at_space(&request.to);
        warnings.extend(self.check_overcommit(&record)?);
        Ok(Plan { record, source, target, found, warnings })
    }

    /// The size of the device that the disk is to go to, if it is one. One that holds something is
    /// overwritten by force only.
    fn look_at_device_for(
        &self,
        target: &Backend,
        request: &DiskMigrate,
    ) -> Result<Option<Bytes>, ControlError> {
        let Backend::Block { device, .. } = target else { return Ok(None) };
        self.check_device_allowed(device)?;
        self.check_vacant(&self.model(), &request.to)?;
        block_device::check_new(device, request.force)?;
        Ok(Some(self.plane.device_size(device)?))
    }

    /// The row, before anything is made. Everything may have changed since it was looked at.
    fn write_down(
        &self,
        disk: &Name,
        request: &DiskMigrate,
        plan: Plan,
    ) -> Result<(Making, Plan), ControlError> {
        let control = self.me.upgrade().ok_or_else(ControlError::stopping)?;
        let mut catalog = self.catalog();
        let source = {
            let model = self.model();
            self.check_move(&model, disk, request)?;
            let now = model.disk(disk)?.record.clone();
            if let Some(found) = &plan.found {
                self.check_found(&model, &as_new(&now, request), found)?;
            }
            if let Backend::Block { .. } = plan.target {
                self.check_vacant(&model, &request.to)?;
            }
            now.datastore
        };
        let record = MoveRecord {
            disk: disk.clone(),
            source,
            target: request.to.clone(),
            step: MoveStep::Preparing,
            pace: request.pace(),
            began: clock::seconds_since_1970(),
        };
        catalog.put_move(&record, None)?;
        let remote = plan.record.remote.clone();
        let moving = Moving { record, remote, phase: Phase::Preparing, trouble: None };
        self.model_mut().moves.insert(disk.clone(), moving);
        drop(catalog);
        let making = Making { control, disk: disk.clone(), row: Row::Inserted, copy: Copy::None };
        Ok((making, plan))
    }

    /// Becomes the holder of the copy.
    fn hold_copy(
        &self,
        disk: &Name,
        target: &Backend,
        ticket: &Ticket,
    ) -> Result<(), ControlError> {
        let Some(location) = self.lease_location(disk, target) else { return Ok(()) };
        ticket.step(format!("acquiring the lease of the copy of disk '{disk}'"));
        match self.leases.acquire_beside(disk, &location, Before::New)? {
            Beside::Own => {
                ticket.rest(|| self.leases.wait_beside(disk));
                Ok(())
            }
            Beside::Foreign(holder) => Err(ControlError::Busy {
                error: format!(
                    "{holder} served a disk '{disk}' on that datastore, and did not give it back"
                ),
                hint: "choose another datastore, or take that disk over under another name".into(),
            }),
        }
    }

    /// Writes down how far a move is.
    fn put_step(&self, disk: &Name, step: MoveStep, ticket: &Ticket) -> Result<(), ControlError> {
        let mut catalog = self.catalog();
        let record = self.moving(disk)?.record;
        if !ticket.commit() {
            drop(catalog);
            // Who asked was told so.
            return Err(ControlError::Cut {
                name: record.target,
                reason: "its storage did not answer in time".into(),
            });
        }
        let record = MoveRecord { step, ..record };
        catalog.put_move(&record, None)?;
        if let Some(moving) = self.model_mut().moves.get_mut(disk) {
            moving.record = record;
        }
        Ok(())
    }

    fn order(
        &self,
        plan: &mut Plan,
        directory: Option<PathBuf>,
        request: &DiskMigrate,
    ) -> Result<MoveOrder, ControlError> {
        // With what was changed since it was looked at.
        let now = self.model().disk(&plan.record.name)?.record.clone();
        let Plan { record, target, found, .. } = plan;
        let record = DiskRecord {
            datastore: record.datastore.clone(),
            remote: record.remote.clone(),
            ..now
        };
        let (image, content) = targets::image_and_content(&record.name, target, directory);
        let session = match found.as_mut() {
            Some(found) => self.label_found(found)?,
            None => None,
        };
        let remote = remote::disk(&record, target, session, &self.leases)?;
        let fence = self.fence((&record.name, DeviceOf::Copy), target, Eviction::Never);
        let target = OpenDisk {
            // That of the disk is of its lease where it is now.
            term: self.leases.term_beside(&record.name),
            fence: fence.map(|fence| fence as Arc<dyn Fence>),
            ..self.open_request(&record, image, remote)
        };
        Ok(MoveOrder { disk: record.name, target, content, pace: request.pace() })
    }
}
