//! Quantities that summaries are made of, and times that hold for all of them.

use headgate_units::Nanos;

/// How long a host that is down is shown: as long as its parts are kept after its last word.
pub const KEPT: Nanos = Nanos::from_secs(24 * 60 * 60);

/// How many of its periods a host may be silent before it counts as down.
pub const SILENT_PERIODS: u64 = 3;

/// A rate in events or bytes per second. Unlike a promise it may be 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(pub u64);

/// A part of a whole, in thousandths: 0 to 1,000.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Thousandths(pub u64);

/// Seconds since 1970 by the clock of the host that says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnixSeconds(pub u64);
