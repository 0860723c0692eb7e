//! From what a file says to what runs: names resolved, ranges and combinations checked.

use super::read::{Fault, hint, list};
use super::values::{At, Names, Percent};
use super::*;
use crate::scenario::{
    Action, Arrivals, Coordination, Datastore, Disk, Event, Front, Host, Node, Noise, Oltp, Pacing, Pattern,
    Replay, ReplayTiming, Route, Scenario, Setup, Span, Variant, Vm, Window, Workload, WorkloadKind,
};
use headgate_devices::ModelSpec;
use headgate_qos::{Batch, Burst, Config, Floor, Policy, SchedulerKind};
use headgate_units::{Bytes, Nanos};
use std::collections::BTreeSet;
use std::ops::Range;

/// A run records at most so many points, so that it ends within memory: some 2 GB.
const MOST_POINTS: u64 = 20_000_000;
/// Each takes 25 KB, most of it for histograms: some 1.3 GB.
const MOST_DISKS: usize = 50_000;
const MOST_ALIKE: u32 = 50_000;
const MOST_DEPTH: u32 = 65_536;

/// What is wrong, and in which variant.
type VariantFault = (usize, Fault);

/// All variants together. There is at least one.
pub(super) fn scenario(text: &str, files: &[(String, ScenarioFile)]) -> Result<Scenario, VariantFault> {
    let mut variants = Vec::new();
    for (index, (name, file)) in files.iter().enumerate() {
        let setup = setup(file).map_err(|fault| (index, fault))?;
        variants.push(Variant { name: name.clone(), setup });
    }
    let Some((_, first)) = files.first() else {
        return Err((0, Fault::new(&(0..0), "the file has no variant; write one")));
    };
    let common = |fault| (0, fault);
    plain_name(&first.name, "a scenario").map_err(common)?;
    let seeds = match &first.seeds {
        Some(seeds) if seeds.value.is_empty() => {
            return Err((
                0,
                Fault::new(&seeds.span, "there is no seed; write at least one, such as [1, 2, 3]"),
            ));
        }
        Some(seeds) => seeds.value.clone(),
        None => vec![1, 2, 3],
    };
    let mut windows = Vec::new();
    for (name, stretch) in &first.windows {
        let shortest = variants.iter().map(|v| v.setup.duration).min().unwrap_or_default();
        if stretch.value.to > shortest {
            let message =
                format!("the window '{name}' ends after the run, which lasts {shortest}; end it earlier");
            return Err((0, Fault::new(&stretch.span, message)));
        }
        windows.push(Window { name: name.clone(), from: stretch.value.from, to: stretch.value.to });
    }
    let mut scenario = Scenario {
        name: first.name.value.clone(),
        title: first.title.trim().to_owned(),
        about: first.about.trim().to_owned(),
        source: first.source.trim().to_owned(),
        seeds,
        variants,
        windows,
        expectations: Vec::new(),
    };
    scenario.expectations = expect::expectations(text, &first.expect, &scenario).map_err(common)?;
    Ok(scenario)
}

/// Names are parts of other names and of paths: no dots, slashes or spaces.
fn plain_name(name: &At<String>, of: &str) -> Result<(), Fault> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !name.value.is_empty() && name.value.len() <= 64 && name.value.chars().all(fits) {
        return Ok(());
    }
    let message =
        format!("'{}' cannot be the name of {of}; write 1 to 64 letters, digits, - and _", name.value);
    Err(Fault::new(&name.span, message))
}

fn unique(seen: &mut BTreeSet<String>, name: &str, span: &Range<usize>) -> Result<(), Fault> {
    if seen.insert(name.to_owned()) {
        return Ok(());
    }
    Err(Fault::new(span, format!("the name '{name}' is used twice; give each its own")))
}

/// The index of a name among those known.
fn find<'a>(
    name: &str,
    span: &Range<usize>,
    what: &str,
    known: impl Iterator<Item = &'a str> + Clone,
) -> Result<usize, Fault> {
    known.clone().position(|other| other == name).ok_or_else(|| {
        let known: Vec<&str> = known.collect();
        Fault::new(span, format!("there is no {what} '{name}'; {}", hint(name, &known)))
    })
}

