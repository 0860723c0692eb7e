//! Live moves, as the engine does them.

use crate::engine_plane::EnginePlane;
use headgate_mirror::{Progress, Side, Word};
use headgate_model::{LiveMoves, MoveEvent, MoveOrder, MovePace, Name, PlaneError};
use std::sync::mpsc::Sender;

fn absent() -> PlaneError {
    PlaneError::new("live moves are not built into this data path")
}

impl LiveMoves for EnginePlane {
    fn begin_move(&self, _order: MoveOrder, _events: Sender<MoveEvent>) -> Result<(), PlaneError> {
        Err(absent())
    }

    fn move_recorded(&self, _disk: &Name, _word: Word) -> Result<(), PlaneError> {
        Err(absent())
    }

    fn set_move_pace(&self, _disk: &Name, _pace: MovePace) -> Result<(), PlaneError> {
        Err(absent())
    }

    fn pause_move(&self, _disk: &Name) -> Result<(), PlaneError> {
        Err(absent())
    }

    fn resume_move(&self, _disk: &Name) -> Result<(), PlaneError> {
        Err(absent())
    }

    fn cancel_move(&self, _disk: &Name) -> Result<(), PlaneError> {
        Err(absent())
    }

    fn move_progress(&self, _disk: &Name) -> Option<Progress> {
        None
    }

    fn end_move(&self, _disk: &Name, _side: Side) -> Result<(), PlaneError> {
        Err(absent())
    }
}
