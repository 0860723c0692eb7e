//! The orders of generators: requests and wake-ups.

use headgate_devices::IoKind;
use headgate_units::{Bytes, Nanos};

/// A request to be issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Issue {
    /// Index into the VM's disks.
    pub(crate) disk: usize,
    pub(crate) kind: IoKind,
    pub(crate) offset: u64,
    pub(crate) bytes: Bytes,
    /// Comes back at completion.
    pub(crate) tag: u32,
}

/// The orders of a generator: requests to issue, and wake-ups.
#[derive(Default)]
pub(crate) struct Orders {
    pub(crate) issues: Vec<Issue>,
    /// Times at which to call, and what to say then.
    pub(crate) timers: Vec<(Nanos, u32)>,
    /// Response time of a transaction that ended.
    pub(crate) transaction: Option<Nanos>,
    /// Why it cannot go on.
    pub(crate) failure: Option<String>,
}

/// So many per cent of a number, rounded up.
pub(super) fn part_of(most: u32, percent: u64) -> u32 {
    (u64::from(most) * percent).div_ceil(100).min(u64::from(most)) as u32
}
