//! Datastores' windows on the command line.

use super::values::OrNone;
use clap::Args;
use headgate_api::types::Change;
use headgate_api::windows::{
    BoardHost, BoardStatus, Bound, Following, FollowingState, Held, Window, WindowNow, WindowPatch,
};
use headgate_model::{BoardPlace, FollowedThreshold, FoundThreshold, Threshold, WindowLaw};
use headgate_qos::Narrow;
use headgate_units::Nanos;

/// Options of a datastore's window.
#[derive(Debug, Args)]
pub(super) struct WindowArgs {
    /// Mean latency to steer towards under load, 10us to 10s: the window shrinks above it and grows
    /// below it, and hosts that share the storage divide it by shares. 'auto' begins with what
    /// 'datastore calibrate' finds and follows the storage; 'calibrated' stays there; 'none' fixes
    /// the window at the queue depth [default: none]
    #[arg(long, value_name = "TIME", help_heading = "Window")]
    latency_threshold: Option<Threshold>,
    /// Smallest window in requests, 1 to 4096 [default: 4]
    #[arg(long, value_name = "N", help_heading = "Window")]
    window_min: Option<u32>,
    /// Largest window in requests, 1 to 4096, or 'none' for the queue depth [default: none]
    #[arg(long, value_name = "N", help_heading = "Window")]
    window_max: Option<OrNone<u32>>,
    /// Time between two decisions about the window, 10ms to 60s, the same on all hosts, or 'none'
    /// for the default [default: 4s, or 500ms for thresholds below 5ms]
    #[arg(long, value_name = "TIME", help_heading = "Window")]
    window_period: Option<OrNone<Nanos>>,
    /// Congestion board, where hosts publish latency and window to each other: a directory that all
    /// of them reach, 'etcd=NAME', 'none', or 'auto' for a file in the datastore's directory
    /// [default: auto]
    #[arg(long, value_name = "PLACE", help_heading = "Window")]
    board: Option<BoardPlace>,
    /// What hosts that share the storage get in proportion to their shares: 'measured' work,
    /// 'slots' in its queue, or 'published', which is slots by the law as the PARDA paper prints
    /// it, one for 1000 shares a period; the same on all hosts [default: measured]
    #[arg(long, value_name = "LAW", help_heading = "Window")]
    window_law: Option<WindowLaw>,
    /// When the window gives way: for 'reservations' of disks that keep too few requests
    /// outstanding to get them behind a full window, or 'never' [default: reservations]
    #[arg(long, value_name = "WHEN", help_heading = "Window")]
    narrow_window: Option<Narrow>,
}

impl WindowArgs {
    pub(super) fn patch(self) -> WindowPatch {
        WindowPatch {
            latency_threshold: self.latency_threshold.map(|threshold| threshold.to_string()),
            min: self.window_min,
            max: OrNone::change(self.window_max),
            period_ns: match OrNone::change(self.window_period) {
                Change::Keep => Change::Keep,
                Change::Remove => Change::Remove,
                Change::Set(Nanos(n)) => Change::Set(n),
            },
            board: self.board.map(|board| board.to_string()),
            law: self.window_law.map(|law| law.to_string()),
            narrow: self.narrow_window.map(|narrow| narrow.to_string()),
        }
    }
}

pub(super) fn found(found: &FoundThreshold) -> String {
    let FoundThreshold { threshold, peak, unloaded, saturated, at } = *found;
    let end =
        if saturated { "" } else { ", which more requests might exceed: raise --queue-depth" };
    format!(
        "{threshold}, found {}: a single request takes {unloaded}, the most was {peak} random reads/s{end}",
        super::output::date(at)
    )
}

fn followed(followed: &FollowedThreshold) -> String {
    let FollowedThreshold { threshold, at } = *followed;
    format!("{threshold}, since {}", super::output::date(at))
}

