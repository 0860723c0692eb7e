//! From outcomes to figures: throughput and latency over time, as papers plot them.

use crate::plot::{Figure, Line, MOST_LINES, Mark, Panel};
use headgate_sim::{Action, Counters, Outcome, Scenario, Setup, Subject, SubjectKind, Transactions};
use headgate_units::Nanos;
use std::collections::BTreeMap;

/// More points do not show: neighbours are taken together.
const MOST_POINTS: usize = 600;
/// Figures whose largest values differ by no more than this factor have the same scale, to be compared.
const SAME_SCALE: f64 = 4.0;
/// More names than this are counted in a mark's label.
const MOST_NAMES: usize = 3;

/// A figure for each outcome.
pub(crate) fn figures(scenario: &Scenario, outcomes: &[&Outcome]) -> Vec<Figure> {
    let mut figures: Vec<Figure> = outcomes.iter().map(|outcome| figure(scenario, outcome)).collect();
    let panels = figures.iter().map(|figure| figure.panels.len()).max().unwrap_or(0);
    for panel in 0..panels {
        let tops = || figures.iter().filter_map(|figure| figure.panels.get(panel)).map(|panel| panel.top);
        let (least, most) = (tops().fold(f64::INFINITY, f64::min), tops().fold(0.0, f64::max));
        if most <= least * SAME_SCALE {
            figures
                .iter_mut()
                .filter_map(|figure| figure.panels.get_mut(panel))
                .for_each(|panel| panel.top = most);
        }
    }
    figures
}

fn figure(scenario: &Scenario, outcome: &Outcome) -> Figure {
    let vms: Vec<&Subject> = outcome.subjects.iter().filter(|s| s.kind == SubjectKind::Vm).collect();
    // The busiest are shown, in the order of the file.
    let mut shown: Vec<usize> = (0..vms.len()).collect();
    shown.sort_by_key(|&vm| std::cmp::Reverse(vms[vm].whole.counters.completed));
    shown.truncate(MOST_LINES);
    shown.sort_unstable();
    let lines = |value: &dyn Fn(&Counters, Nanos) -> Option<f64>| -> Vec<Line> {
        shown.iter().map(|&vm| series(outcome, &vms[vm].series, |sum, next| sum.plus(next), value)).collect()
    };
    let throughput = lines(&|counters, length| {
        let active = counters.arrived > 0 || counters.completed > 0 || counters.outstanding > 0;
        active.then(|| counters.iops(length))
    });
    let latency = lines(&|counters, _| counters.mean_latency().map(|latency| latency.as_secs_f64() * 1e3));
    let mut panels = vec![panel("throughput (IOPS)", throughput), panel("mean latency (ms)", latency)];
    if !outcome.applications.is_empty() {
        let transactions = shown.iter().map(|&vm| transactions(outcome, &vms[vm].name)).collect();
        panels.push(panel("transactions (1/s)", transactions));
    }
    let title = match scenario.variants.len() {
        0 | 1 => scenario.name.clone(),
        _ => format!("{}: {}", scenario.name, outcome.variant),
    };
    Figure {
        title,
        seconds: outcome.duration.as_secs_f64(),
        panels,
        legend: shown.iter().map(|&vm| vms[vm].name.clone()).collect(),
        note: (vms.len() > shown.len()).then(|| format!("and {} VMs that did less", vms.len() - shown.len())),
        marks: scenario.variant(&outcome.variant).map(|variant| marks(&variant.setup)).unwrap_or_default(),
    }
}

fn panel(axis: &'static str, lines: Vec<Line>) -> Panel {
    let mut panel = Panel { axis, top: 0.0, lines };
    panel.top = panel.largest();
    panel
}

/// Points in the middle of their intervals.
fn series<T: Copy>(
    outcome: &Outcome,
    points: &[T],
    plus: impl Fn(T, &T) -> T,
    value: &dyn Fn(&T, Nanos) -> Option<f64>,
) -> Line {
    let together = points.len().div_ceil(MOST_POINTS).max(1);
    let chunks = points.chunks(together).enumerate();
    chunks
        .filter_map(|(index, chunk)| {
            let (first, rest) = chunk.split_first()?;
            let sum = rest.iter().fold(*first, &plus);
            let from = outcome.point(index * together).0;
            let to = outcome.point(index * together + chunk.len() - 1).1;
            let middle = (from.as_secs_f64() + to.as_secs_f64()) / 2.0;
            Some(value(&sum, to - from).map(|value| (middle, value)))
        })
        .collect()
}

