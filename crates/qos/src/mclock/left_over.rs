//! What limits leave over, and soft limits.
//!
//! # Rule
//! A disk whose limits are soft ([`LimitMode`](crate::LimitMode)) is served although they hold it
//! back while no other disk may be served: each has nothing queued, or a limit of its own holds it
//! back. What is in flight does not matter. Of several the one with the smallest P goes, P as it
//! was when its limit began to hold it back or when it was last served. Such a dispatch is one of
//! the weight phase, with two exceptions: it is charged to no limit, and it does not count for the
//! floor. P is first held to its lower bound, and V follows it.
//!
//! A disk that is spread over several servers is held strictly: what is left over at one of them
//! would be charged to its limit at the others.
//!
//! # Consequences
//! - *Never more.* In any time W, what a soft disk is given at instants at which another disk may
//!   be served is within the bounds of a strict limit (`limit.rs`). For at such an instant a disk
//!   that is held back is not served, so all of it was charged to the limit, and what is charged
//!   obeys the rule of a limit whatever else the disk is given. That holds from the first decision
//!   on at which another disk may be served.
//! - *Never less.* L does not know of what was given beyond it, so nothing is owed for that, and
//!   the limit gives what a strict one would.
//! - *Others* find P at most c/w ahead of V, and their own P and R where any dispatch of the weight
//!   phase leaves them. The disk is a neighbour like one without a limit that has had the storage
//!   to itself.

use super::MClock;
use crate::policy::LimitMode;

impl<R> MClock<R> {
    /// Has a disk that a limit holds back take what is left over, if the limit is soft. Its share
    /// tag must have been held to its lower bound.
    ///
    /// A disk that is spread over several servers does not: what is left over at one of them would
    /// be charged to its limit at the others.
    #[inline]
    pub(super) fn stand_by(&mut self, slot: usize, now: u64) {
        let disk = &self.disks[slot];
        if disk.limit_mode == LimitMode::Strict || self.is_spread(slot) {
            return;
        }
        let tag = self.virtual_time.full(disk.share.at);
        self.left_over.enter(disk.seat, tag, slot as u32);
        self.delivered.begin(now);
    }

    /// Takes a disk that waits for a limit out of those that take what is left over.
    #[inline]
    pub(super) fn stand_down(&mut self, slot: usize) {
        let disk = &self.disks[slot];
        if disk.limit_mode == LimitMode::Soft {
            self.left_over.leave(disk.seat);
        }
    }
}
