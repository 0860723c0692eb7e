//! A move from one shard to another, as each of the two keeps it.

use super::lateness::Lateness;
use crate::ids::DiskId;
use crate::pulse::Pulse;
use headgate_units::Nanos;
use std::sync::Arc;

/// The target, on the shard of the move.
pub(crate) struct Far {
    /// The move's number on the target's shard.
    pub landing: u32,
    pub disk: DiskId,
    /// Tells whether that shard takes its turns.
    pub pulse: Arc<Pulse>,
}

/// The move, on the shard of the target.
pub(crate) struct Landing {
    /// The target.
    pub disk: u32,
    /// The port that it sends by what clients ask.
    pub clients: u32,
    /// The port that it sends by what the copy asks.
    pub copy: u32,
    /// The move's number and its serial number on its own shard, once it has begun.
    pub of: Option<(u32, u64)>,
    pub lateness: Lateness,
    pub late: Late,
    pub wanted: Wanted,
    /// It asks whether it may begin a step beside so many that are under way.
    pub asks: Option<u32>,
    /// When it may.
    pub wake: Option<Nanos>,
}

/// Whether anybody waits for what a move sends to a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Yes,
    No,
}

/// Whether a move was told that a request has been at its target's storage for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Late {
    NotTold,
    Told,
}
