//! Record files: a part of the catalog as JSON, in a file of its own. One is beside each image and
//! says which disk it is, so that a catalog can be made anew when all copies of it are gone.

use crate::contents::Contents;
use headgate_devices::LayerSpec;
use headgate_model::{
    Backend, Capacity, ClassRecord, DatastorePlacement, DatastoreRecord, DiskPlacement, DiskRecord,
    DiskSettings, DiskState, ExportRecord, MovePace, MoveRecord, MoveStep, Name, Origin,
    PlannedRecord, Policy, PolicyPart, PriorityRecord, PriorityScope, RemoteRecord, RemovedId,
    RemovedRecord, RemovedStep, Scheduler, SocketRecord, StripeRecord, TenantRecord, VmPromise,
    VmRecord, WindowRecord, Writes,
};
use headgate_placement::Rules;
use headgate_qos::ioprio::{IoprioMap, Nice};
use headgate_qos::{Batch, CostModel};
use headgate_units::{Bytes, Nanos, Priority};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The version of the format. A later one is refused.
const FORMAT: u32 = 1;

/// The longest host id that is read, in bytes.
const HOST_MAX: usize = 64;

/// What a record file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordFile {
    /// The host that wrote it.
    pub host: String,
    /// A part of that host's catalog. Its disks are `ready`, its removed disks are `kept`.
    pub contents: Contents,
}

