//! A remote disk's connection to its server.

use crate::PlaneError;
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
    /// By server: one, or in the order of a striped disk's members. The connection as a whole is
    /// as well as the worst of them.
    #[serde(default)]
    pub servers: Vec<ServerConnection>,
}

/// The connection of a disk to one of the servers that it lies on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ServerConnection {
    /// The server's URI.
    pub server: String,
    /// The state of the connection.
    pub state: ConnectionState,
    /// Why there is none, while there is none.
    pub reason: Option<String>,
    /// Connections made for ones that were lost.
    pub reconnects: u64,
    /// Connections of now.
    #[serde(default)]
    pub connections: usize,
    /// Requests that the server owes an answer.
    pub outstanding: usize,
    /// Requests that wait to be sent to it.
    pub waiting: usize,
    /// How long answers took of late, in nanoseconds: an exponential mean over some 64 of them.
    #[serde(default)]
    pub latency_ns: Option<u64>,
    /// How many requests may be outstanding at the storage behind the export, those of other disks
    /// and clients too, in thousandths: as the server said with its last answer, if it says that.
    #[serde(default)]
    pub window_thousandths: Option<u64>,
    /// What the disk has received there, where the server counts it
    /// (`docs/nbd-counters.md`) and is connected.
    pub received: Option<ReceivedIos>,
    /// What the server says to the disk's policy of now; absent before it has heard of it, and for
    /// disks that are not striped.
    #[serde(default)]
    pub policy: Option<PolicyAnswer>,
}

/// What each server of a striped disk said to its policy, or why it could not be asked.
pub type PolicyAnswers = Vec<(String, Result<PolicyAnswer, PlaneError>)>;

/// What a server says to the policy of a striped disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum PolicyAnswer {
    /// It is in force there.
    Taken,
    /// It is not, for this reason: the policy there is set there.
    Refused(String),
    /// The server takes no policies.
    Unknown,
}

/// What a disk has received at a server since it was opened, in normalised IOs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReceivedIos {
    /// All of it.
    pub ios: u64,
    /// The part that was served by reservation.
    pub by_reservation: u64,
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
    /// Another host holds the disk: requests fail, and the disk is taken out of service here.
    Evicted,
}
