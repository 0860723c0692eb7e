//! The interface of the data plane, which serves disks, to the control plane.

use crate::NbdSample;
use crate::connection::Connection;
use crate::sample::{DatastoreSample, DiskSample};
use crate::{
    BlockSizes, DatastoreRecord, DiskCopies, DiskGroups, Ended, ExportRecord, LiveMoves, Machine,
    Name, OpenDisk, PlaneError, Policy, PriorityRecord, Session, TroubleSample, Writes,
};
use crate::{MemberProbe, PolicyAnswers, ServerPolicy};
use headgate_access::Access;
use headgate_devices::LayerSpec;
use headgate_devices::layer::TracePart;
use headgate_nbd::uri::Uri;
use headgate_qos::window::{DiskTotals, LatencyMeter, Observation, Slots};
use headgate_qos::{Adjustment, LatencyStanding, Narrow};
use headgate_stripe::Label;
use headgate_units::{Bytes, Nanos};
use std::path::Path;
use std::time::Duration;
use thiserror::Error;

/// An export of an NBD server, as a connection to it found it.
#[derive(Debug)]
pub struct Probe {
    /// Its size.
    pub size: Bytes,
    /// Smallest unit of a request in bytes.
    pub block_size: u32,
    /// The established session, for [`DataPlane::open_disk`] to continue with.
    pub session: Option<Session>,
}

/// What is done about data in the part of a disk that is cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutOff {
    /// Nothing that has any is cut off.
    Keep,
    /// It goes.
    Discard,
}

/// Why a disk did not get another size. It has the one that it had.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NotResized {
    /// It would be smaller, and clients use it.
    #[error("the disk has {0} client(s), and is made smaller only while it has none")]
    Clients(usize),
    /// There is data in what would be cut off; where the first of it is.
    #[error("there is data at {0}, in the part that would be cut off")]
    Data(Bytes),
    /// The device that it lies on has no room.
    #[error("{0}")]
    NoRoom(String),
    /// Anything else.
    #[error(transparent)]
    Failed(#[from] PlaneError),
}

/// What a datastore's window is set by: what was observed since the last call of
/// [`DataPlane::end_period`].
#[derive(Clone, Debug)]
pub struct Period {
    /// The latency of its backend since the last call; `None` when nothing completed, or when
    /// latency is not measured.
    pub latency: Option<Observation>,
    /// The counters of its disks since they were opened. Keys are the shard's own numbers.
    pub disks: Vec<DiskTotals<usize>>,
}

/// A disk in service, as the shard has it now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveDisk {
    /// The policy in force.
    pub policy: Policy,
    /// The priorities in force.
    pub priorities: PriorityRecord,
    /// The sizes of requests that its storage serves best; `None`: nobody asked it.
    pub block_sizes: Option<BlockSizes>,
    /// How it stands to its latency target, where it has one and was judged.
    pub latency: Option<LatencyStanding>,
    /// Clients connected now.
    pub clients: usize,
    /// Of a remote disk: its connection to the server.
    pub remote: Option<Connection>,
    /// What it has seen of its storage's trouble.
    pub trouble: TroubleSample,
    /// When this was read, on `CLOCK_MONOTONIC`.
    pub at: Nanos,
}

/// A part of the data plane that stands still.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stall {
    /// The shard's number.
    pub shard: usize,
    /// For how long.
    pub waited: Nanos,
    /// Its thread's number, for `/proc`.
    pub thread: i32,
    /// The datastores that stand still with it.
    pub datastores: Vec<Name>,
    /// What it is, in words.
    pub reason: String,
}

/// How a shard waits for work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardWaits {
    /// Its number, or the name of its group.
    pub shard: String,
    /// The mode that it has found best.
    pub incumbent: &'static str,
    /// Trials of other modes that ended.
    pub trials: u64,
    /// How often the incumbent changed.
    pub changes: u64,
    /// Requests answered.
    pub served: u64,
    /// Processor time of its thread.
    pub cpu: Nanos,
    /// How long it was in each mode.
    pub spent: Vec<(&'static str, Nanos)>,
}

