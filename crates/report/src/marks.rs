//! The events of a scenario, as marks on the time axis.

use crate::plot::Mark;
use headgate_sim::{Action, Setup};
use headgate_units::Nanos;
use std::collections::BTreeMap;

/// More names than this are counted in a mark's label.
const MOST_NAMES: usize = 3;

/// Events after the beginning, by time.
pub(super) fn marks(setup: &Setup) -> Vec<Mark> {
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
            Action::Fail { datastore, node: which } => {
                add(event.at, "fail", node(*datastore, *which))
            }
            Action::Return { datastore, node: which } => {
                add(event.at, "return", node(*datastore, *which))
            }
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
    by_time
        .into_iter()
        .map(|(at, events)| Mark { at: at.as_secs_f64(), label: label(events) })
        .collect()
}
