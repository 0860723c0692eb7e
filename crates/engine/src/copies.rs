//! Copies of disks as of one instant, as the engine's control side knows them.
//!
//! As in a [move](crate::MoveSpec) the clients' ports hang on a front while the copy is made, and
//! notice nothing; afterwards they hang on the disk again. What a change destroys that is not
//! copied yet is read before ([`headgate_mirror::instant`]): that is charged to the disk, as the
//! change is. The copy in order has a queue and a policy of its own on both datastores.

use crate::copying::{Blocks, CopyId, CopyTerms, Sharing};
use crate::engine::Engine;
use crate::error::EngineError;
use crate::ids::DiskId;
use crate::shard::moving::{Beginning, Target};
use headgate_mirror::instant::Progress;
use headgate_qos::Policy;
use headgate_units::Bytes;
use std::fmt;

/// A copy to begin.
pub struct CopySpec {
    /// The disk that is copied.
    pub source: DiskId,
    /// What becomes the copy: a disk without clients, as large or larger, with blocks as small or
    /// smaller. Its policy holds for what is copied because a client changes it.
    pub target: DiskId,
    /// How it goes.
    pub terms: CopyTerms,
}

impl fmt::Debug for CopySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CopySpec")
            .field("source", &self.source)
            .field("target", &self.target)
            .finish_non_exhaustive()
    }
}

/// What is asked about and shared at once, if it lies in few extents.
const SHARED_LOOK: Bytes = Bytes::from_gib(64);

impl Engine {
    /// Begins to copy a disk as of one instant while its clients use it. Everything else is told to
    /// the listener. Until it has said that the copy is released, no client can have the target.
    /// Blocks where sharing is tried, for as long as the file system takes.
    ///
    /// # Errors
    /// [`EngineError::NoDisk`], [`EngineError::DiskBusy`] where the target has clients,
    /// [`EngineError::Move`]. Nothing has changed then.
    pub fn begin_copy(&self, spec: CopySpec) -> Result<CopyId, EngineError> {
        let CopySpec { source, target, mut terms } = spec;
        let blocks = match terms.sharing {
            Sharing::WherePossible => self.blocks_of_copy(source, target)?,
            Sharing::Never => Blocks::Copied,
        };
        if blocks == Blocks::Shared {
            terms.limits.look = SHARED_LOOK;
        }
        let begun = if source.shard == target.shard {
            let new = Beginning { source: source.key, target: Target::Here(target.key), terms };
            self.call(source.shard, move |s| s.begin_copy(new, blocks))?
        } else {
            let amounts = (terms.pace, terms.limits.steps);
            self.begin_beside(source, target, amounts, terms.patience, move |shard, target| {
                shard.begin_copy(Beginning { source: source.key, target, terms }, Blocks::Copied)
            })?
        };
        let (index, serial) = begun?;
        Ok(CopyId { shard: source.shard, index, serial })
    }

    /// Whether the file system has the two share blocks. Who cannot be asked cannot.
    fn blocks_of_copy(&self, source: DiskId, target: DiskId) -> Result<Blocks, EngineError> {
        if source.shard != target.shard {
            return Ok(Blocks::Copied);
        }
        let (from, to) = (source.key, target.key);
        let images = self.call(source.shard, move |s| s.images_of_copy(from, to))??;
        let can = images.is_some_and(|(source, target, size)| {
            source.can_share_blocks(&target, size).unwrap_or(false)
        });
        Ok(if can { Blocks::Shared } else { Blocks::Copied })
    }

    /// Ends a copy. Its target is good for nothing.
    ///
    /// # Errors
    /// [`EngineError::Move`] when the copy has ended.
    pub fn cancel_copy(&self, id: CopyId) -> Result<(), EngineError> {
        self.call(id.shard, move |s| s.cancel_copy(id))?
    }

    /// Puts another pace in force for what is copied in order.
    ///
    /// # Errors
    /// [`EngineError::Move`] when the copy is over.
    pub fn set_copy_pace(&self, id: CopyId, pace: Policy) -> Result<(), EngineError> {
        self.call(id.shard, move |s| s.set_pace_of_copy(id, pace))?
    }

    /// Where a copy is.
    ///
    /// # Errors
    /// [`EngineError::Move`] when the copy is over.
    pub fn copy_progress(&self, id: CopyId) -> Result<Progress, EngineError> {
        self.call(id.shard, move |s| s.copy_progress(id))?
    }
}
