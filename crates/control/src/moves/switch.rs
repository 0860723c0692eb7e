//! The switch: one change of the catalog, after which the target is the disk.

use crate::leases::{FenceState, LeaseLocation};
use crate::moving::{Moving, Phase, Verdict};
use crate::{Control, ControlError, crash};
use headgate_catalog::Catalog;
use headgate_cluster::lease::Holder;
use headgate_mirror::{Side, Word};
use headgate_model::{Backend, DiskRecord, MoveRecord, MoveStep, Name};
use tracing::{error, info, warn};

/// A disk and its move, before the switch and after it.
struct Switch {
    here: (DiskRecord, MoveRecord),
    there: (DiskRecord, MoveRecord),
}

impl Control {
    /// A move that is known.
    pub(super) fn moving(&self, disk: &Name) -> Result<Moving, ControlError> {
        let moving = self.model().moves.get(disk).cloned();
        moving.ok_or_else(|| self.not_moving(disk))
    }

    /// Changes who has the copies of a disk that moves.
    pub(super) fn put_phase(&self, disk: &Name, phase: Phase, trouble: Option<String>) {
        if let Some(moving) = self.model_mut().moves.get_mut(disk) {
            moving.phase = phase;
            moving.trouble = trouble;
        }
    }

    /// The data path has no more to do with a move: its copy may be removed.
    pub(super) fn close_move(&self, disk: &Name) {
        if let Some(moving) = self.model_mut().moves.get_mut(disk) {
            let verdict = match &moving.phase {
                Phase::Ended(verdict) | Phase::Lost(verdict) => verdict.clone(),
                _ => Verdict::cut(moving.record.step, "its end was not told"),
            };
            moving.phase = Phase::Closed(verdict);
        }
    }

    /// The data path says nothing more of a move. What it has open is not known.
    pub(super) fn lose_move(&self, disk: &Name, why: &str) {
        if let Some(moving) = self.model_mut().moves.get_mut(disk) {
            let verdict = match &moving.phase {
                Phase::UnderWay => Verdict::cut(moving.record.step, why),
                Phase::Ended(verdict) => verdict.clone(),
                // Whoever began it undoes it, or its copy is being removed.
                _ => return,
            };
            warn!(%disk, why, "the move was cut");
            moving.phase = Phase::Lost(verdict);
        }
    }

    /// Waits for what is noted beside the images on these backends.
    pub(super) fn settle_records(&self, backends: [&Backend; 2]) {
        if let Some(records) = &self.records {
            records.settle_on(backends);
        }
    }

    fn switch_of(&self, disk: &Name) -> Option<Switch> {
        let model = self.model();
        let (moving, entry) = (model.moves.get(disk)?, model.disks.get(disk)?);
        let here = entry.record.clone();
        let there = DiskRecord {
            datastore: moving.record.target.clone(),
            remote: moving.remote.clone(),
            ..here.clone()
        };
        let step = |step| MoveRecord { step, ..moving.record.clone() };
        Some(Switch {
            here: (here, step(MoveStep::Started)),
            there: (there, step(MoveStep::Switched)),
        })
    }

    /// Writes the switch down: disk and move in one step.
    pub(super) fn write_switch(&self, disk: &Name) -> Word {
        let mut catalog = self.catalog();
        if let Err(why) = self.check_held(disk) {
            warn!(%disk, error = %why, "the move does not end with a switch");
            return Word::NotMade;
        }
        let Some(switch) = self.switch_of(disk) else { return Word::NotMade };
        crash::point("switch asked for");
        let (record, row) = &switch.there;
        match catalog.put_move(row, Some(record)) {
            Ok(()) => self.has_switched(switch, catalog),
            Err(e) => {
                error!(%disk, error = %e, "the switch of a move may be written down or not");
                Word::Unknown
            }
        }
    }

    /// Finds out what became of a switch, and makes it certain: whatever the failed change left,
    /// this one comes after it.
    pub(super) fn read_switch(&self, disk: &Name) -> Word {
        let mut catalog = self.catalog();
        let Some(switch) = self.switch_of(disk) else { return Word::NotMade };
        let found = match catalog.find_move(disk) {
            Ok(found) => found.map(|row| row.step),
            Err(e) => {
                warn!(%disk, error = %e, "nobody knows yet where the disk is");
                return Word::Unknown;
            }
        };
        let is_there = found == Some(MoveStep::Switched);
        let (record, row) = if is_there { &switch.there } else { &switch.here };
        match catalog.put_move(row, Some(record)) {
            Ok(()) if is_there => self.has_switched(switch, catalog),
            Ok(()) => {
                warn!(%disk, "the switch is not written down, and is tried again");
                Word::NotMade
            }
            Err(e) => {
                warn!(%disk, error = %e, "nobody knows yet where the disk is");
                Word::Unknown
            }
        }
    }

