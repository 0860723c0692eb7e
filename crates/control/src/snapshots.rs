//! Snapshots that others are compared with, and disks whose changes are noted.

use headgate_mirror::changes::{ChangedBlocks, Changes};
use headgate_mirror::stamp::Stamp;
use headgate_model::Name;
use std::sync::Arc;

/// A snapshot, as others remember it: another of its name is not it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Snapshot {
    pub(crate) name: Name,
    /// Of which instant it is: seconds since 1970.
    pub(crate) at: u64,
}

/// What a snapshot knows of the one before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) of: Snapshot,
    pub(crate) base: Snapshot,
    pub(crate) blocks: Arc<ChangedBlocks>,
}

/// A disk whose changes are noted.
#[derive(Clone, Debug)]
pub(crate) struct Tracked {
    pub(crate) changes: Arc<Changes>,
    /// The last snapshot. `None`: none has succeeded yet.
    pub(crate) base: Option<Snapshot>,
    /// What it was when an earlier daemon ended, until it is opened.
    pub(crate) before: Option<Before>,
}

/// What a disk was when the daemon ended that served it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Before {
    /// Its image, when nobody changed it any more.
    pub(crate) stamp: Stamp,
    /// Which run of a daemon held its lease in a file. `None`: it had none.
    pub(crate) holder: Option<String>,
}

/// What an orderly end keeps of a disk for the next start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) disk: Name,
    pub(crate) base: Snapshot,
    /// The host's boot that the daemon ran in.
    pub(crate) boot: String,
    /// What the disk was then.
    pub(crate) before: Before,
    /// What changed since the base.
    pub(crate) blocks: ChangedBlocks,
}

impl Tracked {
    /// A disk is no snapshot any more.
    pub(crate) fn forget(&mut self, snapshot: &Name) {
        self.base.take_if(|base| base.name == *snapshot);
    }
}