fn transactions(outcome: &Outcome, vm: &str) -> Line {
    let of_vm = |name: &str| name == vm || name.strip_prefix(vm).is_some_and(|rest| rest.starts_with('/'));
    let mut all: Vec<Transactions> = Vec::new();
    for application in outcome.applications.iter().filter(|application| of_vm(&application.name)) {
        all.resize(all.len().max(application.series.len()), Transactions::default());
        for (sum, point) in all.iter_mut().zip(&application.series) {
            sum.completed += point.completed;
        }
    }
    let plus = |mut sum: Transactions, next: &Transactions| {
        sum.completed += next.completed;
        sum
    };
    series(outcome, &all, plus, &|sum, length| {
        (length > Nanos::ZERO).then(|| sum.completed as f64 / length.as_secs_f64())
    })
}

/// What happens after the beginning, by its time.
fn marks(setup: &Setup) -> Vec<Mark> {
    let mut by_time: BTreeMap<Nanos, Vec<(&'static str, String)>> = BTreeMap::new();
    let mut add = |at: Nanos, verb, what: String| by_time.entry(at).or_default().push((verb, what));
    let vm = |index: usize| setup.vms.get(index).map_or_else(String::new, |vm| vm.name.clone());
    let store = |index: usize| setup.datastores.get(index);
    let name = |index: usize| match setup.datastores.len() {
        0 | 1 => String::new(),
        _ => store(index).map_or_else(String::new, |store| format!("{}: ", store.name)),
    };
    let node = |datastore: usize, node: usize| {
        store(datastore)
            .and_then(|store| store.nodes.get(node))
            .map_or_else(String::new, |node| node.name.clone())
    };
    for starting in setup.vms.iter() {
        if let Some(at) = starting.start.filter(|at| *at > Nanos::ZERO) {
            add(at, "start", starting.name.clone());
        }
    }
    for event in &setup.timeline {
        match &event.action {
            // A start at the time that the VM itself has is the same start.
            Action::Start { vm: index }
                if setup.vms.get(*index).is_some_and(|vm| vm.start == Some(event.at)) => {}
            Action::Start { vm: index } => add(event.at, "start", vm(*index)),
            Action::Stop { vm: index } => add(event.at, "stop", vm(*index)),
            Action::Policy { vm: index, policy, .. } => {
                let rate = |word: &str, iops: Option<_>| {
                    iops.map(|iops: headgate_units::Iops| format!(" {word} {iops}"))
                };
                let parts = [rate("min", policy.reservation()), rate("max", policy.limit())];
                let said: String = parts.into_iter().flatten().collect();
                add(event.at, "", format!("{}:{said} shares {}", vm(*index), policy.shares()));
            }
            Action::Rate { datastore, rate, node: None } => {
                add(event.at, "", format!("{}rate {rate}", name(*datastore)));
            }
            Action::Rate { datastore, rate, node: Some(which) } => {
                add(event.at, "", format!("{} rate {rate}", node(*datastore, *which)));
            }
            Action::QueueDepth { datastore, depth } => {
                add(event.at, "", format!("{}depth {depth}", name(*datastore)));
            }
            Action::Fail { datastore, node: which } => add(event.at, "fail", node(*datastore, *which)),
            Action::Return { datastore, node: which } => add(event.at, "return", node(*datastore, *which)),
            // What is not known yet has no words yet.
            _ => add(event.at, "", "event".into()),
        }
    }
    let label = |events: Vec<(&'static str, String)>| -> String {
        let mut parts = Vec::new();
        for verb in ["start", "stop", "fail", "return"] {
            let names: Vec<&str> =
                events.iter().filter(|(v, _)| *v == verb).map(|(_, what)| what.as_str()).collect();
            match names.len() {
                0 => {}
                1 => parts.push(format!("{} {verb}s", names[0])),
                n if n <= MOST_NAMES => parts.push(format!("{} {verb}", names.join(", "))),
                n => parts.push(format!("{n} {verb}")),
            }
        }
        parts.extend(events.into_iter().filter(|(verb, _)| verb.is_empty()).map(|(_, what)| what));
        parts.join("; ")
    };
    by_time.into_iter().map(|(at, events)| Mark { at: at.as_secs_f64(), label: label(events) }).collect()
}
