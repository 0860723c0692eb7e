//! Storage nodes: the NBD servers that disks lie on.

use headgate_model::{ConnectionState, Name, ReceivedIos, ServerConnection};
use serde::{Deserialize, Serialize};

/// An NBD server that a datastore is, or that its disks are striped over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Node {
    /// Its URI.
    pub server: String,
    /// The worst of its disks' connections; `null` when no disk lies on it.
    pub state: Option<ConnectionState>,
    /// Datastores that it is a server of.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub datastores: Vec<Name>,
    /// Requests that it owes an answer.
    pub outstanding: usize,
    /// Requests that wait to be sent to it.
    pub waiting: usize,
    /// The longest of its disks' mean latencies, in nanoseconds.
    pub latency_ns: Option<u64>,
    /// The smallest of the windows of the storage behind the exports, in thousandths of a request,
    /// where it says that.
    #[serde(default)]
    pub window_thousandths: Option<u64>,
    /// What disks have received there, where it counts that.
    pub received: Option<ReceivedIos>,
    /// The disks that lie on it, by name.
    pub disks: Vec<NodeDisk>,
}

/// A disk, as one of its servers has to do with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NodeDisk {
    /// Its name.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub disk: Name,
    /// Where it is.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub datastore: Name,
    /// The export's name at the server.
    pub export: String,
    /// Which of the disk's servers this is, from 0.
    pub member: usize,
    /// How many it has.
    pub members: usize,
    /// The connection.
    pub connection: ServerConnection,
    /// What the disk has received at its other servers, where they count that.
    pub elsewhere: Option<ReceivedIos>,
}
