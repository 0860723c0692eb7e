//! What is known of disks from one data plane to the next.

use crate::Name;
use headgate_mirror::changes::Changes;
use headgate_mirror::stamp::Stamp;
use std::sync::Arc;

/// What clients changed of a disk until its image was like this.
#[derive(Clone, Debug)]
pub struct Noted {
    /// What they changed.
    pub changes: Arc<Changes>,
    /// The image at that instant. One with another stamp may have been changed by anybody.
    pub stamp: Stamp,
}

/// A disk that is closed. All that was asked of it has ended and is durable, and nothing of that
/// was lost.
#[derive(Clone, Debug)]
pub struct Settled {
    /// Its name.
    pub disk: Name,
    /// What its clients changed, to the last of them.
    pub noted: Noted,
}

/// How a data plane ended.
#[derive(Clone, Debug, Default)]
pub struct Ended {
    /// Disks that have requests at their storage still: these are left open.
    pub left: Vec<Name>,
    /// Those of which is known what they hold.
    pub settled: Vec<Settled>,
}
