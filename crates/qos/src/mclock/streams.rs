//! Orders the streams of a disk. See *Streams* in the module documentation of [`mclock`](super).

use super::MClock;
use super::amount::rate;
use super::disk::{MANY, State, share_amount};
use super::stream::{NOWHERE, ORIGIN, Priorities, StreamMix, Streams, weight};
use crate::cost::{Cost, Io, IoKind};
use crate::priority::{Given, PriorityPolicy, PriorityScope};
use crate::queue::Chain;
use crate::queue::Queued;
use crate::rate::{Tag, before};
use alloc::vec;
use alloc::vec::Vec;
use core::num::NonZeroU64;
use headgate_units::{Priority, Shares};

/// A disk's streams beyond this many do not keep their memory when they are gone.
const KEPT: usize = 16;

impl<R> MClock<R> {
    /// What the disk's guest may ask for.
    #[inline]
    pub(super) fn priorities_of(&self, slot: usize) -> PriorityPolicy {
        match self.priorities.get(slot) {
            Some(known) => known.policy,
            None => PriorityPolicy::default(),
        }
    }

    #[inline]
    pub(super) fn competes_across(&self, slot: usize) -> bool {
        !self.priorities.is_empty() && self.priorities_of(slot).scope == PriorityScope::AcrossVms
    }

    /// The final priority of the stream that is next.
    pub(super) fn front_priority(&self, slot: usize) -> u8 {
        let disk = &self.disks[slot];
        if disk.label == MANY {
            let streams = &self.blocks[self.priorities[slot].block as usize];
            return streams.list[streams.front].priority.get();
        }
        self.priorities_of(slot).resolve(Given::from_bits(disk.label).get()).get()
    }

    pub(super) fn priorities_mut(&mut self, slot: usize) -> &mut Priorities {
        if slot >= self.priorities.len() {
            self.priorities.resize(self.disks.len(), Priorities::default());
        }
        &mut self.priorities[slot]
    }

    /// The priority that a request has been given, by its application or by whom it is waited for
    /// with.
    #[inline(always)]
    pub(super) fn given(&mut self, slot: usize, io: &Io) -> Given {
        let remembers = match io.kind {
            IoKind::Read | IoKind::Discard => false,
            IoKind::Write => io.priority.is_some(),
            IoKind::Journal | IoKind::Flush => slot < self.priorities.len(),
        };
        if remembers { self.passed_on(slot, *io) } else { Given::new(io.priority) }
    }

    #[inline(never)]
    fn passed_on(&mut self, slot: usize, io: Io) -> Given {
        let known = self.priorities_mut(slot);
        known.inheritance.pass(io, &known.policy)
    }

    /// Queues a request that is not, or not certainly, of the only stream that its disk has.
    #[inline(never)]
    pub(super) fn queue_apart(&mut self, slot: usize, queued: Queued, request: R, now: u64) {
        self.sweep();
        let policy = self.priorities_of(slot);
        let across = policy.scope == PriorityScope::AcrossVms;
        let priority = policy.resolve(queued.given.get());
        if across {
            self.begin_to_ask(slot);
        }
        self.note_mix(slot, priority);
        if self.has_lanes(slot) {
            self.queue_in_lane(slot, queued, request, now);
            return;
        }
        let start = self.start_of_newcomers(slot);
        let disk = &mut self.disks[slot];
        if disk.label != MANY {
            let only = policy.resolve(Given::from_bits(disk.label).get());
            if only == priority {
                self.requests.push(&mut disk.queue, queued, request);
                return;
            }
            if disk.queue.is_empty() && (!across || disk.share.is_spent(start)) {
                disk.label = queued.given.bits();
                if across {
                    disk.share = Tag::new(start, weight(priority));
                }
                self.requests.push(&mut disk.queue, queued, request);
                return;
            }
            self.split(slot, only);
        }
        let block = self.priorities[slot].block as usize;
        let (disk, streams) = (&mut self.disks[slot], &mut self.blocks[block]);
        streams.put_front_back(disk, policy.scope);
        let index = streams.find(priority, start);
        let stream = &mut streams.list[index];
        if stream.queue.is_empty() {
            stream.tag.raise_to(start);
        }
        self.requests.push(&mut stream.queue, queued, request);
        streams.bring_forward(disk, policy.scope);
        if across && disk.state == State::Ready {
            self.shares.enter(
                disk.class(),
                disk.seat,
                self.virtual_time.full(disk.share.at),
                slot as u32,
            );
        }
    }

