//! What the engine tells of itself.

use crate::priorities::Priorities;
use crate::request::{Access, IoError};
use crate::topology::Topology;
use crate::trouble::TroublePolicy;
use headgate_devices::{FlashCounters, FlashDrive, FlashStanding};
use headgate_nbd::counters::{Counting, Received, Window};
use headgate_qos::window::{Observation, Slots};
use headgate_qos::{Cost, LatencyStanding, LearnedCosts, Policy, Promise, WaitTimes};
use headgate_stats::{ErrorCounts, ErrorOp};
use headgate_units::{Bytes, Nanos, Priority};
use std::ops::Deref;
use std::sync::Arc;

/// A datastore and its disks at one instant.
#[derive(Clone, Debug)]
pub struct DatastoreSnapshot {
    /// Its name.
    pub name: String,
    /// Requests that may be at the backend at once.
    pub window: Slots,
    /// Why that is less than was set, where a reservation narrows it.
    pub narrowed: Option<NarrowedWindow>,
    /// Requests at the backend.
    pub in_flight: u32,
    /// Requests waiting in the scheduler.
    pub queued: usize,
    /// When this was taken, on `CLOCK_MONOTONIC`.
    pub at: Nanos,
    /// Counters and histograms of all its disks together.
    pub stats: headgate_stats::DiskSnapshot,
    /// Its disks, in an order that stays.
    pub disks: Vec<DiskReading>,
    /// Of an emulated flash drive: what it is and did for all its disks.
    pub flash: Option<FlashDrive>,
    /// What requests cost, where that is learned.
    pub costs: Option<LearnedCosts>,
}

/// A window that is narrowed for a reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NarrowedWindow {
    /// Which promise to the disk.
    pub promise: Promise,
    /// The disk that it was last narrowed for.
    pub disk: String,
    /// What all disks together got per second before, in reference IOs.
    pub before: Cost,
    /// And in the last period.
    pub now: Cost,
}

/// A disk as it is at one instant. What stands still is not read again: `told` is from before then,
/// and holds.
#[derive(Clone, Debug)]
pub struct DiskReading {
    /// When it was so, on `CLOCK_MONOTONIC`.
    pub at: Nanos,
    /// What its shard told. Readings that share it are of a disk that nothing has happened to.
    pub told: Arc<DiskSnapshot>,
}

impl Deref for DiskReading {
    type Target = DiskSnapshot;

    fn deref(&self) -> &DiskSnapshot {
        &self.told
    }
}

/// A disk at the instant in which it was read.
#[derive(Clone, Debug)]
pub struct DiskSnapshot {
    /// The shard's own number for the disk.
    pub(crate) key: usize,
    /// Its name.
    pub name: String,
    /// Its size.
    pub size: Bytes,
    /// Smallest unit of a request in bytes.
    pub block_size: u32,
    /// The sizes of requests that its storage serves best.
    pub topology: Topology,
    /// Whether requests go around the host's page cache.
    pub access: Access,
    /// The policy in force in the scheduler.
    pub policy: Policy,
    /// What its requests may ask for.
    pub priorities: Priorities,
    /// What each final priority has got since the disk was opened, lowest first; those that got
    /// nothing are left out.
    pub streams: Vec<StreamSnapshot>,
    /// Requests waiting in the scheduler.
    pub queued: u32,
    /// Requests at the backend.
    pub in_flight: u32,
    /// How many requests its client would have to keep outstanding for the reservation, where a
    /// narrow window did not help.
    pub needed_depth: Option<u32>,
    /// How it stands to its latency target, where it has one and was judged.
    pub latency: Option<LatencyStanding>,
    /// Clients attached.
    pub ports: usize,
    /// Of an export of an NBD server: its connection.
    pub remote: Option<RemoteSnapshot>,
    /// Counters and histograms since the disk was opened.
    pub stats: Arc<headgate_stats::DiskSnapshot>,
    /// Its queues in the scheduler: that of its clients, and that of a copy of it.
    pub(crate) queues: [Option<headgate_qos::DiskId>; 2],
    /// Where the time of its clients' requests went since it was opened.
    pub waits: Option<WaitTimes>,
    /// The neighbours that took the most of that.
    pub neighbours: Vec<NeighbourSnapshot>,
    /// What its storage failed, and what it holds for that.
    pub trouble: TroubleSnapshot,
    /// On an emulated flash drive: what that did for it.
    pub flash: Option<FlashSnapshot>,
}

