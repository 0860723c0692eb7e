//! Hosts, virtual machines and disks.

use super::names::{plain_name, unique};
use super::policy::with_policy;
use super::workload::WorkloadFile;
use crate::scenario::{Chooser, Host, IoSchedulerKind, Membership, Route};
use crate::values::{
    Allocated, At, Count, DiskSize, Fault, IoSchedulerDepth, Names, QueueDepth, Rank, Start, Time,
    WholePercent,
};
use headgate_placement::{Affinity, Mobility, Name};
use headgate_qos::{PriorityPolicy, PriorityScope, SchedulerKind};
use headgate_units::{Bytes, Nanos};
use serde::Deserialize;
use std::collections::BTreeSet;

/// A host.
#[derive(Clone, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct HostFile {
    /// The name. With a count, names are NAME-1, NAME-2 and so on.
    name: At<String>,
    /// The number of hosts like this one.
    count: Option<Count>,
    /// The time of a message between it and any storage, one way, besides the datastore's; none by
    /// default.
    network: Option<Time>,
    /// Its schedulers; those of the datastores by default.
    scheduler: Option<super::storage::Scheduler>,
    /// The requests that it may have outstanding at each datastore, 1 to 65536. A host with this
    /// key controls no window and reports nothing to others. What the datastores say by default.
    queue_depth: Option<QueueDepth>,
    /// The latency that it measures to control its windows, relative to the real one: '115%' is 15
    /// per cent too much. 100% by default.
    latency_seen: Option<WholePercent<1, 250>>,
}

/// A virtual machine.
#[derive(Clone, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct VmFile {
    /// The name. With a count, names are NAME-1, NAME-2 and so on.
    pub(super) name: At<String>,
    /// The number of VMs like this one.
    pub(super) count: Option<Count>,
    /// Its host, where there are several; with a count, several hosts are used in turn.
    pub(super) host: Option<At<Names>>,
    /// When its workloads start, or 'never' if only an event starts them; 0s by default.
    pub(super) start: Option<Start>,
    /// When its workloads stop; at the end by default.
    pub(super) stop: Option<At<Time>>,
    /// The highest priority that its workloads can have, 1 to 254; 254 by default.
    pub(super) max_priority: Option<Rank>,
    /// The priority of requests that have none; 100 by default.
    pub(super) default_priority: Option<Rank>,
    /// Whether its workloads compete among themselves or with those of other VMs; within by
    /// default.
    pub(super) priority_scope: Option<ScopeFile>,
    /// Its disks.
    #[serde(default)]
    pub(super) disk: Vec<At<DiskFile>>,
    /// Its workloads.
    #[serde(default)]
    pub(super) workload: Vec<At<WorkloadFile>>,
}

/// The rivals with which the workloads of a VM compete by priority.
#[derive(Clone, Copy, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub(super) enum ScopeFile {
    /// Each other: they divide what their disk gets.
    Within,
    /// The workloads of all VMs with this scope, in place of their disks' shares.
    Across,
}

with_policy! {
    /// A virtual disk.
    #[derive(Clone, Deserialize)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[serde(deny_unknown_fields, rename_all = "kebab-case")]
    pub(super) struct DiskFile {
        /// The name within the VM; 'disk' by default.
        pub(super) name: Option<At<String>>,
        /// Its datastore, where there are several; with the VM's count, several datastores are used
        /// in turn.
        pub(super) datastore: Option<At<Names>>,
        /// The size; 10G by default.
        pub(super) size: Option<DiskSize>,
        /// The nodes that it uses; all of its datastore's by default.
        pub(super) nodes: Option<At<Names>>,
        /// Which node serves a request; uniform by default.
        pub(super) route: Option<At<RouteFile>>,
        /// route = 'weighted': how often each of its nodes is used, relative to the others.
        pub(super) weights: Option<At<Vec<u32>>>,
        /// The guest's IO scheduler before it; requests reach it as they come by default.
        pub(super) elevator: Option<IoSchedulerKind>,
        /// With an IO scheduler: requests that the virtual disk takes at once, 1 to 1024; 128 by
        /// default.
        pub(super) elevator_depth: Option<IoSchedulerDepth>,
        /// The rule that chooses among the pool's datastores when the VM starts, in place of
        /// 'datastore'.
        pub(super) place: Option<At<Chooser>>,
        /// In a pool: whether the pool manages it; if not, it loads its datastore from outside of
        /// the pool. True by default.
        pub(super) listed: Option<bool>,
        /// In a pool: the allocated part; 100% by default.
        pub(super) used: Option<Allocated>,
        /// In a pool: whether it must stay where it is; false by default.
        pub(super) pinned: Option<bool>,
        /// In a pool: whether it stays together with the VM's other disks that have this key; false
        /// by default.
        pub(super) with_vm: Option<bool>,
        /// In a pool: the class of datastore that it needs; any by default.
        pub(super) class: Option<String>,
    }
}

