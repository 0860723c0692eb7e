//! What an operator orders while a disk moves.

use crate::moving::Phase;
use crate::{Control, ControlError};
use headgate_api::moves::{Move, MovePatch, MoveWish};
use headgate_api::types::Force;
use headgate_mirror::{NotCancelled, Operation, State};
use headgate_model::{MoveRecord, Name, PlaneError};

impl Control {
    /// A disk that does not move, or did.
    pub(super) fn not_moving(&self, disk: &Name) -> ControlError {
        match self.model().disk(disk) {
            Err(missing) => missing,
            Ok(_) => ControlError::Busy {
                error: format!("disk '{disk}' is not being moved"),
                hint: "'headgate disk moves' says which disks are".into(),
            },
        }
    }

    /// One that cannot be ended by what it is doing is no failure.
    fn not_cancelled(&self, disk: &Name, error: PlaneError) -> ControlError {
        match self.plane.move_progress(disk).map(|progress| progress.state) {
            Some(State::Switching | State::Switched) => ControlError::Busy {
                error: format!("disk '{disk}': {}", NotCancelled::Switching),
                hint: format!(
                    "see where it is then with 'headgate disk show {disk}'; it can be moved back"
                ),
            },
            _ => error.into(),
        }
    }

    /// Changes what the copy of a move may take, has it rest or go on. In force when the call
    /// returns.
    ///
    /// # Errors
    /// When the disk does not move, or the shard does not confirm.
    pub fn change_move(&self, disk: &Name, patch: &MovePatch) -> Result<Move, ControlError> {
        {
            let mut catalog = self.catalog();
            let (record, before) = {
                let model = self.model();
                let moving = model.moves.get(disk).filter(|one| one.phase == Phase::UnderWay);
                let Some(moving) = moving else {
                    drop(model);
                    return Err(self.not_moving(disk));
                };
                (model.disk(disk)?.record.clone(), moving.record.clone())
            };
            let pace = patch.pace(before.pace);
            if pace != before.pace {
                let now = MoveRecord { pace, ..before.clone() };
                // The disk with it: were the switch in doubt, the two would differ.
                catalog.put_move(&now, Some(&record))?;
                if let Err(e) = self.plane.set_move_pace(disk, pace) {
                    catalog.put_move(&before, Some(&record))?;
                    return Err(e.into());
                }
                if let Some(moving) = self.model_mut().moves.get_mut(disk) {
                    moving.record = now;
                }
            }
        }
        match patch.state {
            Some(MoveWish::Paused) => self.plane.pause_move(disk)?,
            Some(MoveWish::Copying) => self.plane.resume_move(disk)?,
            None => {}
        }
        self.view_of_move(disk)
    }

    /// Ends a move before its switch: the disk stays where it is. Of one that is over, `force`
    /// forgets the copy that could not be removed, and leaves it there.
    ///
    /// # Errors
    /// When the disk does not move, while the switch is being recorded, or after it.
    pub fn cancel_move(&self, disk: &Name, force: Force) -> Result<(), ControlError> {
        let Some(moving) = self.model().moves.get(disk).cloned() else {
            return Err(self.not_moving(disk));
        };
        match moving.phase {
            Phase::Preparing => self.model().check_not_moving(disk, Operation::Move),
            Phase::UnderWay => {
                self.plane.cancel_move(disk).map_err(|e| self.not_cancelled(disk, e))
            }
            Phase::Ended(_) | Phase::Lost(_) | Phase::Closed(_) | Phase::Found => {
                self.forget_copy(&moving, force)
            }
        }
    }
}
