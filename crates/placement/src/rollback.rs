//! Whether moves can be made, or taken back: where a disk would do less harm it may still not be.

use crate::plan_state::{Mark, PlanState};
use crate::{Made, Name, NotThere, Pool, PoolError};

/// Why a move cannot be made, or taken back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Barred {
    /// The disk stays where it is.
    #[error("'{0}' is pinned, or must be with a disk that is")]
    Pinned(Name),
    /// There it may not, or can not, be.
    #[error("'{disk}' cannot be on '{datastore}': {why}")]
    NotThere {
        /// The disk.
        disk: Name,
        /// Where it was, or was to be.
        datastore: Name,
        /// Why.
        why: NotThere,
    },
    /// One of the two is gone.
    #[error("'{disk}' or the datastore '{datastore}' is not there any more")]
    Gone {
        /// The disk.
        disk: Name,
        /// Where it was, or was to be.
        datastore: Name,
    },
}

/// What keeps moves of one decision from being taken back now, each after the one before: rules,
/// classes, states of datastores, space, reservations, and disks that are pinned; `None` if nothing
/// does. Disks that must be together go together. Space that one of them leaves is not free for
/// another, and disks that a rule keeps apart do not change places.
///
/// O(n log n) in disks and datastores.
///
/// # Errors
/// [`PoolError`] when the pool contradicts itself.
pub fn check_rollback(pool: &Pool, moves: &[Made]) -> Result<Option<Barred>, PoolError> {
    check_moves(pool, moves.iter().map(|made| (&made.disk, &made.from)))
}

/// The same for moves to come, each a disk and where it goes.
///
/// # Errors
/// As [`check_rollback`].
pub fn check_moves<'a>(
    pool: &Pool,
    moves: impl IntoIterator<Item = (&'a Name, &'a Name)>,
) -> Result<Option<Barred>, PoolError> {
    let mut state = PlanState::of(pool)?;
    for (disk, datastore) in moves {
        let known =
            (state.index.disks.get(disk.as_str()), state.index.stores.get(datastore.as_str()));
        let unit =
            known.0.and_then(|disk| state.units.iter().position(|unit| unit.disks.contains(disk)));
        let (Some(unit), Some(&to)) = (unit, known.1) else {
            return Ok(Some(Barred::Gone { disk: disk.clone(), datastore: datastore.clone() }));
        };
        if state.units[unit].store == to {
            continue;
        }
        if state.units[unit].pinned.is_some() {
            return Ok(Some(Barred::Pinned(disk.clone())));
        }
        if let Err(why) = state.fits(unit, to, Mark::Last) {
            let (disk, datastore) = (disk.clone(), datastore.clone());
            return Ok(Some(Barred::NotThere { disk, datastore, why }));
        }
        state.shift(unit, to);
    }
    Ok(None)
}
