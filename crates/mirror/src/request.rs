//! What a guest asks, and what the machine asks of storage.

use crate::extent::Extent;

/// The caller's name for a request of the guest. Free again once it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// When a change counts as done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Durability {
    /// In a volatile cache; a later flush makes it durable.
    Cached,
    /// On stable storage before it is answered (force unit access).
    Fua,
}

/// Whether zeroes may be a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unmap {
    /// The extent may become a hole that reads as zeroes.
    May,
    /// The extent must stay allocated.
    MustNot,
}

/// A request of the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Request {
    /// Its content.
    Read(Extent),
    /// New content.
    Write(Extent, Durability),
    /// The content is no longer needed.
    Discard(Extent),
    /// Reads as zeroes afterwards.
    Zero(Extent, Unmap, Durability),
    /// What was answered before is durable afterwards.
    Flush,
}

impl Request {
    /// What it reads or changes; a flush has none.
    pub fn extent(self) -> Option<Extent> {
        match self {
            Request::Read(extent)
            | Request::Write(extent, _)
            | Request::Discard(extent)
            | Request::Zero(extent, ..) => Some(extent),
            Request::Flush => None,
        }
    }

    /// Its failure may be the only word of changes that were answered before and are lost.
    pub(crate) fn vouches(self) -> bool {
        matches!(
            self,
            Request::Flush
                | Request::Write(_, Durability::Fua)
                | Request::Zero(_, _, Durability::Fua)
        )
    }

    pub(crate) fn op(self) -> Op {
        match self {
            Request::Read(extent) => Op::Read(extent),
            Request::Write(extent, durability) => Op::Write(extent, durability),
            Request::Discard(extent) => Op::Discard(extent),
            Request::Zero(extent, unmap, durability) => Op::Zero(extent, unmap, durability),
            Request::Flush => Op::Flush,
        }
    }
}

/// One of the two storages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// Where the disk is until the switch.
    Source,
    /// Where it is afterwards.
    Target,
}

impl Side {
    /// The other one.
    pub fn other(self) -> Side {
        match self {
            Side::Source => Side::Target,
            Side::Target => Side::Source,
        }
    }
}

/// The number of a step of the copy, from 0 on and below [`Limits::steps`](crate::Limits::steps).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StepId(pub u32);

/// For what something was sent. At one side only one thing is under way for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Job {
    /// A request of the guest.
    Request(RequestId),
    /// A step of the copy.
    Copy(StepId),
    /// The flush after which the switch is recorded.
    LastFlush,
}

/// What a storage has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Say what the extent begins with: [`Mirror::found`](crate::Mirror::found).
    Examine(Extent),
    /// Read; a step of the copy keeps the content for its write.
    Read(Extent),
    /// Write the guest's content, or what the step has read.
    Write(Extent, Durability),
    /// Discard. A storage that cannot says that it is done.
    Discard(Extent),
    /// Make it read as zeroes, by writing them if there is no other way.
    Zero(Extent, Unmap, Durability),
    /// Make durable what was completed before.
    Flush,
}

/// How a storage ended what it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Completion {
    /// It is done.
    Done,
    /// It is not done, or in part.
    Failed,
}

/// What an extent begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Found {
    /// Data, or nobody knows.
    Data,
    /// Zeroes that are allocated.
    Zeroes,
    /// A hole that reads as zeroes.
    Hole,
}

/// What the guest hears.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// It is done.
    Done,
    /// It failed, with the error that this side gave.
    Failed(Side),
}
