//! Hosts, virtual machines, disks and their policies.

use super::names::{plain_name, unique};
use super::workload::WorkloadFile;
use crate::scenario::{Chooser, Host, IoSchedulerKind, Membership, Route};
use crate::values::{
    Allocated, At, Count, DiskSize, Fault, IoSchedulerDepth, MaybeBandwidth, MaybeIops, Names,
    QueueDepth, Rank, Start, Time, Weight, WholePercent,
};
use headgate_placement::{Affinity, Mobility, Name};
use headgate_qos::{
    Burst, LimitMode, PeakTime, Policy, PriorityPolicy, PriorityScope, SchedulerKind,
};
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

/// A virtual disk.
#[derive(Clone, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct DiskFile {
    /// The name within the VM; 'disk' by default.
    pub(super) name: Option<At<String>>,
    /// Its datastore, where there are several; with the VM's count, several datastores are used in
    /// turn.
    pub(super) datastore: Option<At<Names>>,
    /// The size; 10G by default.
    pub(super) size: Option<DiskSize>,
    /// The minimum in normalised IOs per second, or 'none'.
    pub(super) reservation: Option<At<MaybeIops>>,
    /// The maximum in normalised IOs per second, or 'none'.
    pub(super) limit: Option<At<MaybeIops>>,
    /// The maximum in bytes per second, such as '50M', or 'none'.
    pub(super) limit_bandwidth: Option<MaybeBandwidth>,
    /// When the limits bind; strict by default.
    pub(super) limit_mode: Option<LimitModeFile>,
    /// The rate up to which the disk may pass its limit for a time, or 'none'.
    pub(super) limit_peak: Option<At<MaybeIops>>,
    /// The same in bytes per second, such as '50M', or 'none'.
    pub(super) limit_peak_bandwidth: Option<MaybeBandwidth>,
    /// For how many seconds, 1 to 3600; 1 by default.
    pub(super) limit_peak_time: Option<At<u64>>,
    /// The weight, 1 to 1000000; 1000 by default.
    pub(super) shares: Option<Weight>,
    /// The IOs that it may send ahead of its share after idle time, 0 to 256; 1 by default.
    pub(super) burst: Option<At<u64>>,
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
    /// In a pool: whether the pool manages it; if not, it loads its datastore from outside of the
    /// pool. True by default.
    pub(super) listed: Option<bool>,
    /// In a pool: the allocated part; 100% by default.
    pub(super) used: Option<Allocated>,
    /// In a pool: whether it must stay where it is; false by default.
    pub(super) pinned: Option<bool>,
    /// In a pool: whether it stays together with the VM's other disks that have this key; false by
    /// default.
    pub(super) with_vm: Option<bool>,
    /// In a pool: the class of datastore that it needs; any by default.
    pub(super) class: Option<String>,
}

/// When the limits of a disk bind.
#[derive(Clone, Copy, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub(super) enum LimitModeFile {
    /// Always.
    Strict,
    /// Only while another disk of the datastore has a request queued that no limit holds back.
    Soft,
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

/// The keys of a policy, wherever they stand.
pub(super) struct PolicyKeys<'a> {
    pub(super) reservation: Option<&'a At<MaybeIops>>,
    pub(super) limit: Option<&'a At<MaybeIops>>,
    pub(super) limit_bandwidth: Option<MaybeBandwidth>,
    pub(super) limit_mode: Option<LimitModeFile>,
    pub(super) limit_peak: Option<&'a At<MaybeIops>>,
    pub(super) limit_peak_bandwidth: Option<MaybeBandwidth>,
    pub(super) limit_peak_time: Option<&'a At<u64>>,
    pub(super) shares: Option<Weight>,
    pub(super) burst: Option<&'a At<u64>>,
}

/// Takes them from a table that has them.
macro_rules! policy_keys {
    ($table:expr) => {
        $crate::file::vm::PolicyKeys {
            reservation: $table.reservation.as_ref(),
            limit: $table.limit.as_ref(),
            limit_bandwidth: $table.limit_bandwidth,
            limit_mode: $table.limit_mode,
            limit_peak: $table.limit_peak.as_ref(),
            limit_peak_bandwidth: $table.limit_peak_bandwidth,
            limit_peak_time: $table.limit_peak_time.as_ref(),
            shares: $table.shares,
            burst: $table.burst.as_ref(),
        }
    };
}
pub(super) use policy_keys;

impl PolicyKeys<'_> {
    /// The old policy with these keys in place of its own.
    pub(super) fn apply(&self, old: Policy) -> Result<Policy, Fault> {
        let reservation = self.reservation.map_or(old.reservation(), |key| key.0);
        let limit = self.limit.map_or(old.limit(), |key| key.0);
        let bandwidth = self.limit_bandwidth.map_or(old.limit_bandwidth(), |key| key.0);
        let mode = match self.limit_mode {
            Some(LimitModeFile::Strict) => LimitMode::Strict,
            Some(LimitModeFile::Soft) => LimitMode::Soft,
            None => old.limit_mode(),
        };
        let shares = self.shares.map_or(old.shares(), |key| key.0);
        let burst = match self.burst {
            Some(key) => Burst::new(key.value)
                .map_err(|error| key.fault(format!("{error}; write a number in that range")))?,
            None => old.burst(),
        };
        let peak = self.limit_peak.map_or(old.peak(), |key| key.0);
        let peak_bandwidth = self.limit_peak_bandwidth.map_or(old.peak_bandwidth(), |key| key.0);
        let time = match self.limit_peak_time {
            Some(key) => PeakTime::from_secs(key.value)
                .map_err(|error| key.fault(format!("{error}; write a number in that range")))?,
            None => old.peak_time(),
        };
        let spans = [self.reservation, self.limit_peak, self.limit];
        let span = spans.into_iter().flatten().map(|key| &key.span).next();
        Policy::new(reservation, limit, bandwidth, shares, burst)
            .map(|policy| policy.with_limit_mode(mode))
            .and_then(|policy| policy.with_peaks(peak, peak_bandwidth, time))
            .map_err(|error| Fault::new(span.unwrap_or(&(0..0)), error))
    }
}
