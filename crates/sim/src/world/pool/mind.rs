//! What a pool goes by and what it notes, apart from what its disks and datastores do.

use super::state::{Pool, Store};
use crate::outcome::pool::{PoolMove, Round};
use crate::random::Stream;
use crate::scenario::{Moves, Variant};
use crate::world::state::World;
use headgate_placement::{DeviceModel, PastMove, Refusal, Totals};
use std::ops::Range;

/// All of a run that decisions of its pool read and write, but for where disks are. Runs whose
/// decisions moved the same disks at the same time differ in nothing else.
#[derive(Clone)]
pub(crate) struct Mind {
    known: Vec<Known>,
    history: Vec<PastMove>,
    rounds: Vec<Round>,
    moves: Vec<PoolMove>,
    violations: u64,
    /// The moves on trial.
    open: Range<usize>,
    /// Of each member.
    places: Vec<Stream>,
}

/// What was learnt of a datastore.
#[derive(Clone)]
struct Known {
    totals: Totals,
    model: Option<DeviceModel>,
    refused: Option<Refusal>,
}

impl<'a> World<'a> {
    /// The pool's mind, if it has a pool. O(state of the mind).
    pub(crate) fn mind(&self) -> Option<Mind> {
        let pool = self.pool.as_ref()?;
        let known = |store: &Store| Known {
            totals: store.totals,
            model: store.model,
            refused: store.refused,
        };
        Some(Mind {
            known: pool.stores.iter().map(known).collect(),
            history: pool.history.clone(),
            rounds: pool.rounds.clone(),
            moves: pool.moves.clone(),
            violations: pool.violations,
            open: pool.trials.open.clone(),
            places: pool.members.iter().map(|member| member.place.clone()).collect(),
        })
    }

    /// Goes on as a run of this variant, which was the same but for its mind. All that its setup
    /// says of what came is the same.
    pub(crate) fn with(mut self, mind: Mind, variant: &'a Variant) -> World<'a> {
        if let Some(pool) = &mut self.pool {
            for (store, known) in pool.stores.iter_mut().zip(mind.known) {
                let Known { totals, model, refused } = known;
                (store.totals, store.model, store.refused) = (totals, model, refused);
            }
            for (member, place) in pool.members.iter_mut().zip(mind.places) {
                member.place = place;
            }
            (pool.history, pool.rounds, pool.moves) = (mind.history, mind.rounds, mind.moves);
            (pool.violations, pool.trials.open) = (mind.violations, mind.open);
            pool.attached.clear();
        }
        self.setup = &variant.setup;
        if let (Some(pool), Some(spec)) = (&mut self.pool, &variant.setup.pool) {
            pool.spec = spec;
        }
        self
    }

    /// Whether two runs that were the same when they were doubled still are, but for their minds.
    pub(crate) fn went_like(&self, other: &World<'_>) -> bool {
        match (&self.pool, &other.pool) {
            (Some(mine), Some(theirs)) => mine.went_like(theirs),
            _ => false,
        }
    }
}

impl Pool<'_> {
    /// A copy that was begun is more than a mind and a place.
    fn went_like(&self, other: &Pool<'_>) -> bool {
        let instant = |pool: &Pool<'_>| matches!(pool.spec.moves, Moves::Instant);
        instant(self) && instant(other) && self.attached == other.attached
    }
}
