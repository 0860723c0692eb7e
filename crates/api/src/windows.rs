//! Wire types of datastores' windows.

use super::change::Change;
use headgate_model::{FollowedThreshold, FoundThreshold};
use serde::{Deserialize, Serialize};

/// What to change about how a datastore's window is set. A field that is absent stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct WindowPatch {
    /// The latency that the storage shall have under load: a time such as `30ms` or `200us` (10us
    /// to 10s), `auto` for what calibration found, or `none` for a window that is the queue depth.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_threshold: Option<String>,
    /// The smallest window, 1 to 4096.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min: Option<u32>,
    /// The largest window, 1 to 4096; `null` for the queue depth.
    #[serde(skip_serializing_if = "Change::is_keep")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u32>))]
    pub max: Change<u32>,
    /// How often it is set, in nanoseconds, 10 ms to 60 s; `null` for 4 s, or 0.5 s where the
    /// threshold is below 5 ms.
    #[serde(skip_serializing_if = "Change::is_keep")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub period_ns: Change<u64>,
    /// The datastore's congestion board: the absolute path of a directory, `etcd=NAME`, `auto` (a
    /// file in the datastore's own directory) or `none`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub board: Option<String>,
    /// What hosts get by shares: `measured` work, `slots` in the storage's queue, or `published`,
    /// which is slots by the law as the PARDA paper prints it. The same on all hosts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub law: Option<String>,
    /// When it gives way: for `reservations` of disks that keep too few requests outstanding to get
    /// them behind a full window, or `never`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub narrow: Option<String>,
}

impl WindowPatch {
    /// Does it change nothing.
    pub fn is_empty(&self) -> bool {
        *self == WindowPatch::default()
    }
}

/// What holds a window where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Bound {
    /// Latency and shares.
    Free,
    /// The smallest window.
    Min,
    /// What the reservations need.
    Reservations,
    /// The largest window.
    Max,
}

/// Why a window stays as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Held {
    /// The board cannot be read.
    Board,
    /// No host did any IO.
    Idle,
    /// The datastore is being calibrated.
    Calibration,
}

/// Whether the other hosts' word is heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum BoardStatus {
    /// There is no board.
    None,
    /// It has been read for less than two periods.
    Starting,
    /// It is.
    Read,
    /// It cannot be used.
    Unreachable,
}

/// Another host of the datastore.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BoardHost {
    /// What people call it.
    pub name: String,
    /// Its identity.
    pub id: String,
    /// Its window.
    pub window: f64,
    /// The shares of its disks that use their slots.
    pub shares: u64,
    /// The latency that it sees, in nanoseconds.
    pub latency_ns: u64,
    /// IOs that it did in its last period.
    pub ios: u64,
    /// How old its word is, in nanoseconds. It counts for three periods.
    pub age_ns: u64,
}

/// What a threshold that follows the storage is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum FollowingState {
    /// The board was not read yet, or cannot be: the threshold stays as it is.
    Joining,
    /// Another host makes the trials, and this one takes its threshold.
    Adopting,
    /// Another host has a threshold that was set by hand: this one stays as it is.
    Hindered,
    /// Until the next trial.
    Resting,
    /// In a trial.
    Trying,
}

/// An automatic threshold, which follows the storage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Following {
    /// What it is, without what a trial adds, in nanoseconds.
    pub threshold_ns: u64,
    /// What it is about.
    pub state: FollowingState,
    /// Rounds of the trial that ended, in a trial.
    pub rounds: Option<u8>,
    /// How often it changed since the window is controlled.
    pub changes: u64,
    /// The last change, and why.
    pub last: Option<String>,
}

/// A controlled window as it is now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WindowNow {
    /// How many requests may be outstanding: not whole, for the part beyond the whole is given for
    /// a part of the time.
    pub slots: f64,
    /// What holds it there.
    pub bound: Bound,
    /// What the shares of this host's busy disks bring it per period, in requests: beta.
    pub beta: f64,
    /// How its threshold follows the storage; `null` where it does not.
    #[serde(default)]
    pub following: Option<Following>,
    /// The threshold that all hosts go by, in nanoseconds: the lowest of theirs.
    pub threshold_ns: u64,
    /// The mean latency of an IO of 8 KiB over all hosts in the last period, in nanoseconds; `null`
    /// without IOs.
    pub latency_ns: Option<u64>,
    /// What this host saw of it.
    pub own_latency_ns: Option<u64>,
    /// IOs of this host in the last period.
    pub own_ios: u64,
    /// Why the window stays as it is, if it does.
    pub held: Option<Held>,
    /// Hosts whose reports counted in the last period, this one included.
    pub hosts_counted: u32,
    /// Those among them with another threshold or period.
    pub hosts_differing: u32,
    /// Load that no host answers for: the latency stays high although all windows are small. `null`
    /// while there is none.
    pub unmanaged_load: Option<String>,
    /// Whether the other hosts' word is heard.
    pub board: BoardStatus,
    /// Where the hosts meet.
    pub board_place: Option<String>,
    /// Why the board cannot be used.
    pub board_error: Option<String>,
    /// How often it was written and read.
    pub board_exchanges: u64,
    /// Places on it that hold no good report.
    pub board_unreadable: u32,
    /// Another living host that claims this host's identity: a clone.
    pub duplicate_identity: Option<String>,
    /// The other hosts.
    pub hosts: Vec<BoardHost>,
    /// Periods since the daemon's start.
    pub periods: u64,
}

/// How a datastore's window is set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Window {
    /// By which latency: a time, `auto`, `calibrated` or `none`.
    pub latency_threshold: String,
    /// What calibration found.
    pub found: Option<FoundThreshold>,
    /// Where an automatic threshold got to since, as it is kept over restarts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub followed: Option<FollowedThreshold>,
    /// The smallest window.
    pub min: u32,
    /// The largest window.
    pub max: u32,
    /// The same as it was set; `null` for the queue depth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_set: Option<u32>,
    /// How often it is set, in nanoseconds; `null` without control.
    pub period_ns: Option<u64>,
    /// The same as it was set; `null` for what fits the threshold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period_set_ns: Option<u64>,
    /// Where the hosts meet, as it was set.
    pub board: String,
    /// What hosts get by shares: `measured` work, `slots`, or `published`.
    #[serde(default)]
    pub law: String,
    /// When it gives way: for `reservations`, or `never`.
    #[serde(default)]
    pub narrow: String,
    /// How it is; `null` without control.
    pub now: Option<WindowNow>,
}
