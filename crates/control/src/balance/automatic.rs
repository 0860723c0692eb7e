//! Moves without an operator.

use super::state::{Advised, CARRY, Run};
use crate::configuration::Thing;
use crate::leases::Next;
use crate::preconditions::in_earnest;
use crate::{Control, ControlError};
use headgate_api::balance::{AutomaticPatch, BalanceBy};
use headgate_api::placement::{AdviceReport, MoveFinding, MoveReview};
use headgate_events::Entry;
use headgate_history::wall_clock;
use headgate_model::{Lookback, MovePace};
use headgate_placement::{Automatic, Harm, Mode, Rules, Stopped, Turn};
use headgate_units::Nanos;
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// How often advice is asked: samples are written as often.
const PERIOD: Duration = Duration::from_secs(5 * 60);

/// How long a disk is left in peace whose move came to nothing.
const REST: Duration = Duration::from_secs(60 * 60);

/// Moves that made things worse.
fn harms(report: &AdviceReport) -> Vec<Harm> {
    let of = |review: &MoveReview| match review.finding {
        MoveFinding::Worse { before, after, .. } => Some(Harm {
            disk: review.disk.as_str().into(),
            from: review.from.as_str().into(),
            to: review.to.as_str().into(),
            at: Nanos::from_secs(review.at),
            before: Nanos(before),
            after: Nanos(after),
        }),
        MoveFinding::NoWorse | MoveFinding::Changed | MoveFinding::TooSoon => None,
    };
    report.reviews.iter().filter_map(of).collect()
}

impl Control {
    /// Changes when moves are made without an operator. A mode that is set, also to what it is,
    /// forgives what stopped the moves.
    ///
    /// # Errors
    /// When the catalog fails.
    pub fn set_automatic(&self, patch: &AutomaticPatch) -> Result<Automatic, ControlError> {
        let set = |before| {
            let now = patch.apply(before);
            if patch.mode.is_some() { now.set(wall_clock()) } else { now }
        };
        self.change_automatic(set)
    }

    fn change_automatic(
        &self,
        change: impl FnOnce(Automatic) -> Automatic,
    ) -> Result<Automatic, ControlError> {
        let mut catalog = self.catalog_for(&Thing::Rules)?;
        let before = self.rules();
        let now = change(before.automatic.clone());
        let rules = Rules { automatic: now.clone(), ..before };
        in_earnest(|| self.would_rule(&rules, &[]))?;
        catalog.put_rules(&rules)?;
        self.model_mut().rules = rules;
        drop(catalog);
        self.forget_what_was_asked();
        Ok(now)
    }

    /// The rules are others: advice is asked at once.
    pub(crate) fn forget_what_was_asked(&self) {
        let mut balancer = self.balancer();
        (balancer.asked, balancer.waiting) = (None, 0);
        drop(balancer);
        self.bell().ring();
    }

    /// How many advised moves wait for an operator; 0 where the rules do not ask.
    pub fn moves_waiting(&self) -> usize {
        self.balancer().waiting
    }

    /// What an operator should know of moves without one.
    pub(crate) fn automatic_warnings(&self) -> Vec<String> {
        let waiting = match self.balancer().waiting {
            0 => None,
            1 => Some("1 advised move waits".to_owned()),
            n => Some(format!("{n} advised moves wait")),
        };
        let waiting = waiting.map(|text| format!("{text} for 'headgate balance --apply'"));
        let stopped = self.rules().automatic.stopped;
        let stopped = stopped.map(|stopped| {
            format!(
                "automatic moves have stopped: {}; 'headgate rules --automatic on' goes on",
                stopped.why
            )
        });
        waiting.into_iter().chain(stopped).collect()
    }

    /// Does what the rules say, if it is time. Returns when that may be again: rules and runs that
    /// begin and end ring.
    pub(super) fn act_by_rules(&self) -> Next {
        let automatic = self.rules().automatic;
        if automatic.mode == Mode::Off || automatic.stopped.is_some() {
            return Next::WhenRung;
        }
        if self.is_time_to_ask() {
            self.ask_and_act(&automatic);
        }
        let asked = self.balancer().asked;
        Next::After(asked.map_or(CARRY, |at| PERIOD.saturating_sub(at.elapsed()).max(CARRY)))
    }

    fn ask_and_act(&self, automatic: &Automatic) {
        match self.advice(Lookback::default()) {
            Ok(report) => self.act_on(automatic, &report),
            Err(e) => warn!(error = %e, "no advice for automatic moves"),
        }
    }

    fn is_time_to_ask(&self) -> bool {
        let (now, mut balancer) = (Instant::now(), self.balancer());
        let is_going = balancer.run.as_ref().is_some_and(Run::goes_on);
        if is_going || balancer.asked.is_some_and(|at| now.duration_since(at) < PERIOD) {
            return false;
        }
        balancer.asked = Some(now);
        balancer.failed.retain(|_, at| now.duration_since(*at) < REST);
        true
    }

    /// Does what the rules say of advice.
    pub(super) fn act_on(&self, automatic: &Automatic, report: &AdviceReport) {
        match automatic.turn(wall_clock(), self.routes().len(), &harms(report)) {
            Turn::Rest => self.tell_of_hours(automatic, report),
            Turn::Stop(harm) => self.stop_automatic(&harm),
            Turn::Show => self.balancer().waiting = self.advised(report).len(),
            Turn::Carry => self.carry_by_rules(automatic, report),
        }
    }

    /// Says that advice waits for its hours, where it does.
    fn tell_of_hours(&self, automatic: &Automatic, report: &AdviceReport) {
        let (hours, moves) = (automatic.hours, self.advised(report).len());
        if moves > 0 && !hours.contain(wall_clock()) {
            info!(moves, %hours, "advised moves wait for their hours");
        }
    }

    fn carry_by_rules(&self, automatic: &Automatic, report: &AdviceReport) {
        let mut advised = self.advised(report);
        let resting: Vec<usize> = {
            let balancer = self.balancer();
            let rests = |one: &&Advised| balancer.rests(&one.told.disk);
            advised.iter().filter(rests).map(|one| one.leg.decision).collect()
        };
        advised.retain(|one| !resting.contains(&one.leg.decision));
        if advised.is_empty() {
            return;
        }
        let (by, pace) = (BalanceBy::Automatic, MovePace::default());
        let begun = self.start_run(by, advised, automatic.limits(), automatic.hours, pace);
        if let Err(e) = begun {
            info!(error = %e, "the rules wait");
        }
    }

    fn stop_automatic(&self, harm: &Harm) {
        warn!(disk = %harm.disk, why = %harm, "automatic moves stop");
        self.note(Entry::done("automatic moves stop").of_disk(&harm.disk).because(harm));
        let stopped = Some(Stopped { at: wall_clock(), why: harm.to_string() });
        if let Err(e) = self.change_automatic(|now| Automatic { stopped, ..now }) {
            warn!(error = %e, "that automatic moves have stopped could not be written down");
        }
    }
}
