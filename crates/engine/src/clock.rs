//! The data path's clock.

use headgate_units::Nanos;

/// `CLOCK_MONOTONIC`, the one clock of the data path: it never steps back and does not jump with
/// the time of day.
pub fn now() -> Nanos {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `ts` is a valid timespec to write to; CLOCK_MONOTONIC exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut ts) };
    Nanos(ts.tv_sec as u64 * 1_000_000_000 + ts.tv_nsec as u64)
}
