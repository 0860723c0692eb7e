//! How moves are, and were.

use crate::clock;
use crate::moving::{Moving, Phase, Verdict};
use crate::speed::Speed;
use headgate_api::moves::{Move, MoveOutcome, MoveState};
use headgate_mirror::{Progress, State};
use headgate_model::Name;
use headgate_units::Bytes;
use std::collections::{BTreeMap, VecDeque};

/// Moves that are over and are remembered.
const PAST: usize = 100;

/// Moves that are over since the daemon began, and how far the others were when somebody looked.
#[derive(Debug, Default)]
pub(crate) struct Moved {
    pub(super) past: VecDeque<Move>,
    pub(super) counts: BTreeMap<MoveOutcome, u64>,
    pub(super) seen: BTreeMap<Name, Seen>,
}

#[derive(Debug)]
pub(super) struct Seen {
    pub(super) progress: Progress,
    pub(super) speed: Speed,
}

fn state(moving: &Moving, progress: Option<&Progress>) -> MoveState {
    match (&moving.phase, progress.map(|progress| progress.state)) {
        (Phase::Preparing, _) | (Phase::UnderWay, Some(State::Starting)) => MoveState::Preparing,
        (Phase::UnderWay, Some(State::Copying) | None) => MoveState::Copying,
        (Phase::UnderWay, Some(State::Paused)) => MoveState::Paused,
        (Phase::UnderWay, Some(State::Switching)) => MoveState::Switching,
        (Phase::UnderWay, Some(State::Switched | State::Ended))
        | (Phase::Ended(_) | Phase::Lost(_) | Phase::Closed(_) | Phase::Found, _) => {
            MoveState::Cleaning
        }
    }
}

impl Moved {
    /// How a move is now, of a disk of this size.
    pub(super) fn view(&self, moving: &Moving, size: Bytes) -> Move {
        let record = &moving.record;
        let seen = self.seen.get(&record.disk);
        let progress = seen.map(|seen| &seen.progress);
        let (copied, size) = progress.map_or((Bytes(0), size), |found| (found.copied, found.size));
        let state = state(moving, progress);
        let speed = seen.map(|seen| &seen.speed).filter(|_| state == MoveState::Copying);
        let verdict = match &moving.phase {
            Phase::Ended(verdict) | Phase::Lost(verdict) | Phase::Closed(verdict) => {
                Some(verdict.clone())
            }
            Phase::Found => Some(found(moving)),
            Phase::Preparing | Phase::UnderWay => None,
        };
        let reason = verdict.as_ref().and_then(|verdict| verdict.reason.clone());
        Move {
            disk: record.disk.clone(),
            from: record.source.clone(),
            to: record.target.clone(),
            state,
            copied,
            size,
            rate: speed.and_then(Speed::rate),
            seconds_left: speed
                .and_then(|speed| speed.time_for(Bytes(size.0 - copied.0.min(size.0)))),
            shares: record.pace.shares,
            limit: record.pace.limit,
            limit_bandwidth: record.pace.limit_bandwidth,
            began: record.began,
            ended: None,
            outcome: verdict.map(|verdict| verdict.outcome),
            reason: moving.trouble.clone().or(reason),
        }
    }

    /// Nothing is left of a move.
    pub(super) fn end(&mut self, moving: &Moving, size: Bytes) {
        let now = self.view(moving, size);
        self.seen.remove(&now.disk);
        // One that did not begin was refused to who asked for it.
        let Some(outcome) = now.outcome else { return };
        *self.counts.entry(outcome).or_default() += 1;
        let ended = Some(clock::seconds_since_1970());
        let copied = if outcome == MoveOutcome::Switched { now.size } else { now.copied };
        self.past.push_front(Move { state: MoveState::Ended, copied, ended, ..now });
        self.past.truncate(PAST);
    }

    /// The last move of a disk that is over.
    pub(crate) fn last_of(&self, disk: &Name) -> Option<Move> {
        self.past.iter().find(|one| one.disk == *disk).cloned()
    }
}

/// How one ended that a daemon before this one left.
fn found(moving: &Moving) -> Verdict {
    let why = "the daemon ended meanwhile; it is not begun again by itself";
    Verdict::cut(moving.record.step, why)
}
