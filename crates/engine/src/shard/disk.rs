//! A disk and a datastore as their shard holds them.

use super::room::Room;
use super::streams::Streams;
use crate::image::Image;
use crate::priorities::Priorities;
use crate::request::DiskInfo;
use headgate_devices::DeviceModel;
use headgate_qos::window::{LatencyMeter, Pacer};
use headgate_qos::{AnyScheduler, DiskId as Queue, Policy};
use headgate_stats::{DiskSnapshot, DiskStats, Recent};
use headgate_units::Nanos;
use io_uring::types::Fixed;

/// Requests of one disk that may wait in the scheduler. Past that they stay where they are, in the ring or the socket,
/// so that a throttled guest costs the host nothing.
pub(super) const QUEUE_MAX: u32 = 256;

pub(super) struct Disk {
    pub info: DiskInfo,
    pub datastore: usize,
    pub image: Image,
    pub file: Option<Fixed>,
    /// Of a remote disk: its link to the server.
    pub link: Option<u32>,
    pub queue: Queue,
    pub policy: Policy,
    pub priorities: Priorities,
    pub streams: Streams,
    pub room: Room,
    pub in_flight: u32,
    pub ports: Vec<u32>,
    pub stats: DiskStats,
    /// Where the disk begins on an emulated device.
    pub base: u64,
}

/// What lies under a datastore's scheduler.
pub(crate) enum Backend {
    /// Image files or block devices, as fast as they are.
    Files,
    /// Image files behind a device model: a request ends when both have done it.
    Emulated {
        /// The device.
        model: Box<dyn DeviceModel + Send>,
        /// Where places for disks on it end, in bytes.
        capacity: u64,
    },
    /// Nothing: reads are zeroes, writes vanish.
    Null,
    /// Exports of an NBD server.
    Remote,
}

pub(super) struct Datastore {
    pub name: String,
    pub backend: Backend,
    pub scheduler: AnyScheduler<u32>,
    /// How many requests may be at the backend at once, and how many are.
    pub pacer: Pacer,
    /// What is seen of the backend's latency, where somebody asks.
    pub meter: Option<LatencyMeter>,
    /// When the scheduler wants to be asked again although nothing happened.
    pub wake: Option<Nanos>,
    /// Something happened since the scheduler was asked.
    pub dirty: bool,
    /// What disks had counted when they were closed.
    pub closed: DiskSnapshot,
    /// How many disks were closed.
    pub closures: u64,
}

impl Datastore {
    /// Keeps what a disk that is closed has counted.
    pub(super) fn keep_counts(&mut self, now: Nanos, stats: &DiskStats) {
        let counted = stats.snapshot(now);
        // What it did of late it does no more.
        self.closed.merge(&DiskSnapshot { outstanding: 0, recent: Recent::default(), ..counted });
        self.closures += 1;
    }

    /// The next instant at which this datastore has work without any event.
    pub(super) fn next_wake(&self) -> Option<Nanos> {
        let device = match &self.backend {
            Backend::Emulated { model, .. } => model.next_event(),
            Backend::Files | Backend::Null | Backend::Remote => None,
        };
        match (self.wake, device) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }
}
