//! What a live move tells, and its name.

use headgate_mirror::{Outcome, Record, Side};

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

/// Names a move in its engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MoveId {
    pub(crate) shard: usize,
    pub(crate) index: u32,
    pub(crate) serial: u64,
}
