//! Hosts, virtual machines, disks and their policies.

use super::super::read::Fault;
use super::super::values::{At, MaybeBandwidth, MaybeIops, Names, Weight};
use super::super::{ChooserFile, DiskFile, ElevatorFile, RouteFile, ScenarioFile, ScopeFile, VmFile};
use super::names::{find, find_or_only, in_range, plain_name, unique, whole_percent};
use super::storage::{depth, kind};
use super::workloads::{check_time_passes, workload};
use crate::scenario::{
    Action, Chooser, Datastore, Disk, Elevator, ElevatorKind, Event, Host, Membership, Pool, Route, Vm,
    Workload,
};
use headgate_placement::{Company, Mobility, Name};
use headgate_qos::{Burst, Policy, PriorityPolicy, PriorityScope};
use headgate_units::{Bytes, Nanos};
use std::collections::BTreeSet;
use std::ops::Range;

/// The largest count.
const MOST_ALIKE: u32 = 50_000;

/// `NAME`, or `NAME-1` to `NAME-n`.
fn numbered(name: &At<String>, count: Option<&At<u32>>) -> Result<Vec<String>, Fault> {
    match count {
        None => Ok(vec![name.value.clone()]),
        Some(count) => {
            let many = in_range(count, "a count", MOST_ALIKE)?;
            Ok((1..=many).map(|number| format!("{}-{number}", name.value)).collect())
        }
    }
}

pub(super) fn hosts(file: &ScenarioFile, names: &mut BTreeSet<String>) -> Result<Vec<Host>, Fault> {
    if file.host.is_empty() {
        return Ok(vec![Host {
            name: "host".to_owned(),
            network: Nanos::ZERO,
            scheduler: None,
            queue_depth: None,
            latency_percent: 100,
        }]);
    }
    let mut hosts = Vec::new();
    for host in &file.host {
        plain_name(&host.value.name, "a host")?;
        let queue_depth = host.value.queue_depth.as_ref().map(|key| depth(Some(key))).transpose()?;
        let latency_percent = match &host.value.latency_seen {
            Some(seen) => u32::from(whole_percent(seen, 1, 250)?),
            None => 100,
        };
        for name in numbered(&host.value.name, host.value.count.as_ref())? {
            unique(names, &name, &host.value.name.span)?;
            hosts.push(Host {
                name,
                network: host.value.network.map_or(Nanos::ZERO, |time| time.0),
                scheduler: host.value.scheduler.map(kind),
                queue_depth,
                latency_percent,
            });
        }
    }
    Ok(hosts)
}

pub(super) fn add_vms(
    file: &At<VmFile>,
    scenario: &ScenarioFile,
    datastores: &[Datastore],
    hosts: &[Host],
    names: &mut BTreeSet<String>,
    vms: &mut Vec<Vm>,
    timeline: &mut Vec<Event>,
) -> Result<(), Fault> {
    let vm = &file.value;
    plain_name(&vm.name, "a VM")?;
    if vm.disk.is_empty() {
        return Err(Fault::new(&vm.name.span, "the VM has no disk; add disk = [{}] or a [[vm.disk]]"));
    }
    for (turn, name) in numbered(&vm.name, vm.count.as_ref())?.into_iter().enumerate() {
        unique(names, &name, &vm.name.span)?;
        let host =
            in_turn(vm.host.as_ref(), turn, &vm.name.span, "host", hosts.iter().map(|h| h.name.as_str()))?;
        let mut disks: Vec<Disk> = Vec::new();
        let mut disk_names = BTreeSet::new();
        for disk_file in &vm.disk {
            let disk = disk(disk_file, turn, scenario, datastores)?;
            let span = disk_file.value.name.as_ref().map_or(&disk_file.span, |name| &name.span);
            unique(&mut disk_names, &disk.name, span)?;
            disks.push(disk);
        }
        let mut workloads: Vec<Workload> = Vec::new();
        let mut workload_names = BTreeSet::new();
        for workload_file in &vm.workload {
            let workload = workload(workload_file, &disks, &vm.disk, &scenario.types)?;
            check_time_passes(workload_file, &workload, &disks, &hosts[host], datastores)?;
            let span = workload_file.value.name.as_ref().map_or(&workload_file.span, |name| &name.span);
            unique(&mut workload_names, &workload.name, span)?;
            workloads.push(workload);
        }
        let start = vm.start.as_ref().map_or(Some(Nanos::ZERO), |start| start.value.0);
        if let Some(stop) = &vm.stop {
            if start.is_some_and(|start| stop.value.0 <= start) {
                return Err(Fault::new(
                    &stop.span,
                    "the VM stops before it starts; set the one later or the other earlier",
                ));
            }
            timeline.push(Event { at: stop.value.0, action: Action::Stop { vm: vms.len() } });
        }
        if disks.len() > 1
            && workloads.len() > 1
            && let Some(workload) = workload_names.intersection(&disk_names).next()
        {
            let message = format!(
                "a disk and a workload are both called '{workload}', so '{name}/{workload}' says neither; rename one"
            );
            return Err(Fault::new(&vm.name.span, message));
        }
        vms.push(Vm { name, host, disks, workloads, start, priorities: priorities(vm) });
    }
    Ok(())
}

