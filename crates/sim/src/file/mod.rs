//! Scenario files: what may be written. The same types read them and make the JSON schema for editors.

mod check;
mod expect;
mod expected;
mod measure;
mod pool;
mod read;
mod values;
mod window;

pub(crate) use measure::Measure;
pub use read::ScenarioError;
pub(crate) use values::{Quantity, Time};

use expected::ExpectFile;
use pool::{ChooserFile, PoolFile, SweepFile, TideFile, TypeFile};
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;
use values::{
    At, Charge, Device, Hot, MaybeBandwidth, MaybeIops, Names, Percent, Rank, Rate, Seeds, Size, Sizes,
    Start, Stretch, Weight,
};
use window::IssueWindowFile;

/// A simulated experiment: storage, hosts, virtual machines, what happens, and what is expected of it.
#[derive(Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[schemars(title = "Headgate scenario")]
pub(crate) struct ScenarioFile {
    /// The scenario's name: letters, digits, - and _.
    name: At<String>,
    /// What it is, in one line.
    title: String,
    /// What it shows and how it was set up.
    #[serde(default)]
    about: String,
    /// Where it was published.
    #[serde(default)]
    source: String,
    /// How long is simulated.
    duration: At<Time>,
    /// Length of one point of the recorded series; 1s unless given.
    interval: Option<At<Time>>,
    /// Seeds to run it with, or how many: 60 for 1 to 60. 1, 2 and 3 unless given.
    seeds: Option<At<Seeds>>,
    /// As many as the whole experiment has, where 'seeds' are some of them: for 'headgate reproduce --full'.
    full_seeds: Option<At<u32>>,
    /// Traces without which it is skipped.
    #[serde(default)]
    traces: Vec<String>,
    /// Whether latencies have distributions; true unless given. Without them a run takes a thousandth of the memory.
    histograms: Option<bool>,
    /// Named stretches of time, for expectations: steady = "60s..120s".
    #[serde(default)]
    windows: BTreeMap<String, At<Stretch>>,
    /// Storage.
    #[serde(default)]
    datastore: Vec<At<DatastoreFile>>,
    /// Hosts; one called 'host' unless given.
    #[serde(default)]
    host: Vec<At<HostFile>>,
    /// Virtual machines.
    #[serde(default)]
    vm: Vec<At<VmFile>>,
    /// Kinds of workloads, for VMs that draw theirs.
    #[serde(default, rename = "type")]
    types: Vec<At<TypeFile>>,
    /// Datastores among which disks are placed and moved.
    pool: Option<At<PoolFile>>,
    /// Hours in which closed loops have less outstanding.
    tide: Option<At<TideFile>>,
    /// VMs that go through many workloads.
    #[serde(default)]
    sweep: Vec<At<SweepFile>>,
    /// What happens at which time.
    #[serde(default)]
    event: Vec<At<EventFile>>,
    /// Several ways to run it; one called 'default' unless given.
    #[serde(default)]
    #[allow(dead_code)]
    // Taken from the tree before this is read; here for the schema and for unknown keys.
    variant: Vec<At<VariantFile>>,
    /// What is expected.
    #[serde(default)]
    expect: Vec<At<ExpectFile>>,
}

/// Storage, and how hosts use it.
#[derive(Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct DatastoreFile {
    /// Its name: letters, digits, - and _.
    name: At<String>,
    /// The device of a datastore that has no nodes of its own.
    device: Option<At<Device>>,
    /// Bytes that an array spreads over its platters, at each node. Disks are placed one after the other; one that does
    /// not fit begins at the beginning. 4T unless given.
    capacity: Option<At<Size>>,
    /// Scheduler of each host for it: mclock unless given.
    scheduler: Option<Scheduler>,
    /// Requests that each host may have outstanding at it, 1 to 65536; 32 unless given.
    queue_depth: Option<At<u32>>,
    /// Control of hosts' windows by latency and shares, in place of a fixed depth; windows are then recorded.
    issue_window: Option<At<IssueWindowFile>>,
    /// How the size of a request is charged; unless given affine=300K, and unit where size costs the device nothing.
    cost_model: Option<At<Charge>>,
    /// Send near requests of one disk back to back: at most so many, 2 to 8.
    batch: Option<At<u8>>,
    /// How near requests of a batch are; 4M unless given.
    batch_span: Option<At<Size>>,
    /// For so many IOs by reservation one goes by shares, 1 to 10000, in shortage; 0 for none. 100 unless given.
    floor: Option<At<u16>>,
    /// How much service late reservations may claim back, as time; 250ms unless given.
    debt_bound: Option<At<Time>>,
    /// How many IOs of service beyond its share a disk is remembered for, 2 to 1024; 16 unless given.
    lead: Option<At<u16>>,
    /// How late a disk may ask again without losing its place among reservations; 2ms unless given.
    anticipation: Option<At<Time>>,
    /// How much lateness of dispatch a limit may make good for; 20ms unless given.
    limit_slack: Option<At<Time>>,
    /// How long a request may wait for a better stream, up to 1ms; not at all unless given.
    plug: Option<At<Time>>,
    /// Time of a message between hosts and it, one way; none unless given.
    network: Option<Time>,
    /// What the schedulers of several nodes know of each other's service to a disk: dmclock unless given.
    coordination: Option<CoordinationFile>,
    /// Size of a stripe, for disks that are striped over nodes; 1M unless given.
    stripe: Option<At<Size>>,
    /// The devices' rate by the number of VMs that run: the first when one does. The last holds for more.
    rate_by_vms: Option<At<Vec<Rate>>>,
    /// Random variation of the devices' rate.
    noise: Option<At<NoiseFile>>,
    /// In a pool: what kind of storage it is.
    class: Option<String>,
    /// In a pool: the device under it, for datastores that share one.
    spindles: Option<String>,
    /// Storage nodes; one with the datastore's device unless given.
    #[serde(default)]
    node: Vec<At<NodeFile>>,
}

