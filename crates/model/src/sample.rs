//! Samples: the counters of datastores and disks at one instant, as the shards report them.

use crate::connection::Connection;
use crate::waits::Waits;
use crate::{BlockSizes, Name, Policy, PriorityRecord, TroubleSample};
use headgate_devices::{FlashCounters, FlashDrive, FlashStanding};
use headgate_qos::LearnedCosts;
use headgate_qos::window::Slots;
use headgate_qos::{LatencyStanding, Promise};
use headgate_stats::DiskSnapshot;
use headgate_units::{Bytes, Priority};

/// A datastore and its disks at one instant, as the shard reports them.
#[derive(Clone, Debug)]
pub struct DatastoreSample {
    /// Its name.
    pub name: Name,
    /// Requests that may be at the device at once.
    pub window: Slots,
    /// Why that is less than was set, where a promise narrows it.
    pub narrowed: Option<NarrowedSample>,
    /// Requests at the device.
    pub in_flight: u32,
    /// Requests waiting in the scheduler.
    pub queued: u64,
    /// Counters since it was added.
    pub stats: DiskSnapshot,
    /// Its disks.
    pub disks: Vec<DiskSample>,
    /// Of an emulated flash drive: what it is and did for all its disks.
    pub flash: Option<FlashDrive>,
    /// What requests cost, where that is learned.
    pub costs: Option<LearnedCosts>,
}

/// A window that is narrowed for a reservation or a latency target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NarrowedSample {
    /// The disk that it was last narrowed for.
    pub disk: Name,
    /// And which of its promises.
    pub promise: Promise,
    /// What all disks together got before, in normalised IOPS.
    pub before: u64,
    /// And in the last half second.
    pub now: u64,
}

/// A disk at one instant, as the shard reports it.
#[derive(Clone, Debug)]
pub struct DiskSample {
    /// Its name.
    pub name: Name,
    /// The policy in force.
    pub policy: Policy,
    /// The priorities in force.
    pub priorities: PriorityRecord,
    /// The sizes of requests that its storage serves best; `None`: nobody asked it.
    pub block_sizes: Option<BlockSizes>,
    /// Service of each effective priority since the disk was opened, lowest first.
    pub streams: Vec<StreamSample>,
    /// Requests at the device.
    pub in_flight: u32,
    /// Requests waiting in the scheduler.
    pub queued: u32,
    /// How many requests its clients would have to keep outstanding for the reservation, where a
    /// narrow window did not help.
    pub needed_depth: Option<u32>,
    /// How it stands to its latency target, where it has one and was judged.
    pub latency: Option<LatencyStanding>,
    /// Clients connected.
    pub clients: usize,
    /// Of a remote disk: its connection to the server.
    pub remote: Option<Connection>,
    /// Counters since it was opened.
    pub stats: DiskSnapshot,
    /// What its requests waited for since it was opened.
    pub waits: Waits,
    /// What it has seen of its storage's trouble.
    pub trouble: TroubleSample,
    /// On an emulated flash drive: what that did for it.
    pub flash: Option<FlashSample>,
}

impl DiskSample {
    /// A disk that did so much for its one client, with nothing under way now: no streams, no
    /// server, no flash drive.
    pub fn new(name: Name, policy: Policy, stats: DiskSnapshot) -> DiskSample {
        DiskSample {
            name,
            policy,
            priorities: PriorityRecord::unset(),
            block_sizes: None,
            streams: Vec::new(),
            in_flight: 0,
            queued: 0,
            needed_depth: None,
            latency: None,
            clients: 1,
            remote: None,
            stats,
            waits: Waits::default(),
            trouble: TroubleSample::default(),
            flash: None,
        }
    }
}

/// Service of a disk's requests of one effective priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamSample {
    /// The priority, after the virtual machine's cap.
    pub priority: Priority,
    /// Requests dispatched.
    pub ios: u64,
    /// The same by size, in millionths of a normalised IO.
    pub cost: u64,
}

/// The state of a disk on an emulated flash drive, and the drive's counters for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlashSample {
    /// The drive's counters for it since it was opened.
    pub counters: FlashCounters,
    /// Its space on the drive, and the target.
    pub standing: FlashStanding,
}

/// What NBD clients hold, and may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NbdSample {
    /// Connections in transmission.
    pub connections: usize,
    /// The most of them in all; a disk's first one comes in above it.
    pub connections_max: usize,
    /// The most of them to the disks of one machine.
    pub connections_per_vm_max: usize,
    /// The most of them to one disk.
    pub connections_per_disk_max: usize,
    /// Clients that were refused for these limits so far.
    pub refused: u64,
    /// Memory in buffers, besides 64 KiB for each connection.
    pub memory: Bytes,
    /// The most of it.
    pub memory_max: Bytes,
    /// How often a connection got less than it asked for.
    pub memory_denied: u64,
}
