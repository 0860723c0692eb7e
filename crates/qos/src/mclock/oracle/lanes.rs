//! Limits of one direction: which requests of a disk are there to be served.

use super::disk::{OracleDisk, Queued, Standing};
use super::limit::Limit;
use super::{FINE, ION, Oracle};
use crate::direction::Direction;
use crate::policy::Policy;
use headgate_units::Priority;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// One direction: limits in IOs and bytes, whether they let a request go, and how many requests the
/// disk had been sent with its last.
#[derive(Default)]
pub(super) struct Lane {
    limits: [Option<Limit>; 2],
    held: bool,
    last: i128,
}

#[derive(Default)]
pub(super) struct Lanes {
    lanes: [Lane; 2],
    waits_since: Option<i128>,
    /// Streams that were served last in this direction.
    served: BTreeMap<Reverse<Priority>, Direction>,
}

fn of(queued: &Queued) -> Direction {
    queued.0.kind.direction()
}

fn open(limits: &[Option<Limit>; 2]) -> i128 {
    limits.iter().flatten().map(|limit| limit.open).max().unwrap_or(0)
}

impl OracleDisk {
    pub(super) fn own_until(&self) -> i128 {
        let at = |limit: &Option<Limit>| limit.as_ref().map_or(0, |limit| limit.open);
        at(&self.limit).max(at(&self.bandwidth))
    }

    fn has_queued(&self, direction: Direction) -> bool {
        self.queues.values().flatten().any(|queued| of(queued) == direction)
    }

    fn waiting_lanes(&self) -> impl Iterator<Item = &Lane> {
        let lanes = self.lanes.iter().flat_map(|lanes| lanes.lanes.iter().zip(Direction::BOTH));
        lanes.filter(|(_, direction)| self.has_queued(*direction)).map(|(lane, _)| lane)
    }

    fn first_open(&self) -> i128 {
        self.waiting_lanes().map(|lane| open(&lane.limits)).min().unwrap_or(0)
    }

    pub(super) fn until(&self) -> i128 {
        self.own_until().max(self.first_open())
    }

    /// When a decision is to look at it again.
    pub(super) fn wakes(&self) -> Option<i128> {
        match self.standing {
            Standing::Empty => None,
            Standing::Blocked | Standing::Pending => Some(self.until()),
            Standing::Ready => {
                let held = self.waiting_lanes().filter(|lane| lane.held);
                held.map(|lane| open(&lane.limits)).min()
            }
        }
    }

    /// Place in its stream of the request that is next, if it may go.
    pub(super) fn next_of(&self, stream: Reverse<Priority>, all: bool) -> Option<usize> {
        let queue = &self.queues[&stream];
        let Some(lanes) = &self.lanes else { return (!queue.is_empty()).then_some(0) };
        let last = lanes.served.get(&stream).copied().unwrap_or(Direction::Write);
        [last.other(), last].into_iter().find_map(|direction| {
            let held = lanes.lanes[direction.index()].held && !all;
            queue.iter().position(|queued| !held && of(queued) == direction)
        })
    }

    /// Whether a request that comes finds its stream as if nothing was there: nothing is, or all of
    /// it is in a held lane and the request's own is open.
    pub(super) fn comes_anew(&self, stream: Reverse<Priority>, direction: Direction) -> bool {
        let held = self.lanes.as_ref().is_some_and(|lanes| lanes.lanes[direction.index()].held);
        self.queues[&stream].is_empty() || !held && self.next_of(stream, false).is_none()
    }

    /// The wait for limits is over, or judged so far.
    pub(super) fn settle(&mut self, now: i128) {
        let (own, first) = (self.own_until(), self.first_open());
        let Some(lanes) = &mut self.lanes else { return };
        let Some(since) = lanes.waits_since.take() else { return };
        for limit in [&mut self.limit, &mut self.bandwidth].into_iter().flatten() {
            limit.waits(now.min(first) - own.max(since));
        }
    }

    /// The disk's own limits are other ones.
    pub(super) fn forget_waits_of_lanes(&mut self, now: i128) {
        for lane in self.lanes.iter_mut().flat_map(|lanes| &mut lanes.lanes) {
            lane.limits.iter_mut().flatten().for_each(|limit| limit.ask(now, true));
        }
    }

    pub(super) fn begin_to_wait(&mut self, now: i128) {
        if let Some(lanes) = &mut self.lanes {
            lanes.waits_since = Some(now);
        }
    }

    pub(super) fn wait_no_more(&mut self) {
        if let Some(lanes) = &mut self.lanes {
            lanes.waits_since = None;
        }
    }

    /// Finds out which lanes are open. Streams that come back with one are held to the lead.
    pub(super) fn look(&mut self, now: i128, start: i128, lead: i128) {
        let asleep: Vec<_> =
            self.waiting().filter(|stream| self.next_of(*stream, false).is_none()).collect();
        let Some(lanes) = &mut self.lanes else { return };
        for lane in &mut lanes.lanes {
            lane.held = open(&lane.limits) > now;
        }
        let back = asleep.into_iter().filter(|stream| self.next_of(*stream, false).is_some());
        let back: Vec<_> = back.collect();
        let weight: i128 = back.iter().map(|stream| super::disk::weight(*stream)).sum();
        let Some(first) = back.iter().map(|stream| self.streams[stream].at()).min() else { return };
        let bound = start - lead * ION * FINE / weight;
        for stream in back {
            self.streams.get_mut(&stream).unwrap().base += (bound - first).max(0);
        }
    }

