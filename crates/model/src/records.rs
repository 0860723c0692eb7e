//! Records of datastores, disks, virtual machines and exports, as the catalog stores them.

use crate::{
    DatastorePlacement, DiskPlacement, Name, Policy, PolicyPart, StripeRecord, VmPromise,
    WindowRecord,
};
use headgate_devices::LayerSpec;
use headgate_nbd::client::connections::Connections;
use headgate_qos::ioprio::IoprioMap;
use headgate_qos::{Batch, CostModel, SchedulerKind};
use headgate_units::{Bytes, Iops, Nanos, Priority};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The backend of a datastore, as the catalog stores it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Backend {
    /// Raw sparse files in a directory.
    Dir {
        /// The directory.
        path: PathBuf,
    },
    /// A block device that is one disk as a whole.
    Block {
        /// The device node.
        device: PathBuf,
        /// Whether its disk is served only while the device is reserved for this host.
        #[serde(default, skip_serializing_if = "PersistentReservations::is_default")]
        persistent_reservations: PersistentReservations,
    },
    /// A device model in real time over sparse files.
    Emulated {
        /// The model, as `headgate datastore add --emulated` takes it.
        model: String,
        /// Where the sparse files are.
        path: PathBuf,
    },
    /// An NBD server, of which each disk is an export.
    Nbd {
        /// The server's URI, without an export.
        server: String,
        /// How many connections a disk has to it, where it can have several.
        #[serde(default, skip_serializing_if = "is_one", with = "connections")]
        connections: Connections,
    },
    /// NBD servers over which each disk is striped: it has an export of each.
    Stripe {
        /// The servers' URIs, without an export; new disks have their members in this order.
        servers: Vec<String>,
        /// Of new disks: bytes that lie on one server before the next one has its turn.
        unit: Bytes,
        /// How many connections a disk has to each of them, where it can have several.
        #[serde(default, skip_serializing_if = "is_one", with = "connections")]
        connections: Connections,
    },
    /// RAM disks. What they hold is lost when the daemon ends.
    Memory {
        /// What all disks may have together, in bytes.
        size: Bytes,
    },
}

fn is_one(connections: &Connections) -> bool {
    *connections == Connections::ONE
}

/// A number of connections as its number.
mod connections {
    use super::Connections;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
    pub(super) fn serialize<S: Serializer>(of: &Connections, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u8(of.get())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Connections, D::Error> {
        Connections::new(u8::deserialize(from)?).map_err(Error::custom)
    }
}

/// Whether a block device is reserved for the host that serves its disk, by persistent reservations
/// of SCSI or NVMe. The device then refuses the writes of all other hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum PersistentReservations {
    /// Where the device has them. What others have reserved is left alone, as with `require`.
    #[default]
    Auto,
    /// On a device without them no disk is served.
    Require,
    /// Never, and nobody looks whether another has it reserved.
    Off,
}

impl PersistentReservations {
    /// The word on the command line and in the catalog.
    pub fn as_str(self) -> &'static str {
        match self {
            PersistentReservations::Auto => "auto",
            PersistentReservations::Require => "require",
            PersistentReservations::Off => "off",
        }
    }

    fn is_default(&self) -> bool {
        *self == PersistentReservations::default()
    }
}

/// Which scheduler divides a datastore.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Scheduler {
    /// Reservations, limits and shares.
    #[default]
    Mclock,
    /// Shares only: start-time fair queueing. Reservations and limits are not enforced.
    Sfq,
    /// Order of arrival. Nothing is enforced.
    Fifo,
}

impl Scheduler {
    /// The word on the command line and in the catalog.
    pub fn as_str(self) -> &'static str {
        match self {
            Scheduler::Mclock => "mclock",
            Scheduler::Sfq => "sfq",
            Scheduler::Fifo => "fifo",
        }
    }
}

/// How sure a measured capacity is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Confidence {
    /// The rate was steady, and the samples agree within 5 %.
    High,
    /// The samples agree within 20 %.
    Medium,
    /// The rate kept changing.
    Low,
}

/// Where a capacity figure comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "source", rename_all = "lowercase", deny_unknown_fields)]
pub enum CapacitySource {
    /// The operator set it.
    Set,
    /// It follows from the model of an emulated device.
    Model,
    /// `headgate datastore calibrate` measured it.
    Measured {
        /// When: seconds since 1970-01-01 UTC.
        at: u64,
        /// Distance of the fastest and the slowest sample, in per cent of the median.
        spread_percent: u32,
        /// How sure it is.
        confidence: Confidence,
    },
}

