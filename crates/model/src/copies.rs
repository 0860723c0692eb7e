//! Copies of disks as of one instant.

use crate::{MovePace, Name, OpenDisk, PlaneError};
use headgate_mirror::TargetContent;
use headgate_mirror::changes::{ChangedBlocks, Changes};
use headgate_mirror::instant::{Outcome, Progress};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::mpsc::Sender;

/// A copy to begin.
#[derive(Debug)]
pub struct CopyOrder {
    /// A disk in service.
    pub source: Name,
    /// The disk that becomes the copy. Its image was made; the data path opens it. Its policy is
    /// that of what is copied because a client changes it.
    pub copy: OpenDisk,
    /// What the copy holds before anything is written to it.
    pub content: TargetContent,
    /// What is copied in order may take.
    pub pace: MovePace,
    /// Whether it may use the disk's blocks.
    pub reflink: Reflink,
}

/// Whether a copy may use the blocks of its disk, until either changes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Reflink {
    /// Where both are files of one file system that can share blocks.
    #[default]
    Auto,
    /// All is copied.
    Never,
}

/// What a copy is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Blocks {
    /// Blocks of its own.
    #[default]
    Copied,
    /// The disk's blocks, until either changes them.
    Shared,
}

/// What a copy under way tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyEvent {
    /// What it is made of from now on: of copied blocks, until something else is said.
    Blocks(Blocks),
    /// The instant has passed.
    Instant,
    /// The copy has ended.
    Ended(Outcome),
    /// Nothing is under way for it any more. A complete copy is opened as the disk that it is now
    /// ([`DataPlane::open_disk`](crate::DataPlane::open_disk)), and another one is closed
    /// ([`DiskCopies::end_copy`]).
    Released,
}

/// What changed of a disk from an earlier snapshot of it to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangesSince {
    /// The earlier snapshot. It may be gone.
    pub base: Name,
    /// What may differ.
    pub blocks: Arc<ChangedBlocks>,
}

/// Copies as of one instant. The third part of [`DataPlane`](crate::DataPlane), whose rules hold
/// here too. A copy has the name of the disk that it becomes.
///
/// A disk that is closed or abandoned ends the copy that is made of it. A disk is in one copy or
/// one move at a time.
pub trait DiskCopies {
    /// Opens the copy's storage and begins. `events` hears how it goes; a shard sends to it and
    /// waits for nobody.
    ///
    /// # Errors
    /// When the disk is not in service, is moved or copied already, or the copy's storage cannot be
    /// opened. Nothing has begun then, and nobody has it open.
    fn begin_copy(&self, order: CopyOrder, events: Sender<CopyEvent>) -> Result<(), PlaneError>;

    /// Changes what is copied in order may take.
    ///
    /// # Errors
    /// When there is no such copy or the shard does not confirm.
    fn set_copy_pace(&self, copy: &Name, pace: MovePace) -> Result<(), PlaneError>;

    /// Ends the copy. Its events say when that is so.
    ///
    /// # Errors
    /// As [`set_copy_pace`](Self::set_copy_pace), and when it has ended.
    fn cancel_copy(&self, copy: &Name) -> Result<(), PlaneError>;

    /// Where a copy is, as its shard said last; `None` if there is none. Waits for nobody.
    fn copy_progress(&self, copy: &Name) -> Option<Progress>;

    /// Closes the copy's storage. Nobody has it open when this returns.
    ///
    /// # Errors
    /// When the copy has not ended, or the shard does not confirm; it may be asked again.
    fn end_copy(&self, copy: &Name) -> Result<(), PlaneError>;

    /// Has all noted that clients change of a disk from now on, in place of where it was noted
    /// before. A disk that is opened anew notes nothing.
    ///
    /// # Errors
    /// When the disk is not in service, or is moved or copied, or the shard does not confirm.
    fn track_changes(&self, disk: &Name, changes: Arc<Changes>) -> Result<(), PlaneError>;

    /// Where is noted what clients change of a disk, if that is noted.
    ///
    /// # Errors
    /// When the disk is not in service or the shard does not confirm.
    fn tracked_changes(&self, disk: &Name) -> Result<Option<Arc<Changes>>, PlaneError>;

    /// What clients of a snapshot can ask for from now on, whether it is in service or not. Those
    /// that are connected keep what they were told. Waits for nobody.
    fn set_changes_since(&self, snapshot: &Name, changes: Vec<ChangesSince>);
}
