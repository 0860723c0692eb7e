//! A remote disk's connection to its server.

use serde::{Deserialize, Serialize};

/// The connection of a disk to the NBD server that has its data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Connection {
    /// The state of the connection.
    pub state: ConnectionState,
    /// Why there is none, while there is none.
    pub reason: Option<String>,
    /// Connections made after the first one was lost.
    pub reconnects: u64,
    /// How often it was lost while acknowledged writes were not flushed: the next flush of each
    /// client failed then.
    pub losses: u64,
}

/// How a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum ConnectionState {
    /// The server answers.
    Connected,
    /// There is none: requests wait, for up to a minute.
    Waiting,
    /// There has been none for too long, or the export is another: requests fail, and it is tried
    /// again.
    Failing,
}
