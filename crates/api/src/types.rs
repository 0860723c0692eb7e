//! Wire types of datastores, disks and health: the API's JSON, which `--json` prints.

pub use super::backend::BackendSpec;
pub use super::change::{Change, Force};
pub use super::disk_patch::DiskPatch;
pub use super::state::ServiceState;

use super::copies::Filling;
use super::costs::LearnedCosts;
use super::flash::{Flash, Space};
use super::latency::LatencyNow;
use super::leases::{Lease, PersistentReservation};
use super::moves::Move;
use super::placement::{DatastoreModel, DatastorePlacementPatch};
use super::priorities::{Export, Priorities, VmSockets};
use super::removed::RemovedSpace;
use super::space::FileSystem;
use super::trouble::{LastError, Trouble};
use super::windows::{Window, WindowPatch};
use headgate_model::GroupPolicy;
use headgate_model::Name;
use headgate_model::{
    BlockSizes, CapacitySource, Connection, DatastorePlacement, DiskPlacement, FieldSource, Origin,
    PersistentReservations, Policy, PolicyPart, PolicySource, Scheduler,
};
use headgate_units::{Bytes, Iops};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A datastore to add.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct DatastoreCreate {
    /// Its name.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub name: Name,
    /// What is underneath.
    pub backend: BackendSpec,
    /// How it is divided.
    #[serde(default)]
    pub scheduler: Scheduler,
    /// Most requests outstanding at the device, 1 to 4096.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_depth: Option<u32>,
    /// What can be reserved, in worst-case random IOPS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub capacity: Option<Iops>,
    /// What a request is charged: `unit`, `affine=SIZE` or `chunks=SIZE`. Unless given,
    /// `affine=300K`, and `unit` where size costs nothing (emulated `rate=` and `null`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_model: Option<String>,
    /// How long a request may wait for one of a better priority, in nanoseconds, up to 1,000,000.
    /// 0, the default: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plug_ns: Option<u64>,
    /// Near requests of one disk that go back to back, on storage that seeks:
    /// `REQUESTS[,span=SIZE]`, such as `8,span=4M`. None unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<String>,
    /// How many requests may be outstanding, by the storage's latency.
    #[serde(default, skip_serializing_if = "WindowPatch::is_empty")]
    pub window: WindowPatch,
    /// What placement is to know of it.
    #[serde(default, skip_serializing_if = "DatastorePlacementPatch::is_empty")]
    pub placement: DatastorePlacementPatch,
    /// What stands between the scheduler and the storage, outermost first, such as `delay=5ms` or
    /// `error=1%,on=read`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<String>,
    /// Of a block device, and only there: whether it is reserved for the host that serves its disk;
    /// `auto` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistent_reservations: Option<PersistentReservations>,
    /// Add a block device although it holds something, such as a file system. One that is in use on
    /// the host is refused all the same.
    #[serde(default)]
    pub force: Force,
}

/// What to change about a datastore. A field that is absent stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct DatastorePatch {
    /// Most requests outstanding at the device, 1 to 4096.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_depth: Option<u32>,
    /// What can be reserved, in IOPS; `null` makes it unknown.
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub capacity: Change<Iops>,
    /// How long a request may wait for one of a better priority, in nanoseconds, up to 1,000,000;
    /// 0: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plug_ns: Option<u64>,
    /// Near requests of one disk that go back to back, such as `8,span=4M`; `null`: none do.
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub batch: Change<String>,
    /// How many requests may be outstanding, by the storage's latency.
    #[serde(default, skip_serializing_if = "WindowPatch::is_empty")]
    pub window: WindowPatch,
    /// What placement is to know of it.
    #[serde(default, skip_serializing_if = "DatastorePlacementPatch::is_empty")]
    pub placement: DatastorePlacementPatch,
    /// Layers in the place of those that there are, outermost first; an empty list removes them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layers: Option<Vec<String>>,
    /// Of a block device: whether it is reserved for the host that serves its disk, from when the
    /// disk is opened next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistent_reservations: Option<PersistentReservations>,
    /// Of a datastore of striped disks: servers behind those that it has. New disks use them;
    /// those that there are stay where they are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub add_servers: Vec<String>,
    /// Of a datastore of NBD servers: how many connections a disk has to each, from when it is
    /// opened next; see [`BackendSpec::connections`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<u8>,
}

impl DatastorePatch {
    /// Does it change nothing.
    pub fn is_empty(&self) -> bool {
        *self == DatastorePatch::default()
    }
}

/// What a datastore can promise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CapacityView {
    /// Worst-case random IOPS.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub iops: Iops,
    /// Where the figure comes from.
    #[serde(flatten)]
    pub source: CapacitySource,
}

