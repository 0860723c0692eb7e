//! The copies of a pool: which disks are copied, and how far.

use super::accounts::Beside;
use headgate_mirror::{Mirror, Side};
use headgate_qos::DiskId;
use headgate_units::{Bytes, Nanos};
use std::collections::{BTreeMap, VecDeque};

/// Copies under way and to come.
#[derive(Default)]
pub(super) struct Copies {
    pub(super) waiting: VecDeque<Order>,
    pub(super) active: Vec<DiskCopy>,
    /// The queues at each gate, one for each copy that may be under way.
    pub(super) queues: BTreeMap<u32, Vec<DiskId>>,
    pub(super) beside: Beside,
    /// Something happened after which a copy may have a step to spare.
    pub(super) stirred: Stirred,
    /// Bytes written to targets for copies.
    pub(super) copied: Bytes,
    /// The longest that a guest's request waited at a machine before it was sent.
    pub(super) longest_wait: Nanos,
}

/// Whether copies are to be asked what they can do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stirred {
    #[default]
    No,
    Yes,
}

/// A disk that is to be copied.
pub(super) struct Order {
    pub(super) member: usize,
    pub(super) disk: u32,
    pub(super) to: usize,
    /// The move's number.
    pub(super) number: usize,
}

/// A disk that is copied.
pub(super) struct DiskCopy {
    pub(super) order: Order,
    pub(super) from: usize,
    /// Which of the queues at its gates is its own.
    pub(super) seat: usize,
    pub(super) machine: Mirror,
    pub(super) stage: Stage,
    /// What the disk had under way when the copy began: the machine does not know of it, so nothing
    /// is copied until it is over.
    pub(super) elders: u32,
    /// Requests for which the machine had no room, in order.
    pub(super) held: VecDeque<u32>,
    /// Requests that the machine has not answered.
    pub(super) told: BTreeMap<u32, Told>,
    /// When it is asked again; [`Nanos::MAX`] if that is not planned.
    pub(super) wake: Nanos,
    /// Allocated bytes, from the disk's beginning on. Behind is a hole.
    pub(super) used: Bytes,
}

/// A guest's request that a machine has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    /// Since when.
    pub(super) since: Nanos,
    pub(super) request: headgate_mirror::Request,
    /// Whether it met another of the guest's, for which it has to wait.
    pub(super) meets: Meets,
}

/// Whether a request met another one that it overlaps, of which one changes something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meets {
    Nothing,
    Another,
}

impl Told {
    pub(super) fn excludes(&self, other: headgate_mirror::Request) -> bool {
        use headgate_mirror::Request::Read;
        let both = self.request.extent().zip(other.extent());
        let reads = matches!((self.request, other), (Read(_), Read(_)));
        !reads && both.is_some_and(|(one, other)| one.overlaps(other))
    }
}

/// Where a copy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The disk's requests go to the machine.
    Relaying,
    /// They go to the target; the machine ends those that it has.
    Leaving,
    /// And the source is given back.
    Reclaimed,
}

impl DiskCopy {
    pub(super) fn store(&self, side: Side) -> usize {
        match side {
            Side::Source => self.from,
            Side::Target => self.order.to,
        }
    }
}

impl Copies {
    /// Another with none under way; `None` where any is, or is to be.
    pub(super) fn fork(&self) -> Option<Copies> {
        (self.are_done() && self.beside.is_empty()).then(|| Copies {
            waiting: VecDeque::new(),
            active: Vec::new(),
            queues: self.queues.clone(),
            beside: Beside::default(),
            ..*self
        })
    }

    /// Whether a disk is copied, or is to be.
    pub(super) fn of(&self, disk: u32) -> bool {
        let active = self.active.iter().map(|copy| copy.order.disk);
        active.chain(self.waiting.iter().map(|order| order.disk)).any(|of| of == disk)
    }

    /// Whether none is under way, or to be.
    pub(super) fn are_done(&self) -> bool {
        self.active.is_empty() && self.waiting.is_empty()
    }

    pub(super) fn ask_for(&mut self, (member, disk): (usize, u32), to: usize, number: usize) {
        self.waiting.push_back(Order { member, disk, to, number });
    }

    /// The copy of a move.
    pub(super) fn find(&mut self, number: usize) -> Option<&mut DiskCopy> {
        self.active.iter_mut().find(|copy| copy.order.number == number)
    }

    /// The first queue that no copy has.
    pub(super) fn free_seat(&self) -> usize {
        let taken = |seat: &usize| self.active.iter().any(|copy| copy.seat == *seat);
        (0..).find(|seat| !taken(seat)).unwrap_or(0)
    }
}