/// The index of what a key names; of the only one when the key is left out.
fn find_or_only<'a>(
    key: Option<&At<String>>,
    place: &Range<usize>,
    what: &str,
    known: impl Iterator<Item = &'a str> + Clone,
) -> Result<usize, Fault> {
    match key {
        Some(name) => find(&name.value, &name.span, what, known),
        None if known.clone().count() == 1 => Ok(0),
        None => {
            let names: Vec<&str> = known.take(12).collect();
            let message =
                format!("it is not said which {what} is meant; add {what} = one of {}", list(&names));
            Err(Fault::new(place, message))
        }
    }
}

fn in_range(value: &At<u32>, what: &str, most: u32) -> Result<u32, Fault> {
    if (1..=most).contains(&value.value) {
        return Ok(value.value);
    }
    Err(Fault::new(&value.span, format!("{what} is 1 to {most}, not {}; write such a number", value.value)))
}

fn some_time(value: &At<Time>, what: &str) -> Result<Nanos, Fault> {
    if value.value.0 == Nanos::ZERO {
        return Err(Fault::new(&value.span, format!("{what} cannot be zero; write a time above it")));
    }
    Ok(value.value.0)
}

fn whole_percent(value: &At<Percent>, least: u8, most: u8) -> Result<u8, Fault> {
    let percent = value.value.0;
    if percent.fract() == 0.0 && (f64::from(least)..=f64::from(most)).contains(&percent) {
        return Ok(percent as u8);
    }
    let message = format!("{percent}% does not fit here; write a whole percentage from {least}% to {most}%");
    Err(Fault::new(&value.span, message))
}

fn setup(file: &ScenarioFile) -> Result<Setup, Fault> {
    let duration = some_time(&file.duration, "the duration")?;
    let interval = match &file.interval {
        Some(interval) => some_time(interval, "the interval")?,
        None => Nanos::from_secs(1),
    };
    let mut names = BTreeSet::new();
    if file.datastore.is_empty() {
        return Err(Fault::new(
            &file.name.span,
            "there is no storage; add a [[datastore]] with a name and a device",
        ));
    }
    let mut datastores = Vec::new();
    for store in &file.datastore {
        plain_name(&store.value.name, "a datastore")?;
        unique(&mut names, &store.value.name.value, &store.value.name.span)?;
        datastores.push(datastore(&store.value)?);
    }
    let hosts = hosts(file, &mut names)?;
    let mut vms = Vec::new();
    let mut timeline = Vec::new();
    for vm in &file.vm {
        add_vms(vm, &datastores, &hosts, &mut names, &mut vms, &mut timeline)?;
    }
    if vms.is_empty() {
        return Err(Fault::new(
            &file.name.span,
            "nothing would run; add a [[vm]] with a disk and a workload",
        ));
    }
    let disks: usize = vms.iter().map(|vm| vm.disks.len()).sum();
    if disks > MOST_DISKS {
        let message = format!("{disks} disks are more than fit into memory; simulate {MOST_DISKS} at most");
        return Err(Fault::new(&file.name.span, message));
    }
    let points = duration.0.div_ceil(interval.0).saturating_mul((disks + vms.len()) as u64);
    if points > MOST_POINTS {
        let span = file.interval.as_ref().map_or(&file.duration.span, |interval| &interval.span);
        let enough = Nanos(duration.0 / (MOST_POINTS / (disks + vms.len()) as u64).max(1));
        let message = format!(
            "a point every {interval} for {disks} disks is more than fits into memory; set interval to {enough} or more"
        );
        return Err(Fault::new(span, message));
    }
    let mut policies: Vec<Vec<Policy>> =
        vms.iter().map(|vm| vm.disks.iter().map(|disk| disk.policy).collect()).collect();
    let mut events: Vec<&At<EventFile>> = file.event.iter().collect();
    events.sort_by_key(|event| event.value.at.value.0);
    for event in events {
        let at = event.value.at.value.0;
        if at >= duration {
            let message = format!("this happens after the end, which is at {duration}; set it earlier");
            return Err(Fault::new(&event.value.at.span, message));
        }
        let action = action(event, &datastores, &vms, &mut policies)?;
        timeline.push(Event { at, action });
    }
    timeline.sort_by_key(|event| event.at);
    Ok(Setup { duration, interval, datastores, hosts, vms, timeline })
}

