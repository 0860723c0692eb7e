use crate::error::Reason;
use crate::journal::Record;
use crate::request::{Answer, Job, Op, RequestId, Side};

/// What the caller has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Send this, and tell of its end by [`Mirror::done`](crate::Mirror::done).
    Send {
        /// To which storage.
        side: Side,
        /// For what.
        job: Job,
        /// What to do.
        op: Op,
    },
    /// Answer the guest's request. What was sent for it may still be under way at a side that no
    /// longer counts: the buffers must live until that ends.
    Answer(RequestId, Answer),
    /// Write this into the journal, and tell by [`Mirror::recorded`](crate::Mirror::recorded).
    Record(Record),
    /// The move has ended. Requests are taken as before.
    Ended(Outcome),
    /// Nothing is under way at this side, and nothing will be: its copy may be removed, and then
    /// the move's record.
    Reclaim(Side),
}

/// How a move ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The disk is the target.
    Switched,
    /// The disk is the source, as if nothing had been.
    Failed(Reason),
    /// The same, because it was asked for.
    Cancelled,
}

/// What became of an invitation to copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Turn {
    /// A step began, or the last flush. There may be room for another.
    Began,
    /// Something must end first.
    Later,
    /// There is nothing to copy now: paused, being recorded, or over.
    Idle,
}
