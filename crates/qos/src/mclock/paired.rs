//! Streams in pairs: those of a disk with lanes. See `lanes.rs` for the rule.
//!
//! Each stream is in the list twice, its reads at an even place and the rest behind. Both have the
//! stream's tag.

use super::MClock;
use super::disk::{DiskTags, MANY, Patience, State, share_amount};
use super::lanes::{LaneState, Lanes};
use super::stream::{Stream, Streams};
use crate::cost::Cost;
use crate::direction::Direction;
use crate::policy::Policy;
use crate::priority::PriorityScope;
use crate::queue::Queued;
use crate::rate::before;
use headgate_units::Priority;

const OPEN: [LaneState; 2] = [LaneState::Open; 2];

/// Whether the limits of a lane are charged for a dispatch.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LaneCharge {
    Full,
    /// A soft limit let it go.
    Nothing,
}

/// Of a pair, what goes next.
fn next(pair: &[Stream], lanes: [LaneState; 2]) -> Option<Direction> {
    let first = pair[0].first;
    let may_go = |direction: &Direction| {
        let place = direction.index();
        lanes[place] == LaneState::Open && !pair[place].queue.is_empty()
    };
    [first, first.other()].into_iter().find(may_go)
}

fn is_empty(pair: &[Stream]) -> bool {
    pair.iter().all(|stream| stream.queue.is_empty())
}

impl Streams {
    /// Gives the front's twin the stream's tag.
    #[inline(never)]
    pub(super) fn agree(&mut self) {
        self.list[self.front ^ 1].tag = self.list[self.front].tag;
    }

    /// The stream that is next, of those that have something to send by an open lane; of all, if
    /// none has.
    #[inline(never)]
    pub(super) fn earliest_of_pairs(&self, lanes: [LaneState; 2]) -> Option<usize> {
        let among = |lanes| {
            let mut best: Option<(usize, u64)> = None;
            for (n, pair) in self.list.chunks_exact(2).enumerate() {
                let at = pair[0].tag.at;
                if let Some(direction) = next(pair, lanes)
                    && best.is_none_or(|(_, least)| before(at, least))
                {
                    best = Some((2 * n + direction.index(), at));
                }
            }
            best.map(|(place, _)| place)
        };
        among(lanes).or_else(|| among(OPEN))
    }

    /// Forgets streams that have nothing queued and whose tag is behind, all but one.
    #[inline(never)]
    pub(super) fn purge_pairs(&mut self, is_behind: impl Fn(u64) -> bool) {
        let mut place = self.list.len();
        while place > 0 && self.list.len() > 2 {
            place -= 2;
            let pair = &self.list[place..place + 2];
            if is_empty(pair) && is_behind(pair[0].tag.at) {
                self.list.drain(place..place + 2);
                if place + 1 < self.front {
                    self.front -= 2;
                }
                self.front = self.front.min(self.list.len() - 1);
            }
        }
    }

    /// Forgets all streams but the front, and where its tag was.
    pub(super) fn keep_front(&mut self, at: u64) {
        let place = self.front & !1;
        self.list.truncate(place + 2);
        self.list.drain(..place);
        self.front &= 1;
        for stream in &mut self.list {
            stream.tag.set(at);
            stream.first = Direction::Read;
        }
    }

    /// Nothing is remembered of a stream that is alone within its disk.
    pub(super) fn forget_alone(&mut self, scope: PriorityScope, clock: u64) {
        if scope == PriorityScope::WithinVm && self.list.len() == 2 {
            self.list.iter_mut().for_each(|stream| stream.tag.set(clock));
        }
    }

    /// Nothing is queued any more.
    fn forget_turns(&mut self, scope: PriorityScope) {
        self.list.iter_mut().for_each(|stream| stream.first = Direction::Read);
        if scope == PriorityScope::WithinVm && self.list.len() == 2 {
            self.list.clear();
            self.front = 0;
        }
    }

    /// Place of the reads of a priority; the stream is new if need be, its tag is then `start`.
    fn find_pair(&mut self, priority: Priority, start: u64) -> usize {
        let place = self.list.partition_point(|s| s.priority > priority);
        if self.list.get(place).is_none_or(|s| s.priority != priority) {
            let stream = || Stream::new(priority, start);
            self.list.splice(place..place, [stream(), stream()]);
            if place <= self.front && self.list.len() > 2 {
                self.front += 2;
            }
        }
        place
    }

    /// Place of the requests of a priority and a direction, for [`MClock::pair_up`].
    pub(super) fn place_of(&mut self, priority: Priority, direction: Direction) -> usize {
        self.find_pair(priority, 0) + direction.index()
    }

