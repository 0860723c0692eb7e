//! Live moves of disks, as the engine's control side knows them.
//!
//! A disk's clients keep their ports and notice nothing: while it moves the ports hang on a disk of
//! the shard's own, the *front*, whose requests the machine of the move ([`headgate_mirror`])
//! sends to the source, to the target, or to both. Afterwards they hang on the one that counts.
//!
//! What clients send is charged to the disk, on both datastores. The copy has a queue and a policy
//! of its own on both: it is a client of the schedulers like any other.

use crate::engine::{DiskId, Engine};
use crate::error::{EngineError, MoveError};
use crate::moving::{MoveGauge, MoveId, MoveListener};
use crate::shard::moving::Beginning;
use headgate_mirror::{Limits, Progress, TargetContent, Word};
use headgate_qos::Policy;
use headgate_units::Nanos;
use std::fmt;

/// A move to begin. Source and target are open disks on datastores of one shard.
pub struct MoveSpec {
    /// The disk that moves.
    pub source: DiskId,
    /// Where it moves to: a disk without clients, as large or larger, with blocks as small or
    /// smaller.
    pub target: DiskId,
    /// What the target holds now.
    pub content: TargetContent,
    /// What the copy is promised, and held to, on each of the two datastores.
    pub pace: Policy,
    /// How much may be under way.
    pub limits: Limits,
    /// How long a request may be at the target's storage before the target is given up.
    pub patience: Nanos,
    /// Shows where the move is.
    pub gauge: MoveGauge,
    /// Who is told what happens.
    pub listener: MoveListener,
}

impl fmt::Debug for MoveSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MoveSpec")
            .field("source", &self.source)
            .field("target", &self.target)
            .finish_non_exhaustive()
    }
}

impl Engine {
    /// Begins to move a disk while its clients use it. Everything else is told to the listener,
    /// first that the start is to be recorded.
    ///
    /// The two have names of their own: when the target is the disk, it has the source's name, and
    /// the source the target's. While it moves, and after it has moved, clients that attach to the
    /// source are served as those that were there before.
    ///
    /// # Errors
    /// [`EngineError::NoDisk`], [`EngineError::DiskBusy`] where the target has clients,
    /// [`EngineError::Move`]. Nothing has changed then.
    pub fn begin_move(&self, spec: MoveSpec) -> Result<MoveId, EngineError> {
        let shard = spec.source.shard();
        if spec.target.shard() != shard {
            return Err(MoveError::OtherShard.into());
        }
        let new = Beginning {
            source: spec.source.key,
            target: spec.target.key,
            content: spec.content,
            pace: spec.pace,
            limits: spec.limits,
            patience: spec.patience,
            gauge: spec.gauge,
            listener: spec.listener,
        };
        let (index, serial) = self.call(shard, move |s| s.begin_move(new))??;
        let mut disks = self.member(shard)?.disks();
        if let Some(name) = disks.get(&spec.source.key).cloned() {
            disks.insert(spec.target.key, name);
        }
        Ok(MoveId { shard, index, serial })
    }

    /// Tells what became of the record that a move has asked for.
    ///
    /// # Errors
    /// [`EngineError::Move`] when none was asked for, or the move is over.
    pub fn move_recorded(&self, id: MoveId, word: Word) -> Result<(), EngineError> {
        self.call(id.shard, move |s| s.move_recorded(id, word))?
    }

    /// Stops the copy and the switch. What clients change goes to both sides all the same.
    ///
    /// # Errors
    /// [`EngineError::Move`] when the move is over.
    pub fn pause_move(&self, id: MoveId) -> Result<(), EngineError> {
        self.call(id.shard, move |s| s.pause_move(id))?
    }

    /// The end of a pause.
    ///
    /// # Errors
    /// [`EngineError::Move`] when the move is over.
    pub fn resume_move(&self, id: MoveId) -> Result<(), EngineError> {
        self.call(id.shard, move |s| s.resume_move(id))?
    }

    /// Ends a move with the source as the disk.
    ///
    /// # Errors
    /// [`EngineError::Move`] when the target may count already, or the move is over.
    pub fn cancel_move(&self, id: MoveId) -> Result<(), EngineError> {
        self.call(id.shard, move |s| s.cancel_move(id))?
    }

    /// Puts another pace in force for a move's copy.
    ///
    /// # Errors
    /// [`EngineError::Move`] when the move is over.
    pub fn set_move_pace(&self, id: MoveId, pace: Policy) -> Result<(), EngineError> {
        self.call(id.shard, move |s| s.set_move_pace(id, pace))?
    }

    /// Where a move is.
    ///
    /// # Errors
    /// [`EngineError::Move`] when the move is over.
    pub fn move_progress(&self, id: MoveId) -> Result<Progress, EngineError> {
        self.call(id.shard, move |s| s.move_progress(id))?
    }
}
