use thiserror::Error;

/// Why no copy can be made so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum SetupError {
    /// There is nothing to copy.
    #[error("the disk has no bytes")]
    Empty,
    /// With none of something nothing gets done.
    #[error("a limit of the copy is 0")]
    Nothing,
    /// Chunks are found by shifting.
    #[error("the smallest chunk is no power of two")]
    ChunkNotAPowerOfTwo,
    /// A chunk is read whole.
    #[error("the buffers of the copy do not hold one chunk of so large a disk")]
    BuffersBelowChunk,
    /// The machine's own memory, which is taken once.
    #[error("there is no memory for the copy's bitmap and tables")]
    NoMemory,
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
    /// Nothing is under way at that side for that job.
    #[error("nothing is under way at that storage for that job")]
    NothingUnderWay,
    /// It ends by what was found.
    #[error("an examination that succeeded ends by what it found")]
    FoundWhat,
    /// The step does not examine anything.
    #[error("that step does not examine anything")]
    NotExamining,
    /// An extent begins with something.
    #[error("nothing was found in an extent that is not empty")]
    FoundNothing,
    /// The step does not read anything.
    #[error("that step does not read anything")]
    NotReading,
    /// A part is of whole chunks, and less than all.
    #[error("what was read is no part of what that step reads")]
    NoPart,
    /// There is one instant.
    #[error("the requests from before the instant have ended already")]
    AlreadyDrained,
}

/// There is nothing to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
#[error("the copy has ended")]
pub struct Over;