    /// A request of this stream comes.
    fn note_mix(&mut self, slot: usize, priority: Priority) {
        if self.plug.is_off() {
            return;
        }
        let disk = &self.disks[slot];
        let (label, rests) = (disk.label, disk.queue.is_empty() && disk.in_flight == 0);
        let given = Given::from_bits(label).get();
        let known = self.priorities_mut(slot);
        let first = match known.mix {
            _ if rests => priority,
            StreamMix::Only(first) => first,
            StreamMix::Usual if label != MANY => known.policy.resolve(given),
            StreamMix::Usual | StreamMix::Mixed => {
                known.mix = StreamMix::Mixed;
                return;
            }
        };
        known.mix = if first == priority { StreamMix::Only(first) } else { StreamMix::Mixed };
    }

    /// The disk has no requests any more.
    pub(super) fn forget_mix(&mut self, slot: usize) {
        if let Some(known) = self.priorities.get_mut(slot) {
            known.mix = StreamMix::Usual;
        }
    }

    /// Requests in flight whose application may come back with a better one than the disk's next:
    /// all but those of the same stream.
    pub(super) fn rivals_in_flight(&self, slot: usize) -> usize {
        let mixed = self.priorities.get(slot).is_some_and(|known| known.mix == StreamMix::Mixed);
        let own = if mixed { 0 } else { self.disks[slot].in_flight as usize };
        self.in_flight - own
    }

    /// The time of a disk that had nothing queued and competes across VMs is the others' again,
    /// unless it is ahead of them.
    pub(super) fn begin_to_ask(&mut self, slot: usize) {
        let disk = &self.disks[slot];
        if !matches!(disk.state, State::Empty | State::ServedElsewhere) {
            return;
        }
        let v = self.virtual_time;
        if v.has_left(disk.turn) {
            if disk.label == MANY {
                self.forget_streams(slot, v.at());
            }
            let disk = &mut self.disks[slot];
            disk.share.set(v.at());
            disk.turn = v.turn();
            self.priorities[slot].clock = v.at();
        }
        let known = &mut self.priorities[slot];
        known.anchor = v.at();
        if before(known.clock, v.at()) {
            known.clock = v.at();
        }
    }

    /// Where a stream starts that had nothing queued.
    pub(super) fn start_of_newcomers(&self, slot: usize) -> u64 {
        let Some(known) = self.priorities.get(slot) else { return ORIGIN };
        let follows = known.policy.scope == PriorityScope::AcrossVms
            && !matches!(self.disks[slot].state, State::Blocked | State::Pending);
        if !follows {
            return known.clock;
        }
        let v = self.virtual_time.at();
        let parallel = known.clock.wrapping_add(v.wrapping_sub(known.anchor));
        let earliest = if before(v, parallel) { v } else { parallel };
        if before(earliest, known.clock) { known.clock } else { earliest }
    }

    /// Gives a disk with one stream a block for several.
    fn split(&mut self, slot: usize, only: Priority) {
        let block = self.vacant_blocks.pop().unwrap_or_else(|| {
            self.blocks.push(Streams::new());
            (self.blocks.len() - 1) as u32
        });
        let known = self.priorities_mut(slot);
        known.block = block;
        let clock = known.clock;
        let (disk, streams) = (&mut self.disks[slot], &mut self.blocks[block as usize]);
        disk.label = MANY;
        streams.list.clear();
        streams.slot = slot as u32;
        streams.front = streams.find(only, clock);
    }

