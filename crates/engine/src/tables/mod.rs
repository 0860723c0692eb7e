//! The tables of a shard: its requests, disks and ports, by number. Plain memory, without the
//! kernel.
//!
//! Backends and the shard both work on them.

pub(crate) mod block_locks;
pub(crate) mod crossing;
pub(crate) mod disk;
pub(crate) mod disks;
pub(crate) mod lane;
pub(crate) mod lateness;
pub(crate) mod machine;
pub(crate) mod moving;
pub(crate) mod port;
pub(crate) mod queue_slots;
pub(crate) mod range_queue;
pub(crate) mod slots;
pub(crate) mod streams;
pub(crate) mod trouble;

use disks::Disks;
use port::PortState;
use slab::Slab;
use slots::Slots;

/// What enqueue, dispatch and complete of a datastore work on: requests, disks and ports, by
/// number.
pub(crate) struct Tables {
    /// Requests under way.
    pub slots: Slots,
    /// Open disks.
    pub disks: Disks,
    /// Attached ports.
    pub ports: Slab<PortState>,
    /// Requests that have ended and whose ports do not know yet.
    pub completed: Vec<u32>,
    /// Ports that have been given the block that they asked for, and do not know yet.
    pub granted: Vec<u32>,
}
