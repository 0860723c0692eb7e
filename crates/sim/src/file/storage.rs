//! Datastores, their nodes and schedulers.

use super::names::{plain_name, some_time, unique};
use super::window::IssueWindowFile;
use crate::scenario::{Coordination, Datastore, Front, Node, Noise};
use crate::values::{
    At, Capacity, Charge, Device, Fault, Narrowed, QueueDepth, Rate, Size, Stripe, Time,
    WholePercent,
};
use headgate_devices::{DEFAULT_CAPACITY, ModelSpec, SizeCost};
use headgate_placement::Name;
use headgate_qos::{Batch, Config, CostModel, Floor, SchedulerKind};
use headgate_units::{Bytes, Nanos};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::ops::Range;

/// Storage, and how hosts use it.
#[derive(Clone, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct DatastoreFile {
    /// The name: letters, digits, - and _.
    pub(super) name: At<String>,
    /// The device of a datastore without nodes of its own.
    device: Option<Device>,
    /// The bytes that an array spreads over its platters, at each node. Disks are placed one after
    /// the other; one that does not fit begins at the beginning. 4T by default.
    capacity: Option<At<Capacity>>,
    /// The scheduler of each host for it; mclock by default.
    scheduler: Option<Scheduler>,
    /// The requests that each host may have outstanding at it, 1 to 65536; 32 by default.
    queue_depth: Option<QueueDepth>,
    /// Controls hosts' windows by latency and shares instead of a fixed depth; windows are then
    /// recorded.
    issue_window: Option<IssueWindowFile>,
    /// How the size of a request is charged; affine=300K by default, unit where size costs the
    /// device nothing.
    cost_model: Option<At<Charge>>,
    /// The number of nearby requests of one disk that are sent back to back, 2 to 8; no batches by
    /// default.
    batch: Option<At<u8>>,
    /// The distance within which requests of a batch lie; 4M by default.
    batch_span: Option<Size>,
    /// In shortage, one IO by shares for so many by reservation, 1 to 10000; 0 for none. 100 by
    /// default.
    floor: Option<At<u16>>,
    /// The service that late reservations may claim back in any case, as time; 250ms by default.
    debt_bound: Option<At<Time>>,
    /// Over how much busy time storage that stands still now and then is to give what is reserved;
    /// 5s by default.
    debt_horizon: Option<At<Time>>,
    /// The IOs of service beyond its share that a disk is remembered for, 2 to 1024; 16 by default.
    lead: Option<At<u16>>,
    /// How late a disk may send its next request without losing its place among reservations; 2ms
    /// by default.
    anticipation: Option<At<Time>>,
    /// The lateness of dispatch that a limit may make good for; 20ms by default.
    limit_slack: Option<At<Time>>,
    /// How long a request may wait for a stream of higher priority, up to 1ms; no time by default.
    plug: Option<At<Time>>,
    /// When the window is narrowed: for `reservations` of disks with few requests outstanding, or
    /// `never`; for reservations by default.
    narrow_window: Option<At<Narrowed>>,
    /// The time of a message between hosts and it, one way; none by default.
    network: Option<Time>,
    /// What the schedulers of several nodes know of each other's service to a disk; dmclock by
    /// default.
    coordination: Option<Coordination>,
    /// The size of a stripe, for disks that are striped over nodes; 1M by default.
    stripe: Option<Stripe>,
    /// The devices' rate by the number of running VMs: the first for one VM. The last holds for
    /// more.
    rate_by_vms: Option<At<Vec<Rate>>>,
    /// Random variation of the devices' rate.
    noise: Option<At<NoiseFile>>,
    /// In a pool: the kind of storage.
    class: Option<String>,
    /// In a pool: the device under it, for datastores that share one.
    spindles: Option<String>,
    /// Storage nodes; one with the datastore's device by default.
    #[serde(default)]
    node: Vec<NodeFile>,
}

/// Random variation of a device's rate.
#[derive(Clone, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct NoiseFile {
    /// The rate varies uniformly by up to this percentage, up and down: whole, '1%' to '90%'.
    within: WholePercent<1, 90>,
    /// The time between two draws of the rate.
    every: At<Time>,
}

/// A storage node.
#[derive(Clone, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct NodeFile {
    /// The name within the datastore.
    name: At<String>,
    /// The device; that of the datastore by default.
    device: Option<Device>,
    /// A scheduler of its own, over the requests of all hosts; none by default.
    scheduler: Option<Scheduler>,
    /// With a scheduler of its own: the requests in its device at once, 1 to 65536; 32 by default.
    queue_depth: Option<QueueDepth>,
}

/// Which request goes next.
#[derive(Clone, Copy, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub(super) enum Scheduler {
    /// By reservation, limit and shares.
    Mclock,
    /// By shares.
    Sfq,
    /// By arrival.
    Fifo,
}

impl From<Scheduler> for SchedulerKind {
    fn from(file: Scheduler) -> SchedulerKind {
        match file {
            Scheduler::Mclock => SchedulerKind::MClock,
            Scheduler::Sfq => SchedulerKind::Sfq,
            Scheduler::Fifo => SchedulerKind::Fifo,
        }
    }
}

fn depth(key: Option<QueueDepth>) -> u32 {
    key.map_or(32, |depth| depth.0)
}