/// The capacity of a datastore, and its source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capacity {
    /// Worst-case random IO.
    pub iops: Iops,
    /// Where the figure comes from.
    pub source: CapacitySource,
}

/// A datastore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatastoreRecord {
    /// Its name.
    pub name: Name,
    /// The backend.
    pub backend: Backend,
    /// The scheduler.
    pub scheduler: Scheduler,
    /// Most requests outstanding at the device, 1 to 4096.
    pub queue_depth: u32,
    /// The capacity; unknown until set or measured.
    pub capacity: Option<Capacity>,
    /// The cost of requests by size.
    pub cost_model: CostModel,
    /// How long a request may wait for one of a better priority, up to 1 ms.
    pub plug: Nanos,
    /// Near requests of one disk that go back to back.
    pub batch: Option<Batch>,
    /// How many requests may be outstanding, by the storage's latency.
    pub window: WindowRecord,
    /// Placement settings.
    pub placement: DatastorePlacement,
    /// What stands between the scheduler and the storage, outermost first.
    pub layers: Vec<LayerSpec>,
}

impl DatastoreRecord {
    /// Which scheduler it has, and how that is configured.
    pub fn scheduler_setup(&self) -> (SchedulerKind, headgate_qos::Config) {
        let kind = match self.scheduler {
            Scheduler::Mclock => SchedulerKind::MClock,
            Scheduler::Sfq => SchedulerKind::Sfq,
            Scheduler::Fifo => SchedulerKind::Fifo,
        };
        let config = headgate_qos::Config {
            plug: self.plug,
            batch: self.batch,
            narrow: self.window.narrow,
            ..headgate_qos::Config::for_hosts(self.cost_model)
        };
        (kind, config)
    }
}

/// How far the work on a disk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskState {
    /// The image is being made.
    Creating,
    /// In service.
    Ready,
    /// The image is being given another size, and the size that it has counts.
    Resizing,
    /// The image is being removed.
    Removing,
    /// Another disk is being copied into the image. A copy that was cut is removed.
    Copying,
}

impl DiskState {
    /// Every state.
    pub const ALL: [DiskState; 5] = [
        DiskState::Creating,
        DiskState::Ready,
        DiskState::Resizing,
        DiskState::Removing,
        DiskState::Copying,
    ];

    /// The word in the catalog.
    pub fn as_str(self) -> &'static str {
        match self {
            DiskState::Creating => "creating",
            DiskState::Ready => "ready",
            DiskState::Resizing => "resizing",
            DiskState::Removing => "removing",
            DiskState::Copying => "copying",
        }
    }

    /// Whether the image is made, and stays.
    pub fn has_image(self) -> bool {
        matches!(self, DiskState::Ready | DiskState::Resizing)
    }
}

/// Whether a disk, or an export of one, takes what changes its data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Writes {
    /// It does.
    #[default]
    Allowed,
    /// It does not: it is read-only.
    Refused,
}

/// A disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskRecord {
    /// Its name, also of its NBD export and its vhost-user socket.
    pub name: Name,
    /// Where it is stored.
    pub datastore: Name,
    /// The virtual machine it belongs to.
    pub vm: Option<Name>,
    /// Its size, a multiple of 4,096.
    pub size: Bytes,
    /// Its policy: what its gateway, its class and its own settings make together.
    pub policy: Policy,
    /// What was set at the disk itself.
    pub set: DiskSettings,
    /// How far the work on it is.
    pub state: DiskState,
    /// On an NBD server: which export it is.
    pub remote: Option<RemoteRecord>,
    /// Placement settings.
    pub placement: DiskPlacement,
    /// Whether its clients may write.
    pub writes: Writes,
    /// What it is a copy of.
    pub origin: Option<Origin>,
    /// Who has set its policy, if that was not done here.
    pub set_by: Option<PolicySource>,
}

/// What was set at a disk itself, of which its policy is made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskSettings {
    /// The class that it has the rest from.
    pub class: Option<Name>,
    /// What it has in place of what its class says.
    pub policy: PolicyPart,
    /// The set of documents that made it.
    pub applied_by: Option<Name>,
}

