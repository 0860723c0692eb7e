//! What this host says of itself, from what its control plane knows.

use super::slow::Slow;
use crate::observe::Seen;
use headgate_api::blame::Blame;
use headgate_api::state::ServiceState;
use headgate_api::top::{Load, TopDatastore, TopDisk};
use headgate_api::types::{Datastore, Disk};
use headgate_fleet::{
    Behind, Cause, DatastoreWord, DiskWord, Evidence, Model, Promise, Rate, Service, Space,
    Thousandths, Waits, Workload,
};
use headgate_history::Learnt;
use headgate_model::Name;
use headgate_placement::{DeviceModel, WorkloadProfile};
use headgate_units::{Bytes, Nanos};
use std::collections::BTreeMap;

/// What this host has.
pub(super) struct Holdings {
    pub(super) datastores: Vec<DatastoreWord>,
    pub(super) disks: Vec<DiskWord>,
}

/// What was learnt of disks and datastores.
pub(super) struct Known<'a> {
    pub(super) workloads: &'a BTreeMap<Name, WorkloadProfile>,
    pub(super) models: &'a BTreeMap<Name, Learnt>,
    pub(super) slow: &'a Slow,
}

fn rate(rate: f64) -> Rate {
    // A cast saturates, and takes what is no number for zero.
    Rate(rate.round() as u64)
}

pub(super) fn service(state: ServiceState) -> Service {
    match state {
        ServiceState::Serving => Service::Serving,
        ServiceState::Starting => Service::Starting,
        ServiceState::Hung => Service::Hung,
        ServiceState::Failed => Service::Failed,
        ServiceState::Evicted => Service::Evicted,
    }
}

/// All datastores and disks. O(n log n).
pub(super) fn holdings(seen: &Seen, known: &Known<'_>) -> Holdings {
    let sizes: BTreeMap<&Name, &Disk> = seen.disks.iter().map(|disk| (&disk.name, disk)).collect();
    let records: BTreeMap<&Name, &Datastore> =
        seen.datastores.iter().map(|store| (&store.name, store)).collect();
    let mut datastores = Vec::new();
    let mut disks = Vec::new();
    for store in &seen.top.datastores {
        if let Some(record) = records.get(&store.name) {
            datastores.push(datastore(store, record, known));
        }
        let on_it = store.disks.iter();
        disks.extend(on_it.filter_map(|one| {
            let size = sizes.get(&one.name)?.size;
            Some(disk(one, &store.name, size, known.workloads.get(&one.name)))
        }));
    }
    disks.sort_by(|a, b| a.name.cmp(&b.name));
    Holdings { datastores, disks }
}

fn datastore(store: &TopDatastore, record: &Datastore, known: &Known<'_>) -> DatastoreWord {
    let device = record.space.as_ref().map(|space| Space { size: space.size, free: space.left });
    let files = record.file_system.as_ref();
    let files = files.map(|system| Space { size: system.size, free: system.free });
    let model = known.models.get(&store.name).and_then(|learnt| learnt.model);
    DatastoreWord {
        name: store.name.to_string(),
        service: service(store.state),
        storage: known.slow.storage(&store.name),
        received: rate(store.load.normalised_iops),
        bandwidth: rate(store.load.bytes_per_sec),
        latency: store.load.device_micros.map(|latency| Nanos::from_micros(latency.p99)),
        window: Thousandths((store.window * 1e3).round() as u64),
        in_flight: store.in_flight,
        queued: store.queued,
        capacity: store.capacity_iops.map(Rate),
        reserved: Rate(store.reserved_iops),
        overbooked: Rate(store.overbooked_iops),
        disks: store.disks.len() as u64,
        space: device.or(files),
        model: model.map(model_word),
    }
}

fn model_word(model: DeviceModel) -> Model {
    Model {
        slope_ps: model.slope.as_picos(),
        low_ps: model.low,
        high_ps: model.high,
        base_ns: model.base,
        floor: model.floor,
        explained: Thousandths(u64::from(model.explained.0.min(1_000))),
        points: u64::from(model.points),
        evidence: match model.evidence {
            headgate_placement::Evidence::Rise => Evidence::Rise,
            headgate_placement::Evidence::Flat => Evidence::Flat,
            headgate_placement::Evidence::Steady => Evidence::Steady,
            headgate_placement::Evidence::Unclear => Evidence::Unclear,
        },
        size: model.size,
        random: Thousandths(u64::from(model.random.0.min(1_000))),
    }
}

fn workload(profile: &WorkloadProfile) -> Workload {
    Workload {
        outstanding: Thousandths(u64::from(profile.outstanding.as_thousandths())),
        size: profile.size,
        read: Thousandths(u64::from(profile.read.0.min(1_000))),
        random: Thousandths(u64::from(profile.random.0.min(1_000))),
    }
}

fn disk(disk: &TopDisk, on: &Name, size: Bytes, profile: Option<&WorkloadProfile>) -> DiskWord {
    DiskWord {
        name: disk.name.to_string(),
        vm: disk.vm.as_ref().map(Name::to_string),
        datastore: on.to_string(),
        service: service(disk.state),
        size,
        reservation: disk.policy.reservation.map(|rate| Rate(rate.get())),
        limit: disk.policy.limit.map(|rate| Rate(rate.get())),
        shares: disk.policy.shares.get(),
        received: rate(disk.load.normalised_iops),
        bandwidth: rate(disk.load.bytes_per_sec),
        promise: if disk.reservation_missed { Promise::Missed } else { Promise::Kept },
        queued: disk.queued,
        latency: latency(&disk.load),
        waits: disk.blame.as_ref().and_then(waits),
        workload: profile.map(workload),
    }
}

fn latency(load: &Load) -> Option<Nanos> {
    let queue = load.queue_micros.map_or(0, |latency| latency.p99);
    load.device_micros.map(|device| Nanos::from_micros(queue.saturating_add(device.p99)))
}

fn waits(blame: &Blame) -> Option<Waits> {
    let (name, part) = blame.causes.each().into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let cause = match name {
        "neighbours" => Cause::Neighbours,
        "limit" => Cause::Limit,
        "window" => Cause::Window,
        "own" => Cause::Own,
        "held" => Cause::Held,
        _ => Cause::Device,
    };
    let thousandths = |part: f64| Thousandths(((part * 1e3).round() as u64).min(1_000));
    let behind = blame.neighbours.first();
    let behind =
        behind.map(|one| Behind { disk: one.disk.to_string(), part: thousandths(one.part) });
    Some(Waits { cause, part: thousandths(part), behind })
}