/// Datastores and disks in service. Calls block until the shard confirms; none is made on the data
/// path. A call of what [stands still](DataPlane::stalls) fails within seconds, and is not carried
/// out later.
pub trait DataPlane: LiveMoves + DiskCopies + Send + Sync {
    /// What does not answer, and has not for some seconds. Waits for nobody.
    fn stalls(&self) -> Vec<Stall>;

    /// How its shards wait for work. Waits for none of them.
    fn waits(&self) -> Vec<ShardWaits>;

    /// Brings a datastore into service; `directory` is where its images are, if it has one.
    ///
    /// # Errors
    /// When the storage or the model cannot be used.
    fn add_datastore(
        &self,
        record: &DatastoreRecord,
        directory: Option<&Path>,
    ) -> Result<(), PlaneError>;

    /// Changes how many requests may be outstanding at a datastore.
    ///
    /// # Errors
    /// When the shard does not confirm.
    fn set_window(&self, datastore: &Name, window: Slots) -> Result<(), PlaneError>;

    /// Whether a datastore's window gives way to reservations from now on.
    ///
    /// # Errors
    /// When the shard does not confirm.
    fn set_narrow(&self, datastore: &Name, narrow: Narrow) -> Result<(), PlaneError>;

    /// Has a datastore's latency measured from now on, or no more.
    ///
    /// # Errors
    /// When the shard does not confirm.
    fn measure_latency(
        &self,
        datastore: &Name,
        meter: Option<LatencyMeter>,
    ) -> Result<(), PlaneError>;

    /// What a datastore's window is to be set by: what was seen since the last call.
    ///
    /// # Errors
    /// When the shard does not answer.
    fn end_period(&self, datastore: &Name) -> Result<Period, PlaneError>;

    /// Changes how long a request may wait for one of a better priority.
    ///
    /// # Errors
    /// When the shard does not confirm.
    fn adjust(&self, datastore: &Name, adjustment: Adjustment) -> Result<(), PlaneError>;

    /// Puts groups of disks in the place of those that a datastore has, with what they are
    /// promised: in force when the call returns, for requests that wait already too.
    ///
    /// # Errors
    /// When they cannot be, or the shard does not confirm; all is as it was then.
    fn set_groups(&self, datastore: &Name, groups: &DiskGroups) -> Result<(), PlaneError>;

    /// Puts these layers in the place of those that a datastore has, outermost first. Requests that
    /// the old ones hold go on at once; none is lost.
    ///
    /// # Errors
    /// When the shard does not confirm.
    fn set_layers(&self, datastore: &Name, layers: &[LayerSpec]) -> Result<(), PlaneError>;

    /// Some of what a datastore's first trace layer has kept, from this serial number on. `None`:
    /// there is no trace layer.
    ///
    /// # Errors
    /// When the shard does not answer.
    fn trace(&self, datastore: &Name, from: u64) -> Result<Option<TracePart>, PlaneError>;

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

    /// Looks at an export that is to be a member of a striped disk, or is one. Waits for its
    /// server, up to a deadline.
    ///
    /// # Errors
    /// As [`connect`](DataPlane::connect), or when it cannot be read.
    fn look_at_member(&self, uri: &Uri) -> Result<MemberProbe, PlaneError>;

    /// Labels an export as a member, durably. Waits for its server, up to a deadline.
    ///
    /// # Errors
    /// As [`connect`](DataPlane::connect), or when it cannot be written.
    fn label_member(&self, uri: &Uri, label: &Label) -> Result<(), PlaneError>;

    /// Tells the servers of a striped disk what it is promised, all at the same time, and with
    /// every connection from then on. Answers what each said, up to a deadline.
    ///
    /// # Errors
    /// When the disk is not striped, or not served.
    fn announce(&self, disk: &Name, policy: ServerPolicy) -> Result<PolicyAnswers, PlaneError>;

    /// Brings a disk into service: engine, NBD export, vhost-user socket. Answers what size it has.
    ///
    /// # Errors
    /// When the image cannot be opened or the socket cannot be made; the disk is not in service
    /// then.
    fn open_disk(&self, disk: OpenDisk) -> Result<Bytes, PlaneError>;