/// Random variation of a device's rate.
#[derive(Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct NoiseFile {
    /// The rate varies uniformly by up to so many per cent, up and down: whole, '1%' to '90%'.
    within: At<Percent>,
    /// How often it is drawn anew.
    every: At<Time>,
}

/// A storage node.
#[derive(Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct NodeFile {
    /// Its name within the datastore.
    name: At<String>,
    /// Its device; that of the datastore unless given.
    device: Option<At<Device>>,
    /// A scheduler of its own, over the requests of all hosts; none unless given.
    scheduler: Option<At<Scheduler>>,
    /// Requests in its device at once, with a scheduler of its own, 1 to 65536; 32 unless given.
    queue_depth: Option<At<u32>>,
}

/// Which request goes next.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum Scheduler {
    /// By reservation, limit and shares.
    Mclock,
    /// By shares.
    Sfq,
    /// By arrival.
    Fifo,
}

/// What the schedulers of several nodes know of each other's service to a disk.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum CoordinationFile {
    /// What hosts tell them with each request: a disk has its policy over all nodes together.
    Dmclock,
    /// Nothing: a disk has its policy at each node.
    Alone,
}

/// A host.
#[derive(Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct HostFile {
    /// Its name. With a count, names are NAME-1, NAME-2 and so on.
    name: At<String>,
    /// So many alike.
    count: Option<At<u32>>,
    /// Time of a message between it and any storage, one way, besides the datastore's; none unless given.
    network: Option<Time>,
    /// Its schedulers; those of the datastores unless given.
    scheduler: Option<Scheduler>,
    /// Requests that it may have outstanding at each datastore, 1 to 65536. With this it controls no window, and
    /// others know nothing of it. What the datastores say unless given.
    queue_depth: Option<At<u32>>,
    /// What it measures of latencies to control its windows by: '115%' is 15 per cent too much. 100% unless given.
    latency_seen: Option<At<Percent>>,
}

/// A virtual machine.
#[derive(Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct VmFile {
    /// Its name. With a count, names are NAME-1, NAME-2 and so on.
    name: At<String>,
    /// So many alike.
    count: Option<At<u32>>,
    /// Its host, where there are several; with a count they may be several, used in turn.
    host: Option<At<Names>>,
    /// When its workloads start, or 'never' if only an event does it; 0s unless given.
    start: Option<At<Start>>,
    /// When they stop; at the end unless given.
    stop: Option<At<Time>>,
    /// The most that a priority of its workloads counts for, 1 to 254; 254 unless given.
    max_priority: Option<At<Rank>>,
    /// What requests without priority count for; 100 unless given.
    default_priority: Option<At<Rank>>,
    /// Whether its workloads compete among themselves or with those of other VMs; within unless given.
    priority_scope: Option<ScopeFile>,
    /// Its disks.
    #[serde(default)]
    disk: Vec<At<DiskFile>>,
    /// What it does.
    #[serde(default)]
    workload: Vec<At<WorkloadFile>>,
}

/// Against whom the workloads of a VM compete by priority.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum ScopeFile {
    /// Each other: they divide what their disk gets.
    Within,
    /// Those of all VMs with this scope, in place of their disks' shares.
    Across,
}

