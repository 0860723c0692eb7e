//! CPU time of other processes and of this thread.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// User and system time of these processes together, to a hundredth of a second. `None` when none
/// are named or one is gone.
pub(crate) fn of_processes(pids: &[u32]) -> Option<Duration> {
    if pids.is_empty() {
        return None;
    }
    pids.iter().map(|pid| of_process(*pid)).sum()
}

fn of_process(pid: u32) -> Option<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command's name is in parentheses and may hold anything; the fields count from behind it
    // (proc(5)).
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    Some(Duration::from_nanos((user + system).saturating_mul(1_000_000_000 / per_second)))
}

/// CPU time of the calling thread.
pub(crate) fn of_this_thread() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_works_is_seen_working_and_a_dead_one_is_not_seen() {
        let before = of_this_thread();
        let mut sum = 0u64;
        while of_this_thread() - before < Duration::from_millis(30) {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(of_processes(&[std::process::id()]).unwrap() >= Duration::from_millis(20));
        assert_eq!(of_processes(&[]), None);
        assert_eq!(of_processes(&[std::process::id(), u32::MAX]), None);
    }
}