    /// What the streams weigh beside the front that may go; if it may not, of all that wait.
    pub(super) fn weight_of_pairs(&self, lanes: [LaneState; 2]) -> u64 {
        let front = self.list[self.front].priority;
        let among = if lanes[self.front % 2] == LaneState::Open { lanes } else { OPEN };
        let pairs = self.list.chunks_exact(2);
        let others = pairs.filter(|pair| pair[0].priority != front && next(pair, among).is_some());
        others.map(|pair| pair[0].tag.rate().get()).sum()
    }

    /// Streams that come back with a lane are at most so much service behind `start`, and keep
    /// their order.
    fn come_back(&mut self, was: [LaneState; 2], is: [LaneState; 2], start: u64, service: u64) {
        let comes_back = |pair: &[Stream]| next(pair, was).is_none() && next(pair, is).is_some();
        let (mut weight, mut first) = (0, None);
        for pair in self.list.chunks_exact(2).filter(|pair| comes_back(pair)) {
            let at = pair[0].tag.at;
            weight += pair[0].tag.rate().get();
            first = Some(first.map_or(at, |first| if before(at, first) { at } else { first }));
        }
        let Some(first) = first else { return };
        let bound = start.wrapping_sub(service / weight);
        if !before(first, bound) {
            return;
        }
        for pair in self.list.chunks_exact_mut(2).filter(|pair| comes_back(pair)) {
            for stream in pair {
                stream.tag.at = stream.tag.at.wrapping_add(bound.wrapping_sub(first));
            }
        }
    }

    fn queued_in_lanes(&self) -> [usize; 2] {
        let mut queued = [0, 0];
        for (place, stream) in self.list.iter().enumerate() {
            queued[place % 2] += stream.queue.len();
        }
        queued
    }
}

impl<R> MClock<R> {
    #[inline]
    pub(super) fn has_lanes(&self, slot: usize) -> bool {
        let disk = &self.disks[slot];
        // The label is in a line that is read anyway.
        disk.label == MANY && disk.lanes.is_some()
    }

    fn streams_mut(&mut self, slot: usize) -> (&mut DiskTags, &mut Streams, PriorityScope) {
        let known = &self.priorities[slot];
        let streams = &mut self.blocks[known.block as usize];
        (&mut self.disks[slot], streams, known.policy.scope)
    }

    /// Sets the limits of single directions. A disk that gets its first one, or loses the last, has
    /// its queued requests sorted anew. It is in no tournament.
    pub(super) fn change_lanes(&mut self, slot: usize, now: u64, policy: &Policy) {
        let slack = self.config.limit_slack.0;
        let lanes = &mut self.disks[slot].lanes;
        let had = lanes.is_some();
        if policy.limits_directions() {
            lanes.get_or_insert_with(Lanes::new).change(policy, now, slack);
        } else {
            *lanes = None;
        }
        if had != policy.limits_directions() {
            self.resort(slot, self.priorities_of(slot));
        }
    }

    /// Gives a disk that has a block these streams, in pairs. They start side by side.
    pub(super) fn pair_up(&mut self, slot: usize, only: Priority, sorted: Streams) {
        let start = self.priorities[slot].clock;
        let (disk, streams, scope) = self.streams_mut(slot);
        streams.list = sorted.list;
        streams.lanes = Some(OPEN);
        streams.front = 0;
        streams.find_pair(only, start);
        for stream in &mut streams.list {
            stream.tag.set(start);
        }
        if let Some(lanes) = &mut disk.lanes {
            lanes.set_queued(streams.queued_in_lanes());
        }
        streams.bring_forward(disk, scope);
    }

    /// Queues a request of a disk that has lanes.
    #[inline(never)]
    pub(super) fn queue_in_lane(&mut self, slot: usize, queued: Queued, request: R, now: u64) {
        let direction = queued.direction;
        let priority = self.priorities_of(slot).resolve(queued.given.get());
        let held_until = self.disks[slot].blocked_until();
        self.disks[slot].ask_lane(direction, now);
        self.look_at_lanes(slot, now);
        let start = self.start_of_newcomers(slot);
        let known = &self.priorities[slot];
        let (scope, block) = (known.policy.scope, known.block as usize);
        let (disk, streams) = (&mut self.disks[slot], &mut self.blocks[block]);
        let asks = disk.queue.is_empty();
        streams.put_front_back(disk, scope);
        if asks {
            streams.forget_turns(scope);
        }
        let place = streams.find_pair(priority, start);
        let lanes = streams.lanes.unwrap_or(OPEN);
        let pair = &mut streams.list[place..place + 2];
        let comes_by_open_lane = lanes[direction.index()] == LaneState::Open;
        if is_empty(pair) || comes_by_open_lane && next(pair, lanes).is_none() {
            pair.iter_mut().for_each(|stream| stream.tag.raise_to(start));
        }
        self.requests.push(&mut pair[direction.index()].queue, queued, request);
        streams.bring_forward(disk, scope);
        match disk.state {
            State::Free | State::Empty | State::ServedElsewhere => {}
            State::Ready => {
                self.enter_again(slot);
                self.await_lanes(slot, now);
            }
            State::Blocked | State::Pending => self.wait_again(slot, held_until, now),
        }
    }

