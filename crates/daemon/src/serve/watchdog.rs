//! The watchdog: says when a part of the data path stands still, where in the kernel its thread is,
//! and when it goes on; and tells the service manager that the daemon is alive, unless a restart
//! would help.

use super::notify;
use headgate_control::Control;
use headgate_control::leases::Ticker;
use headgate_model::Stall;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tracing::{error, info};

/// How often it looks, unless the service manager wants to hear from it more often.
const PERIOD: Duration = Duration::from_secs(1);

/// Innermost functions of the kernel that are named.
const FRAMES: usize = 6;

/// Starts to look.
///
/// # Errors
/// No thread.
pub(super) fn start(control: Arc<Control>) -> io::Result<Ticker> {
    let asked = std::env::var("WATCHDOG_USEC").ok().and_then(|text| text.parse().ok());
    let period = asked.map_or(PERIOD, |micros| (Duration::from_micros(micros) / 3).min(PERIOD));
    let mut known = Known::default();
    Ticker::start("headgate-watch", move || {
        let stalls = control.stalls();
        let states: Vec<(Stall, Wait)> =
            stalls.into_iter().map(|stall| (stall.clone(), wait_of(stall.thread))).collect();
        for change in known.see(&states) {
            change.tell();
        }
        if asked.is_some() && is_alive(&states) {
            notify::tell("WATCHDOG=1");
        }
        period
    })
}

/// How a thread waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// It can be killed.
    Killable,
    /// Only what it waits for ends it (state D): a process with such a thread does not end, and
    /// keeps its locks.
    Unkillable,
}

/// Whether the service manager is to be told that all is well: a restart takes all disks away for a
/// moment, so it must be of use. It is where a shard stands still that can be killed.
fn is_alive(stalls: &[(Stall, Wait)]) -> bool {
    stalls.iter().all(|(_, wait)| *wait == Wait::Unkillable)
}

/// What was said so far.
#[derive(Debug, Default)]
struct Known(BTreeMap<usize, Stall>);

/// News of a shard.
#[derive(Debug, PartialEq, Eq)]
enum Change {
    Stalled(Stall, Wait),
    GoesOn(Stall),
}

impl Known {
    fn see(&mut self, stalls: &[(Stall, Wait)]) -> Vec<Change> {
        let mut changes = Vec::new();
        let mut before = std::mem::take(&mut self.0);
        for (stall, wait) in stalls {
            if before.remove(&stall.shard).is_none() {
                changes.push(Change::Stalled(stall.clone(), *wait));
            }
            self.0.insert(stall.shard, stall.clone());
        }
        changes.extend(before.into_values().map(Change::GoesOn));
        changes
    }
}

impl Change {
    fn tell(&self) {
        match self {
            Change::Stalled(stall, wait) => {
                let datastores = names(stall);
                let kernel = stack_of(stall.thread);
                error!(
                    shard = stall.shard,
                    datastores,
                    thread = stall.thread,
                    kernel,
                    ends_with_the_process = (*wait == Wait::Killable),
                    "{}: its disks stand still, the others are served",
                    stall.reason
                );
            }
            Change::GoesOn(stall) => {
                let seconds = stall.waited.0 / 1_000_000_000;
                info!(shard = stall.shard, datastores = names(stall), seconds, "it answers again");
            }
        }
    }
}

fn names(stall: &Stall) -> String {
    let names: Vec<String> = stall.datastores.iter().map(ToString::to_string).collect();
    names.join(", ")
}

fn wait_of(thread: i32) -> Wait {
    let stat = fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap_or_default();
    match state_in(&stat) {
        Some('D') => Wait::Unkillable,
        _ => Wait::Killable,
    }
}

/// The state in a `stat` file: the field after the name, which may contain anything.
fn state_in(stat: &str) -> Option<char> {
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

/// The innermost functions of the kernel that a thread is in, as far as the kernel tells us.
fn stack_of(thread: i32) -> String {
    let read = |file| fs::read_to_string(format!("/proc/self/task/{thread}/{file}"));
    match read("stack") {
        Ok(stack) if !stack.trim().is_empty() => frames_in(&stack),
        _ => read("wchan").unwrap_or_else(|_| "unknown".into()),
    }
}

/// `[<0>] do_wait+0x12/0x34` is `do_wait`.
fn frames_in(stack: &str) -> String {
    let name = |line: &str| Some(line.split_whitespace().last()?.split('+').next()?.to_owned());
    stack.lines().filter_map(name).take(FRAMES).collect::<Vec<_>>().join(" < ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use headgate_units::Nanos;

    fn stall(shard: usize) -> Stall {
        Stall {
            shard,
            waited: Nanos::from_secs(4),
            thread: 7,
            datastores: vec!["lun".parse().unwrap()],
            reason: "shard 0 has not answered for 4 s".into(),
        }
    }

    #[test]
    fn each_stall_and_each_end_is_told_once() {
        let mut known = Known::default();
        assert_eq!(known.see(&[]), []);
        let both = [(stall(0), Wait::Killable), (stall(1), Wait::Unkillable)];
        let told = known.see(&both);
        assert!(matches!(&told[..], [Change::Stalled(..), Change::Stalled(..)]), "{told:?}");
        assert_eq!(known.see(&both), []);
        assert_eq!(known.see(&both[1..]), [Change::GoesOn(stall(0))]);
        assert_eq!(known.see(&[]), [Change::GoesOn(stall(1))]);
    }

    #[test]
    fn a_restart_is_asked_for_only_where_it_helps() {
        assert!(is_alive(&[]));
        assert!(is_alive(&[(stall(0), Wait::Unkillable)]));
        assert!(!is_alive(&[(stall(0), Wait::Unkillable), (stall(1), Wait::Killable)]));
    }

    #[test]
    fn what_the_kernel_says_of_a_thread_is_read() {
        assert_eq!(state_in("12 (a) D) S 1 2"), Some('S'));
        assert_eq!(state_in(""), None);
        let stack = "[<0>] eventfd_write+0xd5/0x2a0\n[<0>] vfs_write+0xbf/0x3e0\n";
        assert_eq!(frames_in(stack), "eventfd_write < vfs_write");
        // The test's main thread waits for this one.
        let main = i32::try_from(std::process::id()).unwrap();
        assert_eq!(wait_of(main), Wait::Killable);
    }
}