    /// It is written down.
    fn has_switched(
        &self,
        switch: Switch,
        catalog: std::sync::MutexGuard<'_, Box<dyn Catalog>>,
    ) -> Word {
        let ((here, _), (there, row)) = (switch.here, switch.there);
        let disk = here.name.clone();
        let backends = {
            let mut model = self.model_mut();
            if let Some(moving) = model.moves.get_mut(&disk) {
                moving.record = row;
            }
            model.set_record(there.clone());
            [&here.datastore, &there.datastore]
                .map(|on| model.datastores.get(on).map(|store| store.record.backend.clone()))
        };
        self.leases.swap_beside(&disk);
        if here.datastore != there.datastore {
            self.samples.move_disk(&disk, &here.datastore);
        }
        drop(catalog);
        crash::point("switch written down");
        info!(%disk, from = %here.datastore, to = %there.datastore, "the disk has moved");
        // Changes go to both copies until the word is told. So whichever of them a lost catalog is
        // made anew of has everything, until the records beside them say which one it is.
        if let [Some(source), Some(target)] = &backends {
            self.settle_records([source, target]);
        }
        crash::point("switch told beside the copies");
        Word::Made
    }

    /// Whether disk and copy are this host's still, as far as is known without asking anybody. A
    /// disk that another host has must not go on from its copy here.
    pub(super) fn check_held(&self, disk: &Name) -> Result<(), ControlError> {
        let (source, target) = {
            let model = self.model();
            let Some(moving) = model.moves.get(disk) else { return Ok(()) };
            let backend = |side| {
                let store = model.datastore(moving.record.datastore(side))?;
                Ok::<_, ControlError>(store.record.backend.clone())
            };
            (backend(Side::Source)?, backend(Side::Target)?)
        };
        let is_ours = |location: LeaseLocation| self.leases.may_serve(disk, &location);
        let evicted = matches!(self.leases.fences().state(disk), Some(FenceState::Lost(_)));
        if evicted || !self.lease_location(disk, &source).is_none_or(is_ours) {
            return Err(ControlError::Busy {
                error: format!("another host has taken disk '{disk}', or its lease is in doubt"),
                hint: "look at the disk there before it is taken back".into(),
            });
        }
        let is_ours = |location: LeaseLocation| self.leases.holds_beside(disk, &location);
        if !self.lease_location(disk, &target).is_none_or(is_ours) {
            return Err(ControlError::Busy {
                error: format!(
                    "another host has taken the copy of disk '{disk}', or its lease is in doubt"
                ),
                hint: "choose a datastore that no other host uses for this name".into(),
            });
        }
        Ok(())
    }

    /// Whether the leases in files say still that disk and copy are this host's, and devices that
    /// they are reserved for it: it may have stood still since it looked last. Blocks.
    pub(super) fn check_stands(&self, disk: &Name) -> Result<(), ControlError> {
        for look in self.leases.fences().looks() {
            if look.disk == *disk {
                self.leases.fences().look(&look);
            }
        }
        if self.leases.stand(disk) {
            return self.check_held(disk);
        }
        Err(ControlError::Busy {
            error: format!("the leases of disk '{disk}' and its copy are not known to be held"),
            hint: "see that their datastores answer, and who serves the disk".into(),
        })
    }

    /// Copies whose leases in files are another's by now: their moves end, and the disks do not.
    pub(crate) fn give_up_copies(&self, lost: Vec<(Name, Option<Holder>)>) {
        for (disk, to) in lost {
            let to = to.map_or_else(|| "another host".to_owned(), |to| to.to_string());
            self.give_up_copy(&disk, &format!("it was taken by {to}"));
        }
    }

    /// Ends the move of a disk whose copy must not be used any more. After the switch that copy is
    /// what the disk was, and nobody uses it.
    pub(crate) fn give_up_copy(&self, disk: &Name, reason: &str) {
        let is_target = matches!(self.moving(disk), Ok(moving)
            if moving.record.step != MoveStep::Switched);
        warn!(%disk, reason, "the copy of a disk that moves is given up");
        if is_target && let Err(e) = self.plane.cancel_move(disk) {
            warn!(%disk, error = %e, "its move goes on");
        }
    }
}
