//! A scenario as it runs: what the file says, checked, with names resolved to indices.

mod expectation;
mod measure;
mod pool;

pub(crate) use expectation::{Against, POOL, Per, Quantity, Selection, Target, Test, digits};
pub use expectation::{Expectation, Mark, Summary, Unit};
pub(crate) use measure::Measure;
pub use pool::{Balancing, Chooser, Copying, Membership, Moves, Pool, Stretches, Sweep, Tide};

use crate::sensitivity::Sensitivity;
use headgate_devices::ModelSpec;
use headgate_placement::Name;
use headgate_qos::{Config, Policy, PriorityPolicy, SchedulerKind};
use headgate_units::{Bytes, Iops, Nanos, Priority};
use serde::Deserialize;

/// A checked scenario: one or more variants of one experiment, and what is expected of them. Made
/// by [`Scenario::parse`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Scenario {
    /// Its name, for command lines and files.
    pub name: String,
    /// What it is, in one line.
    pub title: String,
    /// What it shows and how it was set up, as prose; empty when the file says nothing.
    pub about: String,
    /// Where the experiment was published; empty when it was not.
    pub source: String,
    /// The seeds to run it with.
    pub seeds: Vec<u64>,
    /// The seeds of the whole experiment, where it takes long; as [`Scenario::seeds`] unless the
    /// file says more.
    pub all_seeds: Vec<u64>,
    /// Traces without which it cannot run at all, as it names them.
    pub traces: Vec<String>,
    /// At least one, in the order of the file.
    pub variants: Vec<Variant>,
    /// Named stretches of time, by name.
    pub spans: Vec<Span>,
    /// Expectations, in the order of the file.
    pub expectations: Vec<Expectation>,
    /// Parameters that were chosen freely, at several values.
    pub sensitivities: Vec<Sensitivity>,
}

impl Scenario {
    /// The variant of that name.
    pub fn variant(&self, name: &str) -> Option<&Variant> {
        self.variants.iter().find(|variant| variant.name == name)
    }
}

/// One way to run a scenario.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Variant {
    /// Its name; `default` in a file that names none.
    pub name: String,
    /// All that runs.
    pub setup: Setup,
}

/// A named stretch of simulated time.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Span {
    /// Its name.
    pub name: String,
    /// Its beginning.
    pub from: Nanos,
    /// Its end, exclusive.
    pub to: Nanos,
}

/// Everything that runs. Indices are those of the lists here.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Setup {
    /// How long is simulated.
    pub duration: Nanos,
    /// Length of one point of the series.
    pub interval: Nanos,
    /// Storage.
    pub datastores: Vec<Datastore>,
    /// Machines with a scheduler for each datastore that they use.
    pub hosts: Vec<Host>,
    /// Virtual machines.
    pub vms: Vec<Vm>,
    /// Events, in order of time.
    pub timeline: Vec<Event>,
    /// Datastores among which disks are placed and moved.
    pub pool: Option<Pool>,
    /// Hours in which workloads are lighter.
    pub tide: Option<Tide>,
    /// VMs that go through many workloads, one after the other.
    pub sweeps: Vec<Sweep>,
    /// Whether stretches of time have the distribution of their latencies, or sums alone.
    pub record: Record,
}

/// How much is recorded of stretches of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// Sums, and histograms of latencies.
    Histograms,
    /// Sums alone: a thousandth of the memory, for experiments of many runs.
    Sums,
}

impl Setup {
    /// Whether windows are recorded at several datastores, so that a host's name does not say which
    /// is meant.
    pub(crate) fn hosts_with_several_windows(&self) -> bool {
        self.datastores.iter().filter(|store| store.issue_window.is_some()).count() > 1
    }