    /// A request came to a disk that waits, or waited, for limits: perhaps by an open lane.
    fn wait_again(&mut self, slot: usize, held_until: u64, now: u64) {
        let disk = &mut self.disks[slot];
        let until = disk.blocked_until();
        if until > now {
            disk.begin_to_wait(now);
        }
        if until > now || held_until <= now {
            self.blocked.enter(disk.seat, u128::from(until), slot as u32);
            return;
        }
        self.blocked.leave(disk.seat);
        self.stand_down(slot);
        let in_flight = self.was_in_flight(slot, now);
        let patience = if in_flight { Patience::InFlight } else { Patience::Asked };
        self.make_ready(slot, now, patience);
    }

    /// Places a ready disk by the share tag of its front.
    fn enter_again(&mut self, slot: usize) {
        let disk = &self.disks[slot];
        let tag = self.virtual_time.full(disk.share.at);
        self.shares.enter(disk.class(), disk.seat, tag, slot as u32);
    }

    /// Has a ready disk wake up when its next lane opens.
    pub(super) fn await_lanes(&mut self, slot: usize, now: u64) {
        let disk = &self.disks[slot];
        match disk.lanes.as_ref().and_then(|lanes| lanes.next_open(now)) {
            Some(open) => self.blocked.enter(disk.seat, u128::from(open), slot as u32),
            None => self.blocked.leave(disk.seat),
        }
    }

    /// A lane of a ready disk opens.
    pub(super) fn open_lanes(&mut self, slot: usize, now: u64) {
        self.look_at_lanes(slot, now);
        self.enter_again(slot);
        self.await_lanes(slot, now);
    }

    /// Finds out which lanes are open, and who is next.
    pub(super) fn look_at_lanes(&mut self, slot: usize, now: u64) {
        let (disk, streams, scope) = self.streams_mut(slot);
        streams.put_front_back(disk, scope);
        self.bring_open_forward(slot, now);
    }

    /// The same where the front is back in the list.
    pub(super) fn bring_open_forward(&mut self, slot: usize, now: u64) {
        let start = self.start_of_newcomers(slot);
        let lead = share_amount(Cost::from_ios(u64::from(self.config.lead)));
        let (disk, streams, scope) = self.streams_mut(slot);
        if let Some(lanes) = &disk.lanes {
            let is = lanes.states(now);
            let was = streams.lanes.replace(is).unwrap_or(OPEN);
            streams.come_back(was, is, start, lead);
        }
        streams.bring_forward(disk, scope);
    }

    /// The front of a disk with lanes was dispatched.
    #[inline(never)]
    pub(super) fn charge_lane(
        &mut self,
        slot: usize,
        charge: LaneCharge,
        cost: Cost,
        bytes: u32,
        now: u64,
    ) {
        let (disk, streams, _) = self.streams_mut(slot);
        let (place, pair) = (streams.front % 2, streams.front & !1);
        let direction = Direction::BOTH[place];
        streams.list[pair].first = direction.other();
        disk.settle(now);
        let sent = disk.sent();
        if let Some(lanes) = &mut disk.lanes {
            lanes.leave(direction, sent);
            if charge == LaneCharge::Full {
                lanes.charge(direction, cost, bytes, now);
            }
        }
    }

    /// A soft limit let a disk go that has lanes: it may be another one now that holds it.
    pub(super) fn stand_by_again(&mut self, slot: usize, now: u64) {
        self.displace(slot);
        self.place(slot, now, Patience::HeldBack);
    }

    /// Requests of a disk with lanes were taken back, some or none.
    pub(super) fn taken_from_lanes(&mut self, slot: usize, now: u64, requests: usize) {
        let (disk, streams, scope) = self.streams_mut(slot);
        streams.put_front_back(disk, scope);
        let queued = streams.queued_in_lanes();
        if let Some(lanes) = &mut disk.lanes {
            lanes.set_queued(queued);
        }
        streams.bring_forward(disk, scope);
        if disk.queue.is_empty() {
            return;
        }
        if requests > 0 {
            self.displace(slot);
            self.place(slot, now, Patience::Unbroken);
        } else if disk.state != State::Ready {
            disk.begin_to_wait(now);
        }
    }
}
