//! Measures of fairness: how near the service of each subject is to its shares.

use super::measure::measure;

use crate::outcome::Outcome;
use crate::scenario::{Action, Expectation, Measure, Scenario, Selection, Setup, Span, disk_name};
use headgate_qos::{Policy, water_fill};
use headgate_units::{Iops, Nanos};

/// A disk's policy at some time.
pub(super) struct Held {
    /// The disk as outcomes call it.
    pub(super) name: String,
    pub(super) policy: Policy,
    /// Whether its VM runs all the time.
    pub(super) runs: bool,
}

/// The policies of all disks as they are at the end of a stretch of time; the VMs that run are
/// those that run in all of it.
pub(super) fn policies_at(setup: &Setup, from: Nanos, to: Nanos) -> Vec<Held> {
    let mut all = Vec::new();
    for (index, vm) in setup.vms.iter().enumerate() {
        let mut runs = vm.start.is_some_and(|start| start <= from);
        let mut own: Vec<Policy> = vm.disks.iter().map(|disk| disk.policy).collect();
        for event in setup.timeline.iter().filter(|event| event.at < to) {
            match event.action {
                Action::Start { vm } if vm == index => runs = true,
                Action::Stop { vm } if vm == index => runs = false,
                Action::Policy { vm, disk, policy } if vm == index => own[disk] = policy,
                _ => {}
            }
        }
        let held = vm.disks.iter().zip(own);
        all.extend(held.map(|(disk, policy)| Held { name: disk_name(vm, disk), policy, runs }));
    }
    all
}

/// How far the parts of the bandwidth that some got are from their parts of the shares.
pub(super) fn measure_shares(
    scenario: &Scenario,
    outcome: &Outcome,
    of: Measure,
    group: &[String],
    span: Option<&Span>,
) -> Option<f64> {
    let setup = &scenario.variant(&outcome.variant)?.setup;
    let (from, to) = span.map_or((Nanos::ZERO, outcome.duration), |span| (span.from, span.to));
    let held = policies_at(setup, from, to);
    let of_one = |name: &String| {
        let own = held.iter().filter(|held| {
            held.name == *name
                || held.name.strip_prefix(name.as_str()).is_some_and(|rest| rest.starts_with('/'))
        });
        let shares: u64 = own.map(|held| held.policy.shares().get()).sum();
        let one = std::slice::from_ref(name);
        Some((
            shares as f64,
            measure(scenario, outcome, Measure::Bandwidth, one, span, &Selection::default())?,
        ))
    };
    let each: Vec<(f64, f64)> = group.iter().map(of_one).collect::<Option<_>>()?;
    let (shares, got) = each.iter().fold((0.0, 0.0), |(s, g), (shares, got)| (s + shares, g + got));
    if shares == 0.0 || got == 0.0 {
        return None;
    }
    let parts = each.iter().map(|(own_shares, own)| (own_shares / shares, own / got));
    match of {
        Measure::ShareError => parts.map(|(due, part)| (part / due - 1.0).abs()).reduce(f64::max),
        Measure::ShareDistance => Some(parts.map(|(due, part)| (part - due).abs()).sum()),
        _ => None,
    }
}

/// What water-filling gives a group: the policies are those at the end of the span, the VMs those
/// that run then.
pub(super) fn allocation(
    scenario: &Scenario,
    expectation: &Expectation,
    group: &[String],
    outcome: &Outcome,
    span: Option<&Span>,
    capacity: Option<Iops>,
) -> Option<f64> {
    let setup = &scenario.variant(&outcome.variant)?.setup;
    let first = outcome.subject(group.first()?)?;
    let (from, to) = match expectation.span.as_deref() {
        Some(name) => {
            let stretch = first.spans.iter().find(|stretch| stretch.name == name)?;
            (stretch.from, stretch.to)
        }
        None => (Nanos::ZERO, outcome.duration),
    };
    let running = policies_at(setup, from, to).into_iter().filter(|held| held.runs);
    let (names, policies): (Vec<String>, Vec<Policy>) =
        running.map(|held| (held.name, held.policy)).unzip();
    let capacity = match capacity {
        Some(capacity) => capacity,
        None => {
            let Expectation { measure: of, selection, .. } = expectation;
            let together = measure(scenario, outcome, *of, &names, span, selection)?;
            Iops::new(together.round() as u64).ok()?
        }
    };
    let allocations = water_fill(&policies, capacity);
    let shares = names.iter().zip(&allocations).filter(|(name, _)| {
        group.iter().any(|member| *name == member || name.starts_with(&format!("{member}/")))
    });
    Some(shares.map(|(_, cost)| cost.as_millionths() as f64 / 1e6).sum())
}
