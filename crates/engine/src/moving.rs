//! What a live move tells, and its name.

use headgate_mirror::{Outcome, Progress, Record, Side};
use std::sync::{Arc, Mutex, PoisonError};

/// Hears of a move, on the shard's thread: it must not block.
pub type MoveListener = Box<dyn FnMut(MoveEvent) -> Listening + Send>;

/// Whether anybody hears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listening {
    /// Somebody does.
    Yes,
    /// Nobody does any more: the move ends, unless the target may count already.
    Gone,
}

/// What happens in a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveEvent {
    /// Write this into the journal, and tell by
    /// [`Engine::move_recorded`](crate::Engine::move_recorded).
    Record(Record),
    /// The move has ended.
    Ended(Outcome),
    /// The move is over for the engine, too. Nothing uses this side any more: close the disk.
    Reclaim(Side),
}

/// Where a move is, for whoever must not wait for its shard. Clones show the same.
#[derive(Clone, Debug, Default)]
pub struct MoveGauge(Arc<Mutex<Option<Progress>>>);

impl MoveGauge {
    /// `None`: it has not begun, or is over.
    pub fn get(&self) -> Option<Progress> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set(&self, progress: Option<Progress>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = progress;
    }
}

/// Names a move in its engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MoveId {
    pub(crate) shard: usize,
    pub(crate) index: u32,
    pub(crate) serial: u64,
}