fn kind(scheduler: Scheduler) -> SchedulerKind {
    match scheduler {
        Scheduler::Mclock => SchedulerKind::MClock,
        Scheduler::Sfq => SchedulerKind::Sfq,
        Scheduler::Fifo => SchedulerKind::Fifo,
    }
}

fn depth(key: Option<&At<u32>>) -> Result<u32, Fault> {
    key.map_or(Ok(32), |depth| in_range(depth, "a queue depth", MOST_DEPTH))
}

fn datastore(file: &DatastoreFile) -> Result<Datastore, Fault> {
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
    Ok(Datastore {
        name: file.name.value.clone(),
        scheduler: file.scheduler.map_or(SchedulerKind::MClock, kind),
        config: config(file)?,
        queue_depth: depth(file.queue_depth.as_ref())?,
        nodes,
        stripe,
        coordination: match file.coordination {
            Some(CoordinationFile::Alone) => Coordination::Alone,
            Some(CoordinationFile::Dmclock) | None => Coordination::Dmclock,
        },
        network: file.network.map_or(Nanos::ZERO, |time| time.0),
        rate_by_vms,
        noise,
    })
}

/// Each key is tried on its own, so that an error points at it.
fn config(file: &DatastoreFile) -> Result<Config, Fault> {
    let mut config = Config::default();
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
    Ok(config)
}

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

fn hosts(file: &ScenarioFile, names: &mut BTreeSet<String>) -> Result<Vec<Host>, Fault> {
    if file.host.is_empty() {
        return Ok(vec![Host { name: "host".to_owned(), network: Nanos::ZERO }]);
    }
    let mut hosts = Vec::new();
    for host in &file.host {
        plain_name(&host.value.name, "a host")?;
        for name in numbered(&host.value.name, host.value.count.as_ref())? {
            unique(names, &name, &host.value.name.span)?;
            hosts.push(Host { name, network: host.value.network.map_or(Nanos::ZERO, |time| time.0) });
        }
    }
    Ok(hosts)
}

fn add_vms(
    file: &At<VmFile>,
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
            let disk = disk(disk_file, turn, datastores)?;
            let span = disk_file.value.name.as_ref().map_or(&disk_file.span, |name| &name.span);
            unique(&mut disk_names, &disk.name, span)?;
            disks.push(disk);
        }
        let mut workloads: Vec<Workload> = Vec::new();
        let mut workload_names = BTreeSet::new();
        for workload_file in &vm.workload {
            let workload = workload(workload_file, &disks, &vm.disk)?;
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
        vms.push(Vm { name, host, disks, workloads, start });
    }
    Ok(())
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

fn disk(file: &At<DiskFile>, turn: usize, datastores: &[Datastore]) -> Result<Disk, Fault> {
    let disk = &file.value;
    if let Some(name) = &disk.name {
        plain_name(name, "a disk")?;
    }
    let names = datastores.iter().map(|store| store.name.as_str());
    let datastore = in_turn(disk.datastore.as_ref(), turn, &file.span, "datastore", names)?;
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
    Ok(Disk { name, datastore, policy: changes.apply(Policy::default())?, size, nodes, route })
}

/// The keys of a policy, wherever they stand.
struct PolicyKeys<'a> {
    reservation: Option<&'a At<super::values::MaybeIops>>,
    limit: Option<&'a At<super::values::MaybeIops>>,
    limit_bandwidth: Option<&'a At<super::values::MaybeBandwidth>>,
    shares: Option<&'a At<Weight>>,
    burst: Option<&'a At<u64>>,
}

impl PolicyKeys<'_> {
    fn apply(&self, old: Policy) -> Result<Policy, Fault> {
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

/// A key that only some kinds or verbs have a use for: its name, where it stands if it does, and for which.
type Special<'a, K> = (&'static str, Option<&'a Range<usize>>, &'static [K]);

