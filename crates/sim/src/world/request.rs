//! A request on its way.

use headgate_devices::IoKind;
use headgate_mirror::{Side, StepId};
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
    pub(super) course: Course,
}

/// Whose a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// A guest's own.
    Guest,
    /// A guest's, sent a second time: to the other side of a move. Its tag is the guest's request.
    Twin,
    /// A guest's that was answered by the other side of a move, and is at this one still.
    Left(Side),
    /// Of a step of a copy. Its tag is the number of the move.
    Step(Side, StepId),
    /// The last flush of a copy. Its tag is the number of the move.
    LastFlush,
}

/// How far a guest's request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Course {
    /// Not at its host yet.
    InGuest,
    /// It goes where its disk is.
    Straight,
    /// Its disk is moved, and the move's machine has not sent it.
    Waiting,
    /// The machine has sent it to this side.
    At(Side),
    /// It is back from that side. The machine has not answered it.
    Back,
}

/// Of one without a ticket: disks that have any are not doubled.
impl Clone for Request {
    fn clone(&self) -> Request {
        debug_assert!(self.ticket.is_none(), "a ticket is of one tracker");
        Request { ticket: None, ..*self }
    }
}

impl Request {
    /// One that begins now, with nothing said of it.
    #[inline]
    pub(super) fn unsent(now: Nanos, gate: u32, id: DiskId) -> Request {
        Request {
            disk: 0,
            workload: u32::MAX,
            epoch: 0,
            tag: 0,
            node: 0,
            kind: IoKind::Read,
            phase: Phase::Weight,
            offset: 0,
            bytes: Bytes(0),
            arrived: now,
            dispatched: now,
            reached_node: now,
            submitted: now,
            inside: false,
            charged: Cost::default(),
            cost: Cost::default(),
            ticket: None,
            gate,
            id,
            store: 0,
            role: Role::LastFlush,
            course: Course::InGuest,
        }
    }
}