/// A virtual disk.
#[derive(Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct DiskFile {
    /// Its name within the VM; 'disk' unless given.
    name: Option<At<String>>,
    /// Where it lies, if there are several datastores; with the VM's count they may be several, used in turn.
    datastore: Option<At<Names>>,
    /// Its size; 10G unless given.
    size: Option<At<Size>>,
    /// Its minimum in normalised IOs per second, or 'none'.
    reservation: Option<At<MaybeIops>>,
    /// Its maximum in normalised IOs per second, or 'none'.
    limit: Option<At<MaybeIops>>,
    /// Its maximum in bytes per second, such as '50M', or 'none'.
    limit_bandwidth: Option<At<MaybeBandwidth>>,
    /// Its weight, 1 to 1000000; 1000 unless given.
    shares: Option<At<Weight>>,
    /// IOs that it may send ahead of its share after being idle, 0 to 256; 1 unless given.
    burst: Option<At<u64>>,
    /// The nodes it uses; all of its datastore's unless given.
    nodes: Option<At<Names>>,
    /// Which node serves a request: uniform unless given.
    route: Option<At<RouteFile>>,
    /// How often each of its nodes is used, relative to the others, for route = 'weighted'.
    weights: Option<At<Vec<u32>>>,
    /// The order that the guest makes before it: requests go to it as they come unless given.
    elevator: Option<ElevatorFile>,
    /// With an elevator: requests that the virtual disk takes at once, 1 to 1024; 128 unless given.
    elevator_depth: Option<At<u32>>,
    /// Who chooses among the pool's datastores when the VM starts, in place of 'datastore'.
    place: Option<At<ChooserFile>>,
    /// In a pool: whether it is the pool's; if not it loads its datastore as somebody else's. True unless given.
    listed: Option<At<bool>>,
    /// In a pool: the part that is allocated; 100% unless given.
    used: Option<At<Percent>>,
    /// In a pool: whether it must stay where it is; false unless given.
    pinned: Option<At<bool>>,
    /// In a pool: whether it stays together with the VM's other disks that say so; false unless given.
    with_vm: Option<At<bool>>,
    /// In a pool: the class of datastore that it must be on; any unless given.
    class: Option<At<String>>,
}

/// A guest's elevator.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum ElevatorFile {
    /// By arrival.
    Noop,
    /// By position in one direction, in batches, reads before writes, nobody for ever.
    Deadline,
    /// As deadline, and after a read a pause for the next of the same workload.
    Anticipatory,
    /// Workloads take turns; the writes of all have one of their own.
    Cfq,
}

/// Which of several nodes serves a request.
#[derive(Clone, Copy, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum RouteFile {
    /// Any, with equal chances.
    Uniform,
    /// Each in turn.
    RoundRobin,
    /// By address.
    Striped,
    /// Any, with chances in proportion to 'weights'.
    Weighted,
}

/// Something that issues requests.
#[derive(Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct WorkloadFile {
    /// Its name within the VM; 'workload' unless given.
    name: Option<At<String>>,
    /// When it issues.
    kind: At<KindFile>,
    /// The disk it works on, where the VM has several.
    disk: Option<At<String>>,
    /// Time from its VM's start until it begins; none unless given.
    delay: Option<Time>,
    /// The priority of its requests, 1 to 254; none unless given.
    priority: Option<At<Rank>>,
    /// Reads among its requests; 100% unless given.
    read: Option<At<Percent>>,
    /// Requests that go anywhere; others go on where the last one ended. 100% unless given.
    random: Option<At<Percent>>,
    /// Random requests that go to the beginning of what it uses: '80% in 20%' is four of five to its first fifth; evenly unless given.
    hot: Option<At<Hot>>,
    /// Size of its requests; 4K unless given.
    size: Option<At<Sizes>>,
    /// The part of the disk that it uses, from 'offset' on; all unless given.
    extent: Option<At<Size>>,
    /// The first byte that it uses; 0 unless given.
    offset: Option<At<Size>>,
    /// closed, on-off, and replay with timing 'closed': requests that it keeps outstanding; 32 unless given.
    outstanding: Option<At<u32>>,
    /// closed: one of these numbers instead, drawn by the seed.
    outstanding_of: Option<At<Vec<u32>>>,
    /// closed: one of these types instead of read, random and size, drawn by the seed.
    types: Option<At<Names>>,
    /// closed and oltp: time between a completion and what follows; none unless given.
    think: Option<At<Time>>,
    /// closed, on-off and oltp: whether think, on, off and cpu are constant or exponential; constant unless given.
    times: Option<At<Times>>,
    /// burst: requests of one burst.
    requests: Option<At<u32>>,
    /// burst: the pause.
    every: Option<At<Time>>,
    /// burst: what the pause counts from; fixed unless given.
    pacing: Option<At<PacingFile>>,
    /// open: requests per second.
    rate: Option<At<Rate>>,
    /// open: constant or poisson; poisson unless given.
    arrivals: Option<At<ArrivalsFile>>,
    /// on-off: how long it is busy.
    on: Option<At<Time>>,
    /// on-off: how long it is quiet.
    off: Option<At<Time>>,
    /// oltp: clients that wait for transactions.
    terminals: Option<At<u32>>,
    /// oltp: reads of a transaction, one after another.
    reads: Option<At<u32>>,
    /// oltp: writes of a transaction, all at once after the reads.
    writes: Option<At<u32>>,
    /// oltp: processor time of a transaction; none unless given.
    cpu: Option<At<Time>>,
    /// oltp: processors; as many as terminals unless given.
    processors: Option<At<u32>>,
    /// oltp: the disk on which one sequential write ends each transaction; no such write unless given.
    log_disk: Option<At<String>>,
    /// oltp: size of that write; 4K unless given.
    log_size: Option<At<Size>>,
    /// replay: the trace, a path beside the scenario's file.
    trace: Option<At<String>>,
    /// replay: recorded or closed; recorded unless given.
    timing: Option<At<TimingFile>>,
    /// replay: how fast, with timing 'recorded': 200% halves all times. 100% unless given.
    speed: Option<At<Percent>>,
    /// replay: whether it begins anew at the trace's end; false unless given.
    repeat: Option<At<bool>>,
}

