//! What the engine tells of itself.

use headgate_qos::Policy;
use headgate_units::{Bytes, Nanos};

/// A datastore and its disks at one instant.
#[derive(Clone, Debug)]
pub struct DatastoreSnapshot {
    /// Its name.
    pub name: String,
    /// Requests that may be at the backend at once.
    pub window: u32,
    /// Requests at the backend.
    pub in_flight: u32,
    /// Requests waiting in the scheduler.
    pub queued: usize,
    /// When this was taken, on `CLOCK_MONOTONIC`.
    pub at: Nanos,
    /// Counters and histograms of all its disks together.
    pub stats: headgate_stats::DiskSnapshot,
    /// Its disks.
    pub disks: Vec<DiskSnapshot>,
}

/// A disk at one instant.
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
    /// Do requests bypass the host's page cache.
    pub direct: bool,
    /// The policy in force in the scheduler.
    pub policy: Policy,
    /// Requests waiting in the scheduler.
    pub queued: u32,
    /// Requests at the backend.
    pub in_flight: u32,
    /// Clients attached.
    pub ports: usize,
    /// Counters and histograms since the disk was opened.
    pub stats: headgate_stats::DiskSnapshot,
}

impl DiskSnapshot {
    /// Is this the disk with this identity (within the datastore's shard).
    pub fn is(&self, disk: crate::engine::DiskId) -> bool {
        disk.key == self.key
    }
}
