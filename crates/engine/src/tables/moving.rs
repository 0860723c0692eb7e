//! A live move, or a copy as of one instant, as its shard holds it.

use super::crossing::Wanted;
use super::lateness::Lateness;
use super::machine::{Action, Ending, Machine};
use super::port::MovePart;
use crate::kernel::page_buffer::PageBuffer;
use crate::moving::Listening;
use crate::request::{Completion, IoError, Request};
use headgate_mirror::{Outcome, Record, Side, Word};
use headgate_units::Nanos;
use slab::Slab;
use std::collections::VecDeque;

/// Bytes of clients' writes that the machine may have at once, and one write of any length. Each
/// may have to be kept for both sides. What comes beyond waits.
pub(crate) const WRITES_MAX: u64 = 64 << 20;

/// One live move, or one copy as of an instant: that is a move whose target never becomes the disk.
pub(crate) struct Moving {
    pub serial: u64,
    pub machine: Machine,
    pub front: u32,
    /// Those datastores that are the move's own: the front's, and that of the disk that stands for
    /// a target elsewhere.
    pub stores: Vec<(u32, usize)>,
    pub source: u32,
    pub target: u32,
    /// Where the target is. One on another shard has a disk of this one that stands for it, whose
    /// number `target` is.
    pub reach: Reach,
    /// Of a target elsewhere: whether its shard lets the copy begin a step.
    pub permit: Permit,
    /// What a target elsewhere was told of whether anybody waits for it.
    pub wanted: Wanted,
    /// When the copy may begin a step.
    pub wake: Option<Nanos>,
    pub senders: Senders,
    pub stage: Stage,
    pub elders: Elders,
    pub clients: Slab<ClientRequest>,
    /// What each step of the copy holds.
    pub steps: Vec<Held>,
    /// Requests that the front has dispatched and the machine does not know yet.
    pub waiting: VecDeque<u32>,
    /// Bytes of the writes among `clients`.
    pub writes: u64,
    /// What ended at one of the sides.
    pub ended: VecDeque<Ended>,
    /// The side that is to be reclaimed.
    pub reclaim: Option<Side>,
    pub ending: Option<Ending>,
    pub lateness: Lateness,
    /// What the source had failed to make durable when the clients' ports left it.
    pub undurable: u64,
    pub out: Vec<Action>,
}

/// The ports that a move sends by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Senders {
    pub source: u32,
    pub source_copy: u32,
    pub target: u32,
    pub target_copy: u32,
}

impl Senders {
    pub(crate) fn of(&self, part: MovePart) -> u32 {
        match part {
            MovePart::Source => self.source,
            MovePart::SourceCopy => self.source_copy,
            MovePart::Target => self.target,
            MovePart::TargetCopy => self.target_copy,
        }
    }

    pub(crate) fn all(&self) -> [u32; 4] {
        [self.source, self.source_copy, self.target, self.target_copy]
    }
}

/// What a step of the copy holds.
pub(crate) enum Held {
    Nothing,
    /// What it has read, or reads, from this byte of the disk on.
    Content(PageBuffer, u64),
    /// The target has the source's blocks.
    Blocks,
}

impl Held {
    /// A buffer for so much from this byte of the disk on, which may be one that it has.
    pub(crate) fn room(&mut self, start: u64, len: usize) -> libc::iovec {
        let mut held = match std::mem::replace(self, Held::Nothing) {
            Held::Content(held, _) if held.len() >= len => held,
            _ => PageBuffer::new(len),
        };
        let buffer = held.buffer(len);
        *self = Held::Content(held, start);
        buffer
    }

    /// So much of what it has read from this byte on. It may write a part of what it has read.
    pub(crate) fn part(&mut self, start: u64, len: usize) -> libc::iovec {
        match self {
            Held::Content(held, first) => held.part(start.saturating_sub(*first) as usize, len),
            Held::Nothing | Held::Blocks => self.room(start, len),
        }
    }
}

/// Where a move's target is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// On this shard.
    Here,
    /// On another one.
    Elsewhere,
}

/// Whether the shard of a target elsewhere lets the copy begin a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Permit {
    /// It is to be asked when a step could begin.
    None,
    Wanted,
    /// It was asked when so many steps were under way.
    Asked(u32),
    Given,
}

/// Where the clients' ports hang.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// On the source, until none of them has to do with its pages or blocks.
    Preparing,
    /// On the front.
    Relaying,
    /// On the front, until they can go to the side that counts.
    Returning(Side),
    /// On the side that counts. The front has requests still.
    Draining,
}

/// Requests that clients have sent to the source before the move: the machine does not know them,
/// so nothing is copied while they are under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Elders {
    Perhaps,
    None,
}

/// How a client's request goes through a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// The machine decides.
    Machine,
    /// It asks for nothing that is to be on both sides.
    Past,
}

/// A request that the front has dispatched.
pub(crate) struct ClientRequest {
    pub route: Route,
    /// What it writes.
    pub bytes: u64,
    /// Its slot, until it is answered.
    pub front: Option<u32>,
    /// What it writes, where that goes to both sides: a guest may change its buffers meanwhile.
    pub kept: Option<PageBuffer>,
    pub source: Half,
    pub target: Half,
}

/// A client's request at one side.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Half {
    /// Its slot there, while it is under way.
    pub slot: Option<u32>,
    pub error: Option<IoError>,
}

impl ClientRequest {
    pub(crate) fn half(&mut self, side: Side) -> &mut Half {
        match side {
            Side::Source => &mut self.source,
            Side::Target => &mut self.target,
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.front.is_none() && self.source.slot.is_none() && self.target.slot.is_none()
    }
}

/// Something that a move has sent has ended.
pub(crate) struct Ended {
    pub part: MovePart,
    pub request: Request,
    pub completion: Completion,
}

impl Moving {
    /// Whether the target is the disk.
    pub(crate) fn has_switched(&self) -> bool {
        self.ending == Some(Ending::Move(Outcome::Switched))
    }

    /// Asks the listener for a record. One that is gone will not say what became of it, so none was
    /// made.
    pub(crate) fn ask_for_record(&mut self, record: Record) {
        let heard = self.machine.tell_of_record(record);
        if heard == Listening::Gone {
            // It was asked for just now.
            let _ = self.machine.recorded(Word::NotMade, &mut self.out);
        }
        self.heard(heard);
    }

    /// Whether anybody heard what was told. Without a listener it ends, unless the target may count
    /// already.
    pub(crate) fn heard(&mut self, heard: Listening) {
        if heard == Listening::Gone {
            let _ = self.machine.cancel(&mut self.out);
        }
    }
}