fn priorities(vm: &VmFile) -> PriorityPolicy {
    let usual = PriorityPolicy::default();
    PriorityPolicy {
        max: vm.max_priority.as_ref().map_or(usual.max, |priority| priority.value.0),
        default: vm.default_priority.as_ref().map_or(usual.default, |priority| priority.value.0),
        scope: match vm.priority_scope {
            Some(ScopeFile::Across) => PriorityScope::AcrossVms,
            Some(ScopeFile::Within) | None => PriorityScope::WithinVm,
        },
    }
}

/// The one that is named, or the next of several, or the only one there is.
fn in_turn<'a>(
    key: Option<&At<Names>>,
    turn: usize,
    place: &Range<usize>,
    what: &str,
    known: impl Iterator<Item = &'a str> + Clone,
) -> Result<usize, Fault> {
    let Some(names) = key else { return find_or_only(None, place, what, known) };
    // All are looked up, so that a wrong name is found even where it is not used.
    let found: Result<Vec<usize>, Fault> = names
        .value
        .0
        .iter()
        .map(|name| match name.as_str() {
            "*" => Ok(usize::MAX),
            name => find(name, &names.span, what, known.clone()),
        })
        .collect();
    let found = found?;
    if found.contains(&usize::MAX) {
        return Ok(turn % known.count());
    }
    Ok(found[turn % found.len()])
}

fn disk(
    file: &At<DiskFile>,
    turn: usize,
    scenario: &ScenarioFile,
    datastores: &[Datastore],
) -> Result<Disk, Fault> {
    let disk = &file.value;
    if let Some(name) = &disk.name {
        plain_name(name, "a disk")?;
    }
    let names = datastores.iter().map(|store| store.name.as_str());
    let datastore = match (&disk.place, &scenario.pool, &disk.datastore) {
        (Some(place), None, _) => {
            return Err(Fault::new(&place.span, "there is no pool to place it in; add a [pool]"));
        }
        (Some(place), Some(_), Some(_)) => {
            return Err(Fault::new(&place.span, "'place' and 'datastore' exclude each other; keep one"));
        }
        // Until its VM starts it is nowhere; where it will be is one of these.
        (Some(_), Some(pool), None) => match &pool.value.datastores {
            Some(some) => in_turn(Some(some), 0, &file.span, "datastore", names)?,
            None => 0,
        },
        (None, ..) => in_turn(disk.datastore.as_ref(), turn, &file.span, "datastore", names)?,
    };
    let store = &datastores[datastore];
    let size = match &disk.size {
        Some(size) if !(4_096..=1 << 60).contains(&size.value.0.0) => {
            return Err(Fault::new(&size.span, "a disk is 4K to 1024P in size; write such a size"));
        }
        Some(size) => size.value.0,
        None => Bytes::from_gib(10),
    };
    let nodes: Vec<usize> = match &disk.nodes {
        Some(names) => {
            let known = store.nodes.iter().map(|node| node.name.as_str());
            let found: Result<Vec<usize>, Fault> =
                names.value.0.iter().map(|name| find(name, &names.span, "node", known.clone())).collect();
            found?
        }
        None => (0..store.nodes.len()).collect(),
    };
    let route = match (&disk.route, &disk.weights) {
        (Some(route), Some(weights)) if route.value == RouteFile::Weighted => {
            if weights.value.len() != nodes.len() || weights.value.iter().all(|&weight| weight == 0) {
                let message = format!(
                    "there are {} weights for {} nodes; write one for each, not all of them 0",
                    weights.value.len(),
                    nodes.len()
                );
                return Err(Fault::new(&weights.span, message));
            }
            Route::Weighted(weights.value.clone())
        }
        (Some(route), None) if route.value == RouteFile::Weighted => {
            return Err(Fault::new(&route.span, "a weighted route needs weights; add weights = [3, 1]"));
        }
        (_, Some(weights)) => {
            return Err(Fault::new(
                &weights.span,
                "weights mean nothing on this route; set route = 'weighted'",
            ));
        }
        (Some(route), None) if route.value == RouteFile::RoundRobin => Route::RoundRobin,
        (Some(route), None) if route.value == RouteFile::Striped => Route::Striped,
        (_, None) => Route::Uniform,
    };
    let changes = PolicyKeys {
        reservation: disk.reservation.as_ref(),
        limit: disk.limit.as_ref(),
        limit_bandwidth: disk.limit_bandwidth.as_ref(),
        shares: disk.shares.as_ref(),
        burst: disk.burst.as_ref(),
    };
    let name = disk.name.as_ref().map_or("disk".to_owned(), |name| name.value.clone());
    let (policy, elevator) = (changes.apply(Policy::default())?, elevator(disk)?);
    let place = disk.place.as_ref().map(|place| match place.value {
        ChooserFile::Load => Chooser::Load,
        ChooserFile::Random => Chooser::Random,
        ChooserFile::Count => Chooser::Count,
        ChooserFile::Space => Chooser::Space,
    });
    let membership = membership(disk, size)?;
    Ok(Disk { name, datastore, policy, size, nodes, route, elevator, place, membership })
}

