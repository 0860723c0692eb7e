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