/// When requests are issued.
#[derive(Clone, Copy, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum KindFile {
    /// Keeps requests outstanding.
    Closed,
    /// Many at once, again and again.
    Burst,
    /// They come by themselves.
    Open,
    /// Busy for a while, quiet for a while.
    OnOff,
    /// Transactions of terminals.
    Oltp,
    /// What was recorded.
    Replay,
}

/// How times vary.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum Times {
    /// They do not.
    Constant,
    /// Exponentially distributed.
    Exponential,
}

/// What the pause of bursts counts from.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum PacingFile {
    /// The start of the burst before: bursts may overlap.
    Fixed,
    /// Its last completion.
    AfterCompletion,
}

/// Distances of requests that come by themselves.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum ArrivalsFile {
    /// All equal.
    Constant,
    /// A Poisson process.
    Poisson,
}

/// When the requests of a trace are issued.
#[derive(Clone, Copy, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum TimingFile {
    /// At their times.
    Recorded,
    /// In order, with so many outstanding.
    Closed,
}

/// Something that happens.
#[derive(Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct EventFile {
    /// When.
    at: At<Time>,
    /// What.
    #[serde(rename = "do")]
    what: At<Verb>,
    /// start, stop, policy: which VM.
    vm: Option<At<String>>,
    /// policy: which of its disks, where it has several.
    disk: Option<At<String>>,
    /// rate, queue-depth, fail, return: which datastore, where there are several.
    datastore: Option<At<String>>,
    /// rate, fail, return: which node, where there are several; rate: all unless given.
    node: Option<At<String>>,
    /// rate: requests per second of the device.
    rate: Option<At<Rate>>,
    /// queue-depth: requests that each host may have outstanding.
    queue_depth: Option<At<u32>>,
    /// policy: another minimum, or 'none'.
    reservation: Option<At<MaybeIops>>,
    /// policy: another maximum, or 'none'.
    limit: Option<At<MaybeIops>>,
    /// policy: another maximum in bytes per second, or 'none'.
    limit_bandwidth: Option<At<MaybeBandwidth>>,
    /// policy: other shares.
    shares: Option<At<Weight>>,
    /// policy: another burst credit.
    burst: Option<At<u64>>,
}

/// What happens.
#[derive(Clone, Copy, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum Verb {
    /// A VM's workloads start.
    Start,
    /// They stop.
    Stop,
    /// A disk's policy changes where it is said.
    Policy,
    /// Devices get another rate.
    Rate,
    /// Hosts get another window.
    QueueDepth,
    /// A node stands still.
    Fail,
    /// It comes back.
    Return,
}

/// One way to run the scenario.
#[derive(Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct VariantFile {
    /// Its name: letters, digits, -, _, . and =. With 'each', {} in it stands for the value.
    name: At<String>,
    /// What it changes: a path of keys and names, such as 'datastore.lun.scheduler' or 'vm.*.disk.burst', and the value
    /// there. With 'each', {} in a text stands for the value.
    #[serde(default)]
    #[allow(dead_code)] // Read from the tree, with positions; here for the schema and for unknown keys.
    set: BTreeMap<String, Anything>,
    /// Makes one variant for each of these values.
    #[serde(default)]
    #[allow(dead_code)]
    each: Vec<Anything>,
}

/// Any value.
#[derive(Clone, Deserialize)]
#[serde(from = "serde::de::IgnoredAny")]
struct Anything;

impl From<serde::de::IgnoredAny> for Anything {
    fn from(_: serde::de::IgnoredAny) -> Anything {
        Anything
    }
}

impl JsonSchema for Anything {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Anything".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        true.into()
    }
}

/// The JSON schema of scenario files, for editors.
pub fn schema() -> schemars::Schema {
    schemars::schema_for!(ScenarioFile)
}