    /// The names of all windows that are recorded: `HOST`, or `HOST/DATASTORE`.
    pub(crate) fn issue_window_names(&self) -> Vec<String> {
        let several = self.hosts_with_several_windows();
        let mut names = Vec::new();
        for vm in &self.vms {
            for disk in &vm.disks {
                let (host, store) = (&self.hosts[vm.host], &self.datastores[disk.datastore]);
                if store.issue_window.is_some() {
                    names.push(match several {
                        true => format!("{}/{}", host.name, store.name),
                        false => host.name.clone(),
                    });
                }
            }
        }
        names.sort_unstable();
        names.dedup();
        names
    }
}

/// Storage, and how hosts use it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Datastore {
    /// Its name.
    pub name: String,
    /// Of each of its nodes' devices.
    pub capacity: Bytes,
    /// Scheduler of each host for it.
    pub scheduler: SchedulerKind,
    /// Configuration of that scheduler, and of those at the nodes.
    pub config: Config,
    /// Requests that each host may have outstanding at it, where that is fixed.
    pub queue_depth: u32,
    /// How hosts' windows at it are found; recorded if there is anything here, else fixed and not
    /// recorded.
    pub issue_window: Option<IssueWindow>,
    /// Its nodes; at least one.
    pub nodes: Vec<Node>,
    /// Size of a stripe, for disks that are striped over the nodes.
    pub stripe: Bytes,
    /// What nodes with schedulers know of each other's service to a disk.
    pub coordination: Coordination,
    /// Time of a message between any host and any of its nodes, one way.
    pub network: Nanos,
    /// Rates of all nodes by the number of VMs that run on it: the first for one. Empty: the
    /// devices' own.
    pub rate_by_vms: Vec<Iops>,
    /// How the nodes' rates vary.
    pub noise: Option<Noise>,
    /// What kind of storage it is, for disks that ask for one.
    pub class: Option<Name>,
    /// The device under it, for datastores that share one in the books of the pool.
    pub spindles: Option<Name>,
}

/// How many requests each host may have outstanding at a datastore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IssueWindow {
    /// Its [`Datastore::queue_depth`].
    Fixed,
    /// What a [`Controller`](headgate_qos::window::Controller) says.
    Controlled(Control),
}

/// How windows are controlled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Control {
    /// The control law and its parameters.
    pub config: headgate_qos::window::Config,
    /// What hosts know of each other.
    pub knowledge: Knowledge,
    /// Time from a host's report until others can read it.
    pub delay: Nanos,
}

/// What hosts know of each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Knowledge {
    /// Their reports.
    Cluster,
    /// Nothing: each acts by the latency that it sees itself.
    Local,
}

/// What the schedulers of several nodes know of the service that a disk got at the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Coordination {
    /// What hosts report with each request ([`headgate_qos::dmclock`]): a disk has its policy
    /// over all nodes together.
    Dmclock,
    /// Nothing: a disk has its policy at each node.
    Alone,
}

/// Random variation of a device's rate: every so often the rate is drawn anew, uniformly, from the
/// nominal rate less and plus so many per cent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Noise {
    /// Half the width, 1 to 90 per cent.
    pub percent: u8,
    /// How often.
    pub every: Nanos,
}

/// A storage node: one device, perhaps with a scheduler of its own in front.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Node {
    /// Its name within the datastore.
    pub name: String,
    /// The device.
    pub device: ModelSpec,
    /// Its own scheduler over all hosts' requests; none sends them to the device as they come.
    pub front: Option<Front>,
}

/// A scheduler at a storage node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Front {
    /// Which.
    pub scheduler: SchedulerKind,
    /// Requests in the device at once.
    pub queue_depth: u32,
}

/// A host.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Host {
    /// Its name.
    pub name: String,
    /// Time of a message between it and any storage, one way, besides the datastore's own.
    pub network: Nanos,
    /// Its schedulers; those of the datastores when none.
    pub scheduler: Option<SchedulerKind>,
    /// Requests that it may have outstanding at each datastore. It then takes no part in
    /// controlling windows.
    pub queue_depth: Option<u32>,
    /// What it measures of latencies, in per cent: 100 for what they are. Concerns the control of
    /// its windows alone.
    pub latency_percent: u32,
}