/// A datastore.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Datastore {
    /// Its name.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub name: Name,
    /// Is it in service.
    pub state: ServiceState,
    /// While it hangs: when it answered last, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hung_since: Option<u64>,
    /// Why it is not.
    pub reason: Option<String>,
    /// What is underneath.
    pub backend: BackendSpec,
    /// How it is divided.
    pub scheduler: Scheduler,
    /// Most requests outstanding at the device.
    pub queue_depth: u32,
    /// What a request is charged.
    pub cost_model: String,
    /// How long a request may wait for one of a better priority, in nanoseconds.
    pub plug_ns: u64,
    /// Near requests of one disk that go back to back, if any do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<String>,
    /// How many requests may be outstanding, by the storage's latency.
    pub window: Window,
    /// What it can promise; `null` while unknown.
    pub capacity: Option<CapacityView>,
    /// IOPS that may be reserved; `null` while the capacity is unknown.
    pub reservable_iops: Option<u64>,
    /// Sum of the reservations on it.
    pub reserved_iops: u64,
    /// IOPS promised beyond what can be kept; 0 when all is well.
    pub overbooked_iops: u64,
    /// Disks on it.
    pub disks: usize,
    /// What placement is to know of it.
    #[serde(default)]
    pub placement: DatastorePlacement,
    /// Space for disks, of a device with a capacity of its own; `null` for others, which have what
    /// their file systems have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub space: Option<Space>,
    /// Of a directory: the file system under it; `null` while nobody has looked at it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_system: Option<FileSystem>,
    /// What removed disks take that are kept on it; `null` when there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed: Option<RemovedSpace>,
    /// Of an emulated flash drive: what it does; only where one datastore is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flash: Option<Flash>,
    /// What requests cost, where that is learned; only where one datastore is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub costs: Option<LearnedCosts>,
    /// What placement has learnt of it; only where one datastore is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<DatastoreModel>,
    /// What stands between the scheduler and the storage, outermost first.
    #[serde(default)]
    pub layers: Vec<String>,
    /// Of a block device: whether it is reserved for this host; `null` for other storage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistent_reservations: Option<PersistentReservation>,
}

/// What becomes of the image of a disk that is removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum ImageFate {
    /// It is kept for a while, for `POST /v1/removed/{name}/restore`.
    #[default]
    Remove,
    /// It is removed at once.
    Purge,
    /// It stays, for another host to take over.
    Keep,
}

/// A disk to create.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct DiskCreate {
    /// Its name.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub name: Name,
    /// Its size in bytes, a multiple of 4,096. On a block device or an NBD server: absent, or the
    /// device's or export's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub size: Option<Bytes>,
    /// Where to put it; when absent, where it fits best by load and space.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub datastore: Option<Name>,
    /// On an NBD server or several, and only there: the name of the export that it is; empty is the
    /// server's default export.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub export: Option<String>,
    /// The virtual machine it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub vm: Option<Name>,
    /// The class that it has its policy from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub class: Option<Name>,
    /// What it is promised, in place of what its class says.
    #[serde(default)]
    pub policy: PolicyPart,
    /// Whether its clients may only read.
    #[serde(default)]
    pub read_only: bool,
    /// What placement is to know of it.
    #[serde(default)]
    pub placement: DiskPlacement,
    /// The disk that it continues: it is the same disk, moved here. That disk may be there yet, or
    /// have been removed within 7 days. What it did counts as what this one did, and rules that
    /// leave moved disks in peace know of the move.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub moved_from: Option<Name>,
    /// Overbook the datastore if need be.
    #[serde(default)]
    pub force: Force,
    /// Of a striped disk, and only there: make a new disk of exports that hold something, or are
    /// members of a striped disk.
    #[serde(default)]
    pub overwrite: Force,
    /// Of a striped disk, and only there: take it from the host that its exports name.
    #[serde(default)]
    pub evict: Force,
}

/// How a machine gets at a disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Attachment {
    /// The NBD URI on the daemon's unix socket.
    pub nbd_uri: String,
    /// The NBD URI over TCP, when the daemon listens there.
    pub nbd_tcp_uri: Option<String>,
    /// The vhost-user-blk socket.
    pub vhost_socket: String,
    /// Arguments to add to a QEMU command line.
    pub qemu: Vec<String>,
    /// A `<disk>` element and the memory that it needs, for a libvirt domain.
    pub libvirt: String,
    /// What keeps the user that was asked about from the vhost-user socket, or the user that was
    /// set for the disk's virtual machine; `null` where file permissions let them connect.
    #[serde(default)]
    pub vhost_obstacle: Option<String>,
    /// The same for the NBD socket.
    #[serde(default)]
    pub nbd_obstacle: Option<String>,
}

