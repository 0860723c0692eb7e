//! The API's views of datastores' windows.

use crate::ControlError;
use crate::limits::QUEUE_DEPTH_MAX;
use crate::windows::{BoardState, Followed, Host, Status};
use headgate_api::windows::{
    BoardHost, BoardStatus, Bound, Following, FollowingState, Held, Window, WindowNow, WindowPatch,
};
use headgate_model::{BoardPlace, UnknownBoard, UnknownThreshold, UnknownWindowLaw, WindowRecord};
use headgate_qos::UnknownNarrow;
use headgate_qos::window::{Activity, Bound as QosBound, Change, Held as QosHeld, Reason};
use headgate_units::Nanos;

/// The record after the change.
///
/// # Errors
/// When a text is not what it should be, or a bound is out of range.
pub(super) fn patched_window(
    patch: WindowPatch,
    mut record: WindowRecord,
) -> Result<WindowRecord, ControlError> {
    if let Some(text) = patch.latency_threshold {
        let wrong = |e: UnknownThreshold| {
            ControlError::invalid(e.to_string(), "30ms, 200us, auto, calibrated or none")
        };
        let threshold = text.parse().map_err(wrong)?;
        if threshold != record.threshold {
            record.followed = None;
        }
        record.threshold = threshold;
    }
    if let Some(board) = patch.board {
        let wrong = |e: UnknownBoard| {
            ControlError::invalid(e.to_string(), "an absolute path, etcd=NAME, auto or none")
        };
        record.board = board.parse().map_err(wrong)?;
    }
    if let Some(text) = patch.law {
        let wrong = |e: UnknownWindowLaw| {
            ControlError::invalid(e.to_string(), "measured, slots or published")
        };
        record.law = text.parse().map_err(wrong)?;
    }
    if let Some(text) = patch.narrow {
        let wrong =
            |e: UnknownNarrow| ControlError::invalid(e.to_string(), "reservations or never");
        record.narrow = text.parse().map_err(wrong)?;
    }
    record.min = patch.min.unwrap_or(record.min);
    record.max = patch.max.apply(record.max);
    record.period = patch.period_ns.apply(record.period.map(|Nanos(n)| n)).map(Nanos);
    let most = QUEUE_DEPTH_MAX;
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

impl From<Followed> for Following {
    fn from(followed: Followed) -> Following {
        let (state, rounds) = match followed.activity {
            Activity::Joining => (FollowingState::Joining, None),
            Activity::Adopting => (FollowingState::Adopting, None),
            Activity::Hindered => (FollowingState::Hindered, None),
            Activity::Resting => (FollowingState::Resting, None),
            Activity::Trying(rounds) => (FollowingState::Trying, Some(rounds)),
        };
        Following {
            threshold_ns: followed.base.0,
            state,
            rounds,
            changes: followed.changes,
            last: followed.last.map(|change| change_text(&change)),
        }
    }
}

/// From what to what a threshold changed, and why.
pub(super) fn change_text(Change { from, to, reason }: &Change) -> String {
    let why = match reason {
        Reason::Rate(part) => format!(
            "{}.{} % of the highest rate was done at the old one",
            part / 10_000,
            part / 1_000 % 10
        ),
        Reason::Pressed => "windows were at their smallest, and latency above it".into(),
        Reason::Adopted => "the host that makes the trials has it".into(),
    };
    format!("{from} to {to}: {why}")
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
            following: status.following.map(Following::from),
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

/// How a datastore's window is set, and how it is now.
pub(super) fn window_view(
    record: &WindowRecord,
    queue_depth: u32,
    status: Option<Status>,
) -> Window {
    let WindowRecord { threshold, found, followed, min, max, ref board, .. } = *record;
    let place: &BoardPlace = board;
    Window {
        latency_threshold: threshold.to_string(),
        found,
        followed,
        min,
        max: max.unwrap_or(queue_depth),
        max_set: max,
        period_ns: record.control(queue_depth).map(|control| control.period.0),
        period_set_ns: record.period.map(|Nanos(n)| n),
        board: place.to_string(),
        law: record.law.to_string(),
        narrow: record.narrow.to_string(),
        now: status.map(WindowNow::from),
    }
}
