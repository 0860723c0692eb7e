//! What is told of copies.

use crate::copying::Copying;
use crate::{Control, ControlError, clock};
use headgate_api::copies::{Copy, CopyState};
use headgate_model::Name;
use headgate_units::Bytes;

impl Control {
    pub(crate) fn view_copy(&self, copy: &Name, copying: &Copying) -> Copy {
        let progress = self.plane.copy_progress(copy);
        let state = copying.state();
        let seen = progress.map(|progress| progress.copied);
        let copied = copying.copied.or(seen).unwrap_or(Bytes(0));
        let speed = copying.look(copied);
        let left = Bytes(copying.size.0.saturating_sub(copied.0));
        Copy {
            disk: copy.clone(),
            source: copying.source.clone(),
            datastore: copying.datastore.clone(),
            state,
            instant: copying.instant,
            copied,
            size: copying.size,
            blocks: copying.blocks,
            rate: speed.rate(),
            seconds_left: speed.time_for(left),
            shares: copying.pace.shares,
            limit: copying.pace.limit,
            limit_bandwidth: copying.pace.limit_bandwidth,
            waiting: progress.map_or(0, |progress| progress.waiting),
            began: copying.began,
            ended: None,
            reason: None,
        }
    }

    /// Copies under way, by disk, and then those that are over, the last one first.
    pub fn copies(&self) -> Vec<Copy> {
        let under_way = self.model().copies.clone();
        let mut all: Vec<Copy> =
            under_way.iter().map(|(copy, copying)| self.view_copy(copy, copying)).collect();
        all.extend(self.copied().all().cloned());
        all
    }

    /// How many copies ended in each way since the daemon began.
    pub fn copies_ended(&self) -> [(CopyState, u64); 3] {
        let copied = self.copied();
        CopyState::OVER.map(|state| (state, copied.count(state)))
    }

    /// A disk's copying: what is under way, or else the last one.
    ///
    /// # Errors
    /// When there is none.
    pub fn view_of_copy(&self, copy: &Name) -> Result<Copy, ControlError> {
        let found = self.copies().into_iter().find(|one| one.disk == *copy);
        found.ok_or_else(|| self.not_copied(copy))
    }

    pub(super) fn not_copied(&self, copy: &Name) -> ControlError {
        match self.model().disk(copy) {
            Err(missing) => missing,
            Ok(_) => ControlError::Busy {
                error: format!("disk '{copy}' is not a copy under way"),
                hint: "'headgate disk copies' says which are".into(),
            },
        }
    }

    /// A copy is over, and why if it failed.
    pub(super) fn forget_copy_of(&self, copy: &Name, reason: Option<String>) {
        let state = if reason.is_none() { CopyState::Complete } else { CopyState::Failed };
        self.copy_is_over(copy, state, reason);
    }

    pub(super) fn forget_cancelled_copy(&self, copy: &Name) {
        self.copy_is_over(copy, CopyState::Cancelled, None);
    }

    fn copy_is_over(&self, copy: &Name, state: CopyState, reason: Option<String>) {
        let Some(copying) = self.model().copies.get(copy).cloned() else { return };
        let before = self.view_copy(copy, &copying);
        let ended = Some(clock::seconds_since_1970());
        let copied = if state == CopyState::Complete { before.size } else { before.copied };
        let still = Copy { waiting: 0, rate: None, seconds_left: None, ..before };
        let over = Copy { state, ended, reason, copied, ..still };
        let mut model = self.model_mut();
        model.copies.remove(copy);
        // Under the model's lock: nobody finds it neither under way nor over.
        self.copied().add(over);
    }
}