    /// Gives a disk in service another size, and its image file too; a block device has it already.
    /// Clients are told. Blocks for as long as the storage does.
    ///
    /// # Errors
    /// [`NotResized`].
    fn resize_disk(&self, disk: &Name, size: Bytes, cut_off: CutOff) -> Result<(), NotResized>;

    /// Whether a disk's clients may write from now on. Answers how many clients it has if it has
    /// any: then nothing has changed, for they have been told.
    ///
    /// # Errors
    /// When the shard does not confirm.
    fn set_writes(&self, disk: &Name, writes: Writes) -> Result<Option<usize>, PlaneError>;

    /// Changes a disk's policy; in force when the call returns.
    ///
    /// # Errors
    /// When the shard does not confirm.
    fn set_policy(&self, disk: &Name, policy: &Policy) -> Result<(), PlaneError>;

    /// Has a disk that holds requests try one of them now; if the storage takes it, all go on. Does
    /// not wait for that. `false`: the disk holds none.
    ///
    /// # Errors
    /// When the shard does not confirm.
    fn resume_disk(&self, disk: &Name) -> Result<bool, PlaneError>;

    /// Changes what a disk's requests may ask for; in force when the call returns.
    ///
    /// # Errors
    /// When the shard does not confirm.
    fn set_priorities(&self, disk: &Name, priorities: &PriorityRecord) -> Result<(), PlaneError>;

    /// Adds an additional export or changes its priority. Clients can use it while its disk is
    /// served.
    fn put_export(&self, export: &ExportRecord);

    /// Forgets a further export, if it is there.
    fn remove_export(&self, name: &Name);

    /// Takes a disk out of service, waiting up to `patience` for its requests.
    ///
    /// # Errors
    /// When the shard does not confirm.
    fn close_disk(&self, disk: &Name, patience: Duration) -> Result<(), PlaneError>;

    /// Takes a disk out of service at once: its clients are cut off, its requests that are at the
    /// storage waited for. It is not brought back, whatever happens.
    ///
    /// # Errors
    /// When requests are still at the storage after a while, or the shard does not confirm.
    fn abandon_disk(&self, disk: &Name) -> Result<(), PlaneError>;

    /// A disk belongs to another virtual machine from now on, or to none: new connections count
    /// there, and those that `access` names may connect to it. Who is connected and may not any
    /// more is disconnected.
    ///
    /// # Errors
    /// When the sockets cannot be given to them; nobody new can connect then.
    fn set_machine(
        &self,
        disk: &Name,
        machine: Option<&Machine>,
        access: &Access,
    ) -> Result<(), PlaneError>;

    /// Those that `access` names may connect to the sockets of a virtual machine's disks from now
    /// on, and nobody else. Who is connected and may not any more is disconnected.
    ///
    /// # Errors
    /// When the sockets cannot be given to them; nobody new can connect then.
    fn set_access(&self, machine: &Name, access: &Access) -> Result<(), PlaneError>;

    /// What NBD clients hold; `None` where none are served.
    fn nbd(&self) -> Option<NbdSample> {
        None
    }

    /// Everything in service, as the shards have it now. Datastores that
    /// [stand still](DataPlane::stalls) are left out.
    ///
    /// # Errors
    /// When there is no data plane any more.
    fn sample(&self) -> Result<Vec<DatastoreSample>, PlaneError>;

    /// One disk of it, without what its neighbours are called; `None`: it is not in service. What
    /// it costs does not grow with the disks that there are.
    ///
    /// # Errors
    /// As [`sample`](Self::sample).
    fn sample_disk(&self, disk: &Name) -> Result<Option<DiskSample>, PlaneError> {
        let disks = self.sample()?.into_iter().flat_map(|store| store.disks);
        Ok(disks.into_iter().find(|one| one.name == *disk))
    }

    /// Takes no new clients, finishes what was taken, closes every disk, within `patience` and some
    /// seconds.
    fn shutdown(&self, patience: Duration) -> Ended;
}