/// Why a record file cannot be read.
#[derive(Debug, Error)]
pub enum RecordFileError {
    /// It is no record file, or not whole.
    #[error("it is no record file: {0}")]
    Syntax(#[from] serde_json::Error),
    /// It was written by a later version.
    #[error("it has format {0}, and this headgate knows format {FORMAT}")]
    Format(u32),
    /// A value that no version writes.
    #[error("it holds {0}, which no version of headgate writes")]
    Value(String),
}

fn bad(e: impl std::fmt::Display) -> RecordFileError {
    RecordFileError::Value(e.to_string())
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    headgate_record: u32,
    host: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    datastores: Vec<DatastoreDocument>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    disks: Vec<DiskDocument>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    vms: Vec<VmDocument>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    exports: Vec<ExportDocument>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rules: Option<Rules>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    removed: Vec<RemovedDocument>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    moves: Vec<MoveDocument>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    classes: Vec<ClassRecord>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    planned: Vec<PlannedRecord>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tenants: Vec<TenantRecord>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DatastoreDocument {
    name: Name,
    backend: Backend,
    scheduler: Scheduler,
    queue_depth: u32,
    capacity: Option<Capacity>,
    cost_model: String,
    plug_ns: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    batch: Option<String>,
    window: WindowRecord,
    placement: DatastorePlacement,
    layers: Vec<String>,
}

impl DatastoreDocument {
    fn of(record: &DatastoreRecord) -> DatastoreDocument {
        DatastoreDocument {
            name: record.name.clone(),
            backend: record.backend.clone(),
            scheduler: record.scheduler,
            queue_depth: record.queue_depth,
            capacity: record.capacity.clone(),
            cost_model: record.cost_model.to_string(),
            plug_ns: record.plug.0,
            batch: record.batch.map(|batch| batch.to_string()),
            window: record.window.clone(),
            placement: record.placement.clone(),
            layers: record.layers.iter().map(LayerSpec::to_string).collect(),
        }
    }

    fn record(self) -> Result<DatastoreRecord, RecordFileError> {
        let layers = self.layers.iter().map(|text| text.parse::<LayerSpec>().map_err(bad));
        Ok(DatastoreRecord {
            name: self.name,
            backend: self.backend,
            scheduler: self.scheduler,
            queue_depth: self.queue_depth,
            capacity: self.capacity,
            cost_model: self.cost_model.parse::<CostModel>().map_err(bad)?,
            plug: Nanos(self.plug_ns),
            batch: self.batch.map(|text| text.parse::<Batch>().map_err(bad)).transpose()?,
            window: self.window,
            placement: self.placement,
            layers: layers.collect::<Result<_, _>>()?,
        })
    }
}

/// A disk that is in service.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DiskDocument {
    name: Name,
    datastore: Name,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    vm: Option<Name>,
    size: Bytes,
    policy: Policy,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    export: Option<ExportOfServer>,
    #[serde(default)]
    placement: DiskPlacement,
    #[serde(default, skip_serializing_if = "are_allowed")]
    writes: Writes,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    origin: Option<Origin>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    class: Option<Name>,
    /// What is its own of its policy. Records of before there were classes do not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    own_policy: Option<PolicyPart>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    applied_by: Option<Name>,
}

/// Records of before there was another word do not have it.
fn are_allowed(writes: &Writes) -> bool {
    *writes == Writes::Allowed
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExportOfServer {
    name: String,
    block_size: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stripe: Option<StripeRecord>,
}

impl DiskDocument {
    pub(crate) fn of(record: &DiskRecord) -> DiskDocument {
        let export = |remote: &RemoteRecord| ExportOfServer {
            name: remote.export.clone(),
            block_size: remote.block_size,
            stripe: remote.stripe.clone(),
        };
        DiskDocument {
            name: record.name.clone(),
            datastore: record.datastore.clone(),
            vm: record.vm.clone(),
            size: record.size,
            policy: record.policy,
            export: record.remote.as_ref().map(export),
            placement: record.placement.clone(),
            writes: record.writes,
            origin: record.origin.clone(),
            class: record.set.class.clone(),
            own_policy: Some(record.set.policy),
            applied_by: record.set.applied_by.clone(),
        }
    }

    pub(crate) fn record(self) -> Result<DiskRecord, RecordFileError> {
        let remote = |export: ExportOfServer| RemoteRecord {
            export: export.name,
            block_size: export.block_size,
            stripe: export.stripe,
        };
        Ok(DiskRecord {
            name: self.name,
            datastore: self.datastore,
            vm: self.vm,
            size: self.size,
            policy: self.policy,
            state: DiskState::Ready,
            remote: self.export.map(remote),
            placement: self.placement,
            writes: self.writes,
            origin: self.origin,
            set: DiskSettings {
                class: self.class,
                policy: self.own_policy.unwrap_or_else(|| PolicyPart::of(&self.policy)),
                applied_by: self.applied_by,
            },
            set_by: None,
        })
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct VmDocument {
    name: Name,
    max_priority: Priority,
    default_priority: Priority,
    priority_scope: PriorityScope,
    honours_nice: bool,
    ioprio_map: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    socket_user: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    socket_group: Option<String>,
    #[serde(default, skip_serializing_if = "is_unset")]
    promise: VmPromise,
}

fn is_unset(promise: &VmPromise) -> bool {
    *promise == VmPromise::default()
}

impl VmDocument {
    fn of(record: &VmRecord) -> VmDocument {
        let PriorityRecord { max, default, scope, map } = record.priorities;
        VmDocument {
            name: record.name.clone(),
            max_priority: max,
            default_priority: default,
            priority_scope: scope,
            honours_nice: map.nice() == Nice::Honoured,
            ioprio_map: map.to_string(),
            socket_user: record.sockets.user.clone(),
            socket_group: record.sockets.group.clone(),
            promise: record.promise.clone(),
        }
    }

    fn record(self) -> Result<VmRecord, RecordFileError> {
        let nice = if self.honours_nice { Nice::Honoured } else { Nice::Ignored };
        let map: IoprioMap = self.ioprio_map.parse().map_err(bad)?;
        let priorities = PriorityRecord {
            max: self.max_priority,
            default: self.default_priority,
            scope: self.priority_scope,
            map: map.with_nice(nice),
        };
        let sockets = SocketRecord { user: self.socket_user, group: self.socket_group };
        Ok(VmRecord { name: self.name, priorities, sockets, promise: self.promise })
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExportDocument {
    name: Name,
    disk: Name,
    priority: Priority,
    #[serde(default)]
    writes: Writes,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RemovedDocument {
    id: RemovedId,
    allocated: Bytes,
    disk: DiskDocument,
}

impl RemovedDocument {
    fn record(self) -> Result<RemovedRecord, RecordFileError> {
        let RemovedDocument { id, allocated, disk } = self;
        let disk = DiskRecord { name: id.name.clone(), ..checked(disk)? };
        Ok(RemovedRecord { id, step: RemovedStep::Kept, allocated, disk })
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MoveDocument {
    disk: Name,
    source: Name,
    target: Name,
    step: String,
    pace: MovePace,
    began: u64,
}

impl MoveDocument {
    fn of(record: &MoveRecord) -> MoveDocument {
        let MoveRecord { disk, source, target, step, pace, began } = record.clone();
        MoveDocument { disk, source, target, step: step.as_str().to_owned(), pace, began }
    }

    fn record(self) -> Result<MoveRecord, RecordFileError> {
        let MoveDocument { disk, source, target, step, pace, began } = self;
        let known = MoveStep::ALL.into_iter().find(|known| known.as_str() == step);
        let step = known.ok_or_else(|| bad(format_args!("a move that is '{step}'")))?;
        Ok(MoveRecord { disk, source, target, step, pace, began })
    }
}

/// A disk's record whose policy a scheduler takes.
fn checked(disk: DiskDocument) -> Result<DiskRecord, RecordFileError> {
    disk.policy.for_scheduler().map_err(|e| bad(format_args!("a policy: {e}")))?;
    disk.record()
}

impl RecordFile {
    /// The file's text.
    pub fn to_text(&self) -> String {
        let Contents { datastores, disks, vms, exports, rules, moves, classes, planned, .. } =
            &self.contents;
        let tenants = &self.contents.tenants;
        let export = |e: &ExportRecord| ExportDocument {
            name: e.name.clone(),
            disk: e.disk.clone(),
            priority: e.priority,
            writes: e.writes,
        };
        let removed = |r: &RemovedRecord| RemovedDocument {
            id: r.id.clone(),
            allocated: r.allocated,
            disk: DiskDocument::of(&r.disk),
        };
        let document = Document {
            headgate_record: FORMAT,
            host: self.host.clone(),
            datastores: datastores.iter().map(DatastoreDocument::of).collect(),
            disks: disks.iter().map(DiskDocument::of).collect(),
            vms: vms.iter().map(VmDocument::of).collect(),
            exports: exports.iter().map(export).collect(),
            rules: (*rules != Rules::default()).then(|| rules.clone()),
            removed: self.contents.removed.iter().map(removed).collect(),
            moves: moves.iter().map(MoveDocument::of).collect(),
            classes: classes.clone(),
            planned: planned.clone(),
            tenants: tenants.clone(),
        };
        let mut text = serde_json::to_string_pretty(&document)
            .expect("records are plain data, and their paths came as text");
        text.push('\n');
        text
    }

    /// Reads a file's text. Every value is checked.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &[u8]) -> Result<RecordFile, RecordFileError> {
        /// A later format may have fields that this one does not know.
        #[derive(Deserialize)]
        struct Format {
            headgate_record: u32,
        }
        let Format { headgate_record } = serde_json::from_slice(text)?;
        if headgate_record != FORMAT {
            return Err(RecordFileError::Format(headgate_record));
        }
        let document: Document = serde_json::from_slice(text)?;
        if document.host.len() > HOST_MAX
            || !document.host.bytes().all(|b| b.is_ascii_alphanumeric())
        {
            return Err(bad("a host that is none"));
        }
        let export = |e: ExportDocument| ExportRecord {
            name: e.name,
            disk: e.disk,
            priority: e.priority,
            writes: e.writes,
        };
        let (disks, removed) = (document.disks.into_iter(), document.removed.into_iter());
        let (datastores, vms) = (document.datastores.into_iter(), document.vms.into_iter());
        let moves = document.moves.into_iter();
        Ok(RecordFile {
            host: document.host,
            contents: Contents {
                datastores: datastores.map(DatastoreDocument::record).collect::<Result<_, _>>()?,
                disks: disks.map(checked).collect::<Result<_, _>>()?,
                vms: vms.map(VmDocument::record).collect::<Result<_, _>>()?,
                exports: document.exports.into_iter().map(export).collect(),
                rules: document.rules.unwrap_or_default(),
                removed: removed.map(RemovedDocument::record).collect::<Result<_, _>>()?,
                moves: moves.map(MoveDocument::record).collect::<Result<_, _>>()?,
                classes: document.classes,
                planned: document.planned,
                tenants: document.tenants,
            },
        })
    }
}
