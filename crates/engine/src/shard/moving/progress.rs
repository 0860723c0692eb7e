//! What the control side asks of moves.

use crate::copying::CopyId;
use crate::error::{EngineError, MoveError};
use crate::moving::MoveId;
use crate::request::IoError;
use crate::shard::Shard;
use crate::shard::core::Core;
use crate::tables::machine::Machine;
use crate::tables::moving::Moving;
use headgate_mirror::{Mirror, Progress, Word, instant};
use headgate_qos::Policy;
use headgate_units::Nanos;

impl Shard {
    fn moving(&mut self, index: u32, serial: u64) -> Result<&mut Moving, EngineError> {
        let moving = self.core.moves.get_mut(index as usize).and_then(Option::as_deref_mut);
        let moving = moving.filter(|moving| moving.serial == serial);
        moving.ok_or(MoveError::Over.into())
    }

    fn mirror(&mut self, id: MoveId) -> Result<&mut Mirror, EngineError> {
        match &mut self.moving(id.index, id.serial)?.machine {
            Machine::Move(one) => Ok(&mut one.mirror),
            Machine::Copy(_) => Err(MoveError::Over.into()),
        }
    }

    /// Tells what became of a record.
    pub(crate) fn move_recorded(&mut self, id: MoveId, word: Word) -> Result<(), EngineError> {
        let moving = self.moving(id.index, id.serial)?;
        moving.machine.recorded(word, &mut moving.out).map_err(|e| MoveError::Record(e).into())
    }

    /// Stops the copy; what clients change goes on to both sides.
    pub(crate) fn pause_move(&mut self, id: MoveId) -> Result<(), EngineError> {
        self.mirror(id)?.pause();
        Ok(())
    }

    /// The end of a pause.
    pub(crate) fn resume_move(&mut self, id: MoveId) -> Result<(), EngineError> {
        self.mirror(id)?.resume();
        Ok(())
    }

    /// Ends a move, unless the target may count already.
    pub(crate) fn cancel_move(&mut self, id: MoveId) -> Result<(), EngineError> {
        let moving = self.moving(id.index, id.serial)?;
        moving.machine.cancel(&mut moving.out).map_err(|e| MoveError::NotCancelled(e).into())
    }

    /// Another pace for the copying of a move.
    pub(crate) fn set_move_pace(&mut self, id: MoveId, pace: Policy) -> Result<(), EngineError> {
        self.set_pace(id.index, id.serial, pace)
    }

    /// Another pace for what is copied in order.
    pub(crate) fn set_pace_of_copy(&mut self, id: CopyId, pace: Policy) -> Result<(), EngineError> {
        self.set_pace(id.index, id.serial, pace)
    }

    fn set_pace(&mut self, index: u32, serial: u64, pace: Policy) -> Result<(), EngineError> {
        let moving = self.moving(index, serial)?;
        let sides = [moving.source, moving.target];
        for disk in sides {
            self.core.set_copy_pace(disk, pace);
        }
        self.tell_target(index, move |shard, landing| shard.set_landing_pace(landing, pace));
        Ok(())
    }

    /// Ends a copy, unless it has ended.
    pub(crate) fn cancel_copy(&mut self, id: CopyId) -> Result<(), EngineError> {
        let moving = self.moving(id.index, id.serial)?;
        moving.machine.cancel(&mut moving.out).map_err(|e| MoveError::NotCancelled(e).into())
    }

    /// Where a copy is.
    pub(crate) fn copy_progress(&mut self, id: CopyId) -> Result<instant::Progress, EngineError> {
        match &self.moving(id.index, id.serial)?.machine {
            Machine::Copy(one) => Ok(one.copy.progress()),
            Machine::Move(_) => Err(MoveError::Over.into()),
        }
    }

    /// Where a move is.
    pub(crate) fn move_progress(&mut self, id: MoveId) -> Result<Progress, EngineError> {
        Ok(self.mirror(id)?.progress())
    }

    /// Whether a disk is in no move.
    pub(crate) fn check_unmoved(&self, disk: usize) -> Result<(), EngineError> {
        let disk = self.core.ctx.tables.disks.get(disk).ok_or(EngineError::NoDisk)?;
        if disk.is_moving() { Err(MoveError::Moving.into()) } else { Ok(()) }
    }

    /// When a move has something to do without an event.
    pub(in crate::shard) fn next_of_moves(&self) -> Option<Nanos> {
        let moves = self.core.moves.iter().filter_map(|(_, moving)| moving.as_deref());
        let here = moves.flat_map(|moving| [moving.next_look_at_target(), moving.wake]);
        let landings = self.core.landings.iter().map(|(_, landing)| landing.next());
        here.chain(landings).flatten().min()
    }

    /// The engine ends: no client waits for an answer any more, and no move goes on.
    pub(crate) fn abandon_moves(&mut self) {
        let Core { ctx, moves, .. } = &mut self.core;
        for (_, moving) in moves.iter_mut() {
            let Some(moving) = moving else { continue };
            // One whose switch is being recorded cannot be cancelled, nor does it go on.
            let _ = moving.machine.cancel(&mut moving.out);
            moving.reclaim.get_or_insert(moving.machine.counts().other());
            for (_, client) in &mut moving.clients {
                if let Some(front) = client.front.take() {
                    ctx.end_party(front, Err(IoError::Cancelled));
                }
            }
            moving.clients.retain(|_, client| !client.is_over());
        }
    }
}