/// A disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Disk {
    /// Its name.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub name: Name,
    /// Is it in service.
    pub state: ServiceState,
    /// Why it is not.
    pub reason: Option<String>,
    /// Where it is stored.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub datastore: Name,
    /// The virtual machine it belongs to.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub vm: Option<Name>,
    /// Its size in bytes.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub size: Bytes,
    /// Whether its clients may only read.
    #[serde(default)]
    pub read_only: bool,
    /// The sizes of requests that guests are told its storage serves best; `null` when not in
    /// service.
    #[serde(default)]
    pub block_sizes: Option<BlockSizes>,
    /// Of a disk on an NBD server: the name of the export that it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub export: Option<String>,
    /// Of a disk on an NBD server: its connection; `null` when not in service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection: Option<Connection>,
    /// The trouble of its storage, while there is some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<Trouble>,
    /// The last error of its storage since it was opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<LastError>,
    /// What was set, at the disk and by its class.
    pub policy: Policy,
    /// The class that it has the policy from that is not its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub class: Option<Name>,
    /// What was set at the disk itself.
    #[serde(default)]
    pub own_policy: PolicyPart,
    /// Where each field of the policy comes from, by its name. Only in the view of a single disk.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub policy_sources: BTreeMap<String, FieldSource>,
    /// The set of documents that made it, by 'headgate apply'.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub applied_by: Option<Name>,
    /// What is in force, as the scheduler has it: read back, not remembered. `null` when not in
    /// service.
    pub effective_policy: Option<Policy>,
    /// How it stands to its latency target; `null` where it has none, or asked for nothing lately.
    #[serde(default)]
    pub latency: Option<LatencyNow>,
    /// What its requests may ask for, as the shard has it: read back, not remembered. `null` when
    /// not in service, or where the scheduler knows no priorities.
    #[serde(default)]
    pub effective_priorities: Option<Priorities>,
    /// Further NBD exports.
    #[serde(default)]
    pub exports: Vec<Export>,
    /// What placement is to know of it.
    #[serde(default)]
    pub placement: DiskPlacement,
    /// Its last move: the disk on another datastore whose history it continues. Only in the view of
    /// a single disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved: Option<DiskMoved>,
    /// What it is a copy of, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// Of a disk that is a copy or an import and is not whole yet: how far that is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filling: Option<Filling>,
    /// Who has set its policy, if that was not done here: a gateway whose disk it is a member of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_by: Option<PolicySource>,
    /// Earlier snapshots since which it tells NBD clients what changed, the latest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes_since: Vec<String>,
    /// The move that is under way, or whose other copy is there still. In the view of a single disk
    /// also the last one that is over, as far as the daemon remembers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moving: Option<Move>,
    /// Its lease, if several hosts can reach it.
    #[serde(default)]
    pub lease: Option<Lease>,
    /// Is its datastore promised beyond its capacity.
    pub overbooked: bool,
    /// Clients connected now.
    pub clients: usize,
    /// The NBD URI on the daemon's unix socket.
    pub nbd_uri: String,
    /// The vhost-user-blk socket.
    pub vhost_socket: String,
}

/// A disk's move.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DiskMoved {
    /// The datastore where it was.
    pub from: String,
    /// When it had moved, in seconds since 1970.
    pub at: u64,
}

/// A change that was made, and what the operator should know about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Changed<T> {
    /// The thing as it is now.
    #[serde(flatten)]
    pub now: T,
    /// What may not be as intended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// A virtual machine: the disks that name it, and what was set for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Vm {
    /// Its name.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub name: Name,
    /// Its disks.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub disks: Vec<Name>,
    /// Sum of their sizes in bytes.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub size: Bytes,
    /// Sum of their reservations.
    pub reserved_iops: u64,
    /// Clients connected to them now.
    pub clients: usize,
    /// The tenant that it belongs to.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub tenant: Option<Name>,
    /// What its disks are promised together on each datastore.
    #[serde(flatten)]
    pub policy: GroupPolicy,
    /// What its applications may ask for.
    #[serde(flatten)]
    pub priorities: Priorities,
    /// Its sockets.
    #[serde(flatten)]
    pub sockets: VmSockets,
}

/// Why a request was not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ErrorBody {
    /// What was wrong.
    pub error: String,
    /// What was expected.
    pub expected: Option<String>,
    /// What to do.
    pub hint: Option<String>,
}

/// A host among those that share storage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Host {
    /// The host's name.
    pub name: String,
    /// The host's unique number: 32 hexadecimal digits.
    pub id: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_tells_absent_from_null() {
        let patch: DiskPatch = serde_json::from_str(r#"{"limit": null, "shares": 5}"#).unwrap();
        assert_eq!(patch.limit, Change::Remove);
        assert_eq!(patch.reservation, Change::Keep);
        assert_eq!(
            serde_json::to_string(&patch).unwrap(),
            r#"{"limit":null,"shares":5,"force":"no"}"#
        );
    }

    #[test]
    fn values_out_of_range_and_unknown_fields_are_refused() {
        for bad in [r#"{"shares": 0}"#, r#"{"limit": 0}"#, r#"{"limitt": 5}"#, r#"{"limit": -1}"#] {
            serde_json::from_str::<DiskPatch>(bad).unwrap_err();
        }
    }
}
