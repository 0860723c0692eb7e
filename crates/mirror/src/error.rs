use thiserror::Error;

/// Why a move ended without a switch.
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
    /// After that nobody knows what the source will read, so the copies may differ.
    #[error("the source failed to make changes durable")]
    SourceNotDurable,
    /// Without a record a crash would leave a copy that nobody reclaims.
    #[error("the journal did not take the start of the move")]
    NotStarted,
}

/// Limits that no move can keep to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum SetupError {
    /// There is nothing to move.
    #[error("the disk has no bytes")]
    Empty,
    /// With none of something nothing gets done.
    #[error("a limit of the move is 0")]
    Nothing,
    /// A step copies what was examined.
    #[error("a step copies more than it examines")]
    StepBeyondLook,
}

/// Why a request was not taken. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum NotTaken {
    /// It comes again after an answer.
    #[error("as many requests as may be are under way")]
    Full,
    /// It reaches beyond the disk.
    #[error("the request reaches beyond the disk")]
    OutOfRange,
    /// The name is that of a request without an answer.
    #[error("a request of that number is under way")]
    Duplicate,
}

/// The caller told of something that it was not asked for. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum Unexpected {
    /// Nothing is under way at that side.
    #[error("nothing is under way at that storage")]
    NothingUnderWay,
    /// The step is not the one that examines.
    #[error("that step does not examine anything")]
    NotExamining,
    /// An extent begins with something.
    #[error("nothing was found in an extent that is not empty")]
    FoundNothing,
    /// No record was asked for.
    #[error("no record was asked for")]
    NoRecord,
}

/// Why a move cannot be cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum NotCancelled {
    /// The target may count already.
    #[error("the switch is being recorded")]
    Switching,
    /// There is nothing to cancel.
    #[error("the move is over")]
    Over,
}

/// What is done to a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Another size.
    Resize,
    /// A copy as of now.
    Snapshot,
    /// To another datastore.
    Move,
    /// An end to it.
    Remove,
}

/// Why an operation has to wait for the end of the move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum Refused {
    /// The copy has one end, and both sides the same.
    #[error("the disk is being moved and keeps its size until then")]
    Resize,
    /// A snapshot belongs to one side.
    #[error("the disk is being moved; a snapshot would be of the side that is reclaimed")]
    Snapshot,
    /// Changes go to two sides, not three.
    #[error("the disk is being moved already")]
    Move,
    /// There are two copies, and a record that says which counts.
    #[error("the disk is being moved; cancel that first")]
    Remove,
}