/// A virtual machine.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Vm {
    /// Its name.
    pub name: String,
    /// Where it runs.
    pub host: usize,
    /// At least one.
    pub disks: Vec<DiskSpec>,
    /// What it does.
    pub workloads: Vec<Workload>,
    /// When its workloads start; never when only an event starts it.
    pub start: Option<Nanos>,
    /// Its priority policy.
    pub priorities: PriorityPolicy,
}

/// What a disk is called among others: its VM's name where that has one disk, else `VM/DISK`.
pub(crate) fn disk_name(vm: &Vm, disk: &DiskSpec) -> String {
    if vm.disks.len() == 1 { vm.name.clone() } else { format!("{}/{}", vm.name, disk.name) }
}

/// A virtual disk.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DiskSpec {
    /// Its name within the VM.
    pub name: String,
    /// Where it lies.
    pub datastore: usize,
    /// Its policy.
    pub policy: Policy,
    /// Its size.
    pub size: Bytes,
    /// The nodes that it uses.
    pub nodes: Vec<usize>,
    /// Which of them serves a request.
    pub route: Route,
    /// The guest's own order before it; none hands requests over as they come.
    pub io_scheduler: Option<IoSchedulerSpec>,
    /// The rule that chooses its datastore when its VM starts; none if the file names one.
    pub place: Option<Chooser>,
    /// Its place in the pool.
    pub membership: Membership,
}

/// A guest's IO scheduler, and the queue depth of its virtual disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct IoSchedulerSpec {
    /// By which rules.
    pub kind: IoSchedulerKind,
    /// Requests that the virtual disk takes at once.
    pub depth: u32,
}

/// The rules of a guest's IO scheduler, modelled on Linux's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum IoSchedulerKind {
    /// By arrival.
    Noop,
    /// By position in one direction, reads before writes, with a bound on waits.
    Deadline,
    /// The same, and a pause after a read for the next of the same process.
    Anticipatory,
    /// Processes take turns.
    Cfq,
}

/// Which node serves a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Route {
    /// Any, with equal chances.
    Uniform,
    /// Each in turn.
    RoundRobin,
    /// By address: stripe n is on node n modulo their number. A request goes to the node of its
    /// first byte.
    Striped,
    /// Any, with chances in proportion to these weights, one for each node.
    Weighted(Vec<u32>),
}

/// Something that issues requests.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Workload {
    /// Its name within the VM.
    pub name: String,
    /// The disk it works on, an index into the VM's.
    pub disk: usize,
    /// Time from its VM's start until it begins.
    pub delay: Nanos,
    /// How it issues.
    pub kind: WorkloadKind,
    /// The requests that it issues.
    pub pattern: Pattern,
    /// What its requests ask for.
    pub priority: Option<Priority>,
    /// One of these patterns is drawn by the seed in place of its own; none where there is none.
    pub patterns: Vec<Pattern>,
    /// For a closed loop: one of these numbers is drawn by the seed in place of its own.
    pub outstanding: Vec<u32>,
}

/// When requests are issued.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WorkloadKind {
    /// Keeps requests outstanding: each is followed by another after the think time.
    Closed {
        /// How many.
        outstanding: u32,
        /// From a completion to the request that follows it.
        think: TimeDistribution,
    },
    /// Many requests at once, again and again.
    Burst {
        /// How many.
        requests: u32,
        /// The pause.
        every: Nanos,
        /// From when the pause counts.
        pacing: Pacing,
    },
    /// Requests come by themselves, however slow the storage is.
    Open {
        /// Requests per second.
        rate: Iops,
        /// Their distances.
        arrivals: Arrivals,
    },
    /// Busy for a while, quiet for a while. When busy as a closed loop without think time.
    OnOff {
        /// How many are outstanding when busy.
        outstanding: u32,
        /// How long it is busy.
        on: TimeDistribution,
        /// How long it is quiet.
        off: TimeDistribution,
    },
    /// Transactions of a closed number of terminals. Each thinks, waits for a processor and uses
    /// it, reads one after another, then writes at once; then, if there is a log, one write there
    /// ends it.
    Oltp(Oltp),
    /// What was recorded.
    Replay(Replay),
}

