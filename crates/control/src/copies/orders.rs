//! What an operator orders while a disk is copied.

use crate::copying::Phase;
use crate::{Control, ControlError};
use headgate_api::copies::Copy;
use headgate_api::pace::PacePatch;
use headgate_model::Name;

impl Control {
    /// Changes what the copying may take. In force when the call returns.
    ///
    /// # Errors
    /// When there is no copy under way of that name, or the shard does not confirm.
    pub fn change_copy(&self, copy: &Name, patch: &PacePatch) -> Result<Copy, ControlError> {
        {
            // Of two changes at once, the shard and the model have the same one in the end.
            let _turn = self.catalog();
            let copying = self.model().copies.get(copy).cloned();
            let under_way = copying.filter(|copying| copying.phase == Phase::UnderWay);
            let Some(copying) = under_way else { return Err(self.not_copied(copy)) };
            let pace = patch.pace(copying.pace);
            if pace != copying.pace {
                self.plane.set_copy_pace(copy, pace)?;
                if let Some(copying) = self.model_mut().copies.get_mut(copy) {
                    copying.pace = pace;
                }
            }
        }
        self.view_of_copy(copy)
    }

    /// Ends a copy: nothing of it is left when its state says so.
    ///
    /// # Errors
    /// When there is none, or the data path is through with it.
    pub fn cancel_copy(&self, copy: &Name) -> Result<(), ControlError> {
        let Some(copying) = self.model().copies.get(copy).cloned() else {
            return Err(self.not_copied(copy));
        };
        match copying.phase {
            Phase::UnderWay => Ok(self.plane.cancel_copy(copy)?),
            Phase::Preparing => Err(ControlError::Busy {
                error: format!("the storage of disk '{copy}' is being made"),
                hint: "end it in a moment".into(),
            }),
            Phase::Ended => Err(ControlError::Busy {
                error: format!("all of disk '{copy}' is copied"),
                hint: format!("remove it in a moment with 'headgate disk remove {copy}'"),
            }),
        }
    }
}