/// Keys of a workload that only some kinds have.
fn special_keys(file: &WorkloadFile) -> Vec<Special<'_, KindFile>> {
    use KindFile::{Burst, Closed, Oltp, OnOff, Open, Replay};
    fn place<T>(key: &Option<At<T>>) -> Option<&Range<usize>> {
        key.as_ref().map(|key| &key.span)
    }
    vec![
        ("outstanding", place(&file.outstanding), &[Closed, OnOff, Replay]),
        ("think", place(&file.think), &[Closed, Oltp]),
        ("times", place(&file.times), &[Closed, OnOff, Oltp]),
        ("requests", place(&file.requests), &[Burst]),
        ("every", place(&file.every), &[Burst]),
        ("pacing", place(&file.pacing), &[Burst]),
        ("rate", place(&file.rate), &[Open]),
        ("arrivals", place(&file.arrivals), &[Open]),
        ("on", place(&file.on), &[OnOff]),
        ("off", place(&file.off), &[OnOff]),
        ("terminals", place(&file.terminals), &[Oltp]),
        ("reads", place(&file.reads), &[Oltp]),
        ("writes", place(&file.writes), &[Oltp]),
        ("cpu", place(&file.cpu), &[Oltp]),
        ("processors", place(&file.processors), &[Oltp]),
        ("log-disk", place(&file.log_disk), &[Oltp]),
        ("log-size", place(&file.log_size), &[Oltp]),
        ("trace", place(&file.trace), &[Replay]),
        ("timing", place(&file.timing), &[Replay]),
        ("speed", place(&file.speed), &[Replay]),
        ("repeat", place(&file.repeat), &[Replay]),
        ("read", place(&file.read), &[Closed, Burst, Open, OnOff]),
        ("random", place(&file.random), &[Closed, Burst, Open, OnOff, Oltp]),
        ("size", place(&file.size), &[Closed, Burst, Open, OnOff, Oltp]),
        ("extent", place(&file.extent), &[Closed, Burst, Open, OnOff, Oltp]),
        ("offset", place(&file.offset), &[Closed, Burst, Open, OnOff, Oltp]),
    ]
}

fn kind_name(kind: KindFile) -> &'static str {
    match kind {
        KindFile::Closed => "closed",
        KindFile::Burst => "burst",
        KindFile::Open => "open",
        KindFile::OnOff => "on-off",
        KindFile::Oltp => "oltp",
        KindFile::Replay => "replay",
    }
}