    /// Makes a disk with one stream left, or none that counts, one without a block.
    fn collapse(&mut self, slot: usize) {
        let known = &mut self.priorities[slot];
        let block = core::mem::replace(&mut known.block, NOWHERE);
        let streams = &mut self.blocks[block as usize];
        let left = streams.list[streams.front].priority;
        self.disks[slot].label = label(&known.policy, left);
        streams.lanes = None;
        streams.list.clear();
        streams.list.shrink_to(KEPT);
        self.vacant_blocks.push(block);
    }

    /// Makes a disk one without streams that count; one with lanes keeps its front, at `at`.
    fn forget_streams(&mut self, slot: usize, at: u64) {
        if self.disks[slot].lanes.is_some() {
            let block = self.priorities[slot].block;
            self.blocks[block as usize].keep_front(at);
        } else {
            self.collapse(slot);
        }
    }

    /// Notes that a disk that competes across VMs, or has several streams, was served from its
    /// front, which began at `start`. Its share tag has been advanced.
    #[inline(never)]
    pub(super) fn served_from(&mut self, slot: usize, start: u64, cost: Cost, now: u64) {
        let known = &mut self.priorities[slot];
        let scope = known.policy.scope;
        if scope == PriorityScope::AcrossVms {
            known.anchor = self.virtual_time.at();
            known.pass(start);
        }
        let disk = &mut self.disks[slot];
        if disk.label != MANY {
            return;
        }
        let streams = &mut self.blocks[known.block as usize];
        if scope == PriorityScope::WithinVm {
            let front = &mut streams.list[streams.front];
            known.pass(front.tag.at);
            front.tag.advance(share_amount(cost));
        }
        let clock = known.clock;
        streams.put_front_back(disk, scope);
        streams.purge(|at| before(at, clock));
        if streams.lanes.is_some() {
            streams.forget_alone(scope, clock);
            self.bring_open_forward(slot, now);
            return;
        }
        streams.bring_forward(disk, scope);
        if streams.list.len() == 1 {
            self.collapse(slot);
        }
    }

    /// A disk that has nothing queued and nothing in flight forgets its streams, except those that
    /// are still ahead of others' across VMs.
    pub(super) fn calm_down(&mut self, slot: usize) {
        let disk = &self.disks[slot];
        if disk.label != MANY || !disk.queue.is_empty() || disk.in_flight > 0 {
            return;
        }
        let known = &self.priorities[slot];
        let (disk, streams) = (&mut self.disks[slot], &mut self.blocks[known.block as usize]);
        let across = known.policy.scope == PriorityScope::AcrossVms;
        if across {
            let (v, turn, clock) = (self.virtual_time, disk.turn, known.clock);
            streams.put_front_back(disk, known.policy.scope);
            streams.purge(|at| v.has_left(turn) || before(at, v.at()) || before(at, clock));
            streams.bring_forward(disk, known.policy.scope);
        }
        if !across {
            let clock = known.clock;
            self.forget_streams(slot, clock);
        } else if streams.list.len() == 1 {
            self.collapse(slot);
        }
    }

    /// Looks after one disk's streams, each time another's, so that none are kept for a disk that
    /// never asks again.
    fn sweep(&mut self) {
        let Some(streams) = self.blocks.get(self.swept) else {
            self.swept = 0;
            return;
        };
        let (slot, block) = (streams.slot as usize, self.swept as u32);
        self.swept += 1;
        if self.priorities.get(slot).is_some_and(|p| p.block == block) {
            self.calm_down(slot);
        }
    }

    /// What the streams weigh together that wait, or would if the front did. Those that a lane
    /// holds do not while others may go.
    fn weight_waiting(&self, slot: usize) -> NonZeroU64 {
        let disk = &self.disks[slot];
        let others = match disk.label {
            MANY => {
                let streams = &self.blocks[self.priorities[slot].block as usize];
                let waiting = streams.list.iter().filter(|s| !s.queue.is_empty());
                match streams.lanes {
                    None => waiting.map(|s| s.tag.rate().get()).sum(),
                    Some(lanes) => streams.weight_of_pairs(lanes),
                }
            }
            _ => 0,
        };
        disk.share.rate().saturating_add(others)
    }

