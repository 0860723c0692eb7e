//! Carries advice out, move by move.

use super::state::{Advised, Balancer, CARRY, Run, ours, request};
use crate::leases::Next;
use crate::{Control, ControlError, clock};
use headgate_api::balance::{Balance, BalanceBy, BalanceCreate};
use headgate_events::{Entry, Outcome, Who};
use headgate_history::wall_clock;
use headgate_model::{Lookback, MovePace};
use headgate_placement::{self as placement, Fate, Hours, Leg, Mode, MoveLimits, Sequence, Skip};
use serde_json::json;
use std::num::NonZeroU32;
use std::time::Instant;
use tracing::{info, warn};

/// A move whose turn it is.
struct Turn {
    at: usize,
    by: BalanceBy,
    leg: Leg,
    /// Those that were decided with it, and this one first.
    decided: Vec<Leg>,
    pace: MovePace,
}

fn goes_on_already() -> ControlError {
    ControlError::Busy {
        error: "advice is being carried out already".into(),
        hint: "see 'headgate balance'; 'headgate balance --stop' begins no further move".into(),
    }
}

impl Control {
    /// Begins what is to begin of advice, of rules and of maintenance, and keeps the thresholds
    /// that follow the storage. To be called again and again, by one thread; it may wait for
    /// storage. Returns when to call it again.
    pub fn carry_out(&self) -> Next {
        self.carry_on();
        let emptied = self.empty_datastores();
        let asked = self.act_by_rules();
        let followed = self.keep_thresholds();
        match [self.next_of_run(), emptied, followed].contains(&Next::After(CARRY)) {
            true => Next::After(CARRY),
            false => asked,
        }
    }

    fn next_of_run(&self) -> Next {
        match self.balancer().run.as_ref().is_some_and(Run::goes_on) {
            true => Next::After(CARRY),
            false => Next::WhenRung,
        }
    }

    /// How far advice is carried out, and what would be done now.
    ///
    /// # Errors
    /// As [`advice`](Self::advice).
    pub fn balance(&self, window: Lookback) -> Result<Balance, ControlError> {
        let automatic = self.rules().automatic;
        let run = self.balancer().run.as_ref().map(Run::view);
        if run.as_ref().is_some_and(|run| run.ended.is_none()) {
            return Ok(Balance { run, plan: None, automatic });
        }
        let plan = Some(self.balance_plan(&self.advice(window)?));
        Ok(Balance { run, plan, automatic })
    }

    /// Has what is advised now carried out. Nothing begins if nothing is advised.
    ///
    /// # Errors
    /// When advice is carried out already, or as [`advice`](Self::advice).
    pub fn begin_balance(
        &self,
        window: Lookback,
        request: &BalanceCreate,
    ) -> Result<Balance, ControlError> {
        self.check_not_balancing()?;
        let advised = self.advised(&self.advice(window)?);
        let automatic = self.rules().automatic;
        let limits = MoveLimits {
            at_once: request.at_once.unwrap_or(NonZeroU32::MIN),
            per_datastore: automatic.per_datastore,
        };
        if !advised.is_empty() {
            let by = BalanceBy::Operator;
            self.start_run(by, advised, limits, Hours::ALWAYS, request.pace())?;
        }
        self.balance(window)
    }

    fn check_not_balancing(&self) -> Result<(), ControlError> {
        match self.balancer().going() {
            Some(_) => Err(goes_on_already()),
            None => Ok(()),
        }
    }

    pub(super) fn start_run(
        &self,
        by: BalanceBy,
        advised: Vec<Advised>,
        limits: MoveLimits,
        hours: Hours,
        pace: MovePace,
    ) -> Result<(), ControlError> {
        let mut balancer = self.balancer();
        if balancer.going().is_some() {
            return Err(goes_on_already());
        }
        for Advised { told, .. } in &advised {
            let (disk, from, to, advice) = (&told.disk, &told.from, &told.to, &told.advice);
            info!(%disk, %from, %to, by = by.as_str(), %advice, "an advised move is to be made");
        }
        let (legs, moves) = advised.into_iter().map(|one| (one.leg, one.told)).unzip();
        let (began, sequence) = (clock::seconds_since_1970(), Sequence::new(legs, limits, hours));
        balancer.run = Some(Run { by, began, ended: None, moves, sequence, pace });
        balancer.waiting = 0;
        drop(balancer);
        self.bell().ring();
        Ok(())
    }

