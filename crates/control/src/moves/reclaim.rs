//! Removes the copy that does not count when a move is over, and then its row.

use crate::leases::{Before, Beside};
use crate::moving::{Moving, Phase};
use crate::{Control, ControlError, Service, crash, images};
use headgate_api::types::Force;
use headgate_cluster::lease::LeaseError;
use headgate_mirror::{Side, State};
use headgate_model::{Backend, MoveStep, Name};
use headgate_units::Bytes;
use tracing::{info, warn};

/// What there may be of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Copy {
    /// What has its name is somebody else's.
    None,
    /// What has its name is this move's if it is empty.
    Perhaps,
    /// It was made by this move, or is what the disk was.
    Made,
}

impl Control {
    /// Removes a copy that nobody has open, gives back what belongs to it, and forgets the move.
    /// Done already is done.
    pub(super) fn reclaim(&self, disk: &Name, side: Side, copy: Copy) -> Result<(), ControlError> {
        let moving = self.moving(disk)?;
        let datastore = moving.record.datastore(side);
        let backend = self.model().datastore(datastore)?.record.backend.clone();
        if copy != Copy::None
            && let Some(holder) = self.other_holder(disk, &backend)?
        {
            warn!(%disk, %datastore, holder, "the copy of a move that is over is another host's by now");
            return self.forget_move(disk);
        }
        if let Some(directory) = self.image_directory(&backend)? {
            match copy {
                Copy::None => {}
                Copy::Perhaps => {
                    images::discard_unfinished(&directory, disk)?;
                    images::remove_empty(&directory, disk)?;
                }
                Copy::Made => images::remove(&directory, disk)?,
            }
        }
        crash::point("copy removed");
        // Before its lease: its next holder finds the device free.
        self.leases.fences().release_copy(disk);
        if let Some(location) = self.lease_location(disk, &backend) {
            self.leases.remove_beside(disk, &location).map_err(|source| ControlError::Io {
                doing: format!("remove the lease of the copy of disk '{disk}'"),
                source,
            })?;
        }
        crash::point("lease of the copy removed");
        self.catalog().delete_move(disk)?;
        self.forget(disk);
        crash::point("move forgotten");
        Ok(())
    }

    /// Who has the copy of a disk, if it is not this host: what has its name is theirs.
    fn other_holder(&self, disk: &Name, backend: &Backend) -> Result<Option<String>, ControlError> {
        let Some(location) = self.lease_location(disk, backend) else { return Ok(None) };
        match self.leases.acquire_beside(disk, &location, Before::Existing) {
            Ok(Beside::Own) => Ok(None),
            Ok(Beside::Foreign(holder)) => Ok(Some(holder.to_string())),
            Err(e @ (LeaseError::Held { .. } | LeaseError::HeldByUnknown { .. })) => {
                Ok(Some(e.to_string()))
            }
            Err(e) => Err(e.into()),
        }
    }

    /// Forgets a move that the catalog has no more.
    fn forget(&self, disk: &Name) {
        let mut model = self.model_mut();
        let size = model.disks.get(disk).map_or(Bytes(0), |entry| entry.record.size);
        if let Some(moving) = model.moves.remove(disk) {
            // Under the model's lock: nobody finds it neither under way nor over.
            self.moved().end(&moving, size);
        }
        drop(model);
        self.tidy_groups();
    }

    /// Has the copy of a move that is over removed. Waits for nobody.
    pub(super) fn reclaim_soon(&self, disk: &Name) {
        let Ok(moving) = self.moving(disk) else { return };
        let datastore = moving.record.datastore(moving.reclaimed()).clone();
        let (me, its) = (self.me.clone(), disk.clone());
        let doing = format!("removing the copy of disk '{disk}' that does not count");
        // Without a thread the next look tries again.
        let _ = self.workers.start(&datastore, doing, move |_| {
            if let Some(control) = me.upgrade() {
                control.reclaim_now(&its);
            }
        });
    }

