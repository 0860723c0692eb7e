//! Datastores as text.

use super::costs;
use super::flash;
use super::output::{Align, Table, description, or_dash};
use super::persistent;
use super::placement;
use super::space;
use super::window;
use headgate_api::removed::RemovedSpace;
use headgate_api::types::{self, BackendSpec, CapacityView, ServiceState};
use headgate_model::{CapacitySource, Confidence};
use headgate_placement::State;
use headgate_units::Nanos;

fn storage(backend: &BackendSpec) -> String {
    let BackendSpec { dir, block, emulated, nbd, stripe, stripe_unit, connections, memory } =
        backend;
    let memory = memory.map(|size| size.to_string());
    let stripe = stripe.as_ref().map(|servers| servers.join(","));
    let stripe = stripe.map(|servers| match stripe_unit {
        Some(unit) => format!("{servers} in units of {unit}"),
        None => servers,
    });
    let kinds = [
        ("dir", dir),
        ("block", block),
        ("emulated", emulated),
        ("nbd", nbd),
        ("stripe", &stripe),
        ("memory", &memory),
    ];
    let given = kinds.iter().find_map(|(kind, value)| Some(format!("{kind} {}", value.as_ref()?)));
    match (given, connections) {
        (Some(given), Some(several @ 2..)) => format!("{given} over {several} connections"),
        (given, _) => given.unwrap_or_else(|| "-".into()),
    }
}

/// The storage, and the layers above it.
fn storage_under_layers(datastore: &types::Datastore) -> String {
    let storage = storage(&datastore.backend);
    match layers(datastore) {
        Some(layers) => format!("{storage} under {layers}"),
        None => storage,
    }
}

fn layers(datastore: &types::Datastore) -> Option<String> {
    (!datastore.layers.is_empty()).then(|| datastore.layers.join(" "))
}

fn state(datastore: &types::Datastore) -> String {
    match datastore.state {
        other @ (ServiceState::Starting
        | ServiceState::Hung
        | ServiceState::Failed
        | ServiceState::Evicted) => other.as_str().into(),
        ServiceState::Serving if datastore.placement.state == State::Maintenance => {
            "maintenance".into()
        }
        ServiceState::Serving if datastore.overbooked_iops > 0 => "overbooked".into(),
        ServiceState::Serving => "serving".into(),
    }
}

pub(super) fn table(datastores: &[types::Datastore]) -> Table {
    let mut table = Table::new(&[
        ("NAME", Align::Left),
        ("STATE", Align::Left),
        ("SCHEDULER", Align::Left),
        ("DEPTH", Align::Right),
        ("CAPACITY", Align::Right),
        ("RESERVED", Align::Right),
        ("DISKS", Align::Right),
        ("STORAGE", Align::Left),
    ]);
    for datastore in datastores {
        table.row(vec![
            datastore.name.to_string(),
            state(datastore),
            datastore.scheduler.as_str().into(),
            datastore.queue_depth.to_string(),
            or_dash(datastore.capacity.as_ref().map(|c| c.iops)),
            datastore.reserved_iops.to_string(),
            datastore.disks.to_string(),
            storage_under_layers(datastore),
        ]);
    }
    table
}

pub(super) fn capacity(capacity: &CapacityView) -> String {
    let from = match &capacity.source {
        CapacitySource::Set => "set by the operator".into(),
        CapacitySource::Model => "known from the model".into(),
        CapacitySource::Measured { at, spread_percent, confidence } => {
            let confidence = match confidence {
                Confidence::High => "high",
                Confidence::Medium => "medium",
                Confidence::Low => "low",
            };
            format!(
                "measured {}, spread {spread_percent} %, confidence {confidence}",
                super::output::date(*at)
            )
        }
    };
    format!("{} IOPS, {from}", capacity.iops)
}

pub(super) fn describe(datastore: &types::Datastore) -> String {
    let reserved = match datastore.reservable_iops {
        Some(reservable) => format!("{} of {reservable} IOPS", datastore.reserved_iops),
        None => format!("{} IOPS, not checked: the capacity is unknown", datastore.reserved_iops),
    };
    let overbooked =
        (datastore.overbooked_iops > 0).then(|| format!("by {} IOPS", datastore.overbooked_iops));
    let mut lines = vec![
        ("name", Some(datastore.name.to_string())),
        ("state", Some(state(datastore))),
        ("reason", datastore.reason.clone()),
        ("storage", Some(storage(&datastore.backend))),
        ("layers", layers(datastore)),
        (
            "persistent reservation",
            datastore.persistent_reservations.as_ref().map(persistent::line),
        ),
        ("scheduler", Some(datastore.scheduler.as_str().into())),
        ("queue depth", Some(datastore.queue_depth.to_string())),
        ("cost model", Some(datastore.cost_model.clone())),
        ("batches", datastore.batch.clone()),
        ("plug", (datastore.plug_ns > 0).then(|| Nanos(datastore.plug_ns).to_string())),
    ];
    lines.extend(costs::lines(datastore.costs.as_ref()));
    lines.extend(window::lines(&datastore.window));
    lines.extend([
        ("capacity", Some(datastore.capacity.as_ref().map_or_else(|| "unknown".into(), capacity))),
        ("reserved", Some(reserved)),
        ("overbooked", overbooked),
        ("disks", Some(datastore.disks.to_string())),
    ]);
    let removed = |removed: RemovedSpace| {
        let RemovedSpace { disks, allocated } = removed;
        format!("{disks} disk(s), which take {allocated}")
    };
    lines.push(("removed", datastore.removed.map(removed)));
    lines.extend(flash::lines(datastore.space, datastore.flash.as_ref()));
    lines.extend(space::lines(datastore.file_system.as_ref()));
    lines.extend(placement::datastore(&datastore.placement, datastore.model.as_ref()));
    let disks = datastore.flash.as_ref().map(flash::disks).unwrap_or_default();
    let costs = datastore.costs.as_ref().map(costs::classes).unwrap_or_default();
    description(&lines) + &costs + &disks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datastore() -> types::Datastore {
        serde_json::from_str(
            r#"{"name": "array", "state": "serving", "reason": null, "backend": {"emulated": "rate=1600"},
                "scheduler": "mclock", "queue_depth": 32, "cost_model": "unit", "plug_ns": 0, "window": {"latency_threshold": "none", "found": null, "min": 4,
                "max": 32, "period_ns": null, "board": "auto", "now": null}, "capacity": {"iops": 1600, "source": "measured",
                "at": 1790000000, "spread_percent": 3, "confidence": "high"}, "reservable_iops": 1600,
                "reserved_iops": 1900, "overbooked_iops": 300, "disks": 2}"#,
        )
        .unwrap()
    }

    #[test]
    fn overbooking_is_shown_in_the_list_and_in_the_description() {
        assert_eq!(
            table(&[datastore()]).render(),
            "NAME   STATE       SCHEDULER  DEPTH  CAPACITY  RESERVED  DISKS  STORAGE\n\
             array  overbooked  mclock        32      1600      1900      2  emulated rate=1600\n"
        );
        let text = describe(&datastore());
        assert!(text.contains("overbooked:   by 300 IOPS\n"), "{text}");
        assert!(
            text.contains(
                "1600 IOPS, measured 2026-09-21 14:13 UTC, spread 3 %, confidence high\n"
            ),
            "{text}"
        );
    }
}
