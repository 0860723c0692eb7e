//! Limits of one direction of a disk: its lanes.
//!
//! # Rule
//! A disk that has a limit of its reads or of its writes has two *lanes*, one for each direction.
//! All that does not read is in the lane of writes. A lane has limits of its own, in IOs and in
//! bytes per second, each with the clock of `limit.rs`. They are charged for what goes by the lane,
//! and those of the disk for all that goes. A request may go when the disk's limits and its lane's
//! let it go. A lane is *open* when its limits do, else it is *held*.
//!
//! So a disk waits for limits while its own hold it back, or all lanes that have requests queued
//! are held. Else it is ready, with what is in open lanes; what is in a held lane is, for tags, as
//! if it was not there.
//!
//! - *In a stream* requests of one direction go first come, first served. The stream has one tag C,
//!   as without lanes, and serves the two directions in turn, where both have requests in open
//!   lanes. A stream that has none in an open lane is passed over.
//! - *No credit.* A stream that was passed over because of a lane is, when the lane opens, at most
//!   the lead behind where a newcomer would start: `C >= S - lead/w`, for w the sum over all
//!   streams that come back with the lane, which move together. A request that comes to an open
//!   lane finds its disk, if it waits for other lanes, as one that had nothing queued, and so its
//!   stream, if that was passed over. The disk's own time T never goes back with a stream that
//!   began behind it.
//! - *Lateness* is for who waits for others. While the disk's limits let it go and its lanes do not
//!   the former earn none. A lane is late whatever its disk waits for: its share, or its own
//!   limits, which the other lane uses up as well. Whether that one has requests queued meanwhile
//!   says nothing: it may have had a burst, which the disk's limits then make both pay for. Where
//!   these are changed or lifted, it is forgotten.
//! - *Idle* is a lane with nothing queued, when as many of the disk's requests have ended as had
//!   been sent up to the lane's last. Schedulers are not told which request has ended, so a lane
//!   whose last request is overtaken by later ones counts as idle early. All that hangs on this is
//!   whether its lateness is 0 or up to λ.
//!
//! # Never more, never less
//! A lane's limits are the limits of `limit.rs`, and are charged for each of its dispatches: both
//! theorems hold for a lane as for a disk. *Held back* means there that the limit does not let the
//! next request go. What else may keep it are the disk's own limits, the other lane, and others.
//! Of what a disk is sent while both lanes of its only stream have requests that may go, each gets
//! one of two requests.
//!
//! # Service elsewhere
//! Reports of other servers do not tell directions. They are charged to the disk's limits, and to
//! no lane: the limits of a direction hold at each server for itself.
//!
//! # Cost
//! Disks without limits of a direction have no lanes. One that has them keeps its streams in pairs,
//! always, and stands in the tournament of wake-ups also while it is ready, if a lane is held.

use super::amount::rate;
use super::bucket::Rates;
use super::limit::Asker;
use super::pair;
use crate::cost::Cost;
use crate::direction::{Direction, DirectionLimits};
use crate::policy::Policy;
use alloc::boxed::Box;
use headgate_units::{BytesPerSec, Iops};

/// Whether a lane's limits let its next request go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LaneState {
    Open,
    Held,
}

/// One direction of a disk.
#[derive(Clone, Debug)]
pub(super) struct Lane {
    pub(super) limit: pair::Slot,
    pub(super) bandwidth: pair::Slot,
    pub(super) queued: u32,
    /// Requests that the disk had been sent with this lane's last.
    last: u64,
}

impl Lane {
    const NEW: Lane = Lane { limit: None, bandwidth: None, queued: 0, last: 0 };

    #[inline]
    pub(super) fn open(&self) -> u64 {
        pair::open(&self.limit, &self.bandwidth)
    }

    fn limits(&self) -> DirectionLimits {
        let rate = |limit: &pair::Slot| limit.as_deref().map(|limit| limit.rates().limit.get());
        DirectionLimits {
            iops: rate(&self.limit).and_then(|rate| Iops::new(rate).ok()),
            bandwidth: rate(&self.bandwidth).and_then(|rate| BytesPerSec::new(rate).ok()),
        }
    }
}

