use crate::request::{Completion, Job, Op, RequestId, Side};
use thiserror::Error;

/// What the caller has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Send this, and tell of its end by [`PointInTime::done`](super::PointInTime::done), or as
    /// [`PointInTime::found`](super::PointInTime::found) and
    /// [`PointInTime::read_zeroes`](super::PointInTime::read_zeroes) say. For each job one thing
    /// is under way at a time, on both sides together. Zeroes and discards may be sent in parts,
    /// one after the other.
    Send {
        /// To which storage.
        side: Side,
        /// For what.
        job: Job,
        /// What to do.
        op: Op,
    },
    /// Answer the guest's request, as the source ended it. Nothing is under way for it.
    Answer(RequestId, Completion),
    /// The copy has ended, once. Requests are taken as before, and pass.
    Ended(Outcome),
    /// The copy has ended, nothing is under way for it at either side, and nothing will be: its
    /// buffers are free, and a target that is not complete may be removed. Said once.
    Release,
}

/// How a copy ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The target holds the disk as of the instant, durably.
    Complete,
    /// What the target holds is good for nothing.
    GivenUp(Reason),
    /// The same, because it was asked for.
    Cancelled,
}

/// Why a copy was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum Reason {
    /// Something that was sent to the target failed.
    #[error("the target failed a request")]
    TargetFailed,
    /// The caller gave the target up.
    #[error("the target does not answer")]
    TargetLost,
    /// What is to be copied cannot be read.
    #[error("the source failed a read of the copy")]
    SourceUnreadable,
    /// After that nobody knows whether the source still reads as at the instant.
    #[error("the source failed to make changes durable")]
    SourceNotDurable,
}
