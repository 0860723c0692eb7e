//! What would be done now: what is advised, and what a move by hand would be refused for.

use super::state::{Advised, ours, request};
use crate::Control;
use crate::pools::{Images, Knowledge};
use headgate_api::balance::{BalanceMove, BalanceMoveState, BalancePlan, Staying};
use headgate_api::placement::{AdviceReport, MoveFinding, MoveReview};
use headgate_model::MovePace;
use headgate_placement::{Leg, Move, Pool, check_moves};
use headgate_units::Bytes;

/// The moves of advice, and which of them were decided together: those of a group follow each
/// other.
fn decisions(moves: &[Move]) -> impl Iterator<Item = (&Move, usize)> {
    let (mut left, mut decision) = (0, 0);
    moves.iter().map(move |each| {
        if left == 0 {
            (left, decision) = (each.group_size.max(1), decision + 1);
        }
        left -= 1;
        (each, decision)
    })
}

impl Control {
    /// The moves that are advised: first those that take moves back.
    pub(super) fn advised(&self, report: &AdviceReport) -> Vec<Advised> {
        let harmful = |review: &&MoveReview| {
            matches!(review.finding, MoveFinding::Worse { barred: None, .. })
        };
        let mut legs: Vec<(Leg, String)> = Vec::new();
        for review in report.reviews.iter().filter(harmful) {
            let (disk, from) = (review.disk.as_str().into(), review.to.as_str().into());
            let to = review.from.as_str().into();
            let leg = Leg { disk, from, to, decision: legs.len() };
            legs.push((leg, review.to_string()));
        }
        for pool in &report.pools {
            let before = legs.last().map_or(0, |(leg, _)| leg.decision + 1);
            for (each, decision) in decisions(&pool.advice.moves) {
                if legs.iter().any(|(leg, _)| leg.disk == each.disk) {
                    continue;
                }
                let Move { disk, from, to, .. } = each.clone();
                legs.push((Leg { disk, from, to, decision: before + decision }, each.to_string()));
            }
        }
        let model = self.model();
        let told = |(leg, advice): (Leg, String)| {
            let disk = ours(&leg.disk)?;
            let size = model.disks.get(&disk).map_or(Bytes(0), |entry| entry.record.size);
            let (from, to, state) = (ours(&leg.from)?, ours(&leg.to)?, BalanceMoveState::Waiting);
            let told = BalanceMove { disk, from, to, size, advice, state, reason: None };
            Some(Advised { leg, told })
        };
        legs.into_iter().filter_map(told).collect()
    }

    /// What would be done now, and what not.
    pub(super) fn balance_plan(&self, report: &AdviceReport) -> BalancePlan {
        let known = self.pool_now();
        let moves = self.advised(report).into_iter().map(|Advised { leg, told }| {
            match self.check_leg(&known, &[&leg]) {
                Ok(()) => told,
                Err(reason) => {
                    let (state, reason) = (BalanceMoveState::Skipped, Some(reason));
                    BalanceMove { state, reason, ..told }
                }
            }
        });
        let moves: Vec<BalanceMove> = moves.collect();
        let stays = report.pools.iter().flat_map(|pool| &pool.advice.stays);
        let stays = stays
            .filter(|stay| moves.iter().all(|one| one.disk.as_str() != stay.disk.as_str()))
            .map(|stay| Staying { name: stay.disk.to_string(), reason: stay.why.to_string() });
        let outside = report.outside.iter().map(|outside| Staying {
            name: format!("datastore {}", outside.datastore),
            reason: outside.reason.clone(),
        });
        let stays = stays.chain(outside).collect();
        BalancePlan { moves, stays }
    }

    /// The pool that moves are asked of, or why nobody knows it.
    pub(super) fn pool_now(&self) -> Result<Pool, String> {
        let known = self.pool(&Knowledge::Remembered(Images::Looked), None);
        known.map(|whole| whole.pool).map_err(|e| e.to_string())
    }

    /// Whether an advised move still stands: its disk is where it was, rules and space allow it and
    /// what was decided with it, and `disk migrate` would not refuse it. May wait for storage.
    ///
    /// # Errors
    /// Why not.
    pub(super) fn check_leg(
        &self,
        known: &Result<Pool, String>,
        decided: &[&Leg],
    ) -> Result<(), String> {
        let Some(first) = decided.first() else { return Ok(()) };
        let gone = || format!("disk '{}' or datastore '{}' is gone", first.disk, first.to);
        let (disk, to) = ours(&first.disk).zip(ours(&first.to)).ok_or_else(gone)?;
        let on = self.model().disks.get(&disk).map(|entry| entry.record.datastore.clone());
        match on {
            None => return Err(format!("disk '{disk}' is gone")),
            Some(on) if on.as_str() != first.from.as_str() => {
                return Err(format!("the disk is on datastore '{on}' by now"));
            }
            Some(_) => {}
        }
        let pool = known.as_ref().map_err(String::clone)?;
        let moves = decided.iter().map(|leg| (&leg.disk, &leg.to));
        if let Some(barred) = check_moves(pool, moves).map_err(|e| e.to_string())? {
            return Err(barred.to_string());
        }
        let asked = self.try_move(&disk, &request(to, MovePace::default()));
        asked.map(drop).map_err(|e| e.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headgate_placement::{Change, Permille, Why};
    use headgate_units::Nanos;

    #[test]
    fn disks_of_a_group_are_one_decision_and_others_are_not() {
        let none = Change { before: None, after: None };
        let each = |disk: &str, group_size| Move {
            disk: disk.into(),
            from: "a".into(),
            to: "b".into(),
            why: Why::Load,
            copy: Bytes(0),
            takes: Nanos::ZERO,
            group_size,
            payback: None,
            source: none,
            target: none,
            imbalance: (Permille(0), Permille(0)),
        };
        let moves = [each("1", 1), each("2", 2), each("3", 2), each("4", 2), each("5", 2)];
        let found: Vec<usize> = decisions(&moves).map(|(_, decision)| decision).collect();
        assert_eq!(found, [1, 2, 2, 3, 3]);
    }
}