    /// A request comes.
    pub(super) fn ask_lane(&mut self, direction: Direction, now: i128) {
        self.settle(now);
        let (alone, empty) = (!self.has_queued(direction), !self.waits());
        let ended = self.sent - self.in_flight;
        let Some(lanes) = &mut self.lanes else { return };
        let lane = &mut lanes.lanes[direction.index()];
        let idle = ended >= lane.last;
        for limit in lane.limits.iter_mut().flatten().filter(|_| alone) {
            limit.ask(now, idle);
        }
        if empty {
            lanes.served.clear();
        }
    }

    /// The front has been sent.
    pub(super) fn charge_lane(
        &mut self,
        stream: Reverse<Priority>,
        direction: Direction,
        charge: Option<[i128; 2]>,
        now: i128,
    ) {
        let Some(lanes) = &mut self.lanes else { return };
        lanes.served.insert(stream, direction);
        let lane = &mut lanes.lanes[direction.index()];
        lane.last = self.sent;
        let Some(amounts) = charge else { return };
        for (limit, amount) in lane.limits.iter_mut().zip(amounts) {
            if let Some(limit) = limit {
                limit.charge(amount, now);
            }
        }
        let until = open(&lane.limits);
        lane.limits.iter_mut().flatten().for_each(|limit| limit.wait_for_other(until, now));
    }

    /// Streams that are forgotten forget what they served last.
    pub(super) fn forget_turns(&mut self) {
        let (queues, streams, clock) = (&self.queues, &self.streams, self.clock);
        if let Some(lanes) = &mut self.lanes {
            lanes.served.retain(|p, _| {
                !queues[p].is_empty() || streams.get(p).is_some_and(|tag| tag.at() >= clock)
            });
        }
    }

    /// Sets the limits of a policy; whether the disk has lanes now and had none, or had.
    pub(super) fn change_lanes(&mut self, policy: &Policy, now: i128, slack: i128) -> bool {
        let (had, has) = (self.lanes.is_some(), policy.limits_directions());
        if !has {
            if had {
                // The two directions of a stream become one queue.
                for queue in self.queues.values_mut() {
                    queue.make_contiguous().sort_by_key(of);
                }
            }
            self.lanes = None;
            return had;
        }
        let lanes = self.lanes.get_or_insert_with(Lanes::default);
        for direction in Direction::BOTH {
            let limits = policy.direction_limits(direction);
            let rates = [limits.iops.map(|l| l.get()), limits.bandwidth.map(|l| l.get())];
            let lane = &mut lanes.lanes[direction.index()];
            for (limit, rate) in lane.limits.iter_mut().zip(rates) {
                *limit = Limit::after(limit.take(), rate.map(|rate| (rate, 0, 0)), now, slack);
            }
        }
        !had
    }

    /// All that is queued, in order, the highest priority first, and reads first.
    pub(super) fn in_order(&mut self) {
        if self.lanes.is_some() {
            for queue in self.queues.values_mut() {
                queue.make_contiguous().sort_by_key(of);
            }
        }
    }

    /// Sorts what is queued by what priorities are worth. Streams start side by side.
    pub(super) fn resort(&mut self) {
        self.streams.clear();
        for queued in std::mem::take(&mut self.queues).into_values().flatten() {
            let priority = Reverse(self.priorities.resolve(queued.1));
            self.queues.entry(priority).or_default().push_back(queued);
            let tag = super::Exact::new(self.clock, super::weight(priority) as u64);
            self.streams.insert(priority, tag);
        }
        if let Some(lanes) = &mut self.lanes {
            lanes.served.clear();
            lanes.lanes.iter_mut().for_each(|lane| lane.held = false);
        }
    }
}

impl Oracle {
    /// See [`OracleDisk::look`].
    pub(super) fn look(&mut self, slot: usize) {
        let (now, v, lead) = (self.now, self.v, i128::from(self.config.lead));
        let disk = self.disks[slot].as_mut().unwrap();
        let start = disk.start_of_newcomers(v);
        disk.look(now, start, lead);
    }

    /// A request has come to a disk that waited for limits until some time.
    pub(super) fn wait_again(&mut self, slot: usize, until: i128) {
        let now = self.now;
        let disk = self.disks[slot].as_mut().unwrap();
        let waits = matches!(disk.standing, Standing::Blocked | Standing::Pending);
        if disk.lanes.is_none() || !waits || until <= now {
            return;
        }
        if disk.until() > now {
            disk.begin_to_wait(now);
            return;
        }
        let standing = std::mem::replace(&mut disk.standing, Standing::Empty);
        let patience =
            if self.was_in_flight(slot) { self.lateness_kept(slot) } else { self.idle_lateness() };
        self.disks[slot].as_mut().unwrap().standing = standing;
        self.make_ready(slot, patience, 0);
    }
}
