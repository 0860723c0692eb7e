//! A clock that outlives the daemon.

use headgate_units::Nanos;
use std::time::{SystemTime, UNIX_EPOCH};

/// Nanoseconds since 1970: a clock that outlives the daemon.
pub fn wall_clock() -> Nanos {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}
