//! Datastores, their nodes and schedulers.

use super::super::read::Fault;
use super::super::values::At;
use super::super::{CoordinationFile, DatastoreFile, Scheduler};
use super::names::{in_range, plain_name, some_time, unique, whole_percent};
use super::window::issue_window;
use crate::scenario::{Coordination, Datastore, Front, Node, Noise};
use headgate_devices::{DEFAULT_CAPACITY, ModelSpec, SizeCost};
use headgate_placement::Name;
use headgate_qos::{Batch, Config, CostModel, Floor, SchedulerKind};
use headgate_units::{Bytes, Nanos};
use std::collections::BTreeSet;
use std::ops::Range;

/// The largest window.
pub(super) const MOST_DEPTH: u32 = 65_536;

pub(super) fn kind(scheduler: Scheduler) -> SchedulerKind {
    match scheduler {
        Scheduler::Mclock => SchedulerKind::MClock,
        Scheduler::Sfq => SchedulerKind::Sfq,
        Scheduler::Fifo => SchedulerKind::Fifo,
    }
}

pub(super) fn depth(key: Option<&At<u32>>) -> Result<u32, Fault> {
    key.map_or(Ok(32), |depth| in_range(depth, "a queue depth", MOST_DEPTH))
}

pub(super) fn datastore(file: &DatastoreFile) -> Result<Datastore, Fault> {
    let mut nodes = Vec::new();
    let mut names = BTreeSet::new();
    for node in &file.node {
        let node = &node.value;
        plain_name(&node.name, "a node")?;
        unique(&mut names, &node.name.value, &node.name.span)?;
        let device = node.device.as_ref().or(file.device.as_ref()).ok_or_else(|| {
            Fault::new(
                &node.name.span,
                "the node has no device, nor has its datastore; add device = 'rate=1600'",
            )
        })?;
        let front = match (&node.scheduler, &node.queue_depth) {
            (Some(scheduler), depth_key) => {
                Some(Front { scheduler: kind(scheduler.value), queue_depth: depth(depth_key.as_ref())? })
            }
            (None, Some(depth)) => {
                let message =
                    "a node's queue depth needs a scheduler in front of it; add scheduler = 'mclock'";
                return Err(Fault::new(&depth.span, message));
            }
            (None, None) => None,
        };
        nodes.push(Node { name: node.name.value.clone(), device: device.value.0.clone(), front });
    }
    if nodes.is_empty() {
        let device = file.device.as_ref().ok_or_else(|| {
            Fault::new(&file.name.span, "the datastore has no device; add device = 'rate=1600,latency=5ms'")
        })?;
        nodes.push(Node { name: "node".to_owned(), device: device.value.0.clone(), front: None });
    }
    let rated = |span: &Range<usize>, what: &str| match nodes
        .iter()
        .find(|node| !matches!(node.device, ModelSpec::Rate { .. }))
    {
        Some(node) => Err(Fault::new(
            span,
            format!(
                "{what} needs devices 'rate=...', and '{}' is not one; change the one or the other",
                node.device
            ),
        )),
        None => Ok(()),
    };
    let rate_by_vms = match &file.rate_by_vms {
        Some(rates) => {
            rated(&rates.span, "rate-by-vms")?;
            rates.value.iter().map(|rate| rate.0).collect()
        }
        None => Vec::new(),
    };
    let noise = match &file.noise {
        Some(noise) => {
            rated(&noise.span, "noise")?;
            let every = some_time(&noise.value.every, "the time between changes")?;
            Some(Noise { percent: whole_percent(&noise.value.within, 1, 90)?, every })
        }
        None => None,
    };
    let stripe = match &file.stripe {
        Some(stripe) if stripe.value.0.0 < 4_096 => {
            return Err(Fault::new(&stripe.span, "a stripe is 4K or more; write such a size"));
        }
        Some(stripe) => stripe.value.0,
        None => Bytes::from_mib(1),
    };
    let own = nodes.iter().filter_map(|node| node.device.capacity()).min();
    if let (Some(given), Some(own)) = (&file.capacity, own) {
        let message =
            format!("the device says itself that it has {own}; remove capacity, or change the device");
        return Err(Fault::new(&given.span, message));
    }
    let capacity = match &file.capacity {
        Some(capacity) if capacity.value.0.0 == 0 => {
            return Err(Fault::new(&capacity.span, "a capacity is 1 byte or more; write such a size"));
        }
        Some(capacity) => capacity.value.0,
        None => own.unwrap_or(DEFAULT_CAPACITY),
    };
    Ok(Datastore {
        name: file.name.value.clone(),
        capacity,
        scheduler: file.scheduler.map_or(SchedulerKind::MClock, kind),
        config: config(file, default_cost_model(&nodes))?,
        queue_depth: depth(file.queue_depth.as_ref())?,
        issue_window: file.issue_window.as_ref().map(|window| issue_window(&window.value)).transpose()?,
        nodes,
        stripe,
        coordination: match file.coordination {
            Some(CoordinationFile::Alone) => Coordination::Alone,
            Some(CoordinationFile::Dmclock) | None => Coordination::Dmclock,
        },
        network: file.network.map_or(Nanos::ZERO, |time| time.0),
        rate_by_vms,
        noise,
        class: file.class.as_deref().map(Name::from),
        spindles: file.spindles.as_deref().map(Name::from),
    })
}

/// As in the daemon: one IO each where no device takes longer for a larger request.
fn default_cost_model(nodes: &[Node]) -> CostModel {
    match nodes.iter().all(|node| node.device.size_cost() == SizeCost::Nothing) {
        true => CostModel::Unit,
        false => CostModel::default(),
    }
}

/// Each key is tried on its own, so that an error points at it.
fn config(file: &DatastoreFile, cost_model: CostModel) -> Result<Config, Fault> {
    let mut config = Config::for_hosts(cost_model);
    let checked = |config: &Config, span: &Range<usize>| {
        config.validate().map_err(|error| Fault::new(span, format!("{error}; write such a value")))
    };
    if let Some(charge) = &file.cost_model {
        config.cost_model = charge.value.0;
        checked(&config, &charge.span)?;
    }
    if let Some(batch) = &file.batch {
        config.batch = Some(Batch { requests: batch.value, ..Batch::default() });
        checked(&config, &batch.span)?;
    }
    if let Some(span) = &file.batch_span {
        let Some(batch) = &mut config.batch else {
            return Err(Fault::new(&span.span, "batch-span means nothing without batch; add batch = 8"));
        };
        batch.span = span.value.0;
    }
    if let Some(floor) = &file.floor {
        config.floor = if floor.value == 0 { Floor::Nothing } else { Floor::OneIn(floor.value) };
        checked(&config, &floor.span)?;
    }
    if let Some(bound) = &file.debt_bound {
        config.debt_bound = bound.value.0;
        config.anticipation = config.anticipation.min(Nanos(bound.value.0.0 / 2));
        checked(&config, &bound.span)?;
    }
    if let Some(lead) = &file.lead {
        config.lead = lead.value;
        checked(&config, &lead.span)?;
    }
    if let Some(anticipation) = &file.anticipation {
        config.anticipation = anticipation.value.0;
        checked(&config, &anticipation.span)?;
    }
    if let Some(slack) = &file.limit_slack {
        config.limit_slack = slack.value.0;
        checked(&config, &slack.span)?;
    }
    if let Some(plug) = &file.plug {
        config.plug = plug.value.0;
        checked(&config, &plug.span)?;
    }
    Ok(config)
}
