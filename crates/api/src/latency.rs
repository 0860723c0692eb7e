//! Wire types of latency targets: how disks stand to them, and what windows give way to.

use headgate_qos::{LatencyStanding, LatencyVerdict, Promise};
use headgate_units::{LatencyTarget, Nanos};
use serde::{Deserialize, Serialize};
use std::fmt;

/// How a disk stands to its latency target, over the requests that it was last judged by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LatencyNow {
    /// The target as it was then.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub target: LatencyTarget,
    /// Reads and writes that completed.
    pub requests: u64,
    /// Those of them that took longer.
    pub late: u64,
    /// What as many of them as the target says did not exceed, in microseconds: rounded up, at most
    /// an eighth too high, and at most 1,024 times the target.
    pub micros: u64,
    /// Whether it is met, and if not, why.
    pub verdict: Verdict,
}

/// Whether a latency target is met, and if not, why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It is.
    Met,
    /// Requests of other disks fill the window.
    Window,
    /// Its requests wait in the queue: it asks for more than its reservation, or in bursts, or the
    /// storage does not give what is reserved.
    Queue,
    /// It has the storage to itself.
    Alone,
    /// The storage takes as long with fewer requests in the window.
    Storage,
}

impl Verdict {
    /// What it means, as a clause.
    pub fn reason(self) -> &'static str {
        match self {
            Verdict::Met => "the target is met",
            Verdict::Window => "requests of other disks fill the window",
            Verdict::Queue => {
                "its requests wait in the queue: it asks for more than its reservation, or in bursts"
            }
            Verdict::Alone => "the storage takes so long although nobody else uses it",
            Verdict::Storage => "the storage takes as long in a narrower window",
        }
    }
}

/// Prints a sentence: `p99=10ms: 97 of 400 took longer, p99 was 41.25 ms; requests of other disks
/// fill the window`.
impl fmt::Display for LatencyNow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LatencyNow { target, requests, late, micros, verdict } = self;
        let longest = target.latency().0.saturating_mul(1_024);
        let latency = Nanos::from_micros(*micros);
        let bound = if latency.0 >= longest { "at least " } else { "" };
        let (whole, tenths) = (target.quantile() / 10, target.quantile() % 10);
        write!(f, "{target}: {late} of {requests} took longer, p{whole}")?;
        if tenths > 0 {
            write!(f, ".{tenths}")?;
        }
        write!(f, " was {bound}{latency}; {}", verdict.reason())
    }
}

/// What a window is narrowed for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum NarrowedFor {
    /// The reservation of a disk that keeps few requests outstanding.
    #[default]
    Reservation,
    /// A disk's latency target.
    Latency,
}

impl From<LatencyStanding> for LatencyNow {
    fn from(standing: LatencyStanding) -> LatencyNow {
        let LatencyStanding { target, requests, late, latency, verdict } = standing;
        let verdict = match verdict {
            LatencyVerdict::Met => Verdict::Met,
            LatencyVerdict::Window => Verdict::Window,
            LatencyVerdict::Queue => Verdict::Queue,
            LatencyVerdict::Alone => Verdict::Alone,
            LatencyVerdict::Storage => Verdict::Storage,
        };
        LatencyNow { target, requests, late, micros: latency.0.div_ceil(1_000), verdict }
    }
}

impl From<Promise> for NarrowedFor {
    fn from(promise: Promise) -> NarrowedFor {
        match promise {
            Promise::Reservation => NarrowedFor::Reservation,
            Promise::Latency => NarrowedFor::Latency,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now(quantile: &str, micros: u64, verdict: Verdict) -> LatencyNow {
        LatencyNow { target: quantile.parse().unwrap(), requests: 400, late: 97, micros, verdict }
    }

    #[test]
    fn it_says_what_was_late_and_why() {
        assert_eq!(
            now("p99=10ms", 41_250, Verdict::Window).to_string(),
            "p99=10ms: 97 of 400 took longer, p99 was 41.25 ms; requests of other disks fill the window"
        );
        assert_eq!(
            now("p99.9=1ms", 1_024_000, Verdict::Storage).to_string(),
            "p99.9=1ms: 97 of 400 took longer, p99.9 was at least 1.02 s; \
             the storage takes as long in a narrower window"
        );
    }
}
