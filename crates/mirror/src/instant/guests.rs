//! The guest's requests, in the order in which those that wait get room.

use crate::extent::Extent;
use crate::request::{Op, Request, RequestId};
use alloc::vec::Vec;

/// What is known of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Known {
    Data,
    Zeroes,
}

/// Who wants a stretch of the disk copied, and how far he is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Front {
    /// What lies before is copied, or being read.
    pub(super) at: u64,
    /// Where his interest ends, at a border.
    pub(super) end: u64,
    pub(super) known: Known,
    /// How far that is known. What is frozen stays as it was found.
    pub(super) until: u64,
}

/// Whether something of a request is under way at the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Sent {
    Nothing,
    /// As far as this byte.
    Until(u64),
}

/// Whether the copy may be complete without a request. What was sent before all was read, and is
/// to make something durable, may be the only word of a loss that reads have met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Awaited {
    No,
    Yes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Guest {
    pub(super) id: RequestId,
    pub(super) request: Request,
    /// What is to be copied first.
    pub(super) front: Front,
    /// What lies before was done, or left out.
    pub(super) at: u64,
    /// How often something was sent.
    pub(super) pieces: u32,
    pub(super) sent: Sent,
    pub(super) awaited: Awaited,
}

impl Guest {
    /// Whether it is held back. Reads and flushes never are.
    pub(super) fn is_waiting(&self) -> bool {
        self.sent == Sent::Nothing
    }

    /// The rest of it, to its end.
    pub(super) fn rest(&self) -> Option<(u64, u64)> {
        let end = self.request.extent()?.end().0;
        (self.at < end).then_some((self.at, end))
    }

    /// What it asks of the source, for a piece of its extent.
    pub(super) fn op(&self, piece: Extent) -> Op {
        match self.request {
            Request::Discard(_) => Op::Discard(piece),
            Request::Zero(_, unmap, durability) => Op::Zero(piece, unmap, durability),
            whole => whole.op(),
        }
    }
}

/// All requests without an answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Guests {
    guests: Vec<Guest>,
    most: usize,
}

impl Guests {
    /// Nothing, unless there is memory.
    pub(super) fn with_room(most: usize) -> Option<Guests> {
        let mut guests = Vec::new();
        guests.try_reserve_exact(most).ok()?;
        Some(Guests { guests, most })
    }

    pub(super) fn len(&self) -> usize {
        self.guests.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.guests.len() >= self.most
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Guest> {
        self.guests.iter()
    }

    pub(super) fn find(&self, id: RequestId) -> Option<usize> {
        self.guests.iter().position(|guest| guest.id == id)
    }

    pub(super) fn get(&mut self, at: usize) -> Option<&mut Guest> {
        self.guests.get_mut(at)
    }

    /// Adds what arrives; returns its place.
    pub(super) fn push(&mut self, guest: Guest) -> usize {
        self.guests.push(guest);
        self.guests.len() - 1
    }

    pub(super) fn remove(&mut self, at: usize) {
        if at < self.guests.len() {
            self.guests.remove(at);
        }
    }

    /// It has had its turn: behind all others.
    pub(super) fn put_last(&mut self, at: usize) {
        if let Some(behind) = self.guests.get_mut(at..).filter(|behind| !behind.is_empty()) {
            behind.rotate_left(1);
        }
    }
}
