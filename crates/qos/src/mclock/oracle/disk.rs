//! A disk as the rules define it: its queue, its tags, and its next stream.

use super::exact::Exact;
use super::lanes::Lanes;
use super::limit::Limit;
use super::spread::Spread;
use super::{FINE, ION};
use crate::cost::{CostMeter, Io, IoKind, clamp_bytes};
use crate::policy::{LimitMode, Policy};
use crate::priority::{PriorityPolicy, PriorityScope};
use headgate_units::Priority;
use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Empty,
    Ready,
    Blocked,
    /// Blocked, with a reservation that is not due before the limit lets the disk go.
    Pending,
}

/// What a request is served by, beside its phase.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    Tag,
    Floor,
    Batch,
    /// A soft limit holds the disk back, and no other may be served.
    LeftOver,
}

/// A request with the priority it was given or has inherited.
pub(super) type Queued = (Io, Option<Priority>, u64);

pub(super) struct OracleDisk {
    pub(super) policy: Policy,
    pub(super) priorities: PriorityPolicy,
    /// By falling final priority.
    pub(super) queues: BTreeMap<Reverse<Priority>, VecDeque<Queued>>,
    /// Start tags of streams. Across VMs of all that ever asked, else of those that count.
    pub(super) streams: BTreeMap<Reverse<Priority>, Exact>,
    /// The disk's own time, and where the share clock was then.
    pub(super) clock: i128,
    pub(super) anchor: i128,
    /// Priorities given to writes, and after how many flushes.
    pub(super) writes: Vec<(Priority, usize)>,
    pub(super) flushes: usize,
    pub(super) share: Exact,
    pub(super) reservation: Option<Exact>,
    pub(super) limit: Option<Limit>,
    pub(super) bandwidth: Option<Limit>,
    /// Its share tag when a limit began to hold it back, or when it was served in spite of that.
    pub(super) held_at: i128,
    /// In thousandths.
    pub(super) peak: i128,
    pub(super) in_flight: i128,
    pub(super) spread: Spread,
    pub(super) busy_elsewhere: bool,
    pub(super) has_reported: bool,
    pub(super) idle_since: i128,
    pub(super) standing: Standing,
    pub(super) lanes: Option<Lanes>,
    pub(super) sent: i128,
}

impl OracleDisk {
    /// A soft limit holds it back.
    pub(super) fn stands_by(&self) -> bool {
        let held = matches!(self.standing, Standing::Blocked | Standing::Pending);
        held && self.policy.limit_mode() == LimitMode::Soft && !self.has_reported
    }

    pub(super) fn is_across(&self) -> bool {
        self.priorities.scope == PriorityScope::AcrossVms
    }

    pub(super) fn is_limited(&self) -> bool {
        self.limit.is_some() || self.bandwidth.is_some() || self.lanes.is_some()
    }

    pub(super) fn waits(&self) -> bool {
        self.queues.values().any(|q| !q.is_empty())
    }

    pub(super) fn waiting(&self) -> impl Iterator<Item = Reverse<Priority>> {
        self.queues.iter().filter(|(_, q)| !q.is_empty()).map(|(p, _)| *p)
    }

    /// The next stream: the earliest, and of equals the highest priority.
    pub(super) fn front(&self) -> Reverse<Priority> {
        let earliest = |all| {
            let may_go = self.waiting().filter(|p| self.next_of(*p, all).is_some());
            may_go.min_by_key(|p| (self.streams[p].at(), *p))
        };
        earliest(false).or_else(|| earliest(true)).unwrap()
    }

    /// Place in its stream of the next request.
    pub(super) fn place(&self) -> usize {
        let front = self.front();
        self.next_of(front, false).or_else(|| self.next_of(front, true)).unwrap()
    }

    pub(super) fn head(&self) -> &Queued {
        &self.queues[&self.front()][self.place()]
    }