    /// By the worker of the datastore that the copy is on.
    pub(super) fn reclaim_now(&self, disk: &Name) {
        let Ok(moving) = self.moving(disk) else { return };
        let reclaimed = match &moving.phase {
            Phase::Closed(_) => self.reclaim(disk, moving.reclaimed(), Copy::Made),
            Phase::Found => self.reclaim_found(&moving),
            Phase::Preparing | Phase::UnderWay | Phase::Ended(_) | Phase::Lost(_) => return,
        };
        if let Err(e) = reclaimed {
            let trouble = Some(e.to_string());
            if moving.trouble != trouble {
                let on = moving.record.datastore(moving.reclaimed());
                warn!(%disk, datastore = %on, error = %e,
                    "the copy of a move that is over is not removed, and this is tried again");
            }
            self.put_phase(disk, moving.phase, trouble);
        }
    }

    /// One that a daemon before this one left: what it did not see may be otherwise.
    fn reclaim_found(&self, moving: &Moving) -> Result<(), ControlError> {
        let (record, side) = (&moving.record, moving.reclaimed());
        let disk = &record.disk;
        let copy = if record.step == MoveStep::Preparing { Copy::Perhaps } else { Copy::Made };
        if moving.trouble.is_none() {
            let (from, to, at) = (&record.source, &record.target, record.datastore(side.other()));
            info!(%disk, %from, %to, %at,
                "a move was cut by the end of the daemon: the disk is there, its other copy is \
                 removed, and it is not moved again by itself");
        }
        self.reclaim(disk, side, copy)
    }

    /// Has the copies removed of moves that are over. Waits for nobody.
    ///
    /// The other copy is known to be good when its disk serves. While its storage is away, the one
    /// that does not count is better than none.
    pub(crate) fn settle_moves(&self) {
        let (due, lost): (Vec<Name>, Vec<Name>) = {
            let model = self.model();
            let serves = |name: &Name| {
                model.datastores.get(name).is_some_and(|store| store.service == Service::Serving)
            };
            let is_good = |moving: &&Moving| {
                let entry = model.disks.get(&moving.record.disk);
                let at = moving.record.datastore(moving.record.step.recovery().serve);
                entry.is_some_and(|e| e.service == Service::Serving && e.record.datastore == *at)
            };
            let over = model.moves.values().filter(is_good);
            let due = |moving: &&Moving| {
                matches!(moving.phase, Phase::Closed(_) | Phase::Found)
                    && serves(moving.record.datastore(moving.reclaimed()))
            };
            let lost = |moving: &&Moving| matches!(moving.phase, Phase::Lost(_));
            let name = |moving: &Moving| moving.record.disk.clone();
            (over.clone().filter(due).map(name).collect(), over.filter(lost).map(name).collect())
        };
        for disk in lost {
            let Ok(moving) = self.moving(&disk) else { continue };
            // Both copies are closed when the data path knows nothing of it any more.
            let is_closed = match self.plane.move_progress(&disk).map(|found| found.state) {
                None => true,
                Some(State::Ended | State::Switched) => {
                    self.plane.end_move(&disk, moving.reclaimed()).is_ok()
                }
                Some(_) => false,
            };
            if is_closed {
                self.close_move(&disk);
            }
        }
        for disk in due {
            let Ok(moving) = self.moving(&disk) else { continue };
            if self.workers.is_idle(moving.record.datastore(moving.reclaimed())) {
                self.reclaim_soon(&disk);
            }
        }
        self.look_at_speeds();
    }

    /// Forgets a move, and leaves its copies where they are.
    fn forget_move(&self, disk: &Name) -> Result<(), ControlError> {
        self.catalog().delete_move(disk)?;
        self.forget(disk);
        self.leases.release_beside(disk);
        Ok(())
    }

    /// Forgets what is left of a move that is over, if that is forced, and leaves the copy there.
    pub(super) fn forget_copy(&self, moving: &Moving, force: Force) -> Result<(), ControlError> {
        let disk = &moving.record.disk;
        let on = moving.record.datastore(moving.reclaimed());
        match (&moving.phase, force) {
            (Phase::Closed(_) | Phase::Found, Force::Yes) => {
                warn!(%disk, datastore = %on,
                    "a copy that does not count is left there and forgotten, for it was forced");
                self.forget_move(disk)
            }
            _ => self.model().check_no_copy(disk),
        }
    }
}