/// What a disk's requests waited for those of a neighbour at the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeighbourSnapshot {
    /// Its name.
    pub name: String,
    /// Whose requests they were.
    pub sender: Sender,
    /// Another number than before says that it was left out in between, and began anew.
    pub entered: u32,
    /// For how long, in request-nanoseconds, since it entered.
    pub waited: u64,
}

/// Who sends a disk's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// Its clients.
    Clients,
    /// A copy that is made of it.
    Copy,
}

/// What a disk's storage failed, and what the disk holds for that.
#[derive(Clone, Copy, Debug)]
pub struct TroubleSnapshot {
    /// What it does about errors.
    pub policy: TroublePolicy,
    /// Errors since it was opened.
    pub counts: ErrorCounts,
    /// The last of them.
    pub last: Option<LastError>,
    /// When a client was last told of one, on `CLOCK_MONOTONIC`.
    pub reported: Option<Nanos>,
    /// What it holds, if it does.
    pub hold: Option<HoldSnapshot>,
    /// How often it began to hold since it was opened.
    pub holds: u64,
}

/// An error of a disk's storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastError {
    /// When, on `CLOCK_MONOTONIC`.
    pub at: Nanos,
    /// What failed.
    pub op: ErrorOp,
    /// Why.
    pub error: IoError,
    /// Where its range begins.
    pub offset: Bytes,
    /// The length of its range.
    pub len: Bytes,
}

/// What a disk holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldSnapshot {
    /// Since when, on `CLOCK_MONOTONIC`.
    pub since: Nanos,
    /// Why.
    pub error: IoError,
    /// How many requests.
    pub requests: usize,
    /// How often one of them was tried in vain.
    pub tries: u64,
}

/// A disk on an emulated flash drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlashSnapshot {
    /// What the drive did for it since it was opened.
    pub counters: FlashCounters,
    /// What it has of the drive, and is to have.
    pub standing: FlashStanding,
}

/// What a datastore's window is set by: see [`Engine::end_period`](crate::Engine::end_period).
#[derive(Clone, Debug)]
pub struct Period {
    /// The latency of its backend since the last call; `None` when nothing completed, or nobody
    /// asked for it.
    pub latency: Option<Observation>,
    /// What its disks have done since they were opened.
    pub disks: Vec<DiskUsage>,
}

/// What a disk has done since it was opened.
#[derive(Clone, Copy, Debug)]
pub struct DiskUsage {
    /// The shard's own number for the disk, which a later disk may have again.
    pub key: usize,
    /// The policy in force in the scheduler.
    pub policy: Policy,
    /// When this was read.
    pub at: Nanos,
    /// Requests that waited or were at the backend, over time, in request-nanoseconds.
    pub outstanding_time: u128,
    /// Reads and writes that completed.
    pub ios: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// A remote disk's connection to its server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteSnapshot {
    /// How it is.
    pub state: RemoteState,
    /// Why there is none, while there is none.
    pub reason: Option<String>,
    /// Connections made after the first one was lost.
    pub reconnects: u64,
    /// Connections lost while acknowledged writes were not flushed: as often, flushes failed.
    pub losses: u64,
    /// By server: one, or the members of a striped disk.
    pub servers: Vec<ServerSnapshot>,
}

/// One of the servers of a remote disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSnapshot {
    /// Its URI, without an export.
    pub server: String,
    /// How the connection is.
    pub state: RemoteState,
    /// Why there is none, while there is none.
    pub reason: Option<String>,
    /// Connections made for ones that were lost.
    pub reconnects: u64,
    /// Connections of now.
    pub connections: usize,
    /// Commands that it owes an answer.
    pub outstanding: usize,
    /// Commands that are to be sent.
    pub waiting: usize,
    /// How long answers took of late, from the sending of the command on: an exponential mean over
    /// some 64 of them.
    pub latency: Option<Nanos>,
    /// Whether it counts what the disk receives.
    pub counting: Counting,
    /// The window of its storage behind the export, as it said last, if it says that.
    pub window: Option<Window>,
    /// What the disk has received there, as the server has said.
    pub received: Received,
}

/// How a remote disk's connection is; the better come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RemoteState {
    /// The server answers.
    Connected,
    /// There is none: requests wait.
    Waiting,
    /// There has been none for too long, or the export is another: requests fail.
    Failing,
    /// Another host holds the disk: requests fail.
    Evicted,
}

/// What a disk's requests of one final priority have got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamSnapshot {
    /// The priority, after the virtual machine's cap.
    pub priority: Priority,
    /// Requests dispatched.
    pub ios: u64,
    /// Their charges, in millionths of a reference IO.
    pub cost: u64,
}
