//! What a live move tells, and its name.

use headgate_mirror::{Limits, Outcome, Progress, Record, Side, TargetContent};
use headgate_qos::Policy;
use headgate_units::Nanos;
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

/// How a move goes.
pub struct MoveTerms {
    /// What the target holds now.
    pub content: TargetContent,
    /// What the copy is promised, and held to, on each of the two datastores.
    pub pace: Policy,
    /// How much may be under way.
    pub limits: Limits,
    /// How long a request may be at the target's storage before the target is given up.
    pub patience: Nanos,
    /// Shows where the move is.
    pub gauge: MoveGauge,
    /// Who is told what happens.
    pub listener: MoveListener,
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

/// Where a move is.
pub type MoveGauge = Gauge<Progress>;

/// Where something is, for whoever must not wait for its shard. Clones show the same.
#[derive(Clone, Debug)]
pub struct Gauge<P>(Arc<Mutex<Option<P>>>);

impl<P> Default for Gauge<P> {
    fn default() -> Gauge<P> {
        Gauge(Arc::new(Mutex::new(None)))
    }
}

impl<P: Copy> Gauge<P> {
    /// `None`: it has not begun, or is over.
    pub fn get(&self) -> Option<P> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set(&self, progress: Option<P>) {
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
