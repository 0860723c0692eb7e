//! The timeline.

use super::super::read::Fault;
use super::super::values::At;
use super::super::{EventFile, Verb};
use super::names::{Special, find_or_only, in_range};
use super::storage::MOST_DEPTH;
use super::vms::PolicyKeys;
use crate::scenario::{Action, Datastore, Vm};
use headgate_devices::ModelSpec;
use headgate_qos::Policy;
use std::ops::Range;

pub(super) fn action(
    file: &At<EventFile>,
    datastores: &[Datastore],
    vms: &[Vm],
    policies: &mut [Vec<Policy>],
) -> Result<Action, Fault> {
    let event = &file.value;
    check_event_keys(event)?;
    let verb = event.what.value;
    let vm = || find_or_only(event.vm.as_ref(), &file.span, "vm", vms.iter().map(|vm| vm.name.as_str()));
    let store = || {
        let names = datastores.iter().map(|store| store.name.as_str());
        find_or_only(event.datastore.as_ref(), &file.span, "datastore", names)
    };
    let node = |store: usize| {
        let names = datastores[store].nodes.iter().map(|node| node.name.as_str());
        find_or_only(event.node.as_ref(), &file.span, "node", names)
    };
    Ok(match verb {
        Verb::Start => Action::Start { vm: vm()? },
        Verb::Stop => Action::Stop { vm: vm()? },
        Verb::Policy => {
            let vm = vm()?;
            let names = vms[vm].disks.iter().map(|disk| disk.name.as_str());
            let disk = find_or_only(event.disk.as_ref(), &file.span, "disk", names)?;
            let keys = PolicyKeys {
                reservation: event.reservation.as_ref(),
                limit: event.limit.as_ref(),
                limit_bandwidth: event.limit_bandwidth.as_ref(),
                shares: event.shares.as_ref(),
                burst: event.burst.as_ref(),
            };
            let policy = keys.apply(policies[vm][disk])?;
            policies[vm][disk] = policy;
            Action::Policy { vm, disk, policy }
        }
        Verb::Rate => {
            let datastore = store()?;
            let missing = || Fault::new(&event.what.span, "do = 'rate' needs 'rate'; add rate = 500");
            let rate = event.rate.as_ref().ok_or_else(missing)?;
            let only = match &event.node {
                Some(_) => Some(node(datastore)?),
                None => None,
            };
            if !datastores[datastore].rate_by_vms.is_empty() {
                let message =
                    "the datastore's rate follows the number of VMs; remove the event or rate-by-vms";
                return Err(Fault::new(&rate.span, message));
            }
            let nodes = datastores[datastore].nodes.iter().enumerate();
            for (_, node) in nodes.filter(|&(index, _)| only.is_none_or(|only| only == index)) {
                if !matches!(node.device, ModelSpec::Rate { .. }) {
                    let message = format!(
                        "only a device 'rate=...' has a rate, and '{}' is not one; change it",
                        node.device
                    );
                    return Err(Fault::new(&rate.span, message));
                }
            }
            Action::Rate { datastore, node: only, rate: rate.value.0 }
        }
        Verb::QueueDepth => {
            let missing = || {
                Fault::new(&event.what.span, "do = 'queue-depth' needs 'queue-depth'; add queue-depth = 32")
            };
            let key = event.queue_depth.as_ref().ok_or_else(missing)?;
            Action::QueueDepth { datastore: store()?, depth: in_range(key, "a queue depth", MOST_DEPTH)? }
        }
        Verb::Fail | Verb::Return => {
            let datastore = store()?;
            let node = node(datastore)?;
            if verb == Verb::Fail {
                Action::Fail { datastore, node }
            } else {
                Action::Return { datastore, node }
            }
        }
    })
}

/// Keys that the verb has no use for.
fn check_event_keys(event: &EventFile) -> Result<(), Fault> {
    use Verb::{Fail, Policy, QueueDepth, Rate, Return, Start, Stop};
    fn place<T>(key: &Option<At<T>>) -> Option<&Range<usize>> {
        key.as_ref().map(|key| &key.span)
    }
    let keys: [Special<'_, Verb>; 11] = [
        ("vm", place(&event.vm), &[Start, Stop, Policy]),
        ("disk", place(&event.disk), &[Policy]),
        ("datastore", place(&event.datastore), &[Rate, QueueDepth, Fail, Return]),
        ("node", place(&event.node), &[Rate, Fail, Return]),
        ("rate", place(&event.rate), &[Rate]),
        ("queue-depth", place(&event.queue_depth), &[QueueDepth]),
        ("reservation", place(&event.reservation), &[Policy]),
        ("limit", place(&event.limit), &[Policy]),
        ("limit-bandwidth", place(&event.limit_bandwidth), &[Policy]),
        ("shares", place(&event.shares), &[Policy]),
        ("burst", place(&event.burst), &[Policy]),
    ];
    for (key, place, verbs) in keys {
        if let Some(place) = place
            && !verbs.contains(&event.what.value)
        {
            return Err(Fault::new(
                place,
                format!("'{key}' means nothing for this event; remove it or change 'do'"),
            ));
        }
    }
    Ok(())
}
