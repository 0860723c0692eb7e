use crate::mirror::TargetContent;
use headgate_units::Bytes;

/// How many stretches of a discard are sent, one after the other. A disk of which every second
/// chunk is copied would have a terabyte's discard sent in millions of pieces.
pub const DISCARD_PIECES: u32 = 16;

/// How much may be under way, and how much memory it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Requests of the guest without an answer.
    pub requests: usize,
    /// Steps of the copy, for requests of the guest and in order: [`StepId`](crate::StepId)s are
    /// below.
    pub steps: u32,
    /// How many of them may be in order, begun by
    /// [`PointInTime::copy`](super::PointInTime::copy).
    pub ahead: u32,
    /// What one step reads, and the least that is zeroed at once of zeroes that reach farther. At
    /// least a chunk, whatever this says, and whole chunks.
    pub step: Bytes,
    /// The most that is examined at once: so much of a hole is passed. At least a chunk, whatever
    /// this says.
    pub look: Bytes,
    /// Buffers of steps, all together. What is copied in order takes no more than half of them, or
    /// one chunk: the guest's changes wait for the rest.
    pub buffers: Bytes,
    /// The smallest chunk, a power of two. A change of one byte reads a chunk first.
    pub chunk: Bytes,
    /// The machine's memory for what is copied, a bit for each chunk.
    pub bitmap: Bytes,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            requests: 256,
            steps: 128,
            ahead: 4,
            step: Bytes::from_mib(1),
            look: Bytes::from_mib(64),
            buffers: Bytes::from_mib(32),
            chunk: Bytes::from_kib(64),
            bitmap: Bytes::from_mib(1),
        }
    }
}

/// What keeps what a step has read until the target has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Keeps {
    /// Memory: [`Limits::buffers`] and [`Limits::step`] bound it.
    Buffers,
    /// The target itself, which shares the source's blocks: a read takes no memory, and a step in
    /// order reads all that was found, [`Limits::look`] at most. Until a read is refused
    /// ([`PointInTime::refused`](super::PointInTime::refused)).
    Target,
}

/// What is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Setup {
    /// The disk's size. The target is as large, or larger.
    pub size: Bytes,
    /// What is there.
    pub target: TargetContent,
    /// What keeps what is read.
    pub keeps: Keeps,
    /// How much may be under way.
    pub limits: Limits,
}

/// Where a copy is, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Progress {
    /// What the guest may change: it has been read, or need not be. Of a copy that was given up,
    /// how far it was.
    pub copied: Bytes,
    /// The disk's size.
    pub size: Bytes,
    /// Buffers of steps that are in use.
    pub buffers: Bytes,
    /// Changes of the guest that are held back.
    pub waiting: usize,
    /// What is being done.
    pub state: State,
}

/// What a copy is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// It waits for the end of requests from before the instant.
    Draining,
    /// It copies.
    Copying,
    /// All is read. What the target is still sent is waited for, its flush, and what the source was
    /// to make durable meanwhile.
    Finishing,
    /// The target holds the disk as of the instant.
    Complete,
    /// It was given up or cancelled.
    GivenUp,
}