fn membership(disk: &DiskFile, size: Bytes) -> Result<Membership, Fault> {
    let used = match &disk.used {
        Some(used) if used.value.0 > 100.0 => {
            return Err(Fault::new(&used.span, "a disk is 100% allocated at most; write such a percentage"));
        }
        Some(used) => Bytes((size.0 as f64 * used.value.0 / 100.0) as u64),
        None => size,
    };
    let is = |key: &Option<At<bool>>, usual| key.as_ref().map_or(usual, |key| key.value);
    Ok(Membership {
        listed: is(&disk.listed, true),
        used,
        mobility: if is(&disk.pinned, false) { Mobility::Pinned } else { Mobility::Free },
        company: if is(&disk.with_vm, false) { Company::WithVm } else { Company::Alone },
        class: disk.class.as_ref().map(|class| Name::from(class.value.as_str())),
    })
}

/// Keys of disks that only a pool knows, and disks that are placed in one.
pub(super) fn check_members(file: &ScenarioFile, pool: Option<&Pool>, vms: &[Vm]) -> Result<(), Fault> {
    for disk in file.vm.iter().flat_map(|vm| &vm.value.disk) {
        let DiskFile { listed, used, pinned, with_vm, class, .. } = &disk.value;
        let flags = [listed, pinned, with_vm].into_iter().flatten().map(|key| &key.span);
        let keys = flags.chain(used.as_ref().map(|key| &key.span)).chain(class.as_ref().map(|key| &key.span));
        if let (None, Some(span)) = (pool, keys.into_iter().next()) {
            return Err(Fault::new(span, "this is what a pool goes by, and there is none; add a [pool]"));
        }
        if let (Some(place), Some(listed)) = (&disk.value.place, listed)
            && !listed.value
        {
            return Err(Fault::new(
                &place.span,
                "a disk that is none of the pool's is not placed by it; name its datastore",
            ));
        }
    }
    let Some(pool) = pool else { return Ok(()) };
    for vm in vms {
        let inside = vm.disks.iter().filter(|disk| pool.datastores.contains(&disk.datastore));
        if inside.clone().any(|disk| !matches!(disk.route, Route::Uniform)) {
            let message =
                format!("a disk of '{}' has a route, which a pool has no use for; remove it", vm.name);
            return Err(Fault::new(&file.name.span, message));
        }
    }
    Ok(())
}

fn elevator(disk: &DiskFile) -> Result<Option<Elevator>, Fault> {
    let Some(kind) = disk.elevator else {
        let meaningless =
            |depth| Err(Fault::new(depth, "elevator-depth means nothing without one; add elevator = 'noop'"));
        return disk.elevator_depth.as_ref().map_or(Ok(None), |depth| meaningless(&depth.span));
    };
    let kind = match kind {
        ElevatorFile::Noop => ElevatorKind::Noop,
        ElevatorFile::Deadline => ElevatorKind::Deadline,
        ElevatorFile::Anticipatory => ElevatorKind::Anticipatory,
        ElevatorFile::Cfq => ElevatorKind::Cfq,
    };
    let depth = disk.elevator_depth.as_ref();
    let depth = depth.map_or(Ok(128), |depth| in_range(depth, "the depth of an elevator's disk", 1_024))?;
    Ok(Some(Elevator { kind, depth }))
}

/// The keys of a policy, wherever they stand.
pub(super) struct PolicyKeys<'a> {
    pub(super) reservation: Option<&'a At<MaybeIops>>,
    pub(super) limit: Option<&'a At<MaybeIops>>,
    pub(super) limit_bandwidth: Option<&'a At<MaybeBandwidth>>,
    pub(super) shares: Option<&'a At<Weight>>,
    pub(super) burst: Option<&'a At<u64>>,
}

impl PolicyKeys<'_> {
    pub(super) fn apply(&self, old: Policy) -> Result<Policy, Fault> {
        let reservation = self.reservation.map_or(old.reservation(), |key| key.value.0);
        let limit = self.limit.map_or(old.limit(), |key| key.value.0);
        let bandwidth = self.limit_bandwidth.map_or(old.limit_bandwidth(), |key| key.value.0);
        let shares = self.shares.map_or(old.shares(), |key| key.value.0);
        let burst = match self.burst {
            Some(key) => Burst::new(key.value)
                .map_err(|error| Fault::new(&key.span, format!("{error}; write a number in that range")))?,
            None => old.burst(),
        };
        let span = self.reservation.map(|key| &key.span).or(self.limit.map(|key| &key.span));
        Policy::new(reservation, limit, bandwidth, shares, burst)
            .map_err(|error| Fault::new(span.unwrap_or(&(0..0)), error))
    }
}
