//! How disks stand to their latency targets, for reports.

use headgate_units::{LatencyTarget, Nanos};

/// How a disk stands to its [`LatencyTarget`], over the requests that it was last judged by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatencyStanding {
    /// As it was then.
    pub target: LatencyTarget,
    /// Reads and writes that completed.
    pub requests: u64,
    /// Those of them that took longer.
    pub late: u64,
    /// What as many of them as the target says did not exceed: no less than the true value, and an
    /// eighth more at the most, or what 1,024 times the target is.
    pub latency: Nanos,
    /// Whether it is met, and what else.
    pub verdict: LatencyVerdict,
}

/// Whether a latency target is met, and if not, why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LatencyVerdict {
    /// It is.
    Met,
    /// Requests of others take up the window. It is being narrowed, or it is not to be.
    Window,
    /// Requests wait in the queue: the disk asks for more than its reservation, many come at once,
    /// or the storage does not give what is reserved.
    Queue,
    /// The disk has the storage to itself.
    Alone,
    /// A narrow window did not help: the storage takes as long for one request.
    Storage,
}
