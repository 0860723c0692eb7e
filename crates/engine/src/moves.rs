//! Live moves of disks, as the engine's control side knows them.
//!
//! A disk's clients keep their ports and notice nothing: while it moves the ports hang on a disk of
//! the shard's own, the *front*, whose requests the machine of the move ([`headgate_mirror`])
//! sends to the source, to the target, or to both. Afterwards they hang on the one that counts.
//!
//! What clients send is charged to the disk, on both datastores. The copy has a queue and a policy
//! of its own on both: it is a client of the schedulers like any other.

use crate::engine::Engine;
use crate::error::EngineError;
use crate::ids::DiskId;
use crate::moving::{MoveId, MoveTerms};
use crate::shard::Shard;
use crate::shard::moving::{Beginning, Landed, Target, Way};
use crate::tables::crossing::Far;
use headgate_mirror::{Progress, Word};
use headgate_qos::Policy;
use headgate_units::Nanos;
use std::fmt;

/// A move to begin.
pub struct MoveSpec {
    /// The disk that moves.
    pub source: DiskId,
    /// Where it moves to: a disk without clients, as large or larger, with blocks as small or
    /// smaller.
    pub target: DiskId,
    /// How it goes.
    pub terms: MoveTerms,
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
        let MoveSpec { source, target, terms } = spec;
        let begun = if source.shard == target.shard {
            let new = Beginning { source: source.key, target: Target::Here(target.key), terms };
            self.call(source.shard, move |s| s.begin_move(new))?
        } else {
            let amounts = (terms.pace, terms.limits.steps);
            self.begin_beside(source, target, amounts, terms.patience, move |shard, target| {
                shard.begin_move(Beginning { source: source.key, target, terms })
            })?
        };
        let (index, serial) = begun?;
        let name = self.member(source.shard)?.disks().get(&source.key).cloned();
        if let Some(name) = name {
            self.member(target.shard)?.disks().insert(target.key, name);
        }
        Ok(MoveId { shard: source.shard, index, serial })
    }

    /// Begins a move or a copy to another shard's disk. `steps` are how many its copying may have
    /// under way, and what it is held to.
    pub(crate) fn begin_beside(
        &self,
        source: DiskId,
        target: DiskId,
        steps: (Policy, u32),
        patience: Nanos,
        begin: impl FnOnce(&mut Shard, Target) -> Result<(u32, u64), EngineError> + Send + 'static,
    ) -> Result<Result<(u32, u64), EngineError>, EngineError> {
        let home = self.member(source.shard)?.mailbox.clone();
        let landed =
            self.call(target.shard, move |s| s.open_landing(target.key, steps, patience, home))??;
        let Landed { landing, info } = landed;
        let member = self.member(target.shard)?;
        let (shard, pulse) = (member.mailbox.clone(), member.pulse.clone());
        let way = Way { shard, far: Far { landing, disk: target, pulse } };
        let begun = self.call(source.shard, move |s| begin(s, Target::Elsewhere(way, info)));
        if !matches!(begun, Ok(Ok(_))) {
            // Not a call: what failed is told, whether the other shard takes its turns or not.
            let _ = member.mailbox.send(Box::new(move |s| s.close_landing(landing)));
        }
        begun
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
