//! Carries moves out: which of them begins next, and which is not made any more.
//!
//! Who drives it makes the moves, and says what came of them. Whether a move still stands is asked
//! of the pool as it is just before it begins ([`check_moves`](crate::check_moves)).

use crate::{Hours, Name};
use alloc::string::String;
use alloc::vec::Vec;
use core::num::NonZeroU32;
use headgate_units::Nanos;
use thiserror::Error;

/// How many moves may be under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoveLimits {
    /// In all.
    pub at_once: NonZeroU32,
    /// From or to one datastore.
    pub per_datastore: NonZeroU32,
}

/// A move to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leg {
    /// The disk.
    pub disk: Name,
    /// Where it is.
    pub from: Name,
    /// Where it goes.
    pub to: Name,
    /// The decision that it is part of: what is decided together is made whole, or not begun.
    pub decision: usize,
}

/// What came of a move so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is to come.
    Waiting,
    /// The disk is on its way.
    Moving,
    /// It has arrived.
    Moved,
    /// It was begun, or was to begin, and failed for this reason.
    Failed(String),
    /// It was not begun.
    Skipped(Skip),
}

impl Fate {
    /// Whether nothing follows.
    pub fn is_last(&self) -> bool {
        !matches!(self, Fate::Waiting | Fate::Moving)
    }
}

/// Why a move was not begun.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Skip {
    /// Somebody ended all of it.
    #[error("it was stopped before")]
    Stopped,
    /// The hours in which disks move were over.
    #[error("the hours in which disks move were over")]
    Hours,
    /// Another of the same decision was not made.
    #[error("disk '{0}', which was to move for it, did not")]
    With(Name),
    /// It does not stand any more.
    #[error("{0}")]
    Barred(String),
}

/// Moves, in the order in which they were advised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sequence {
    legs: Vec<(Leg, Fate)>,
    limits: MoveLimits,
    hours: Hours,
}

impl Sequence {
    /// Moves that are to come.
    pub fn new(legs: Vec<Leg>, limits: MoveLimits, hours: Hours) -> Sequence {
        let legs = legs.into_iter().map(|leg| (leg, Fate::Waiting)).collect();
        Sequence { legs, limits, hours }
    }

    /// The moves, and what came of them.
    pub fn legs(&self) -> &[(Leg, Fate)] {
        &self.legs
    }

    /// Whether nothing is to come and nothing under way.
    pub fn is_over(&self) -> bool {
        self.legs.iter().all(|(_, fate)| fate.is_last())
    }

    /// The next move to begin, beside those under way, whoever began them; by its place in
    /// [`legs`](Self::legs). `None`: none for now. Another may begin first while the datastores of
    /// the first have enough to do: advice has any order hold.
    ///
    /// Outside the hours nothing begins, and what was to come is given up: by the next time the
    /// pool is another.
    pub fn next(&mut self, now: Nanos, under_way: &[(Name, Name)]) -> Option<usize> {
        if !self.hours.contain(now) {
            self.give_up(&Skip::Hours);
            return None;
        }
        let MoveLimits { at_once, per_datastore } = self.limits;
        if under_way.len() >= at_once.get() as usize {
            return None;
        }
        let free = |datastore: &Name| {
            let touches = |(from, to): &&(Name, Name)| from == datastore || to == datastore;
            under_way.iter().filter(touches).count() < per_datastore.get() as usize
        };
        let begins =
            |(leg, fate): &(Leg, Fate)| *fate == Fate::Waiting && free(&leg.from) && free(&leg.to);
        self.legs.iter().position(begins)
    }

    /// The moves of one decision that are to come, this one first: they are asked for together.
    pub fn with(&self, at: usize) -> Vec<&Leg> {
        let Some((first, _)) = self.legs.get(at) else { return Vec::new() };
        let others = self.legs.iter().enumerate().filter(|(place, (leg, fate))| {
            *place != at && leg.decision == first.decision && *fate == Fate::Waiting
        });
        core::iter::once(first).chain(others.map(|(_, (leg, _))| leg)).collect()
    }

    /// What came of a move. What is over stays as it is. One that failed or was not begun takes
    /// along what was decided with it and has not begun.
    pub fn put(&mut self, at: usize, now: Fate) {
        let Some((leg, fate)) = self.legs.get_mut(at) else { return };
        let follows = match fate {
            Fate::Waiting => true,
            Fate::Moving => matches!(now, Fate::Moved | Fate::Failed(_)),
            Fate::Moved | Fate::Failed(_) | Fate::Skipped(_) => false,
        };
        if !follows {
            return;
        }
        let (disk, decision) = (leg.disk.clone(), leg.decision);
        let is_made = matches!(now, Fate::Waiting | Fate::Moving | Fate::Moved);
        *fate = now;
        if is_made {
            return;
        }
        for (leg, fate) in &mut self.legs {
            if leg.decision == decision && *fate == Fate::Waiting {
                *fate = Fate::Skipped(Skip::With(disk.clone()));
            }
        }
    }

    /// Begins nothing more. What is under way goes on.
    pub fn stop(&mut self) {
        self.give_up(&Skip::Stopped);
    }

    fn give_up(&mut self, why: &Skip) {
        for (_, fate) in &mut self.legs {
            if *fate == Fate::Waiting {
                *fate = Fate::Skipped(why.clone());
            }
        }
    }
}
