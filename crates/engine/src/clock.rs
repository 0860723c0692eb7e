//! The data path's clock.

use headgate_units::Nanos;
use rustix::time::{ClockId, clock_gettime};

/// `CLOCK_MONOTONIC`, the one clock of the data path: it never steps back and does not jump with
/// the time of day.
pub fn now() -> Nanos {
    let now = clock_gettime(ClockId::Monotonic);
    Nanos(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}

/// `CLOCK_BOOTTIME`, by which leases end: it goes on while the machine is suspended.
pub(crate) fn boottime() -> Nanos {
    let now = clock_gettime(ClockId::Boottime);
    Nanos(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}

/// Processor time that the calling thread has had.
pub(crate) fn thread_cpu() -> Nanos {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Nanos(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}

/// `CLOCK_REALTIME`, which stamps files: since 1970. It may be set to anything at any time.
pub(crate) fn realtime() -> Nanos {
    let now = clock_gettime(ClockId::Realtime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    Nanos(seconds.saturating_mul(1_000_000_000).saturating_add(now.tv_nsec as u64))
}