fn workload(file: &At<WorkloadFile>, disks: &[Disk], disk_files: &[At<DiskFile>]) -> Result<Workload, Fault> {
    let w = &file.value;
    for (key, place, kinds) in special_keys(w) {
        if let Some(place) = place
            && !kinds.contains(&w.kind.value)
        {
            let kinds: Vec<&str> = kinds.iter().map(|&kind| kind_name(kind)).collect();
            let message = format!(
                "'{key}' means nothing for kind = '{}', only for {}; remove it or change the kind",
                kind_name(w.kind.value),
                list(&kinds)
            );
            return Err(Fault::new(place, message));
        }
    }
    if let Some(name) = &w.name {
        plain_name(name, "a workload")?;
    }
    let needed = |key: &str, example: &str| {
        let message = format!("kind = '{}' needs '{key}'; add {key} = {example}", kind_name(w.kind.value));
        Fault::new(&w.kind.span, message)
    };
    let names = disks.iter().map(|disk| disk.name.as_str());
    let disk = find_or_only(w.disk.as_ref(), &file.span, "disk", names.clone())?;
    let span = |time: Nanos| match &w.times {
        Some(At { value: Times::Exponential, .. }) => Span::Exponential(time),
        _ => Span::Constant(time),
    };
    let time = |key: &Option<At<Time>>| span(key.as_ref().map_or(Nanos::ZERO, |time| time.value.0));
    let outstanding =
        w.outstanding.as_ref().map_or(Ok(32), |n| in_range(n, "the number outstanding", MOST_DEPTH))?;
    let kind = match w.kind.value {
        KindFile::Closed => WorkloadKind::Closed { outstanding, think: time(&w.think) },
        KindFile::Burst => WorkloadKind::Burst {
            requests: in_range(
                w.requests.as_ref().ok_or_else(|| needed("requests", "32"))?,
                "the number of requests in a burst",
                MOST_DEPTH,
            )?,
            every: some_time(
                w.every.as_ref().ok_or_else(|| needed("every", "'250ms'"))?,
                "the pause between bursts",
            )?,
            pacing: match &w.pacing {
                Some(At { value: PacingFile::AfterCompletion, .. }) => Pacing::AfterCompletion,
                _ => Pacing::Fixed,
            },
        },
        KindFile::Open => WorkloadKind::Open {
            rate: w.rate.as_ref().ok_or_else(|| needed("rate", "500"))?.value.0,
            arrivals: match &w.arrivals {
                Some(At { value: ArrivalsFile::Constant, .. }) => Arrivals::Constant,
                _ => Arrivals::Poisson,
            },
        },
        KindFile::OnOff => WorkloadKind::OnOff {
            outstanding,
            on: span(some_time(w.on.as_ref().ok_or_else(|| needed("on", "'2s'"))?, "the busy time")?),
            off: span(some_time(w.off.as_ref().ok_or_else(|| needed("off", "'3s'"))?, "the quiet time")?),
        },
        KindFile::Oltp => WorkloadKind::Oltp(oltp(w, &needed, time(&w.think), time(&w.cpu), names)?),
        KindFile::Replay => WorkloadKind::Replay(replay(w, &needed, outstanding)?),
    };
    let pattern = pattern(w, &disks[disk], disk_files.get(disk))?;
    let name = w.name.as_ref().map_or("workload".to_owned(), |name| name.value.clone());
    Ok(Workload { name, disk, kind, pattern })
}

/// Work that follows its own completion at once, on storage that completes at once, never ends.
fn check_time_passes(
    file: &At<WorkloadFile>,
    workload: &Workload,
    disks: &[Disk],
    host: &Host,
    datastores: &[Datastore],
) -> Result<(), Fault> {
    let zero = |span: Span| span == Span::ZERO;
    let at_once = match &workload.kind {
        WorkloadKind::Closed { think, .. } => zero(*think),
        WorkloadKind::OnOff { .. } => true,
        WorkloadKind::Oltp(oltp) => zero(oltp.think) && zero(oltp.cpu),
        WorkloadKind::Replay(replay) => replay.repeat && matches!(replay.timing, ReplayTiming::Closed { .. }),
        WorkloadKind::Burst { .. } | WorkloadKind::Open { .. } => false,
    };
    let no_time = |disk: &Disk| {
        let store = &datastores[disk.datastore];
        let null = |&index: &usize| matches!(store.nodes[index].device, ModelSpec::Null);
        store.network + host.network == Nanos::ZERO && disk.nodes.iter().any(null)
    };
    if at_once && disks.iter().any(no_time) {
        let message =
            "this work never lets time pass on a device 'null'; add think time, a network or another device";
        return Err(Fault::new(&file.value.kind.span, message));
    }
    Ok(())
}

fn oltp<'a>(
    w: &WorkloadFile,
    needed: &dyn Fn(&str, &str) -> Fault,
    think: Span,
    cpu: Span,
    disks: impl Iterator<Item = &'a str> + Clone,
) -> Result<Oltp, Fault> {
    let terminals = in_range(
        w.terminals.as_ref().ok_or_else(|| needed("terminals", "100"))?,
        "the number of terminals",
        10_000,
    )?;
    let count = |key: &Option<At<u32>>| match key {
        Some(key) if key.value > 1_000 => {
            Err(Fault::new(&key.span, "a transaction has at most 1000 of these; write fewer"))
        }
        Some(key) => Ok(key.value),
        None => Ok(0),
    };
    let (reads, writes) = (count(&w.reads)?, count(&w.writes)?);
    let log = match &w.log_disk {
        Some(disk) => {
            let size = w.log_size.as_ref().map_or(Ok(Bytes::from_kib(4)), request_size)?;
            Some((find(&disk.value, &disk.span, "disk", disks)?, size))
        }
        None => None,
    };
    if reads == 0 && writes == 0 && log.is_none() {
        return Err(needed("reads", "3, or writes or a log-disk"));
    }
    let processors =
        w.processors.as_ref().map_or(Ok(0), |n| in_range(n, "the number of processors", 10_000))?;
    Ok(Oltp { terminals, reads, writes, cpu, processors, think, log })
}

