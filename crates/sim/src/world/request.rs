//! A request on its way.

use headgate_devices::IoKind;
use headgate_qos::dmclock::Ticket;
use headgate_qos::{Cost, DiskId, Phase};
use headgate_units::{Bytes, Nanos};

/// More requests than these of one workload do not wait: what would come then is dropped and
/// counted. Bounds the memory of a workload that asks for more than there is.
pub(crate) const MOST_OUTSTANDING: u32 = 65_536;

/// A request from its issue to its completion.
pub(super) struct Request {
    pub(super) disk: u32,
    pub(super) workload: u32,
    pub(super) epoch: u32,
    pub(super) tag: u32,
    pub(super) node: u32,
    pub(super) kind: IoKind,
    pub(super) phase: Phase,
    /// On the node's device.
    pub(super) offset: u64,
    pub(super) bytes: Bytes,
    pub(super) arrived: Nanos,
    pub(super) dispatched: Nanos,
    pub(super) reached_node: Nanos,
    /// Given to the node's device.
    pub(super) submitted: Nanos,
    /// In the device, or waiting for one that failed.
    pub(super) inside: bool,
    /// What its host charged, and what the node.
    pub(super) charged: Cost,
    pub(super) cost: Cost,
    /// For the disk's tracker, which wants it back.
    pub(super) ticket: Option<Ticket<u32>>,
    /// The host's gate that it goes through, and its disk's name there: those of its disk when it
    /// came.
    pub(super) gate: u32,
    pub(super) id: DiskId,
    /// In a pool: which of its datastores it goes to.
    pub(super) store: u32,
    pub(super) role: Role,
    /// A write that is written to a copy, too, which has not been done yet.
    pub(super) mirrored: bool,
    /// It has left its gate.
    pub(super) released: bool,
}

/// What a request is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// A guest's own.
    Guest,
    /// A piece of a disk that is copied: read from where it is.
    CopyRead,
    /// The same: written to where it will be.
    CopyWrite,
    /// A guest's write, written a second time where the disk will be.
    Mirror,
}