/// Which of several nodes serves a request.
#[derive(Clone, Copy, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub(super) enum RouteFile {
    /// Any node, with equal chances.
    Uniform,
    /// Each node in turn.
    RoundRobin,
    /// The node of the request's address.
    Striped,
    /// Any node, with chances in proportion to 'weights'.
    Weighted,
}

/// `NAME`, or `NAME-1` to `NAME-n`.
pub(super) fn numbered(name: &str, count: Option<Count>) -> Vec<String> {
    match count {
        None => vec![name.to_owned()],
        Some(count) => (1..=count.0).map(|number| format!("{name}-{number}")).collect(),
    }
}

pub(super) fn hosts(files: &[HostFile], names: &mut BTreeSet<String>) -> Result<Vec<Host>, Fault> {
    let mut hosts = Vec::new();
    for file in files {
        plain_name(&file.name, "a host")?;
        for name in numbered(&file.name, file.count) {
            unique(names, &name, &file.name.span)?;
            hosts.push(Host {
                name,
                network: file.network.map_or(Nanos::ZERO, |time| time.0),
                scheduler: file.scheduler.map(SchedulerKind::from),
                queue_depth: file.queue_depth.map(|depth| depth.0),
                latency_percent: file.latency_seen.map_or(100, |seen| u32::from(seen.0)),
            });
        }
    }
    if hosts.is_empty() {
        hosts.push(Host {
            name: "host".to_owned(),
            network: Nanos::ZERO,
            scheduler: None,
            queue_depth: None,
            latency_percent: 100,
        });
    }
    Ok(hosts)
}

impl VmFile {
    pub(super) fn priorities(&self) -> PriorityPolicy {
        let usual = PriorityPolicy::default();
        PriorityPolicy {
            max: self.max_priority.map_or(usual.max, |priority| priority.0),
            default: self.default_priority.map_or(usual.default, |priority| priority.0),
            scope: match self.priority_scope {
                Some(ScopeFile::Across) => PriorityScope::AcrossVms,
                Some(ScopeFile::Within) | None => PriorityScope::WithinVm,
            },
        }
    }
}

impl DiskFile {
    pub(super) fn route(&self, nodes: usize) -> Result<Route, Fault> {
        let Some(route) = &self.route else { return Ok(Route::Uniform) };
        Ok(match route.value {
            RouteFile::Uniform => Route::Uniform,
            RouteFile::RoundRobin => Route::RoundRobin,
            RouteFile::Striped => Route::Striped,
            RouteFile::Weighted => {
                let weights = self.weights.as_ref().ok_or_else(|| {
                    route.fault("a weighted route needs weights; add weights = [3, 1]")
                })?;
                let many = weights.len();
                weights.check(
                    many == nodes && weights.iter().any(|&weight| weight > 0),
                    format!("there are {many} weights for {nodes} nodes; write one for each, not all of them 0"),
                )?;
                Route::Weighted(weights.value.clone())
            }
        })
    }

    pub(super) fn membership(&self, size: Bytes) -> Membership {
        let part = |percent: f64| Bytes((size.0 as f64 * percent / 100.0) as u64);
        let (pinned, with_vm) = (self.pinned == Some(true), self.with_vm == Some(true));
        Membership {
            listed: self.listed != Some(false),
            used: self.used.map_or(size, |used| part(used.0)),
            mobility: if pinned { Mobility::Pinned } else { Mobility::Free },
            affinity: if with_vm { Affinity::Vm } else { Affinity::None },
            class: self.class.as_deref().map(Name::from),
        }
    }
}
