//! Datastores' windows as they go over the API.

use super::types::Change;
use crate::catalog::{BoardPlace, FoundThreshold, WindowRecord};
use crate::control::ControlError;
use crate::windows::{BoardState, Host, Status};
use headgate_qos::window::{Bound as QosBound, Held as QosHeld};
use headgate_units::Nanos;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What to change about how a datastore's window is set. A field that is absent stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WindowPatch {
    /// The latency that the storage shall have under load: a time such as `30ms` or `200us` (10us to 10s), `auto` for what
    /// calibration found, or `none` for a window that is the queue depth.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_threshold: Option<String>,
    /// The smallest window, 1 to 4096.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min: Option<u32>,
    /// The largest window, 1 to 4096; `null` for the queue depth.
    #[serde(skip_serializing_if = "Change::is_keep")]
    #[schema(value_type = Option<u32>)]
    pub max: Change<u32>,
    /// How often it is set, in nanoseconds, 10 ms to 60 s; `null` for 4 s, or 0.5 s where the threshold is below 5 ms.
    #[serde(skip_serializing_if = "Change::is_keep")]
    #[schema(value_type = Option<u64>)]
    pub period_ns: Change<u64>,
    /// Where the hosts of the datastore tell each other what they see: an absolute path of a directory, `etcd=NAME`, `auto` (a file in
    /// the datastore's own directory) or `none`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub board: Option<String>,
}

impl WindowPatch {
    /// Does it change nothing.
    pub fn is_empty(&self) -> bool {
        *self == WindowPatch::default()
    }

    /// The record after the change.
    pub(crate) fn apply(self, mut record: WindowRecord) -> Result<WindowRecord, ControlError> {
        if let Some(text) = self.latency_threshold {
            let wrong = |e: crate::catalog::UnknownThreshold| {
                ControlError::invalid(e.to_string(), "30ms, 200us, auto or none")
            };
            record.threshold = text.parse().map_err(wrong)?;
        }
        if let Some(board) = self.board {
            let wrong = |e: crate::catalog::UnknownBoard| {
                ControlError::invalid(e.to_string(), "an absolute path, etcd=NAME, auto or none")
            };
            record.board = board.parse().map_err(wrong)?;
        }
        record.min = self.min.unwrap_or(record.min);
        record.max = self.max.apply(record.max);
        record.period = self.period_ns.apply(record.period.map(|Nanos(n)| n)).map(Nanos);
        let most = crate::control::QUEUE_DEPTH_MAX;
        for bound in [Some(record.min), record.max].into_iter().flatten() {
            if !(1..=most).contains(&bound) {
                return Err(ControlError::invalid(
                    format!("a window of {bound} is out of range"),
                    format!("1 to {most}"),
                ));
            }
        }
        Ok(record)
    }
}

/// What holds a window where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
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

impl From<&Host> for BoardHost {
    fn from(host: &Host) -> BoardHost {
        BoardHost {
            name: host.name.clone(),
            id: host.id.clone(),
            window: host.report.window.as_f64(),
            shares: host.report.shares.as_millionths() / 1_000_000,
            latency_ns: host.report.latency.0,
            ios: host.report.ios,
            age_ns: host.age.0,
        }
    }
}

/// A controlled window as it is now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WindowNow {
    /// How many requests may be outstanding: not whole, for the part beyond the whole is given for a part of the time.
    pub slots: f64,
    /// What holds it there.
    pub bound: Bound,
    /// What the shares of this host's busy disks bring it per period, in requests: beta.
    pub beta: f64,
    /// The threshold that all hosts go by, in nanoseconds: the lowest of theirs.
    pub threshold_ns: u64,
    /// The mean latency of an IO of 8 KiB over all hosts in the last period, in nanoseconds; `null` without IOs.
    pub latency_ns: Option<u64>,
    /// What this host saw of it.
    pub own_latency_ns: Option<u64>,
    /// IOs of this host in the last period.
    pub own_ios: u64,
    /// Why the window stays as it is, if it does.
    pub held: Option<Held>,
    /// Hosts whose word counted in the last period, this one included.
    pub hosts_counted: u32,
    /// Those among them with another threshold or period.
    pub hosts_differing: u32,
    /// Load that no host answers for: the latency stays high although all windows are small. `null` while there is none.
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

impl From<Status> for WindowNow {
    fn from(status: Status) -> WindowNow {
        let last = status.last.as_ref();
        let bound = match last.map_or(QosBound::Free, |last| last.bound) {
            QosBound::Free => Bound::Free,
            QosBound::Min => Bound::Min,
            QosBound::Reservations => Bound::Reservations,
            QosBound::Max => Bound::Max,
        };
        let held = match last.and_then(|last| last.held) {
            _ if status.suspended => Some(Held::Calibration),
            Some(QosHeld::BoardUnreachable) => Some(Held::Board),
            Some(QosHeld::NoIos) => Some(Held::Idle),
            None => None,
        };
        let (board, error) = match status.board {
            BoardState::Alone => (BoardStatus::None, None),
            BoardState::Starting => (BoardStatus::Starting, None),
            BoardState::Read => (BoardStatus::Read, None),
            BoardState::Unreachable(error) => (BoardStatus::Unreachable, Some(error)),
        };
        WindowNow {
            slots: status.window.as_f64(),
            bound,
            beta: last.map_or(0.0, |last| last.beta.as_f64()),
            threshold_ns: last.map_or(status.config.threshold, |last| last.threshold).0,
            latency_ns: last.and_then(|last| last.latency).map(|latency| latency.0),
            own_latency_ns: status.own.map(|own| own.latency.0),
            own_ios: status.own.map_or(0, |own| own.ios),
            held,
            hosts_counted: last.map_or(1, |last| last.hosts),
            hosts_differing: last.map_or(0, |last| last.differing),
            unmanaged_load: status.unmanaged.map(|what| what.to_string()),
            board,
            board_place: status.place,
            board_error: error,
            board_exchanges: status.exchanges,
            board_unreadable: status.unreadable,
            duplicate_identity: status.duplicate,
            hosts: status.hosts.iter().map(BoardHost::from).collect(),
            periods: status.periods,
        }
    }
}

/// How a datastore's window is set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Window {
    /// By which latency: a time, `auto` or `none`.
    pub latency_threshold: String,
    /// What calibration found.
    pub found: Option<FoundThreshold>,
    /// The smallest window.
    pub min: u32,
    /// The largest window.
    pub max: u32,
    /// How often it is set, in nanoseconds; `null` without control.
    pub period_ns: Option<u64>,
    /// Where the hosts meet, as it was set.
    pub board: String,
    /// How it is; `null` without control.
    pub now: Option<WindowNow>,
}

impl Window {
    pub(crate) fn of(record: &WindowRecord, queue_depth: u32, status: Option<Status>) -> Window {
        let WindowRecord { threshold, found, min, max, ref board, .. } = *record;
        let place: &BoardPlace = board;
        Window {
            latency_threshold: threshold.to_string(),
            found,
            min,
            max: max.unwrap_or(queue_depth),
            period_ns: record.control(queue_depth).map(|control| control.period.0),
            board: place.to_string(),
            now: status.map(WindowNow::from),
        }
    }
}