    /// Begins no further move. What is under way goes on.
    ///
    /// # Errors
    /// When nothing is carried out.
    pub fn stop_balance(&self) -> Result<(), ControlError> {
        let mut balancer = self.balancer();
        let Some(run) = balancer.going() else {
            return Err(ControlError::Busy {
                error: "no advice is being carried out".into(),
                hint: "'headgate balance' says what would be done; 'headgate disk moves' which \
                       disks move"
                    .into(),
            });
        };
        info!(by = run.by.as_str(), "no further advised move begins");
        run.sequence.stop();
        run.end_if_over();
        Ok(())
    }

    /// The moves under way, whoever began them.
    pub(super) fn routes(&self) -> Vec<(placement::Name, placement::Name)> {
        let model = self.model();
        let under_way = model.moves.values().filter(|one| !one.is_over());
        under_way
            .map(|one| (one.record.source.as_str().into(), one.record.target.as_str().into()))
            .collect()
    }

    /// Begins what is to begin.
    pub(super) fn carry_on(&self) {
        while let Some(next) = self.next_leg() {
            self.begin_leg(&next);
        }
    }

    fn next_leg(&self) -> Option<Turn> {
        // Before what is asked here is locked: both ask the data path.
        let (moves, under_way) = (self.moves(), self.routes());
        let rules = self.rules().automatic;
        let mut balancer = self.balancer();
        let Balancer { run, failed, .. } = &mut *balancer;
        let run = run.as_mut().filter(|run| run.goes_on())?;
        failed.extend(run.see(&moves).into_iter().map(|disk| (disk, Instant::now())));
        let forbidden = rules.mode != Mode::On || rules.stopped.is_some();
        if run.by == BalanceBy::Automatic && forbidden {
            run.sequence.stop();
        }
        let next = run.sequence.next(wall_clock(), &under_way);
        run.end_if_over();
        let at = next?;
        let decided: Vec<Leg> = run.sequence.with(at).into_iter().cloned().collect();
        let (leg, by, pace) = (decided.first()?.clone(), run.by, run.pace);
        Some(Turn { at, by, leg, decided, pace })
    }

    /// Begins a move if it still stands.
    fn begin_leg(&self, next: &Turn) {
        let Turn { at, by, leg, pace, .. } = next;
        let (disk, by) = (&leg.disk, by.as_str());
        let decided: Vec<&Leg> = next.decided.iter().collect();
        let stands = self.check_leg(&self.pool_now(), &decided);
        if let Err(reason) = &stands {
            info!(%disk, by, %reason, "an advised move is not made");
            self.note(Entry::noticed("advised move not made").of_disk(disk).because(reason));
        }
        let names = ours(&leg.disk).zip(ours(&leg.to));
        let Some((name, to)) = names.filter(|_| self.take_leg(next, stands)) else { return };
        info!(%disk, from = %leg.from, %to, by, "an advised move begins");
        let begins = Entry::done("advised move begins").of_disk(disk);
        self.note(begins.with_new(json!({"from": leg.from, "to": to, "by": by})));
        if let Err(e) = self.migrate_disk(&name, request(to, *pace)) {
            warn!(%disk, by, error = %e, "an advised move could not begin");
            let failed = Entry::new(Who::Daemon, "advised move begins", Outcome::Failed);
            self.note(failed.of_disk(disk).because(&e));
            let mut balancer = self.balancer();
            if let Some(run) = balancer.going() {
                run.sequence.put(*at, Fate::Failed(e.to_string()));
            }
            balancer.failed.insert(name, Instant::now());
        }
    }

    /// Notes that a move begins, or why it does not. False: somebody has stopped it meanwhile, or
    /// it does not stand.
    fn take_leg(&self, next: &Turn, stands: Result<(), String>) -> bool {
        let mut balancer = self.balancer();
        let Some(run) = balancer.going() else { return false };
        let is_ours = |(leg, fate): &(Leg, Fate)| *leg == next.leg && *fate == Fate::Waiting;
        if !run.sequence.legs().get(next.at).is_some_and(is_ours) {
            return false;
        }
        match stands {
            Ok(()) => {
                run.sequence.put(next.at, Fate::Moving);
                true
            }
            Err(reason) => {
                run.sequence.put(next.at, Fate::Skipped(Skip::Barred(reason)));
                balancer.note_failure(&next.leg);
                false
            }
        }
    }
}
