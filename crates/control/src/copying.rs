//! A disk that another one is being copied to.

use crate::speed::Speed;
use headgate_api::copies::CopyState;
use headgate_model::{Blocks, MovePace, Name};
use headgate_units::Bytes;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// A copy under way.
#[derive(Clone, Debug)]
pub(crate) struct Copying {
    /// The disk that is copied.
    pub(crate) source: Name,
    /// The datastore that the copy is on.
    pub(crate) datastore: Name,
    pub(crate) size: Bytes,
    pub(crate) phase: Phase,
    /// The instant as of which it is, in seconds since 1970.
    pub(crate) instant: Option<u64>,
    /// How much was copied when the data path ended it.
    pub(crate) copied: Option<Bytes>,
    /// What the copying may take.
    pub(crate) pace: MovePace,
    /// What it is made of.
    pub(crate) blocks: Blocks,
    /// How fast it was lately, by those who looked.
    pub(crate) speed: Arc<Mutex<Speed>>,
    /// When it began, in seconds since 1970.
    pub(crate) began: u64,
}

/// Who has the copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Its storage is being made.
    Preparing,
    /// The data path.
    UnderWay,
    /// The data path has ended it: it is brought into service, or undone.
    Ended,
}

impl Copying {
    /// It has copied so much now: how fast it was lately. At rest before it copies, and after.
    pub(crate) fn look(&self, copied: Bytes) -> Speed {
        if self.state() != CopyState::Copying {
            return Speed::default();
        }
        let mut speed = self.speed.lock().unwrap_or_else(PoisonError::into_inner);
        speed.look(Instant::now(), copied);
        speed.clone()
    }

    pub(crate) fn state(&self) -> CopyState {
        match (self.phase, self.instant) {
            (Phase::Ended, _) => CopyState::Finishing,
            (Phase::UnderWay, Some(_)) => CopyState::Copying,
            (Phase::UnderWay, None) | (Phase::Preparing, _) => CopyState::Preparing,
        }
    }
}
