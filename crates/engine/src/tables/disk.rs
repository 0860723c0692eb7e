//! An open disk, as its shard holds it.

use super::queue_slots::QueueSlots;
use super::streams::Streams;
use crate::backend::storage::Storage;
use crate::priorities::Priorities;
use crate::request::{Access, DiskInfo};
use headgate_qos::{DiskId as Queue, Policy};
use headgate_stats::DiskStats;

pub(crate) struct ShardDisk {
    pub info: DiskInfo,
    pub datastore: usize,
    /// What its backend made of its image.
    pub storage: Storage,
    pub access: Access,
    pub queue: Queue,
    pub policy: Policy,
    pub priorities: Priorities,
    pub streams: Streams,
    pub queue_slots: QueueSlots,
    pub in_flight: u32,
    pub ports: Vec<u32>,
    pub stats: DiskStats,
}
