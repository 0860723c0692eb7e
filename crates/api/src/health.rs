//! How a daemon is: what `GET /healthz` answers.

use crate::types::Host;
use serde::{Deserialize, Serialize};

/// How the daemon is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum HealthStatus {
    /// Everything is in service.
    Ok,
    /// A datastore or a disk could not be opened, a disk has no connection to its server, or its
    /// storage fails requests; the others serve.
    Degraded,
    /// A shard does not answer: restart the daemon.
    Failed,
}

/// The daemon that answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Health {
    /// How it is.
    pub status: HealthStatus,
    /// The daemon's version.
    pub version: String,
    /// The host.
    pub host: Host,
    /// What is not in service, or in trouble, and why.
    pub failed: Vec<String>,
    /// What may be in trouble soon: file systems that are filling up.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// Which files the kernel lets the daemon open; absent where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confinement: Option<Confinement>,
}

/// Whether Landlock confines the daemon to its files, since it started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Confinement {
    /// Whether it does.
    pub state: ConfinementState,
    /// Why not, or not in all; absent where it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Paths that are allowed and were not there at the start: closed until the next.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub closed: Vec<String>,
}

/// Whether the kernel keeps the daemon to its files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ConfinementState {
    /// By all rights that it asks for.
    Confined,
    /// By those that an older kernel has.
    Partly,
    /// It may open whatever its user may.
    #[default]
    Unconfined,
}
