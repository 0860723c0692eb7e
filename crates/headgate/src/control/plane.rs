//! The data path as the control side sees it.

use crate::catalog::{DatastoreRecord, ExportRecord, PolicyRecord, PriorityRecord};
use crate::name::Name;
use headgate_devices::FlashDrive;
use headgate_engine::remote::Connection;
use headgate_engine::snapshot::Period;
use headgate_engine::snapshot::{FlashSnapshot, RemoteSnapshot};
use headgate_nbd::uri::Uri;
use headgate_qos::window::{LatencyMeter, Slots};
use headgate_qos::{Burst, Policy, PolicyError};
use headgate_stats::DiskSnapshot;
use headgate_units::{Bytes, Nanos, Priority};
use std::path::{Path, PathBuf};
use std::time::Duration;
use thiserror::Error;

/// Why the data path did not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{error}")]
pub struct PlaneError {
    /// What was wrong.
    pub error: String,
    /// What to do.
    pub hint: Option<String>,
}

impl PlaneError {
    /// An error without advice.
    pub fn new(error: impl std::fmt::Display) -> PlaneError {
        PlaneError { error: error.to_string(), hint: None }
    }
}

/// An export of an NBD server, as a connection to it found it.
#[derive(Debug)]
pub struct Probe {
    /// Its size.
    pub size: Bytes,
    /// Smallest unit of a request in bytes.
    pub block_size: u32,
    /// The connection, to go on with.
    pub connection: Option<Connection>,
}

/// The export of an NBD server that a disk is.
#[derive(Debug)]
pub struct RemoteDisk {
    /// Where it is.
    pub uri: Uri,
    /// Smallest unit of a request in bytes.
    pub block_size: u32,
    /// A connection to it, if there is one already; else the disk tries until it has one.
    pub connection: Option<Connection>,
}

/// A disk to bring into service.
#[derive(Debug)]
pub struct OpenDisk {
    /// Its name and that of its NBD export.
    pub name: Name,
    /// Where it lives.
    pub datastore: Name,
    /// The image file or the block device; empty for a remote disk.
    pub image: PathBuf,
    /// The export, of a remote disk.
    pub remote: Option<RemoteDisk>,
    /// Its size.
    pub size: Bytes,
    /// What it was promised.
    pub policy: PolicyRecord,
    /// What its virtual machine's applications may ask for.
    pub priorities: PriorityRecord,
    /// Where its vhost-user socket goes.
    pub vhost_socket: PathBuf,
}

/// A datastore and its disks at one instant, as the shard reports them.
#[derive(Clone, Debug)]
pub struct DatastoreSample {
    /// Its name.
    pub name: Name,
    /// Requests that may be at the device at once.
    pub window: Slots,
    /// Requests at the device.
    pub in_flight: u32,
    /// Requests waiting in the scheduler.
    pub queued: u64,
    /// What was counted since it was added.
    pub stats: DiskSnapshot,
    /// Its disks.
    pub disks: Vec<DiskSample>,
    /// Of an emulated flash drive: what it is and did for all its disks.
    pub flash: Option<FlashDrive>,
}

/// A disk at one instant, as the shard reports it.
#[derive(Clone, Debug)]
pub struct DiskSample {
    /// Its name.
    pub name: Name,
    /// The policy in force.
    pub policy: PolicyRecord,
    /// The priorities in force.
    pub priorities: PriorityRecord,
    /// What each final priority has got since the disk was opened, lowest first.
    pub streams: Vec<StreamSample>,
    /// Requests at the device.
    pub in_flight: u32,
    /// Requests waiting in the scheduler.
    pub queued: u32,
    /// Clients connected.
    pub clients: usize,
    /// Of a remote disk: its connection to the server.
    pub remote: Option<RemoteSnapshot>,
    /// What was counted since it was opened.
    pub stats: DiskSnapshot,
    /// On an emulated flash drive: what that did for it.
    pub flash: Option<FlashSnapshot>,
}

impl DiskSample {
    /// A disk that did so much for its one client, with nothing under way now: no streams, no server, no flash drive.
    pub fn new(name: Name, policy: PolicyRecord, stats: DiskSnapshot) -> DiskSample {
        DiskSample {
            name,
            policy,
            priorities: PriorityRecord::unset(),
            streams: Vec::new(),
            in_flight: 0,
            queued: 0,
            clients: 1,
            remote: None,
            stats,
            flash: None,
        }
    }
}

/// What a disk's requests of one final priority have got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamSample {
    /// The priority, after the virtual machine's cap.
    pub priority: Priority,
    /// Requests dispatched.
    pub ios: u64,
    /// The same by size, in millionths of a normalised IO.
    pub cost: u64,
}

