//! What a copy as of one instant tells, and its name.

use crate::moving::{Gauge, Listening};
use headgate_mirror::TargetContent;
use headgate_mirror::instant::{Limits, Outcome, Progress};
use headgate_qos::Policy;
use headgate_units::Nanos;

/// Hears of a copy, on the shard's thread: it must not block.
pub type CopyListener = Box<dyn FnMut(CopyEvent) -> Listening + Send>;

/// Where a copy is.
pub type CopyGauge = Gauge<Progress>;

/// Whether a copy may use the blocks of its disk, until either changes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Where the file system of both can have files share blocks.
    WherePossible,
    /// All is copied.
    Never,
}

/// What a copy is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocks {
    /// The disk's blocks, until either changes them. What clients change meanwhile for the first
    /// time, too.
    Shared,
    /// Blocks of its own.
    Copied,
}

/// How a copy goes.
pub struct CopyTerms {
    /// Whether it may use the disk's blocks. What a step takes of them at once is
    /// 4 MiB then, whatever the limits say.
    pub sharing: Sharing,
    /// What the target holds now.
    pub content: TargetContent,
    /// What the copy in order is promised, and held to, on each of the two datastores. What a
    /// change of the disk's clients waits for is charged to the disk.
    pub pace: Policy,
    /// How much may be under way.
    pub limits: Limits,
    /// How long a request may be at the target's storage before the target is given up.
    pub patience: Nanos,
    /// Shows where the copy is.
    pub gauge: CopyGauge,
    /// Who is told what happens.
    pub listener: CopyListener,
}

/// What happens in a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyEvent {
    /// The instant has passed: what clients ask for from now on is not in the copy, and what they
    /// had an answer for is.
    Instant,
    /// What it is made of from now on: of copied blocks, until something else is said. A file
    /// system may refuse to share some, and then the rest is copied.
    Blocks(Blocks),
    /// The copy has ended.
    Ended(Outcome),
    /// It is over for the engine, too: nothing uses the target any more.
    Released,
}

/// Names a copy in its engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CopyId {
    pub(crate) shard: usize,
    pub(crate) index: u32,
    pub(crate) serial: u64,
}