    /// How far apart on the share clock so much service of a disk's waiting streams is.
    pub(super) fn step_of_streams(&self, slot: usize, amount: u64) -> u64 {
        amount / self.weight_waiting(slot)
    }

    /// Moves all streams of a disk, and its own time, by the same distance, which may be negative:
    /// their order stays.
    pub(super) fn shift_streams(&mut self, slot: usize, by: u64) {
        let known = &mut self.priorities[slot];
        known.clock = known.clock.wrapping_add(by);
        let disk = &mut self.disks[slot];
        disk.share.at = disk.share.at.wrapping_add(by);
        if disk.label == MANY {
            for stream in &mut self.blocks[known.block as usize].list {
                stream.tag.at = stream.tag.at.wrapping_add(by);
            }
        }
    }

    /// After a limit, or a change of policy, held waiting streams back: none is further behind than
    /// the lead.
    pub(super) fn forget_credit_of_streams(&mut self, slot: usize) {
        let lead = share_amount(Cost::from_ios(u64::from(self.config.lead)));
        let v = self.virtual_time;
        let bound = v.at().wrapping_sub(self.step_of_streams(slot, lead));
        let first = self.disks[slot].share.at;
        if v.has_left(self.disks[slot].turn) || before(first, bound) {
            self.shift_streams(slot, bound.wrapping_sub(first));
        }
        self.disks[slot].turn = v.turn();
        let known = &mut self.priorities[slot];
        known.anchor = v.at();
        if before(known.clock, bound) {
            known.clock = bound;
        }
    }

    /// The lower bound of waiting streams where the floor left the disk behind.
    pub(super) fn forget_lag_of_streams(&mut self, slot: usize) {
        let lead = share_amount(Cost::from_ios(u64::from(self.config.lead)));
        let bound = self.virtual_time.at().wrapping_sub(self.step_of_streams(slot, lead));
        let first = self.disks[slot].share.at;
        if before(first, bound) {
            self.shift_streams(slot, bound.wrapping_sub(first));
        }
    }

    /// The upper bound of waiting streams, `ahead` of the share clock. The disk's own time does not
    /// go behind that with them: newcomers start there, and would have credit.
    pub(super) fn forget_service_of_streams(&mut self, slot: usize, ahead: Cost) {
        let v = self.virtual_time.at();
        let bound = v.wrapping_add(self.step_of_streams(slot, share_amount(ahead)));
        let first = self.disks[slot].share.at;
        if before(bound, first) {
            let clock = self.priorities[slot].clock;
            let least = if before(clock, v) { clock } else { v };
            self.shift_streams(slot, bound.wrapping_sub(first));
            self.priorities[slot].pass(least);
        }
    }

    /// Service at other servers is as if it had been divided among the streams that wait here: all
    /// advance alike, up to the upper bound.
    pub(super) fn charge_streams(&mut self, slot: usize, amount: u64, ahead: Cost) {
        let bound =
            self.virtual_time.at().wrapping_add(self.step_of_streams(slot, share_amount(ahead)));
        let first = self.disks[slot].share.at;
        if before(first, bound) {
            let step = self.step_of_streams(slot, amount);
            self.shift_streams(slot, step.min(bound.wrapping_sub(first)));
        }
    }

    /// Requests queued by the disk.
    pub(super) fn queued_by(&self, slot: usize) -> usize {
        let disk = &self.disks[slot];
        let others = match disk.label {
            MANY => {
                let list = &self.blocks[self.priorities[slot].block as usize].list;
                list.iter().map(|s| s.queue.len()).sum()
            }
            _ => 0,
        };
        disk.queue.len() + others
    }