/// A disk in service, as the shard has it now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveDisk {
    /// The policy in force.
    pub policy: PolicyRecord,
    /// The priorities in force.
    pub priorities: PriorityRecord,
    /// Clients connected now.
    pub clients: usize,
    /// Of a remote disk: its connection to the server.
    pub remote: Option<RemoteSnapshot>,
}

/// Datastores and disks in service. Calls block until the shard confirms; none is made on the data path.
pub trait DataPlane: Send + Sync {
    /// Brings a datastore into service; `directory` is where its images are, if it has one.
    ///
    /// # Errors
    /// When the storage or the model cannot be used.
    fn add_datastore(&self, record: &DatastoreRecord, directory: Option<&Path>) -> Result<(), PlaneError>;

    /// Changes how many requests may be outstanding at a datastore.
    ///
    /// # Errors
    /// When the shard does not confirm.
    fn set_window(&self, datastore: &Name, window: Slots) -> Result<(), PlaneError>;

    /// Has a datastore's latency measured from now on, or no more.
    ///
    /// # Errors
    /// When the shard does not confirm.
    fn measure_latency(&self, datastore: &Name, meter: Option<LatencyMeter>) -> Result<(), PlaneError>;

    /// What a datastore's window is to be set by: what was seen since the last call.
    ///
    /// # Errors
    /// When the shard does not answer.
    fn end_period(&self, datastore: &Name) -> Result<Period, PlaneError>;

    /// Changes how long a request may wait for one of a better priority.
    ///
    /// # Errors
    /// When the shard does not confirm.
    fn set_plug(&self, datastore: &Name, plug: Nanos) -> Result<(), PlaneError>;

    /// Takes a datastore without disks out of service.
    ///
    /// # Errors
    /// When the shard does not confirm.
    fn remove_datastore(&self, datastore: &Name) -> Result<(), PlaneError>;

    /// Makes an image file of this size at a path where there is none, durably.
    ///
    /// # Errors
    /// When the file system refuses.
    fn create_image(&self, path: &Path, size: Bytes) -> Result<(), PlaneError>;

    /// The size of a block device.
    ///
    /// # Errors
    /// When it cannot be opened or is in use.
    fn device_size(&self, path: &Path) -> Result<Bytes, PlaneError>;

    /// Connects to an export of an NBD server. Waits for it, up to a deadline.
    ///
    /// # Errors
    /// When it does not answer, has no such export, or the export cannot be a disk.
    fn connect(&self, uri: &Uri) -> Result<Probe, PlaneError>;

    /// Brings a disk into service: engine, NBD export, vhost-user socket.
    ///
    /// # Errors
    /// When the image cannot be opened or the socket cannot be made; the disk is not in service then.
    fn open_disk(&self, disk: OpenDisk) -> Result<(), PlaneError>;

    /// Changes a disk's policy; in force when the call returns.
    ///
    /// # Errors
    /// When the shard does not confirm.
    fn set_policy(&self, disk: &Name, policy: &PolicyRecord) -> Result<(), PlaneError>;

    /// Changes what a disk's requests may ask for; in force when the call returns.
    ///
    /// # Errors
    /// When the shard does not confirm.
    fn set_priorities(&self, disk: &Name, priorities: &PriorityRecord) -> Result<(), PlaneError>;

    /// Adds a further export or changes its priority. One whose disk is not in service is not to be had until it is.
    fn put_export(&self, export: &ExportRecord);

    /// Forgets a further export, if it is there.
    fn remove_export(&self, name: &Name);

    /// Takes a disk out of service, waiting up to `patience` for its requests.
    ///
    /// # Errors
    /// When the shard does not confirm.
    fn close_disk(&self, disk: &Name, patience: Duration) -> Result<(), PlaneError>;

    /// Takes a disk out of service at once: its clients are cut off, its requests that are at the storage waited for. It is not
    /// brought back, whatever happens.
    ///
    /// # Errors
    /// When requests are still at the storage after a while, or the shard does not confirm.
    fn abandon_disk(&self, disk: &Name) -> Result<(), PlaneError>;

    /// Everything in service, as the shards have it now.
    ///
    /// # Errors
    /// When a shard does not answer.
    fn sample(&self) -> Result<Vec<DatastoreSample>, PlaneError>;

    /// Takes no new clients, finishes what was taken, closes every disk.
    fn shutdown(&self, patience: Duration);
}

/// A policy as the scheduler takes it.
///
/// # Errors
/// When its values contradict each other or are out of range.
pub fn scheduler_policy(policy: &PolicyRecord) -> Result<Policy, PolicyError> {
    let burst = Burst::new(u64::from(policy.burst))?;
    Policy::new(policy.reservation, policy.limit, policy.limit_bandwidth, policy.shares, burst)
}
