//! What advice predicted of reads, beside what they took afterwards: of all experiments together.

use crate::Experiment;
use crate::plot::{Figure, Line, MOST_LINES, Panel};
use headgate_sim::{Outcome, PoolOutcome, Round};
use headgate_units::Nanos;

/// Latencies of reads at a datastore that a move left or reached, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Prediction {
    /// By the advice that moved the disk.
    predicted: f64,
    /// From then until the next advice.
    measured: f64,
}

impl Prediction {
    /// How far off it is, as a part of what was measured: above zero if reads were expected to take
    /// longer.
    fn error(&self) -> f64 {
        self.predicted / self.measured - 1.0
    }
}

/// The part of the intervals after an advice, from the one with the most reads outstanding down,
/// that a prediction is of: it is made from the ninetieth percentile of what each disk does.
const BUSIEST: usize = 10;

/// Of each advice that moved disks at once: a prediction for each datastore that one of them left
/// or reached. Copies arrive later, and what is then is not what was predicted.
pub(super) fn predictions(outcome: &Outcome) -> Vec<Prediction> {
    let Some(pool) = &outcome.pool else { return Vec::new() };
    let each = pool.rounds.iter().enumerate().filter(|(_, round)| round.verdict.is_some());
    each.flat_map(|(index, round)| {
        let next = pool.rounds.get(index + 1).map_or(Nanos::MAX, |next| next.at);
        of_round(pool, round, next)
    })
    .collect()
}

fn of_round(pool: &PoolOutcome, round: &Round, next: Nanos) -> Vec<Prediction> {
    let moves: Vec<_> = pool.moves.iter().filter(|step| step.advised == round.at).collect();
    let Some(after) = &round.after else { return Vec::new() };
    if moves.iter().any(|step| step.done != Some(round.at)) {
        return Vec::new();
    }
    let touched =
        |name: &str| moves.iter().any(|step| [&step.from, &step.to].iter().any(|one| *one == name));
    let stores = after.datastores.iter().filter(|store| touched(store.name.as_str()));
    let found = stores.filter_map(|store| {
        let predicted = store.latency?.as_secs_f64() * 1e3;
        let mut named = pool.datastores.iter();
        let seen = named.find(|seen| seen.name == store.name.as_str())?;
        // The first interval has what was under way when disks moved.
        let later = seen.reads.iter().filter(|one| one.until > round.at).skip(1);
        let mut within: Vec<(f64, f64)> = later
            .take_while(|one| one.until <= next)
            .map(|one| (one.count as f64, one.latency.as_secs_f64() * 1e3))
            .collect();
        // Intervals are as long as each other, so this is by the reads outstanding.
        within.sort_by(|a, b| (b.0 * b.1).total_cmp(&(a.0 * a.1)));
        within.truncate(within.len().div_ceil(BUSIEST));
        let (count, total) = within
            .iter()
            .fold((0.0, 0.0), |(count, total), one| (count + one.0, total + one.0 * one.1));
        (count > 0.0 && total > 0.0).then(|| Prediction { predicted, measured: total / count })
    });
    found.collect()
}

/// The predictions of each experiment that made any, all seeds and variants together.
pub(super) fn of_each<'a>(experiments: &'a [Experiment<'_>]) -> Vec<(&'a str, Vec<Prediction>)> {
    let each = experiments.iter().map(|experiment| {
        let found = experiment.outcomes.iter().flat_map(predictions).collect::<Vec<_>>();
        (experiment.scenario.name.as_str(), found)
    });
    each.filter(|(_, found)| !found.is_empty()).collect()
}

/// How far off predictions are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Errors {
    /// Predictions.
    pub(super) count: usize,
    /// Median, with its sign.
    pub(super) middle: f64,
    /// Median and ninetieth percentile without it.
    pub(super) size: [f64; 2],
}

impl Errors {
    /// Of at least one.
    pub(super) fn of(predictions: &[Prediction]) -> Errors {
        let sorted = |of: fn(f64) -> f64| {
            let mut all: Vec<f64> = predictions.iter().map(|one| of(one.error())).collect();
            all.sort_by(f64::total_cmp);
            all
        };
        let at = |all: &[f64], tenths: usize| {
            all.get((all.len() * tenths / 10).min(all.len().saturating_sub(1))).copied()
        };
        let (signed, sizes) = (sorted(|error| error), sorted(f64::abs));
        let part = |all: &[f64], tenths| at(all, tenths).unwrap_or(f64::NAN);
        Errors {
            count: predictions.len(),
            middle: part(&signed, 5),
            size: [part(&sizes, 5), part(&sizes, 9)],
        }
    }
}

