//! Where is noted what clients change of a disk, as the engine's control side sees it.

use crate::engine::Engine;
use crate::error::EngineError;
use crate::ids::DiskId;
use headgate_mirror::changes::Changes;
use std::sync::Arc;

impl Engine {
    /// Has all noted that clients change of a disk from now on, in place of where it was noted
    /// before. A [move](crate::MoveSpec) takes it along: the target notes there, too, once it is
    /// the disk. A part that is cut off counts as changed.
    ///
    /// # Errors
    /// [`EngineError::NoDisk`], and [`EngineError::Move`] while the disk is moved or copied.
    pub fn track_changes(&self, disk: DiskId, changes: Arc<Changes>) -> Result<(), EngineError> {
        self.call(disk.shard, move |s| s.track_changes(disk.key, changes))?
    }

    /// Where is noted what clients change of a disk. A disk that was opened anew has nothing: what
    /// somebody else changed meanwhile nobody knows.
    ///
    /// # Errors
    /// [`EngineError::NoDisk`].
    pub fn tracked_changes(&self, disk: DiskId) -> Result<Option<Arc<Changes>>, EngineError> {
        self.call(disk.shard, move |s| s.tracked_changes(disk.key))?
    }
}
