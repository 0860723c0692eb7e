//! What is known of advice that is carried out.

use crate::clock;
use headgate_api::balance::{BalanceBy, BalanceMove, BalanceMoveState, BalanceRun};
use headgate_api::moves::{DiskMigrate, Move, MoveOutcome};
use headgate_api::types::Force;
use headgate_model::{MovePace, Name};
use headgate_placement::{self as placement, Fate, Leg, Sequence};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tracing::info;

/// How often one looks which move is next.
pub const CARRY: Duration = Duration::from_millis(500);

/// What is carried out, and what the rules are waiting for.
#[derive(Debug, Default)]
pub(crate) struct Balancer {
    /// What is carried out, or was last.
    pub(super) run: Option<Run>,
    /// When advice was asked last without an operator.
    pub(super) asked: Option<Instant>,
    /// Moves that wait for the operator, who is to be asked.
    pub(super) waiting: usize,
    /// Disks whose move failed without an operator, and when.
    pub(super) failed: BTreeMap<Name, Instant>,
}

/// Advice that is carried out.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) by: BalanceBy,
    pub(super) began: u64,
    pub(super) ended: Option<u64>,
    /// What is said of each move of the sequence.
    pub(super) moves: Vec<BalanceMove>,
    pub(super) sequence: Sequence,
    pub(super) pace: MovePace,
}

/// A move that is advised.
#[derive(Clone, Debug)]
pub(super) struct Advised {
    pub(super) leg: Leg,
    pub(super) told: BalanceMove,
}

/// A name of placement as ours. All that are in a pool came from ours.
pub(super) fn ours(name: &placement::Name) -> Option<Name> {
    name.as_str().parse().ok()
}

/// A move to make, and what it may take.
pub(crate) fn request(to: Name, pace: MovePace) -> DiskMigrate {
    DiskMigrate {
        to,
        export: None,
        shares: Some(pace.shares),
        limit: pace.limit,
        limit_bandwidth: pace.limit_bandwidth,
        force: Force::No,
    }
}

impl Run {
    /// Whether something is to come or under way.
    pub(super) fn goes_on(&self) -> bool {
        self.ended.is_none()
    }

    pub(super) fn view(&self) -> BalanceRun {
        let moves = self.moves.iter().zip(self.sequence.legs()).map(|(told, (_, fate))| {
            let (state, reason) = match fate {
                Fate::Waiting => (BalanceMoveState::Waiting, None),
                Fate::Moving => (BalanceMoveState::Moving, None),
                Fate::Moved => (BalanceMoveState::Moved, None),
                Fate::Failed(why) => (BalanceMoveState::Failed, Some(why.clone())),
                Fate::Skipped(why) => (BalanceMoveState::Skipped, Some(why.to_string())),
            };
            BalanceMove { state, reason, ..told.clone() }
        });
        let (by, began, ended) = (self.by, self.began, self.ended);
        BalanceRun { by, began, ended, moves: moves.collect() }
    }

    /// Takes over what became of its moves. Answers whose moves failed.
    pub(super) fn see(&mut self, moves: &[Move]) -> Vec<Name> {
        let mut failed = Vec::new();
        for (at, told) in self.moves.iter().enumerate() {
            if self.sequence.legs().get(at).is_none_or(|(_, fate)| *fate != Fate::Moving) {
                continue;
            }
            let found = moves.iter().find(|one| one.disk == told.disk);
            let Some(fate) = fate_of(found) else { continue };
            let (disk, outcome) =
                (&told.disk, if fate == Fate::Moved { "moved" } else { "failed" });
            info!(%disk, by = self.by.as_str(), outcome, "an advised move is over");
            failed.extend((fate != Fate::Moved).then(|| disk.clone()));
            self.sequence.put(at, fate);
        }
        self.end_if_over();
        failed
    }

    pub(super) fn end_if_over(&mut self) {
        if self.ended.is_none() && self.sequence.is_over() {
            self.ended = Some(clock::seconds_since_1970());
        }
    }
}

/// What became of a move that was begun; `None` while it is under way.
fn fate_of(found: Option<&Move>) -> Option<Fate> {
    let Some(found) = found else {
        return Some(Fate::Failed("nothing is known of it any more".into()));
    };
    Some(match found.outcome? {
        MoveOutcome::Switched => Fate::Moved,
        MoveOutcome::Cancelled => Fate::Failed("it was cancelled".into()),
        MoveOutcome::Failed | MoveOutcome::Interrupted => {
            Fate::Failed(found.reason.clone().unwrap_or_else(|| "it failed".into()))
        }
    })
}

impl Balancer {
    /// What goes on.
    pub(super) fn going(&mut self) -> Option<&mut Run> {
        self.run.as_mut().filter(|run| run.goes_on())
    }

    pub(super) fn note_failure(&mut self, leg: &Leg) {
        if let Some(disk) = ours(&leg.disk) {
            self.failed.insert(disk, Instant::now());
        }
    }

    /// Disks that the rules leave in peace for a while, for their moves came to nothing.
    pub(super) fn rests(&self, disk: &Name) -> bool {
        self.failed.contains_key(disk)
    }
}