/// Both directions of a disk. Times are inner nanoseconds.
#[derive(Clone, Debug)]
pub(super) struct Lanes {
    pub(super) lanes: [Lane; 2],
    /// Since when the disk waits for limits, its own or its lanes'.
    pub(super) waits_since: Option<u64>,
}

impl Lanes {
    /// Of a disk that had none.
    pub(super) fn new() -> Box<Lanes> {
        Box::new(Lanes { lanes: [Lane::NEW; 2], waits_since: None })
    }

    /// Sets the limits of a policy.
    pub(super) fn change(&mut self, policy: &Policy, now: u64, slack: u64) {
        for direction in Direction::BOTH {
            let limits = policy.direction_limits(direction);
            let flat = |limit: u64| Rates { limit: rate(limit), peak: None };
            let lane = &mut self.lanes[direction.index()];
            let ios = limits.iops.map(|limit| flat(limit.get()));
            let bytes = limits.bandwidth.map(|limit| flat(limit.get()));
            pair::change(&mut lane.limit, ios, now, slack);
            pair::change(&mut lane.bandwidth, bytes, now, slack);
        }
    }

    /// The disk's own limits change: what lanes waited for them is forgotten.
    pub(super) fn forget_lateness(&mut self, now: u64) {
        for lane in &mut self.lanes {
            pair::ask(&mut lane.limit, &mut lane.bandwidth, now, Asker::Idle);
        }
    }

    /// As set.
    pub(super) fn limits(&self) -> [DirectionLimits; 2] {
        [self.lanes[0].limits(), self.lanes[1].limits()]
    }

    /// How many requests are queued in each direction.
    pub(super) fn set_queued(&mut self, queued: [usize; 2]) {
        for (lane, queued) in self.lanes.iter_mut().zip(queued) {
            lane.queued = queued as u32;
        }
    }

    /// Which lanes are open.
    pub(super) fn states(&self, now: u64) -> [LaneState; 2] {
        let state = |lane: &Lane| if lane.open() > now { LaneState::Held } else { LaneState::Open };
        [state(&self.lanes[0]), state(&self.lanes[1])]
    }

    pub(super) fn waiting(&self) -> impl Iterator<Item = &Lane> {
        self.lanes.iter().filter(|lane| lane.queued > 0)
    }

    /// From when on one of the lanes that have requests queued is open; 0 where nothing is queued.
    #[inline]
    pub(super) fn first_open(&self) -> u64 {
        self.waiting().map(Lane::open).min().unwrap_or(0)
    }

    /// When a lane that has requests queued and is held will be open.
    pub(super) fn next_open(&self, now: u64) -> Option<u64> {
        self.waiting().map(Lane::open).filter(|&open| open > now).min()
    }

    /// A request comes.
    pub(super) fn ask(&mut self, direction: Direction, ended: u64, now: u64) {
        let lane = &mut self.lanes[direction.index()];
        if lane.queued == 0 {
            let asker = if ended >= lane.last { Asker::Idle } else { Asker::Busy };
            pair::ask(&mut lane.limit, &mut lane.bandwidth, now, asker);
        }
        lane.queued += 1;
    }

    /// A request goes; with it the disk was sent so many.
    pub(super) fn leave(&mut self, direction: Direction, sent: u64) {
        let lane = &mut self.lanes[direction.index()];
        lane.queued -= 1;
        lane.last = sent;
    }

    /// Charges the limits of a direction for a dispatch.
    pub(super) fn charge(&mut self, direction: Direction, cost: Cost, bytes: u32, now: u64) {
        let lane = &mut self.lanes[direction.index()];
        pair::charge(&mut lane.limit, &mut lane.bandwidth, cost, bytes, now);
    }
}

#[cfg(test)]
impl Lanes {
    pub(super) fn open_of(&self, lane: usize) -> u64 {
        self.lanes[lane].open()
    }

    pub(super) fn queued(&self) -> [usize; 2] {
        [self.lanes[0].queued as usize, self.lanes[1].queued as usize]
    }
}