fn replay(w: &WorkloadFile, needed: &dyn Fn(&str, &str) -> Fault, outstanding: u32) -> Result<Replay, Fault> {
    let trace = w.trace.as_ref().ok_or_else(|| needed("trace", "'traces/web.csv'"))?.value.clone();
    let closed = w.timing.as_ref().is_some_and(|timing| timing.value == TimingFile::Closed);
    let timing = match (closed, &w.speed, &w.outstanding) {
        (true, Some(speed), _) => {
            return Err(Fault::new(
                &speed.span,
                "'speed' means nothing with timing = 'closed'; remove one of them",
            ));
        }
        (false, _, Some(outstanding)) => {
            let message =
                "'outstanding' means nothing with recorded times; remove it, or set timing = 'closed'";
            return Err(Fault::new(&outstanding.span, message));
        }
        (true, None, _) => ReplayTiming::Closed { outstanding },
        (false, None, None) => ReplayTiming::Recorded { speed_percent: 100 },
        (false, Some(speed), None) => {
            let percent = speed.value.0;
            if percent.fract() != 0.0 || !(1.0..=100_000.0).contains(&percent) {
                return Err(Fault::new(
                    &speed.span,
                    "a speed is 1% to 100000%, whole; write such a percentage",
                ));
            }
            ReplayTiming::Recorded { speed_percent: percent as u32 }
        }
    };
    Ok(Replay { trace, timing, repeat: w.repeat.as_ref().is_some_and(|repeat| repeat.value) })
}

fn request_size(size: &At<super::values::Size>) -> Result<Bytes, Fault> {
    check_request_size(size.value.0, &size.span)
}

fn check_request_size(size: Bytes, span: &Range<usize>) -> Result<Bytes, Fault> {
    if (512..=64 << 20).contains(&size.0) {
        return Ok(size);
    }
    Err(Fault::new(span, format!("a request is 512 bytes to 64 MiB, not {size}; write such a size")))
}

fn pattern(w: &WorkloadFile, disk: &Disk, disk_file: Option<&At<DiskFile>>) -> Result<Pattern, Fault> {
    let sizes = match &w.size {
        Some(sizes) => {
            for &(size, _) in &sizes.value.0 {
                check_request_size(size, &sizes.span)?;
            }
            sizes.value.0.clone()
        }
        None => vec![(Bytes::from_kib(4), 1)],
    };
    let offset = w.offset.as_ref().map_or(0, |offset| offset.value.0.0);
    let length = w.extent.as_ref().map_or(disk.size.0.saturating_sub(offset), |extent| extent.value.0.0);
    let largest = sizes.iter().map(|&(size, _)| size.0).max().unwrap_or(0);
    if offset.checked_add(length).is_none_or(|end| end > disk.size.0) || length < largest {
        let span = [&w.extent, &w.offset].into_iter().flatten().map(|key| &key.span).next();
        let span = span.or(disk_file.map(|disk| &disk.span)).unwrap_or(&w.kind.span);
        let message = format!(
            "the part of the disk from {} on of {} does not lie in its {} or is too small for a request; \
             make it fit",
            Bytes(offset),
            Bytes(length),
            disk.size
        );
        return Err(Fault::new(span, message));
    }
    let percent = |key: &Option<At<Percent>>| key.as_ref().map_or(Ok(100), |key| whole_percent(key, 0, 100));
    Ok(Pattern { read: percent(&w.read)?, random: percent(&w.random)?, sizes, extent: (offset, length) })
}

fn action(
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
