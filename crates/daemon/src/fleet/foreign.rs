//! What other hosts have and do, as placement counts it.

use headgate_control::{Elsewhere, Foreign, ForeignDisk};
use headgate_fleet::{DiskWord, Evidence, HostKey, HostView, Model, Thousandths, View, Workload};
use headgate_model::Name;
use headgate_placement::{DeviceModel, Doubts, Outstanding, Permille, Slope, WorkloadProfile};
use headgate_units::{Bytes, Iops, Nanos};
use std::collections::BTreeMap;

/// Whether what a host has counts in sums: it is there, or may be.
pub(super) fn counts(host: &HostView<'_>) -> bool {
    use headgate_fleet::HostState::{Running, Silent, Stopped, Unknown};
    match host.state {
        Running | Unknown => true,
        Stopped | Silent => false,
    }
}

fn permille(part: Thousandths) -> Permille {
    Permille(u32::try_from(part.0.min(1_000)).unwrap_or(1_000))
}

fn profile(workload: &Workload) -> WorkloadProfile {
    WorkloadProfile {
        outstanding: Outstanding::from_thousandths(
            u32::try_from(workload.outstanding.0).unwrap_or(u32::MAX),
        ),
        size: workload.size,
        read: permille(workload.read),
        random: permille(workload.random),
    }
}

/// What other hosts do on the storage of this one's datastores. O(n log n) for n disks.
pub(super) fn foreign(view: &View, own: HostKey, now: Nanos) -> Foreign {
    let mut ours: BTreeMap<&str, Name> = BTreeMap::new();
    for host in view.hosts(now).filter(|host| host.host == own) {
        for (store, _) in host.datastores() {
            if let (Some(storage), Ok(name)) = (&store.storage, store.name.parse()) {
                ours.insert(storage, name);
            }
        }
    }
    let mut foreign = Foreign::new();
    if ours.is_empty() {
        return foreign;
    }
    let labels = view.labels();
    for host in view.hosts(now).filter(|host| host.host != own && counts(host)) {
        let Some(label) = labels.get(&host.host) else { continue };
        let shared: BTreeMap<&str, &Name> = host
            .datastores()
            .filter_map(|(store, _)| {
                Some((store.name.as_str(), ours.get(store.storage.as_deref()?)?))
            })
            .collect();
        for (disk, _) in host.disks() {
            let Some(datastore) = shared.get(disk.datastore.as_str()) else { continue };
            foreign.entry((*datastore).clone()).or_default().push(foreign_disk(label, disk));
        }
    }
    foreign
}

fn foreign_disk(label: &str, disk: &DiskWord) -> ForeignDisk {
    ForeignDisk {
        name: format!("{label}/{}", disk.name),
        reservation: disk.reservation.and_then(|rate| Iops::new(rate.0).ok()),
        workload: disk.workload.as_ref().map(profile),
    }
}

/// A model as its host learnt it.
fn model(model: &Model) -> DeviceModel {
    DeviceModel {
        slope: Slope::from_picos(model.slope_ps),
        low: model.low_ps,
        high: model.high_ps,
        base: model.base_ns,
        floor: model.floor,
        explained: permille(model.explained),
        points: u32::try_from(model.points).unwrap_or(u32::MAX),
        evidence: match model.evidence {
            Evidence::Rise => headgate_placement::Evidence::Rise,
            Evidence::Flat => headgate_placement::Evidence::Flat,
            Evidence::Steady => headgate_placement::Evidence::Steady,
            Evidence::Unclear => headgate_placement::Evidence::Unclear,
        },
        size: model.size,
        random: permille(model.random),
        doubts: Doubts::default(),
    }
}

/// Datastores that only other hosts have, and of which they know the space; one that several of
/// them have is there once. O(n log n) for n disks.
pub(super) fn elsewhere(view: &View, own: HostKey, now: Nanos) -> Vec<Elsewhere> {
    let is_own = |host: &HostView<'_>| host.host == own;
    let storages = |host: HostView<'_>| -> Vec<String> {
        host.datastores().filter_map(|(store, _)| store.storage.clone()).collect()
    };
    let ours: Vec<String> = view.hosts(now).filter(is_own).flat_map(storages).collect();
    let labels = view.labels();
    let mut all: Vec<Elsewhere> = Vec::new();
    for host in view.hosts(now).filter(|host| !is_own(host) && counts(host)) {
        let Some(label) = labels.get(&host.host) else { continue };
        for (store, _) in host.datastores() {
            if store.storage.as_ref().is_some_and(|storage| ours.contains(storage)) {
                continue;
            }
            let on_it = host.disks().filter(|(disk, _)| disk.datastore == store.name);
            let disks: Vec<ForeignDisk> =
                on_it.map(|(disk, _)| foreign_disk(label, disk)).collect();
            let known =
                all.iter_mut().find(|one| one.storage.is_some() && one.storage == store.storage);
            match (known, store.space) {
                (Some(known), _) => known.disks.extend(disks),
                (None, Some(space)) => all.push(Elsewhere {
                    name: format!("{label}/{}", store.name),
                    storage: store.storage.clone(),
                    size: space.size,
                    free: Bytes(space.free.0.min(space.size.0)),
                    reservable: store.capacity.map(|rate| rate.0),
                    model: store.model.as_ref().map(model),
                    disks,
                }),
                (None, None) => {}
            }
        }
    }
    all
}