/// Measured latency over predicted, a point for each prediction, and the line on which they would
/// be equal; none where there are none.
pub(super) fn figure(each: &[(&str, Vec<Prediction>)]) -> Option<Figure> {
    let shown = &each[..each.len().min(MOST_LINES - 1)];
    let points: Vec<Vec<(f64, f64)>> = shown
        .iter()
        .map(|(_, found)| found.iter().map(|one| (one.predicted, one.measured)).collect())
        .collect();
    let far = |(x, y): &(f64, f64)| x.max(*y);
    let end = points.iter().flatten().map(far).fold(0.0, f64::max);
    if end == 0.0 {
        return None;
    }
    let equal: Line = vec![Some((0.0, 0.0)), Some((end, end))];
    let none = shown.iter().map(|_| Line::new());
    let lines = std::iter::once(equal).chain(none).collect();
    let mut panel = Panel::of_lines("what reads took (ms)", lines);
    panel.points = std::iter::once(Vec::new()).chain(points).collect();
    panel.top = end;
    let names = shown.iter().map(|(name, _)| (*name).to_owned());
    Some(Figure {
        title: "Latency of reads after moves, as predicted and as it was".into(),
        axis: "predicted (ms)".into(),
        end,
        panels: vec![panel],
        legend: std::iter::once("as predicted".to_owned()).chain(names).collect(),
        note: None,
        marks: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use headgate_sim::{Quiet, Scenario, run};

    /// Two arrays, of which one has all the load until advice is taken; then both have the same for
    /// twenty seconds.
    const POD: &str = r#"
        name = "pod"
        title = "Two arrays"
        duration = "60s"
        histograms = false
        [pool]
        interference = "none"
        sample = "500ms"
        advice = ["40s", "50s"]
        hold = "0s"
        payback = "10000h"
        MOVES
        [tide]
        low = "10%"
        every = "500ms"
        during = ["0s..39s"]
        [[datastore]]
        name = "busy"
        device = "array=4,cache=8M"
        capacity = "150G"
        queue-depth = 256
        [[datastore]]
        name = "idle"
        device = "array=4,cache=8M"
        capacity = "150G"
        queue-depth = 256
        [[vm]]
        name = "vm"
        count = 4
        disk = [{ datastore = "busy", size = "10G" }]
        workload = [{ kind = "closed", outstanding = 12, size = "8K" }]
        [[vm]]
        name = "one"
        disk = [{ datastore = "idle", size = "10G", pinned = true }]
        workload = [{ kind = "closed", outstanding = 12, size = "8K" }]
        [[expect]]
        measure = "moves"
        of = "pool"
        at-least = 1
    "#;

    fn outcome(moves: &str) -> Outcome {
        let text = POD.replace("MOVES", moves);
        let scenario = Scenario::parse("x.toml", &text).unwrap_or_else(|e| panic!("{e}"));
        run(&scenario, "default", 1, &mut Quiet).unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn each_datastore_that_a_move_touched_has_a_prediction_that_is_near_on_arrays_that_are_known() {
        let outcome = outcome("");
        let pool = outcome.pool.as_ref().unwrap();
        let rounds = pool.rounds.iter();
        let moved =
            rounds.filter(|round| pool.moves.iter().any(|step| step.advised == round.at)).count();
        let found = predictions(&outcome);
        assert!(moved > 0 && found.len() == 2 * moved, "{moved} {found:?}");
        let errors = Errors::of(&found);
        assert!(errors.count == found.len() && errors.size[1] < 0.35, "{errors:?} {found:?}");
        let drawn = figure(&[("pod", found)]).unwrap();
        assert!(crate::plot::svg(&[drawn]).unwrap().contains("predicted (ms)"));
    }

    #[test]
    fn what_is_copied_and_what_is_not_moved_has_none() {
        assert_eq!(predictions(&outcome("balance = 'off'")), Vec::new());
        assert_eq!(
            predictions(&outcome("balance = 'random'")),
            Vec::new(),
            "chance predicts nothing"
        );
        assert_eq!(predictions(&outcome("moves = 'copy'")), Vec::new());
        assert!(figure(&[]).is_none());
    }

    #[test]
    fn errors_are_parts_of_what_was_measured() {
        let of = |predicted, measured| Prediction { predicted, measured };
        let all = [of(11.0, 10.0), of(8.0, 10.0), of(15.0, 10.0)];
        let errors = Errors::of(&all);
        assert_eq!(errors.count, 3);
        for (found, expected) in
            [(errors.middle, 0.1), (errors.size[0], 0.2), (errors.size[1], 0.5)]
        {
            assert!((found - expected).abs() < 1e-9, "{errors:?}");
        }
    }
}