fn following(now: &Following) -> String {
    let state = match now.state {
        FollowingState::Joining => "the board is yet to be read",
        FollowingState::Adopting => "as the host has it that makes the trials",
        FollowingState::Hindered => "another host's threshold was set by hand: it stays",
        FollowingState::Resting => "until the next trial",
        FollowingState::Trying => "in a trial",
    };
    let rounds = now.rounds.map_or_else(String::new, |n| format!(" ({n} rounds done)"));
    let last = now.last.as_ref().map_or_else(String::new, |last| format!("; last {last}"));
    format!("{} {state}{rounds}{last}", Nanos(now.threshold_ns))
}

/// The lines of `datastore show` that describe a window.
pub(super) fn lines(window: &Window) -> Vec<(&'static str, Option<String>)> {
    let set = match window.latency_threshold.as_str() {
        "none" => "none: the window is the queue depth".into(),
        threshold => format!(
            "{threshold}, a window of {} to {}, every {}{}",
            window.min,
            window.max,
            Nanos(window.period_ns.unwrap_or(0)),
            match window.law.as_str() {
                "slots" => ", slots by shares",
                "published" => ", slots by shares as published",
                _ => ", work by shares",
            }
        ),
    };
    let narrow = match window.narrow.as_str() {
        "never" => "never: a disk with few requests outstanding may miss its reservation",
        _ => "for reservations of disks with few requests outstanding, and for latency targets",
    };
    let mut lines = vec![
        ("threshold", Some(set)),
        ("found", window.found.as_ref().map(found)),
        ("followed", window.followed.as_ref().map(followed)),
        ("narrowing", Some(narrow.into())),
    ];
    let Some(now) = &window.now else { return lines };
    lines.push(("window", Some(slots(now))));
    lines.push(("latency", Some(latency(now))));
    lines.push(("following", now.following.as_ref().map(following)));
    lines.push(("unmanaged", now.unmanaged_load.clone()));
    lines.push(("board", Some(board(now))));
    lines.push(("clone", now.duplicate_identity.as_ref().map(|name| {
        format!("host '{name}' claims this host's identity: remove the file host-id from the state directory of one and restart it")
    })));
    lines.extend(now.hosts.iter().map(|other| ("host", Some(host(other)))));
    lines
}

fn slots(now: &WindowNow) -> String {
    let why = match (now.held, now.bound) {
        (Some(Held::Board), _) => ", held: the board cannot be read",
        (Some(Held::Idle), _) => ", held: no IO",
        (Some(Held::Calibration), _) => ", set aside by a calibration",
        (None, Bound::Free) => "",
        (None, Bound::Min) => ", the smallest",
        (None, Bound::Reservations) => ", what the reservations need",
        (None, Bound::Max) => ", the largest",
    };
    format!("{:.2} requests{why}; beta {:.2}", now.slots, now.beta)
}

fn latency(now: &WindowNow) -> String {
    let time = |ns: Option<u64>| ns.map_or_else(|| "-".into(), |ns| Nanos(ns).to_string());
    let differing = match now.hosts_differing {
        0 => String::new(),
        n => format!("; {n} of them go by another threshold or period: set them alike"),
    };
    format!(
        "{} of {} over {} hosts, {} on this one{differing}",
        time(now.latency_ns),
        Nanos(now.threshold_ns),
        now.hosts_counted,
        time(now.own_latency_ns)
    )
}

fn board(now: &WindowNow) -> String {
    let place = now.board_place.as_deref().unwrap_or("-");
    let unreadable = match now.board_unreadable {
        0 => String::new(),
        n => format!("; {n} places on it hold no good report"),
    };
    match now.board {
        BoardStatus::None => "none: no other host uses the storage".into(),
        BoardStatus::Starting => format!("{place}, read for less than two periods"),
        BoardStatus::Read => format!("{place}{unreadable}"),
        BoardStatus::Unreachable => {
            format!(
                "{place} CANNOT BE USED: {}{unreadable}",
                now.board_error.as_deref().unwrap_or("-")
            )
        }
    }
}

fn host(host: &BoardHost) -> String {
    format!(
        "{}: window {:.2}, {} active shares, {} after {} IOs, {} ago",
        host.name,
        host.window,
        host.shares,
        Nanos(host.latency_ns),
        host.ios,
        Nanos(host.age_ns)
    )
}
