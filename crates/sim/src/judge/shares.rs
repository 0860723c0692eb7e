//! Who has which shares, and how near what each got is to them.

use super::measure::measure;
use super::sweep::Selection;
use crate::file::Measure;
use crate::outcome::Outcome;
use crate::scenario::{Action, Scenario, Setup, Window, disk_name};
use headgate_qos::Policy;
use headgate_units::Nanos;

/// A disk's policy at some time.
pub(super) struct Held {
    /// The disk as outcomes call it.
    pub(super) name: String,
    pub(super) policy: Policy,
    /// Whether its VM runs all the time.
    pub(super) runs: bool,
}

/// The policies of all disks as they are at the end of a stretch of time; the VMs that run are those that run in all of it.
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
    window: Option<&Window>,
) -> Option<f64> {
    let setup = &scenario.variant(&outcome.variant)?.setup;
    let (from, to) = window.map_or((Nanos::ZERO, outcome.duration), |window| (window.from, window.to));
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
            measure(scenario, outcome, Measure::Bandwidth, one, window, &Selection::default())?,
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
