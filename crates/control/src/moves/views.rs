//! What is told of moves.

use super::past::Seen;
use crate::moving::{Moving, Phase};
use crate::speed::Speed;
use crate::{Control, ControlError};
use headgate_api::moves::{Move, MoveOutcome};
use headgate_mirror::State;
use headgate_model::Name;
use headgate_units::Bytes;
use std::time::Instant;

impl Control {
    /// How a move is, as it was when somebody looked.
    pub(crate) fn view_move(&self, moving: &Moving, size: Bytes) -> Move {
        self.moved().view(moving, size)
    }

    /// Looks how far the moves are. Asks the data path.
    pub(super) fn look_at_speeds(&self) {
        let under_way: Vec<Name> = {
            let model = self.model();
            let under_way = model.moves.values().filter(|one| one.phase == Phase::UnderWay);
            under_way.map(|one| one.record.disk.clone()).collect()
        };
        for disk in under_way {
            let Some(progress) = self.plane.move_progress(&disk) else { continue };
            let mut moved = self.moved();
            let fresh = || Seen { progress, speed: Speed::default() };
            let seen = moved.seen.entry(disk).or_insert_with(fresh);
            seen.progress = progress;
            match progress.state {
                State::Copying => seen.speed.look(Instant::now(), progress.copied),
                _ => seen.speed.rest(),
            }
        }
    }

    /// Moves under way, by disk, and then those that are over, the last one first.
    pub fn moves(&self) -> Vec<Move> {
        self.look_at_speeds();
        let model = self.model();
        let size = |disk: &Name| model.disks.get(disk).map_or(Bytes(0), |entry| entry.record.size);
        let moved = self.moved();
        let view = |one: &Moving| moved.view(one, size(&one.record.disk));
        model.moves.values().map(view).chain(moved.past.iter().cloned()).collect()
    }

    /// How many moves ended in each way since the daemon began.
    pub fn moves_ended(&self) -> Vec<(MoveOutcome, u64)> {
        let moved = self.moved();
        let count = |outcome: MoveOutcome| moved.counts.get(&outcome).copied().unwrap_or(0);
        MoveOutcome::ALL.map(|outcome| (outcome, count(outcome))).to_vec()
    }

    /// A disk's move: the one under way, or else the last one.
    ///
    /// # Errors
    /// When there is none.
    pub fn view_of_move(&self, disk: &Name) -> Result<Move, ControlError> {
        let found = self.moves().into_iter().find(|one| one.disk == *disk);
        match found {
            Some(one) => Ok(one),
            None => Err(self.not_moving(disk)),
        }
    }
}
