//! Where is noted what clients change of a disk.

use super::Shard;
use crate::error::{EngineError, MoveError};
use headgate_mirror::changes::Changes;
use std::sync::Arc;

impl Shard {
    pub(crate) fn track_changes(
        &mut self,
        disk: usize,
        changes: Arc<Changes>,
    ) -> Result<(), EngineError> {
        let found = self.core.ctx.tables.disks.get_mut(disk).ok_or(EngineError::NoDisk)?;
        if found.is_moving() || found.successor.is_some() {
            return Err(MoveError::Moving.into());
        }
        found.changes = Some(changes);
        Ok(())
    }

    pub(crate) fn tracked_changes(
        &mut self,
        disk: usize,
    ) -> Result<Option<Arc<Changes>>, EngineError> {
        let found = self.core.ctx.tables.disks.get(disk).ok_or(EngineError::NoDisk)?;
        Ok(found.changes.clone())
    }
}
