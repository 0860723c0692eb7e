//! What the calculus is asked.

use super::burst::BurstMeter;
use super::record::ServiceRecord;
use super::work::Work;
use alloc::vec::Vec;
use core::num::NonZeroU32;
use headgate_units::{Iops, LatencyTarget, Nanos};

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
    pub target: Option<LatencyTarget>,
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
