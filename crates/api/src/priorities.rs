//! Wire types of virtual machines' priorities and disks' additional exports.

use crate::change::{Change, Force};
use headgate_model::Name;
use headgate_model::{PriorityRecord, PriorityScope};
use headgate_units::{Iops, Priority, Shares};
use serde::{Deserialize, Serialize};

/// Whether what Linux derives from an application's processor priority counts as its IO priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Nice {
    /// They count, as in Linux itself.
    Honour,
    /// They do not count, and neither does any level of the best-effort class.
    Ignore,
}

impl From<headgate_qos::ioprio::Nice> for Nice {
    fn from(nice: headgate_qos::ioprio::Nice) -> Nice {
        match nice {
            headgate_qos::ioprio::Nice::Honoured => Nice::Honour,
            headgate_qos::ioprio::Nice::Ignored => Nice::Ignore,
        }
    }
}

impl From<Nice> for headgate_qos::ioprio::Nice {
    fn from(nice: Nice) -> headgate_qos::ioprio::Nice {
        match nice {
            Nice::Honour => headgate_qos::ioprio::Nice::Honoured,
            Nice::Ignore => headgate_qos::ioprio::Nice::Ignored,
        }
    }
}

/// What the applications of a virtual machine may ask for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Priorities {
    /// No request counts as more, 1 to 254.
    #[cfg_attr(feature = "openapi", schema(value_type = u8))]
    pub max_priority: Priority,
    /// What a request counts that was given no priority, 1 to 254, unless `max_priority` is less.
    #[cfg_attr(feature = "openapi", schema(value_type = u8))]
    pub default_priority: Priority,
    /// Among whom priorities divide.
    pub priority_scope: PriorityScope,
    /// Whether what Linux derives from `nice` counts.
    pub nice: Nice,
    /// In what the table of ioprio classes and levels differs from the default, such as
    /// `be7=20,idle=1`; or `default`.
    pub ioprio_map: String,
}

impl From<PriorityRecord> for Priorities {
    fn from(record: PriorityRecord) -> Priorities {
        Priorities {
            max_priority: record.max,
            default_priority: record.default,
            priority_scope: record.scope,
            nice: record.map.nice().into(),
            ioprio_map: record.map.to_string(),
        }
    }
}

/// What to change about a virtual machine. A field that is absent stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct VmPatch {
    /// The most that a request may count, 1 to 254.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u8>))]
    pub max_priority: Option<Priority>,
    /// What a request counts that was given no priority, 1 to 254.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u8>))]
    pub default_priority: Option<Priority>,
    /// Among whom priorities divide.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_scope: Option<PriorityScope>,
    /// Whether what Linux derives from `nice` counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nice: Option<Nice>,
    /// The whole table, as what differs from the default: `rt0` to `rt7`, `be0` to `be7` without
    /// `be4`, and `idle`, each with a priority, such as `be7=20,idle=1`; or `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ioprio_map: Option<String>,
    /// The user that the machine runs as, by name or number, who may then connect to the sockets of
    /// its disks; `null`: none. When neither user nor group is set, the daemon's `--socket-group`
    /// may.
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub socket_user: Change<String>,
    /// The same for a group.
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub socket_group: Change<String>,
    /// The tenant that it belongs to; `null`: none.
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub tenant: Change<Name>,
    /// Least rate of its disks together on each datastore, in normalised IOPS; `null`: none.
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub reservation: Change<Iops>,
    /// Highest rate of its disks together on each datastore, in normalised IOPS; `null`: none.
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub limit: Change<Iops>,
    /// Weight of its disks together against what is beside it, 1 to 1,000,000; `null`: that of a
    /// disk by default.
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub shares: Change<Shares>,
    /// Overbook datastores if need be.
    #[serde(default)]
    pub force: Force,
}

/// Who may connect to the sockets of a virtual machine's disks, and where they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct VmSockets {
    /// The user that was set.
    #[serde(default)]
    pub socket_user: Option<String>,
    /// The group that was set. When neither is, the daemon's `--socket-group` may connect.
    #[serde(default)]
    pub socket_group: Option<String>,
    /// The directory of its sockets, which is there while it has disks in service: `DISK.vhost` for
    /// each disk, and `nbd.sock` for NBD clients of these disks.
    #[serde(default)]
    pub socket_directory: String,
}

/// An additional NBD export of a disk, which gives its clients' requests a priority: NBD has no
/// field for one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Export {
    /// Its name.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub name: Name,
    /// The disk.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub disk: Name,
    /// What requests that come by it are given, 1 to 254, before the virtual machine's maximum.
    #[cfg_attr(feature = "openapi", schema(value_type = u8))]
    pub priority: Priority,
    /// Its clients cannot write.
    #[serde(default)]
    pub read_only: bool,
    /// The NBD URI on the daemon's unix socket.
    pub nbd_uri: String,
}

/// An export to add.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ExportCreate {
    /// Its name, not that of a disk or another export.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub name: Name,
    /// The disk.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub disk: Name,
    /// What requests that come by it are given, 1 to 254; 100 when absent.
    #[serde(default = "usual")]
    #[cfg_attr(feature = "openapi", schema(value_type = u8))]
    pub priority: Priority,
    /// Its clients cannot write.
    #[serde(default)]
    pub read_only: bool,
}

fn usual() -> Priority {
    PriorityRecord::unset().default
}

/// What to change about an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ExportPatch {
    /// What requests that come by it are given, 1 to 254; of those connected too.
    #[cfg_attr(feature = "openapi", schema(value_type = u8))]
    pub priority: Priority,
}