impl DiskSettings {
    /// Of a disk of no class that has this policy.
    pub fn of(policy: &Policy) -> DiskSettings {
        DiskSettings { policy: PolicyPart::of(policy), ..DiskSettings::default() }
    }
}

impl DiskRecord {
    /// What admission counts of its reservation: an equal part, of a disk that lies on other
    /// servers too.
    pub fn promised(&self) -> Option<Iops> {
        let whole = self.policy.reservation?;
        let servers = self.set_by.as_ref().map_or(1, |by| u64::from(by.servers.max(1)));
        Iops::new(whole.get().div_ceil(servers)).ok()
    }
}

/// A gateway that has set a disk's policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PolicySource {
    /// The gateway, by its certificate.
    pub peer: String,
    /// The striped disk that this one is a member of: 32 hexadecimal digits.
    pub stripe: String,
    /// The number of the lease by which the gateway holds that.
    pub lease: u64,
    /// Which policy it is: later ones of a lease are greater.
    pub epoch: u64,
    /// Over how many servers the disk lies. Its reservation and its limits are for all of them
    /// together.
    pub servers: u16,
}

/// What a disk was copied from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Origin {
    /// The disk that was copied. It may be gone, or have another name by now.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub disk: Name,
    /// The instant as of which it was copied: seconds since 1970.
    pub at: u64,
}

/// The export of an NBD server that a disk is, or those of several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteRecord {
    /// Its name at the server.
    pub export: String,
    /// Smallest unit of a request in bytes. Clients have negotiated it, so it never changes.
    pub block_size: u32,
    /// Of a disk that is striped: over which servers, each of which has an export of that name.
    pub stripe: Option<StripeRecord>,
}

/// Which requests compete by priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum PriorityScope {
    /// The requests of each disk among themselves: what a disk gets of its datastore stays as it
    /// is.
    #[default]
    Within,
    /// The requests of all disks of the datastore whose virtual machines have this scope.
    Across,
}

impl PriorityScope {
    /// Every scope.
    pub const ALL: [PriorityScope; 2] = [PriorityScope::Within, PriorityScope::Across];

    /// The word on the command line and in the catalog.
    pub fn as_str(self) -> &'static str {
        match self {
            PriorityScope::Within => "within",
            PriorityScope::Across => "across",
        }
    }
}

/// A virtual machine's priorities as the operator set them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PriorityRecord {
    /// No request counts as more.
    pub max: Priority,
    /// Priority of requests without one.
    pub default: Priority,
    /// Which requests compete by priority.
    pub scope: PriorityScope,
    /// How a guest's ioprio is read.
    pub map: IoprioMap,
}

/// The default priority of requests without one.
const DEFAULT_PRIORITY: Priority = match Priority::new(100) {
    Ok(priority) => priority,
    Err(_) => Priority::MIN,
};

impl PriorityRecord {
    /// What a virtual machine has that nothing was set for: no cap, the middle of the best-effort
    /// levels, and order among its own requests only.
    pub fn unset() -> PriorityRecord {
        PriorityRecord {
            max: Priority::MAX,
            default: DEFAULT_PRIORITY,
            scope: PriorityScope::Within,
            map: IoprioMap::default(),
        }
    }
}

/// Who may connect to the sockets of a virtual machine's disks, by name or number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SocketRecord {
    /// The user that the machine runs as.
    pub user: Option<String>,
    /// A group.
    pub group: Option<String>,
}

impl SocketRecord {
    /// Whether the daemon's own setting holds.
    pub fn is_unset(&self) -> bool {
        *self == SocketRecord::default()
    }
}

/// A virtual machine that something was set for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmRecord {
    /// Its name, as disks name it.
    pub name: Name,
    /// The settings of its applications.
    pub priorities: PriorityRecord,
    /// Who may connect.
    pub sockets: SocketRecord,
    /// What its disks are promised together, and whose it is.
    pub promise: VmPromise,
}

impl VmRecord {
    /// What a virtual machine has that nothing was set for.
    pub fn unset(name: Name) -> VmRecord {
        VmRecord {
            name,
            priorities: PriorityRecord::unset(),
            sockets: SocketRecord::default(),
            promise: VmPromise::default(),
        }
    }
}

/// A second NBD export of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportRecord {
    /// Its name, no disk's.
    pub name: Name,
    /// The disk.
    pub disk: Name,
    /// The priority of its requests.
    pub priority: Priority,
    /// Whether its clients may write.
    pub writes: Writes,
}