impl DatastoreFile {
    pub(super) fn datastore(&self) -> Result<Datastore, Fault> {
        let nodes = self.nodes()?;
        let rate_by_vms = match &self.rate_by_vms {
            Some(rates) => {
                check_rated(&nodes, &rates.span, "rate-by-vms")?;
                rates.iter().map(|rate| rate.0).collect()
            }
            None => Vec::new(),
        };
        let noise = match &self.noise {
            Some(noise) => {
                check_rated(&nodes, &noise.span, "noise")?;
                let every = some_time(&noise.every, "the time between changes")?;
                Some(Noise { percent: noise.within.0, every })
            }
            None => None,
        };
        Ok(Datastore {
            name: self.name.value.clone(),
            capacity: self.capacity(&nodes)?,
            scheduler: self.scheduler.map_or(SchedulerKind::MClock, SchedulerKind::from),
            config: self.config(default_cost_model(&nodes))?,
            queue_depth: depth(self.queue_depth),
            issue_window: self.issue_window.as_ref().map(IssueWindowFile::window).transpose()?,
            nodes,
            stripe: self.stripe.map_or(Bytes::from_mib(1), |stripe| stripe.0),
            coordination: self.coordination.unwrap_or(Coordination::Dmclock),
            network: self.network.map_or(Nanos::ZERO, |time| time.0),
            rate_by_vms,
            noise,
            class: self.class.as_deref().map(Name::from),
            spindles: self.spindles.as_deref().map(Name::from),
        })
    }

    fn nodes(&self) -> Result<Vec<Node>, Fault> {
        let mut nodes = Vec::new();
        let mut names = BTreeSet::new();
        for node in &self.node {
            plain_name(&node.name, "a node")?;
            unique(&mut names, &node.name, &node.name.span)?;
            let device = node.device.as_ref().or(self.device.as_ref()).ok_or_else(|| {
                node.name.fault(
                    "the node has no device, nor has its datastore; add device = 'rate=1600'",
                )
            })?;
            let front = node.scheduler.map(|scheduler| Front {
                scheduler: scheduler.into(),
                queue_depth: depth(node.queue_depth),
            });
            nodes.push(Node { name: node.name.value.clone(), device: device.0.clone(), front });
        }
        if nodes.is_empty() {
            let device = self.device.as_ref().ok_or_else(|| {
                self.name.fault("the datastore has no device; add device = 'rate=1600,latency=5ms'")
            })?;
            nodes.push(Node { name: "node".to_owned(), device: device.0.clone(), front: None });
        }
        Ok(nodes)
    }

    fn capacity(&self, nodes: &[Node]) -> Result<Bytes, Fault> {
        match (&self.capacity, nodes.iter().filter_map(|node| node.device.capacity()).min()) {
            (Some(given), Some(own)) => Err(given.fault(format!(
                "the device says itself that it has {own}; remove capacity, or change the device"
            ))),
            (Some(given), None) => Ok(given.0),
            (None, own) => Ok(own.unwrap_or(DEFAULT_CAPACITY)),
        }
    }

    /// Each key is checked by itself, so that an error points at it.
    fn config(&self, cost_model: CostModel) -> Result<Config, Fault> {
        let mut config = Config::for_hosts(cost_model);
        macro_rules! set {
            ($($key:ident: $set:expr;)+) => {
                $(if let Some(key) = &self.$key {
                    let set: fn(&mut Config, _) = $set;
                    set(&mut config, key.value);
                    config.validate().map_err(|e| key.fault(format!("{e}; write such a value")))?;
                })+
            };
        }
        set! {
            cost_model: |config, charge: Charge| config.cost_model = charge.0;
            batch: |config, requests| config.batch = Some(Batch { requests, ..Batch::default() });
            floor: |config, floor| {
                config.floor = if floor == 0 { Floor::Nothing } else { Floor::OneIn(floor) };
            };
            debt_bound: |config, bound: Time| {
                config.debt_bound = bound.0;
                config.anticipation = config.anticipation.min(Nanos(bound.0.0 / 2));
            };
            debt_horizon: |config, horizon: Time| config.debt_horizon = horizon.0;
            lead: |config, lead| config.lead = lead;
            anticipation: |config, time: Time| config.anticipation = time.0;
            limit_slack: |config, time: Time| config.limit_slack = time.0;
            plug: |config, time: Time| config.plug = time.0;
            narrow_window: |config, narrow: Narrowed| config.narrow = narrow.0;
        }
        if let (Some(batch), Some(span)) = (&mut config.batch, self.batch_span) {
            batch.span = span.0;
        }
        Ok(config)
    }
}

fn check_rated(nodes: &[Node], span: &Range<usize>, what: &str) -> Result<(), Fault> {
    match nodes.iter().find(|node| !matches!(node.device, ModelSpec::Rate { .. })) {
        Some(Node { device, .. }) => Err(Fault::new(
            span,
            format!(
                "{what} needs devices 'rate=...', and '{device}' is not one; change the one or the other"
            ),
        )),
        None => Ok(()),
    }
}

/// As in the daemon: one IO for each request where no device takes longer for a larger one.
fn default_cost_model(nodes: &[Node]) -> CostModel {
    match nodes.iter().all(|node| node.device.size_cost() == SizeCost::Nothing) {
        true => CostModel::Unit,
        false => CostModel::default(),
    }
}
