//! Wire types of the live view.

use super::blame::Blame;
use super::copies::Copy;
use super::imports::Import;
use super::latency::{LatencyNow, NarrowedFor};
use super::moves::Move;
use super::trouble::Trouble;
use super::types::ServiceState;
use super::windows::WindowNow;
use headgate_model::Name;
use headgate_model::Policy;
use headgate_model::Scheduler;
use headgate_model::{DatastoreSample, StreamSample};
use headgate_placement::State;
use headgate_units::Priority;
use serde::{Deserialize, Serialize};

/// A latency over an interval, in microseconds. Rounded up, at most 3.2 % too high.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LatencyMicros {
    /// The median.
    pub p50: u64,
    /// 99 % did not take longer.
    pub p99: u64,
}

/// What a disk or a datastore did over the last two seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Load {
    /// Requests completed per second.
    pub iops: f64,
    /// The same in normalised IOs per second, by size: what reservations and limits are measured
    /// in.
    pub normalised_iops: f64,
    /// Bytes read and written per second.
    pub bytes_per_sec: f64,
    /// Reads among reads and writes, 0 to 1.
    pub read_fraction: Option<f64>,
    /// Mean number of requests outstanding, those that wait included.
    pub outstanding: f64,
    /// Requests that failed.
    pub errors: u64,
    /// From a request's arrival to its dispatch.
    pub queue_micros: Option<LatencyMicros>,
    /// From a request's dispatch to its completion.
    pub device_micros: Option<LatencyMicros>,
}

/// What the requests of one priority did on a disk over the last two seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TopStream {
    /// The priority that they counted, given or not, after the virtual machine's highest.
    #[cfg_attr(feature = "openapi", schema(value_type = u8))]
    pub priority: Priority,
    /// Requests sent to the device per second.
    pub iops: f64,
    /// The part of what the disk got, by size, 0 to 1.
    pub part: f64,
}

/// A disk in the live view.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TopDisk {
    /// Its name.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub name: Name,
    /// The virtual machine it belongs to.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub vm: Option<Name>,
    /// Is it in service.
    pub state: ServiceState,
    /// The policy in force; what was set, when not in service.
    pub policy: Policy,
    /// Clients connected.
    pub clients: usize,
    /// Requests waiting in the scheduler now.
    pub queued: u64,
    /// Requests at the device now.
    pub in_flight: u64,
    /// The trouble of its storage, while there is some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<Trouble>,
    /// What it did.
    pub load: Load,
    /// The priorities that got the most, at most 16, the highest first.
    #[serde(default)]
    pub streams: Vec<TopStream>,
    /// Normalised IOPS over the reservation, over the last five seconds. Below 1 also when it asked
    /// for less.
    pub reservation_achieved: Option<f64>,
    /// Requests waited all the time and yet the reservation was missed by more than 3 %, over the
    /// last five seconds.
    pub reservation_missed: bool,
    /// How many requests its clients would have to keep outstanding for the reservation. `null`
    /// where they keep enough, or where a narrower window makes up for it.
    #[serde(default)]
    pub needed_depth: Option<u32>,
    /// How it stands to its latency target; `null` where it has none, or asked for nothing lately.
    #[serde(default)]
    pub latency: Option<LatencyNow>,
    /// The part of the datastore's service it got over the part that its shares give it among the
    /// busy disks, over the last five seconds: 1 is exactly its share. Where tenants or machines
    /// are promised something, they share with what is beside them, and their disks share what
    /// they have. Reservations and limits move it away from 1.
    pub share_achieved: Option<f64>,
    /// What its requests waited for, and behind whom, over the last five seconds; `null` where it
    /// asked for nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blame: Option<Blame>,
}

/// A tenant in the live view.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TopTenant {
    /// Its name.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub name: Name,
    /// Its virtual machines, as disks name them.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub vms: Vec<Name>,
}

/// A window that is narrowed for a promise to a disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NarrowedWindow {
    /// The disk that it was last narrowed for.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub disk: Name,
    /// And which of its promises.
    #[serde(default)]
    pub promise: NarrowedFor,
    /// What all disks together got before, in normalised IOPS.
    pub before_iops: u64,
    /// And in the last half second.
    pub now_iops: u64,
}

/// A datastore in the live view.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TopDatastore {
    /// Its name.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub name: Name,
    /// Is it in service.
    pub state: ServiceState,
    /// Whether disks are placed on it: `active`, `closed`, or `maintenance` when it is to be
    /// emptied.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub placement: State,
    /// How it is divided.
    pub scheduler: Scheduler,
    /// Requests that may be at the device at once.
    pub window: f64,
    /// Why it is less than was set, where a promise narrows it.
    #[serde(default)]
    pub narrowed: Option<NarrowedWindow>,
    /// How the window follows the latency; `null` where it is the queue depth.
    #[serde(default)]
    pub control: Option<WindowNow>,
    /// Requests at the device now.
    pub in_flight: u64,
    /// Requests waiting in the scheduler now.
    pub queued: u64,
    /// What it can promise, in IOPS; `null` while unknown.
    pub capacity_iops: Option<u64>,
    /// Sum of the reservations on it.
    pub reserved_iops: u64,
    /// IOPS promised beyond what can be kept.
    pub overbooked_iops: u64,
    /// What all its disks did together.
    pub load: Load,
    /// Its disks.
    pub disks: Vec<TopDisk>,
}

/// The live view.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Top {
    /// How long the interval of the loads is, in milliseconds; 0 right after the start.
    pub interval_millis: u64,
    /// The datastores, by name.
    pub datastores: Vec<TopDatastore>,
    /// Moves that are under way: each has a copy on two datastores.
    #[serde(default)]
    pub moves: Vec<Move>,
    /// Copies as of one instant that are under way.
    #[serde(default)]
    pub copies: Vec<Copy>,
    /// Images that are imported.
    #[serde(default)]
    pub imports: Vec<Import>,
    /// Tenants that have virtual machines.
    #[serde(default)]
    pub tenants: Vec<TopTenant>,
}

/// What the requests of one priority got on a disk since it was opened.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StreamStats {
    /// The priority that they counted.
    #[cfg_attr(feature = "openapi", schema(value_type = u8))]
    pub priority: Priority,
    /// Requests sent to the device.
    pub ios: u64,
    /// The same by size, in millionths of a normalised IO.
    pub cost: u64,
}

/// All that was counted on a disk since it was opened.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DiskStats {
    /// Its name.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub name: Name,
    /// Counters and histograms, as `headgate_stats::DiskSnapshot` documents them.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub stats: headgate_stats::DiskSnapshot,
    /// By priority, the lowest first; those that got nothing are left out.
    pub streams: Vec<StreamStats>,
}

/// All that was counted on a datastore since it was added.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DatastoreStats {
    /// Its name.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub name: Name,
    /// Counters and histograms of all its disks, as `headgate_stats::DiskSnapshot` documents them.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub stats: headgate_stats::DiskSnapshot,
    /// Its disks.
    pub disks: Vec<DiskStats>,
}

impl From<DatastoreSample> for DatastoreStats {
    fn from(sample: DatastoreSample) -> DatastoreStats {
        let stream =
            |s: StreamSample| StreamStats { priority: s.priority, ios: s.ios, cost: s.cost };
        let disks = sample.disks.into_iter().map(|disk| DiskStats {
            name: disk.name.clone(),
            stats: (*disk.counted).clone(),
            streams: disk.streams.iter().copied().map(stream).collect(),
        });
        DatastoreStats { name: sample.name, stats: sample.stats, disks: disks.collect() }
    }
}