    /// Takes requests out of all streams of a disk, the highest priority first.
    pub(super) fn extract_all(
        &mut self,
        slot: usize,
        wanted: &mut dyn FnMut(&R) -> bool,
    ) -> Vec<R> {
        let disk = &mut self.disks[slot];
        if disk.label != MANY {
            return self.requests.extract(&mut disk.queue, wanted);
        }
        let known = &self.priorities[slot];
        let streams = &mut self.blocks[known.block as usize];
        streams.put_front_back(disk, known.policy.scope);
        let mut taken = Vec::new();
        for stream in &mut streams.list {
            taken.append(&mut self.requests.extract(&mut stream.queue, wanted));
        }
        streams.bring_forward(disk, known.policy.scope);
        if known.policy.scope == PriorityScope::AcrossVms && disk.state == State::Ready {
            self.shares.enter(
                disk.class(),
                disk.seat,
                self.virtual_time.full(disk.share.at),
                slot as u32,
            );
        }
        taken
    }

    /// Forgets all that is known of a disk's guest.
    pub(super) fn forget_priorities(&mut self, slot: usize) {
        if self.disks[slot].label == MANY {
            self.collapse(slot);
        }
        if let Some(known) = self.priorities.get_mut(slot) {
            *known = Priorities::default();
        }
    }

    /// Sorts a disk's queued requests into streams by another policy. They start side by side. The
    /// disk is in no tournament.
    pub(super) fn resort(&mut self, slot: usize, policy: PriorityPolicy) {
        let v = self.virtual_time.at();
        let rests = self.disks[slot].queue.is_empty() && self.disks[slot].in_flight == 0;
        let known = self.priorities_mut(slot);
        known.mix = if rests { StreamMix::Usual } else { StreamMix::Mixed };
        let old = core::mem::replace(&mut known.policy, policy);
        let block = known.block;
        let disk = &mut self.disks[slot];
        let mut chains = vec![disk.queue];
        if disk.label == MANY {
            let streams = &mut self.blocks[block as usize];
            streams.put_front_back(disk, old.scope);
            chains = streams.list.iter().map(|s| s.queue).collect();
            self.collapse(slot);
        }
        let mut sorted = Streams::new();
        let lanes = self.disks[slot].lanes.is_some();
        for chain in &mut chains {
            while let Some((given, direction)) = self.requests.head(chain) {
                let priority = policy.resolve(given.get());
                let index = match lanes {
                    true => sorted.place_of(priority, direction),
                    false => sorted.find(priority, 0),
                };
                self.requests.shift(chain, &mut sorted.list[index].queue);
            }
        }
        let disk = &mut self.disks[slot];
        let known = &mut self.priorities[slot];
        let only = sorted.list.first().map_or(policy.resolve(None), |s| s.priority);
        if old.scope == PriorityScope::WithinVm {
            known.shares = Shares::new(disk.share.rate().get()).unwrap_or_default();
        }
        match (old.scope, policy.scope) {
            (PriorityScope::WithinVm, PriorityScope::WithinVm) => {}
            (_, PriorityScope::AcrossVms) => {
                disk.share = Tag::new(v, weight(only));
                (known.clock, known.anchor) = (v, v);
            }
            (_, PriorityScope::WithinVm) => disk.share = Tag::new(v, rate(known.shares.get())),
        }
        let clock = known.clock;
        disk.turn = self.virtual_time.turn();
        disk.label = label(&policy, only);
        disk.queue = Chain::EMPTY;
        if lanes {
            self.split(slot, only);
            self.pair_up(slot, only, sorted);
        } else if let [only] = &sorted.list[..] {
            disk.queue = only.queue;
        } else if !sorted.list.is_empty() {
            self.split(slot, only);
            for stream in &mut sorted.list {
                stream.tag = Tag::new(clock, weight(stream.priority));
            }
            let streams = &mut self.blocks[self.priorities[slot].block as usize];
            streams.list = sorted.list;
            streams.front = 0;
            streams.bring_forward(&mut self.disks[slot], policy.scope);
        }
    }
}

/// How requests of an only stream are told: those without priority by their usual sign if it is
/// theirs.
fn label(policy: &PriorityPolicy, only: Priority) -> u8 {
    if policy.resolve(None) == only { Given::NONE.bits() } else { only.get() }
}