    /// Where a stream starts that had nothing queued.
    pub(super) fn start_of_newcomers(&self, v: i128) -> i128 {
        let is_held = matches!(self.standing, Standing::Blocked | Standing::Pending);
        if self.is_across() && !is_held {
            self.clock.max(v.min(self.clock + v - self.anchor))
        } else {
            self.clock
        }
    }

    pub(super) fn share_at(&self) -> i128 {
        if self.is_across() { self.streams[&self.front()].at() } else { self.share.at() }
    }

    pub(super) fn cost(&self, meter: &CostMeter) -> i128 {
        i128::from(meter.cost(clamp_bytes(self.head().0.bytes)).as_millionths())
    }

    /// What the waiting streams weigh, and this one. What is in a held lane is not there, unless
    /// all the disk waits for is its lanes.
    pub(super) fn weight_with(&self, one: Reverse<Priority>) -> i128 {
        let may_go = |p: &Reverse<Priority>| self.next_of(*p, false).is_some();
        let all = self.standing != Standing::Ready && !self.waiting().any(|p| may_go(&p));
        let others = self.waiting().filter(|p| *p != one && (all || may_go(p)));
        others.chain([one]).map(weight).sum()
    }

    pub(super) fn shift(&mut self, by: i128) {
        self.clock += by;
        for tag in self.streams.values_mut() {
            tag.base += by;
        }
    }

    pub(super) fn begin(&mut self, v: i128) {
        (self.clock, self.anchor) = (self.clock.max(v), v);
    }

    /// No further ahead than this. The disk's own time is not put behind V by that.
    pub(super) fn hold_below(&mut self, v: i128, ahead: i128, front: Reverse<Priority>) {
        let (first, clock) = (self.streams[&front].at(), self.clock);
        self.shift((v + ahead * FINE / self.weight_with(front)).min(first) - first);
        self.clock = self.clock.max(clock.min(v));
    }

    pub(super) fn hold_ahead(&mut self, v: i128, ahead: i128) {
        if self.is_across() {
            let front = self.front();
            self.hold_below(v, ahead, front);
        } else {
            self.share.lower_to(v + ahead * FINE / self.share.rate);
        }
    }

    /// What the floor gave others is remembered up to the lead, or to the burst if that is more.
    pub(super) fn catch_up(&mut self, v: i128, lead: u16, front: Reverse<Priority>) {
        let lead = i128::from(lead);
        if self.is_across() {
            let bound = v - lead * ION * FINE / self.weight_with(front);
            let first = self.streams[&front].at();
            self.shift((bound - first).max(0));
        } else {
            let burst = i128::from(self.policy.burst().get());
            self.share.raise_to(v - burst.max(lead) * ION * FINE / self.share.rate);
        }
    }

    /// Nothing is remembered of a stream that is alone.
    pub(super) fn forget_alone(&mut self) {
        let clock = self.clock;
        if self.streams.len() == 1 {
            self.streams.values_mut().for_each(|tag| tag.set(clock));
        }
    }

    pub(super) fn calm_down(&mut self) {
        if !self.is_across() && !self.waits() && self.in_flight == 0 {
            self.streams.clear();
        }
    }

    pub(super) fn inherit(&mut self, io: Io) -> Option<Priority> {
        let flushes = self.flushes;
        let recent = self.writes.iter().filter(|(_, at)| flushes - at < 4).map(|(p, _)| *p).max();
        let value = |given| self.priorities.resolve(given);
        match io.kind {
            IoKind::Read | IoKind::Discard => return io.priority,
            IoKind::Write => {
                self.writes.extend(io.priority.map(|p| (p, flushes)));
                return io.priority;
            }
            IoKind::Journal => {}
            IoKind::Flush => self.flushes += 1,
        }
        if recent.is_some() && value(recent) > value(io.priority) { recent } else { io.priority }
    }
}

pub(super) fn weight(priority: Reverse<Priority>) -> i128 {
    10 * i128::from(priority.0.get())
}
