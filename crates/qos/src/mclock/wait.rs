//! What a disk with lanes waits for: its own limits, or those of a direction.

use super::disk::DiskTags;
use super::pair;
use crate::direction::Direction;

impl DiskTags {
    /// A request of this direction comes to a disk that has lanes.
    pub(super) fn ask_lane(&mut self, direction: Direction, now: u64) {
        self.settle(now);
        let ended = self.sent() - u64::from(self.in_flight);
        if let Some(lanes) = &mut self.lanes {
            lanes.ask(direction, ended, now);
        }
    }

    /// Ends the wait for limits: what the disk's own waited for the lanes' earned no lateness.
    pub(super) fn settle(&mut self, now: u64) {
        let own = pair::open(&self.limit, &self.bandwidth);
        let Some(lanes) = &mut self.lanes else { return };
        let Some(since) = lanes.waits_since.take() else { return };
        let for_lanes = now.min(lanes.first_open()).saturating_sub(own.max(since));
        pair::forget_wait(&mut self.limit, &mut self.bandwidth, for_lanes);
    }

    /// The disk waits for limits from now on.
    #[inline]
    pub(super) fn begin_to_wait(&mut self, now: u64) {
        if let Some(lanes) = &mut self.lanes {
            lanes.waits_since = Some(now);
        }
    }

    /// As [`DiskTags::settle`], where nothing is queued any more.
    pub(super) fn wait_no_more(&mut self) {
        if let Some(lanes) = &mut self.lanes {
            lanes.waits_since = None;
        }
    }
}