/// A time that is always the same, or exponentially distributed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TimeDistribution {
    /// Always this.
    Constant(Nanos),
    /// Exponential with this mean.
    Exponential(Nanos),
}

/// What the pause of bursts counts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Pacing {
    /// The start of the burst before: bursts may overlap.
    Fixed,
    /// Its last completion.
    AfterCompletion,
}

/// Distances of requests that come by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Arrivals {
    /// All equal.
    Constant,
    /// Exponential: a Poisson process.
    Poisson,
}

/// An online transaction processing application.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Oltp {
    /// How many clients wait for transactions.
    pub terminals: u32,
    /// Reads of each transaction, one after another.
    pub reads: u32,
    /// Writes of each transaction, all at once after the reads.
    pub writes: u32,
    /// Processor time of each transaction.
    pub cpu: TimeDistribution,
    /// Processors; 0 for as many as terminals.
    pub processors: u32,
    /// Time between transactions of a terminal.
    pub think: TimeDistribution,
    /// The log, an index into the VM's disks, and the size of a write there; sequential.
    pub log: Option<(usize, Bytes)>,
}

/// How a trace is played.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Replay {
    /// What the scenario calls the trace: a path beside the scenario's file.
    pub trace: String,
    /// When.
    pub timing: ReplayTiming,
    /// Begin anew at its end.
    pub repeat: bool,
}

/// When the requests of a trace are issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplayTiming {
    /// As recorded, so many per cent as fast: 200 halves all distances.
    Recorded {
        /// 100 for as fast as recorded.
        speed_percent: u32,
    },
    /// In order, with so many outstanding: times are ignored.
    Closed {
        /// How many.
        outstanding: u32,
    },
}

/// Kinds, sizes and positions of requests.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pattern {
    /// Reads, in per cent of all requests.
    pub read: u8,
    /// Requests that go anywhere, in per cent; others go on where the last one ended.
    pub random: u8,
    /// Of those that go anywhere so many per cent go to so many per cent of the extent, at its
    /// beginning, and the others to the rest.
    pub hot: Option<(u8, u8)>,
    /// Sizes and how often each is drawn, relative to the others.
    pub sizes: Vec<(Bytes, u32)>,
    /// The part of the disk that is used: first byte and length.
    pub extent: (u64, u64),
}

/// Something that happens at a time.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Event {
    /// When.
    pub at: Nanos,
    /// What.
    pub action: Action,
}

/// What happens.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// A VM's workloads start.
    Start {
        /// Which VM.
        vm: usize,
    },
    /// They stop: what is outstanding completes.
    Stop {
        /// Which VM.
        vm: usize,
    },
    /// A disk gets another policy.
    Policy {
        /// Which VM.
        vm: usize,
        /// Which of its disks.
        disk: usize,
        /// The new policy.
        policy: Policy,
    },
    /// Devices get another rate.
    Rate {
        /// Which datastore.
        datastore: usize,
        /// Which of its nodes; all when none.
        node: Option<usize>,
        /// Requests per second.
        rate: Iops,
    },
    /// Hosts get another window.
    QueueDepth {
        /// Which datastore.
        datastore: usize,
        /// Requests that each host may have outstanding.
        depth: u32,
    },
    /// A node stands still: nothing there completes.
    Fail {
        /// Which datastore.
        datastore: usize,
        /// Which of its nodes.
        node: usize,
    },
    /// It comes back, and begins anew with all requests that it held.
    Return {
        /// Which datastore.
        datastore: usize,
        /// Which of its nodes.
        node: usize,
    },
}
