//! What the calculus is asked.

use super::burst::BurstMeter;
use super::record::ServiceRecord;
use super::work::Work;
use alloc::vec::Vec;
use core::fmt;
use core::num::NonZeroU32;
use headgate_units::{Iops, Nanos};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A latency that so many of a disk's requests are not to exceed, from arrival to completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Written")]
pub struct Target {
    permille: u32,
    latency: Nanos,
}

/// A target that was not checked yet.
#[derive(Deserialize)]
struct Written {
    permille: u32,
    latency: Nanos,
}

impl TryFrom<Written> for Target {
    type Error = TargetError;
    fn try_from(written: Written) -> Result<Target, TargetError> {
        Target::new(written.permille, written.latency)
    }
}

/// A quantile out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a latency target is for 500 to 999 of 1000 requests, not {0}")]
pub struct TargetError(pub u32);

impl Target {
    /// `permille` thousandths of the requests, 500 to 999, within `latency`.
    ///
    /// # Errors
    /// [`TargetError`] for another quantile.
    pub const fn new(permille: u32, latency: Nanos) -> Result<Target, TargetError> {
        match permille {
            500..=999 => Ok(Target { permille, latency }),
            _ => Err(TargetError(permille)),
        }
    }

    /// Thousandths of the requests.
    pub const fn permille(self) -> u32 {
        self.permille
    }

    /// What they are not to exceed.
    pub const fn latency(self) -> Nanos {
        self.latency
    }

    /// The same for another latency.
    #[must_use]
    pub const fn with_latency(self, latency: Nanos) -> Target {
        Target { latency, ..self }
    }

    /// The part of the requests that may take longer.
    pub(super) fn exempt(self) -> f64 {
        f64::from(1_000 - self.permille) / 1e3
    }
}

/// `p99=5.00 ms`, `p99.9=20.00 ms`.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.permille / 10, self.permille % 10) {
            (whole, 0) => write!(f, "p{whole}={}", self.latency),
            (whole, tenth) => write!(f, "p{whole}.{tenth}={}", self.latency),
        }
    }
}

/// A datastore: its window, and what is recorded of its service.
#[derive(Clone, Debug)]
pub struct Storage {
    /// The rate that it sustains, if known; reservations beyond it leave no slack.
    pub rate: Option<Iops>,
    /// The window: the most requests that are in flight.
    pub window: NonZeroU32,
    /// The least window that narrowing may go to.
    pub least_window: NonZeroU32,
    /// While reservations take all, one reference IO goes to disks without one after so many
    /// (`Config::floor` of the scheduler); `None`: nothing does.
    pub floor: Option<NonZeroU32>,
    /// Requests that came to storage with little in it.
    pub light: Option<ServiceRecord>,
    /// Requests that came to storage with more in it, each record with so many in flight. Storage
    /// that serves requests side by side, or sorts them, needs one for each window that may do:
    /// two in a row should not be further apart than a doubling.
    pub busy: Vec<ServiceRecord>,
    /// The longest that it was seen to stand still with requests inside. Nothing is added for a
    /// stall that the records contain.
    pub longest_stall: Nanos,
}

impl Storage {
    /// The record of the most requests in flight.
    pub(super) fn busiest(&self) -> Option<&ServiceRecord> {
        let busy = self.busy.iter().max_by(|a, b| a.in_flight().total_cmp(&b.in_flight()));
        busy.or(self.light.as_ref())
    }
}

/// A disk on the datastore.
#[derive(Clone, Copy, Debug)]
pub struct PromisedDisk<'a> {
    /// Its reservation.
    pub reservation: Option<Iops>,
    /// Its target.
    pub target: Option<Target>,
    /// What its largest usual request costs; less than one reference IO counts as one.
    pub largest: Work,
    /// How late it may ask for its reservation and still go before others:
    /// [`LATE`](super::LATE) for a disk that may do anything, [`PUNCTUAL`](super::PUNCTUAL) for one
    /// that sends its requests as they come, and does not first trickle and then burst; nothing for
    /// one that always has some queued.
    pub late: Nanos,
    /// The requests that it keeps outstanding at most; `None`: any number.
    pub outstanding: Option<NonZeroU32>,
    /// Recorded arrivals, by its reservation. Without these and `outstanding` its requests are
    /// taken to come no faster than the reservation, and the verdict says so.
    pub bursts: Option<&'a BurstMeter>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_checked_wherever_it_comes_from() {
        assert_eq!(Target::new(499, Nanos(1)), Err(TargetError(499)));
        assert_eq!(Target::new(1_000, Nanos(1)), Err(TargetError(1_000)));
        let target = Target::new(999, Nanos::from_millis(20)).unwrap();
        assert_eq!(target.to_string(), "p99.9=20.00 ms");
        let written = serde_json::to_string(&target).unwrap();
        assert_eq!(serde_json::from_str::<Target>(&written).unwrap(), target);
        assert!(serde_json::from_str::<Target>(&written.replace("999", "1001")).is_err());
    }
}
