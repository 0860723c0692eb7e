//! Live moves, as the engine does them.

use crate::engine_parts::{Moving, failed};
use crate::engine_plane::EnginePlane;
use headgate_engine::{
    DiskId, EngineError, Listening, MoveError, MoveGauge, MoveListener, MoveSpec, MoveTerms,
};
use headgate_mirror::{Limits, Progress, Side, State, Word};
use headgate_model::{LiveMoves, MoveEvent, MoveOrder, MovePace, Name, PlaneError};
use headgate_units::Nanos;
use std::sync::mpsc::Sender;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a request may be at a target's storage before the target is given up: below the 30 s
/// after which a Linux guest gives up its own, which may wait for that one.
pub(crate) const PATIENCE: Nanos = Nanos::from_secs(20);

/// Requests of clients that a move may have under way: as many as a front-end has, as a rule.
const REQUESTS: usize = 128;

/// How long a side that is to be closed may take to finish what it has.
pub(crate) const CLOSE: Duration = Duration::from_secs(10);

/// How often is looked whether a move that is abandoned has ended.
const LOOK: Duration = Duration::from_millis(5);

/// What the engine tells, to who does the rest.
fn listener(events: Sender<MoveEvent>) -> MoveListener {
    Box::new(move |event| {
        let event = match event {
            headgate_engine::MoveEvent::Record(record) => MoveEvent::Record(record),
            headgate_engine::MoveEvent::Ended(outcome) => MoveEvent::Ended(outcome),
            headgate_engine::MoveEvent::Reclaim(side) => MoveEvent::Reclaim(side),
        };
        match events.send(event) {
            Ok(()) => Listening::Yes,
            Err(_) => Listening::Gone,
        }
    })
}

impl EnginePlane {
    fn moving(&self, disk: &Name) -> Result<Moving, PlaneError> {
        let moving = self.moves.get(disk);
        moving.ok_or_else(|| failed(format!("disk '{disk}' is not being moved")))
    }

    /// The disks that a name stands for: both sides while it moves.
    pub(crate) fn sides(&self, disk: &Name) -> Result<Vec<DiskId>, PlaneError> {
        match self.moves.get(disk) {
            Some(moving) => Ok(vec![moving.source, moving.target]),
            None => Ok(vec![self.disk(disk)?]),
        }
    }

    /// The disk that counts: while it moves, the side that has it.
    pub(crate) fn counting(&self, disk: &Name) -> Result<DiskId, PlaneError> {
        let Some(moving) = self.moves.get(disk) else { return self.disk(disk) };
        let switched = match moving.gauge.get() {
            Some(progress) => progress.state == State::Switched,
            // It is over, and its side is not closed yet.
            None => self.disk(disk)? == moving.target,
        };
        Ok(if switched { moving.target } else { moving.source })
    }

    /// Closes a side of a move, if it is open.
    pub(crate) fn close_side(&self, side: DiskId, patience: Duration) -> Result<(), PlaneError> {
        match self.engine.close_disk(side, patience) {
            Ok(()) | Err(EngineError::NoDisk) => Ok(()),
            Err(e) => Err(failed(e)),
        }
    }

    /// Closes a disk that clients cannot find any more, and its move with it: both sides. What the
    /// journal says of the move is for whoever opens the disk again.
    pub(crate) fn close_with_move(
        &self,
        disk: &Name,
        id: DiskId,
        patience: Duration,
    ) -> Result<(), PlaneError> {
        self.end_copy_of(id);
        let Some(moving) = self.moves.get(disk) else {
            return self.engine.close_disk(id, patience).map_err(failed);
        };
        // One whose switch is being recorded ends by itself.
        let _ = self.engine.cancel_move(moving.id);
        let deadline = Instant::now() + CLOSE;
        while self.engine.move_progress(moving.id).is_ok() && Instant::now() < deadline {
            sleep(LOOK);
        }
        let [source, target] =
            [moving.source, moving.target].map(|side| self.close_side(side, patience));
        source.and(target)?;
        self.moves.lock().remove(disk);
        Ok(())
    }
}

impl LiveMoves for EnginePlane {
    fn begin_move(&self, order: MoveOrder, events: Sender<MoveEvent>) -> Result<(), PlaneError> {
        let MoveOrder { disk, mut target, content, pace } = order;
        let pace = pace.policy().for_scheduler().map_err(failed)?;
        let mut moves = self.moves.lock();
        if moves.contains_key(&disk) {
            return Err(failed(format!("disk '{disk}' is being moved already")));
        }
        let source = self.disk(&disk)?;
        // Not a name that a disk of an operator's can have, until it is that disk.
        let target = self.open_storage(&format!(".{disk}"), &mut target)?;
        let gauge = MoveGauge::default();
        let terms = MoveTerms {
            content,
            pace,
            limits: Limits { requests: REQUESTS, ..Limits::default() },
            patience: PATIENCE,
            gauge: gauge.clone(),
            listener: listener(events),
        };
        let begun = self.engine.begin_move(MoveSpec { source, target, terms });
        match begun {
            Ok(id) => {
                // Whoever answers to an event waits for this.
                moves.insert(disk, Moving { id, gauge, source, target });
                Ok(())
            }
            Err(e) => {
                self.engine.close_disk(target, Duration::ZERO).map_err(failed)?;
                Err(not_begun(&e))
            }
        }
    }

    fn move_recorded(&self, disk: &Name, word: Word) -> Result<(), PlaneError> {
        self.engine.move_recorded(self.moving(disk)?.id, word).map_err(failed)
    }

    fn set_move_pace(&self, disk: &Name, pace: MovePace) -> Result<(), PlaneError> {
        let pace = pace.policy().for_scheduler().map_err(failed)?;
        self.engine.set_move_pace(self.moving(disk)?.id, pace).map_err(failed)
    }

    fn pause_move(&self, disk: &Name) -> Result<(), PlaneError> {
        self.engine.pause_move(self.moving(disk)?.id).map_err(failed)
    }

    fn resume_move(&self, disk: &Name) -> Result<(), PlaneError> {
        self.engine.resume_move(self.moving(disk)?.id).map_err(failed)
    }

    fn cancel_move(&self, disk: &Name) -> Result<(), PlaneError> {
        self.engine.cancel_move(self.moving(disk)?.id).map_err(failed)
    }

    fn move_progress(&self, disk: &Name) -> Option<Progress> {
        self.moves.get(disk)?.gauge.get()
    }

    fn end_move(&self, disk: &Name, side: Side) -> Result<(), PlaneError> {
        let moving = self.moving(disk)?;
        if self.engine.move_progress(moving.id).is_ok() {
            return Err(failed(format!("disk '{disk}' is being moved still")));
        }
        let (stays, goes) = match side {
            Side::Source => (moving.target, moving.source),
            Side::Target => (moving.source, moving.target),
        };
        // Clients that come now find the side that stays, unless the disk is being closed.
        if let Some(id) = self.exports.disks_mut().get_mut(disk) {
            *id = stays;
        }
        if let Some(server) = self.vhost().get(disk) {
            server.set_disk(stays);
        }
        self.close_side(goes, CLOSE)?;
        self.moves.lock().remove(disk);
        Ok(())
    }
}

pub(crate) fn not_begun(error: &EngineError) -> PlaneError {
    let hint = match error {
        EngineError::Move(MoveError::Holding) => {
            Some("see 'headgate disk show', and try again when its storage takes its requests")
        }
        _ => None,
    };
    PlaneError { hint: hint.map(str::to_owned), ..failed(error) }
}
