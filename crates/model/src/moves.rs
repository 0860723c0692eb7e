//! The live move of a disk: what is asked of the data path, and what it asks back.

use crate::{Name, OpenDisk, PlaneError, Policy};
use headgate_mirror::{Outcome, Progress, Record, Recovery, Side, TargetContent, Word};
use headgate_units::{BytesPerSec, Iops, Shares};
use serde::{Deserialize, Serialize};
use std::sync::mpsc::Sender;

/// What the copy of a move may take, of the old datastore as of the new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MovePace {
    /// Its weight against the disks of a datastore.
    pub shares: Shares,
    /// Highest rate, in normalised IOPS.
    pub limit: Option<Iops>,
    /// Highest bandwidth, in bytes per second.
    pub limit_bandwidth: Option<BytesPerSec>,
}

/// A tenth of what a disk weighs that nothing was set for.
const SHARES: Shares = match Shares::new(100) {
    Ok(shares) => shares,
    Err(_) => Shares::MIN,
};

impl Default for MovePace {
    /// Takes what the disks leave over, and little of what they want.
    fn default() -> MovePace {
        MovePace { shares: SHARES, limit: None, limit_bandwidth: None }
    }
}

impl MovePace {
    /// The pace as a client of a scheduler has it.
    pub fn policy(&self) -> Policy {
        let MovePace { shares, limit, limit_bandwidth } = *self;
        Policy { limit, limit_bandwidth, ..Policy::of_shares(shares) }
    }
}

/// How far a move is, for who finds it after a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveStep {
    /// What the target needs is being made: there may be an image of this move, or another's.
    Preparing,
    /// The target is this move's, and does not count.
    Started,
    /// The target counts, and the source is this move's to reclaim.
    Switched,
}

impl MoveStep {
    /// Every step.
    pub const ALL: [MoveStep; 3] = [MoveStep::Preparing, MoveStep::Started, MoveStep::Switched];

    /// The word in the catalog.
    pub fn as_str(self) -> &'static str {
        match self {
            MoveStep::Preparing => "preparing",
            MoveStep::Started => "started",
            MoveStep::Switched => "switched",
        }
    }

    /// What is done with the two copies when the move itself is lost.
    pub fn recovery(self) -> Recovery {
        Recovery::of(match self {
            MoveStep::Preparing | MoveStep::Started => Record::Started,
            MoveStep::Switched => Record::Switched,
        })
    }
}

/// A move in the catalog: there is one for as long as two copies may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoveRecord {
    /// The disk.
    pub disk: Name,
    /// The datastore that it leaves.
    pub source: Name,
    /// The datastore that it goes to.
    pub target: Name,
    /// How far it is.
    pub step: MoveStep,
    /// What the copy may take.
    pub pace: MovePace,
    /// When it began: seconds since 1970.
    pub began: u64,
}

impl MoveRecord {
    /// The datastore of a side.
    pub fn datastore(&self, side: Side) -> &Name {
        match side {
            Side::Source => &self.source,
            Side::Target => &self.target,
        }
    }
}

/// A move to begin.
#[derive(Debug)]
pub struct MoveOrder {
    /// A disk in service, on its old datastore.
    pub disk: Name,
    /// The same disk on the new one. If that has images, the image was made; the data path opens
    /// it.
    pub target: OpenDisk,
    /// What the target holds before anything is written to it.
    pub content: TargetContent,
    /// What the copy may take.
    pub pace: MovePace,
}

/// What a move under way asks and tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveEvent {
    /// Write this down, and tell what became of it by [`LiveMoves::move_recorded`].
    Record(Record),
    /// The move has ended. The disk is served as before.
    Ended(Outcome),
    /// Nothing is under way at this side any more: [`LiveMoves::end_move`].
    Reclaim(Side),
}

/// Live moves. The second half of [`DataPlane`](crate::DataPlane), whose rules hold here too.
///
/// The events of a move come in this order: the record of the start, that of the switch, its end,
/// what is to be reclaimed. A move that ends early leaves out what it did not come to. A record of
/// the switch that was not made may be asked for again.
///
/// A disk that is closed or abandoned takes its move along, without another event: `events` is
/// dropped when neither copy is open any more, and not before. A target whose smallest unit of a
/// request is larger than the disk's clients were told is refused.
pub trait LiveMoves {
    /// Opens the target and begins. `events` hears what is to be done; a shard sends to it and
    /// waits for nobody. The start is durable already.
    ///
    /// # Errors
    /// When the disk is not in service, moves already, or its target cannot be opened. Nothing has
    /// begun then, and nobody has the target open.
    fn begin_move(&self, order: MoveOrder, events: Sender<MoveEvent>) -> Result<(), PlaneError>;

    /// What became of the record that was asked for.
    ///
    /// # Errors
    /// When none was asked for, or the shard does not confirm: it may have heard the word, so the
    /// same word is told again.
    fn move_recorded(&self, disk: &Name, word: Word) -> Result<(), PlaneError>;

    /// Changes what the copy may take.
    ///
    /// # Errors
    /// When the disk does not move or the shard does not confirm.
    fn set_move_pace(&self, disk: &Name, pace: MovePace) -> Result<(), PlaneError>;

    /// Has the copy rest. Changes are mirrored meanwhile.
    ///
    /// # Errors
    /// As [`set_move_pace`](Self::set_move_pace).
    fn pause_move(&self, disk: &Name) -> Result<(), PlaneError>;

    /// Has a copy that rests go on.
    ///
    /// # Errors
    /// As [`set_move_pace`](Self::set_move_pace).
    fn resume_move(&self, disk: &Name) -> Result<(), PlaneError>;

    /// Ends the move: the disk stays where it is. Its events say when that is so.
    ///
    /// # Errors
    /// As [`set_move_pace`](Self::set_move_pace), and while the switch is being recorded or after
    /// it.
    fn cancel_move(&self, disk: &Name) -> Result<(), PlaneError>;

    /// Where a move is, as its shard said last; `None` if there is none. Waits for nobody.
    fn move_progress(&self, disk: &Name) -> Option<Progress>;

    /// Closes the copy that is to be reclaimed. Nobody has it open when this returns. After that of
    /// the source the disk's name means what was the target, in every call.
    ///
    /// # Errors
    /// When it is not to be reclaimed, or the shard does not confirm; it may be asked again.
    fn end_move(&self, disk: &Name, side: Side) -> Result<(), PlaneError>;
}
