//! The rules of the module documentation, written down once more without any of the machinery:
//! scans over all disks, tags on an endless line as exact fractions, reservations shifted one by
//! one. Slow, and meant to be read beside the rules.

mod disk;
mod exact;
mod given;
mod lanes;
mod late;
mod limit;
mod spread;

use crate::batch::Batch;
use crate::config::{Config, Floor};
use crate::cost::{Cost, CostMeter, Io, clamp_bytes};
use crate::policy::Policy;
use crate::priority::PriorityPolicy;
use crate::scheduler::Phase;
use disk::{By, OracleDisk, Standing, weight};
use exact::Exact;
use given::Given;
use headgate_units::{Nanos, Priority};
use limit::{Limit, rates};
use spread::{Pace, Spread};
use std::cmp::Reverse;
use std::collections::BTreeMap;

const SECOND: i128 = 1_000_000_000;
const ION: i128 = 1_000_000;
/// Share units per millionth of an IO at weight 1.
const FINE: i128 = 1 << 20;

/// What the oracle decides: slot, request, phase, cost.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum OracleDecision {
    Dispatch(usize, u64, Phase, Cost, Priority),
    WaitUntil(Nanos),
    Idle,
}

pub(super) struct Oracle {
    config: Config,
    meter: CostMeter,
    disks: Vec<Option<OracleDisk>>,
    now: i128,
    caller: Option<Nanos>,
    v: i128,
    forgiven: i128,
    given: Given,
    pace: Pace,
    largest: i128,
    /// Slots below this one are visited in turn, this one last.
    reported: usize,
    visited: usize,
    by_reservation_in_a_row: i128,
    /// How late the last reserved request was, and when.
    late: (i128, i128),
    /// Slot, first position, requests left.
    batch: Option<(usize, u64, u8)>,
}

impl Oracle {
    pub(super) fn new(config: Config) -> Oracle {
        Oracle {
            config,
            meter: CostMeter::new(config.cost_model).unwrap(),
            disks: Vec::new(),
            now: 1 << 52,
            caller: None,
            v: 0,
            forgiven: 0,
            given: Given::default(),
            pace: Pace::default(),
            largest: ION,
            reported: 0,
            visited: 0,
            by_reservation_in_a_row: 0,
            late: (0, 0),
            batch: None,
        }
    }

    pub(super) fn at(&mut self, caller: Nanos) {
        if let Some(before) = self.caller {
            self.now += i128::from(caller.since(before).0.min(1 << 48));
        }
        self.caller = Some(caller);
    }

    pub(super) fn register(&mut self, slot: usize, policy: Policy) {
        let slack = i128::from(self.config.limit_slack.0);
        if slot == self.disks.len() {
            self.disks.push(None);
        }
        let [limit, bandwidth] = rates(&policy);
        self.disks[slot] = Some(OracleDisk {
            policy,
            priorities: PriorityPolicy::default(),
            queues: BTreeMap::new(),
            streams: BTreeMap::new(),
            clock: 0,
            anchor: 0,
            writes: Vec::new(),
            flushes: 0,
            share: Exact::new(self.v, policy.shares().get()),
            reservation: policy.reservation().map(|r| Exact::new(0, r.get())),
            limit: limit.map(|rates| Limit::new(self.now, rates, slack)),
            bandwidth: bandwidth.map(|rates| Limit::new(self.now, rates, slack)),
            held_at: 0,
            peak: 1_000,
            in_flight: 0,
            spread: Spread::default(),
            busy_elsewhere: false,
            has_reported: false,
            idle_since: i128::MIN / 2,
            standing: Standing::Empty,
            lanes: None,
            sent: 0,
        });
        self.disks[slot].as_mut().unwrap().change_lanes(&policy, self.now, slack);
    }

    pub(super) fn unregister(&mut self, slot: usize) -> Vec<u64> {
        self.batch = None;
        let mut disk = self.disks[slot].take().unwrap();
        disk.in_order();
        disk.queues.into_values().flatten().map(|(_, _, request)| request).collect()
    }

    pub(super) fn extract(&mut self, slot: usize, wanted: impl Fn(u64) -> bool) -> Vec<u64> {
        let (now, lead) = (self.now, u64::from(self.config.lead));
        let disk = self.disks[slot].as_mut().unwrap();
        disk.settle(now);
        disk.in_order();
        let mut taken = Vec::new();
        for queue in disk.queues.values_mut() {
            let (out, kept): (Vec<_>, Vec<_>) =
                queue.drain(..).partition(|(_, _, request)| wanted(*request));
            taken.extend(out.into_iter().map(|(_, _, request)| request));
            *queue = kept.into();
        }
        if !disk.waits() {
            disk.standing = Standing::Empty;
            disk.wait_no_more();
            disk.calm_down();
        } else if disk.lanes.is_some() && !taken.is_empty() {
            disk.standing = Standing::Blocked;
            self.place(slot, self.debt_bound(), lead);
        } else if disk.standing != Standing::Ready {
            disk.begin_to_wait(now);
        }
        taken
    }

    pub(super) fn set_priorities(&mut self, slot: usize, priorities: PriorityPolicy) {
        let (now, v, lead) = (self.now, self.v, u64::from(self.config.lead));
        let disk = self.disks[slot].as_mut().unwrap();
        if priorities == disk.priorities {
            return;
        }
        let was_across = disk.is_across();
        disk.priorities = priorities;
        if disk.is_across() {
            (disk.clock, disk.anchor) = (v, v);
        } else if was_across {
            disk.share = Exact::new(v, disk.policy.shares().get());
        }
        disk.settle(now);
        disk.resort();
        disk.standing = if disk.waits() { Standing::Blocked } else { Standing::Empty };
        if disk.waits() {
            self.place(slot, self.debt_bound(), lead);
        }
    }

    pub(super) fn set_policy(&mut self, slot: usize, policy: Policy) {
        let (now, v, lead) = (self.now, self.v, u64::from(self.config.lead));
        let slack = i128::from(self.config.limit_slack.0);
        let disk = self.disks[slot].as_mut().unwrap();
        disk.settle(now);
        if disk.change_lanes(&policy, now, slack) {
            disk.clock = if disk.is_across() { v } else { disk.clock };
            disk.anchor = v;
            disk.resort();
        }
        let waits = disk.waits();
        self.forget_credit(slot, if waits { lead } else { 0 });
        let disk = self.disks[slot].as_mut().unwrap();
        let changed = |tag: Option<Exact>, rate: Option<u64>, fresh: i128| {
            rate.map(|rate| match tag {
                Some(mut tag) => {
                    tag.change_rate(rate, now);
                    tag
                }
                None => Exact::new(fresh, rate),
            })
        };
        let new_reservation = disk.reservation.is_none() && policy.reservation().is_some();
        disk.reservation = changed(disk.reservation, policy.reservation().map(|r| r.get()), 0);
        let new = rates(&policy);
        if new != rates(&disk.policy) {
            disk.forget_waits_of_lanes(now);
        }
        disk.limit = Limit::after(disk.limit.take(), new[0], now, slack);
        disk.bandwidth = Limit::after(disk.bandwidth.take(), new[1], now, slack);
        if !disk.is_across() {
            disk.share.change_rate(policy.shares().get(), v);
        }
        let reservation_of = |p: &Policy| p.reservation().map_or(0, |r| r.get());
        let lowered = reservation_of(&policy) < reservation_of(&disk.policy);
        disk.policy = policy;
        disk.standing = if waits { Standing::Blocked } else { Standing::Empty };
        if lowered {
            let lead = ION.max(disk.peak * 1_000);
            if !disk.is_across() {
                disk.share.lower_to(v + lead * FINE / disk.share.rate);
            } else if waits {
                let front = disk.front();
                disk.hold_below(v, lead, front);
            }
        }
        if waits {
            let (patience, lag) = if new_reservation {
                (self.newcomers_lateness(), 0)
            } else {
                (self.debt_bound(), lead)
            };
            self.place(slot, patience, lag);
        }
    }

    pub(super) fn enqueue(&mut self, slot: usize, io: Io, request: u64) {
        let (now, v) = (self.now, self.v);
        let cost = self.meter.cost(clamp_bytes(io.bytes)).as_millionths();
        let disk = self.disks[slot].as_mut().unwrap();
        if disk.has_reported {
            disk.spread.ask(now, i128::from(cost));
        }
        let given = disk.inherit(io);
        let priority = Reverse(disk.priorities.resolve(given));
        if disk.is_across() && disk.standing == Standing::Empty {
            disk.begin(v);
        }
        let until = disk.until();
        disk.ask_lane(io.kind.direction(), now);
        self.look(slot);
        let disk = self.disks[slot].as_mut().unwrap();
        let start = disk.start_of_newcomers(v);
        if !disk.is_across() && !disk.waits() && disk.streams.len() == 1 {
            disk.streams.clear();
        }
        disk.queues.entry(priority).or_default();
        let comes_anew = disk.comes_anew(priority, io.kind.direction());
        let queue = disk.queues.entry(priority).or_default();
        let fresh = Exact::new(start, weight(priority) as u64);
        let tag = disk.streams.entry(priority).or_insert(fresh);
        if comes_anew {
            tag.raise_to(start);
        }
        queue.push_back((io, given, request));
        self.wait_again(slot, until);
        let disk = self.disks[slot].as_mut().unwrap();
        if disk.standing == Standing::Empty {
            let idle = disk.in_flight == 0 && !disk.busy_elsewhere;
            for limit in [&mut disk.limit, &mut disk.bandwidth].into_iter().flatten() {
                limit.ask(now, idle);
            }
            let anticipation = i128::from(self.config.anticipation.0);
            let (patience, lag) = if std::mem::take(&mut disk.busy_elsewhere) {
                (anticipation.max(SECOND * 3 / 100), u64::from(self.config.lead))
            } else if self.was_in_flight(slot) {
                (self.lateness_kept(slot), 0)
            } else {
                (self.idle_lateness(), 0)
            };
            self.place(slot, patience, lag);
        }
    }

    pub(super) fn complete(&mut self, slot: usize) {
        let now = self.now;
        let disk = self.disks[slot].as_mut().unwrap();
        disk.in_flight = (disk.in_flight - 1).max(0);
        if disk.in_flight == 0 && (!disk.waits() || disk.lanes.is_some()) {
            disk.idle_since = now;
        }
        disk.calm_down();
    }

    fn ready(&self) -> impl Iterator<Item = (usize, &OracleDisk)> {
        let disks = self.disks.iter().enumerate().filter_map(|(i, d)| Some((i, d.as_ref()?)));
        disks.filter(|(_, d)| d.standing == Standing::Ready)
    }

    /// The most overdue reservation among disks in the order of reservations.
    fn most_overdue(&self) -> Option<(i128, usize)> {
        let disks = self.disks.iter().enumerate().filter_map(|(i, d)| Some((i, d.as_ref()?)));
        let ordered =
            disks.filter(|(_, d)| matches!(d.standing, Standing::Ready | Standing::Pending));
        ordered.filter_map(|(i, d)| Some((d.reservation?.at(), i))).min()
    }

    /// `patience`: how late its reservation may be; `lag`: how many IOs its share may be behind, if
    /// not its burst.
    fn place(&mut self, slot: usize, patience: i128, lag: u64) {
        let now = self.now;
        let disk = self.disks[slot].as_mut().unwrap();
        if disk.until() > now {
            self.look(slot);
            self.forget_credit(slot, lag);
            let disk = self.disks[slot].as_mut().unwrap();
            disk.begin_to_wait(now);
            disk.standing = Standing::Blocked;
            disk.held_at = disk.share_at();
            if disk.stands_by() {
                self.given.begin(now);
            }
        } else {
            self.make_ready(slot, patience, lag);
        }
    }

    fn make_ready(&mut self, slot: usize, patience: i128, lag: u64) {
        self.disks[slot].as_mut().unwrap().settle(self.now);
        self.look(slot);
        self.forget_credit(slot, lag);
        self.given.begin(self.now);
        let is_new = self.disks[slot].as_ref().unwrap().reservation.is_some_and(|r| r.at() == 0);
        let latest = self.now - if is_new { self.newcomers_lateness() } else { patience };
        let bound = self.most_overdue().map_or(latest, |(due, _)| due.min(latest));
        let disk = self.disks[slot].as_mut().unwrap();
        let pending = disk.standing == Standing::Pending;
        disk.standing = Standing::Ready;
        if let Some(reservation) = &mut disk.reservation
            && !pending
        {
            reservation.raise_to(bound);
        }
    }

    fn forget_credit(&mut self, slot: usize, lag: u64) {
        let (v, lead) = (self.v, i128::from(self.config.lead));
        let disk = self.disks[slot].as_mut().unwrap();
        if disk.is_across() {
            if disk.standing == Standing::Empty {
                disk.begin(v);
            } else {
                let front = disk.front();
                let bound = v - lead * ION * FINE / disk.weight_with(front);
                disk.shift((bound - disk.share_at()).max(0));
                (disk.clock, disk.anchor) = (disk.clock.max(bound), v);
            }
            return;
        }
        let credit = i128::from(disk.policy.burst().get().max(lag)) * ION * FINE / disk.share.rate;
        let before = disk.share.at();
        disk.share.raise_to(self.v - credit);
        if disk.share.at() != before {
            disk.spread.in_advance = 0;
        }
    }

    pub(super) fn dispatch(&mut self) -> OracleDecision {
        let now = self.now;
        let blocked = |disks: &[Option<OracleDisk>]| {
            let disks = disks.iter().enumerate().filter_map(|(i, d)| Some((i, d.as_ref()?)));
            disks.filter_map(|(i, d)| Some((d.wakes()?, i))).min()
        };
        for _ in 0..super::decide::WAKES {
            if let Some((until, slot)) = blocked(&self.disks)
                && until <= now
            {
                if self.disks[slot].as_ref().is_some_and(|d| d.standing == Standing::Ready) {
                    self.look(slot);
                    continue;
                }
                let patience = self.lateness_beside_limit(slot);
                self.make_ready(slot, patience, u64::from(self.config.lead));
            }
        }
        if let Some((slot, phase)) = self.continue_batch() {
            return self.serve(slot, phase, By::Batch);
        }
        let by_share = |oracle: &Oracle| oracle.ready().map(|(i, d)| (d.share_at(), i)).min();
        let unreserved = |oracle: &Oracle| {
            let unreserved = oracle.ready().filter(|(_, d)| d.reservation.is_none());
            unreserved.map(|(i, d)| (d.share_at(), i)).min()
        };
        let Some((_, first_by_share)) = by_share(self) else {
            let disks = self.disks.iter().enumerate().filter_map(|(i, d)| Some((i, d.as_ref()?)));
            let held = disks.filter(|(_, d)| d.stands_by()).map(|(i, d)| (d.held_at, i));
            if let Some((_, slot)) = held.min() {
                self.forget_credit(slot, u64::from(self.config.lead));
                return self.serve(slot, Phase::Weight, By::LeftOver);
            }
            self.given.pause();
            return match blocked(&self.disks) {
                Some((until, _)) => {
                    OracleDecision::WaitUntil(self.caller.unwrap() + Nanos((until - now) as u64))
                }
                None => OracleDecision::Idle,
            };
        };
        self.forgive_limited();
        match self.most_overdue() {
            Some((due, slot)) if due <= now => {
                if self.disks[slot].as_ref().is_some_and(|d| d.standing == Standing::Pending) {
                    self.make_ready(slot, 0, u64::from(self.config.lead));
                }
                let excess = (now - due - self.debt_bound()).max(0);
                self.forgiven += excess;
                let ordered =
                    |d: &&mut OracleDisk| matches!(d.standing, Standing::Ready | Standing::Pending);
                for disk in self.disks.iter_mut().flatten().filter(ordered) {
                    if let Some(reservation) = &mut disk.reservation {
                        reservation.base += excess;
                    }
                }
                self.late = (now - due - excess, now);
                if let Some((_, slot)) = unreserved(self)
                    && self.is_floor_due()
                {
                    return self.serve(slot, Phase::Weight, By::Floor);
                }
                self.serve(slot, Phase::Reservation, By::Tag)
            }
            _ => match unreserved(self) {
                Some((_, slot)) if self.is_floor_due() => {
                    self.serve(slot, Phase::Weight, By::Floor)
                }
                _ => self.serve(first_by_share, Phase::Weight, By::Tag),
            },
        }
    }

    fn unreserved_waits(&self) -> bool {
        self.ready().any(|(_, d)| d.reservation.is_none())
    }

    fn is_floor_due(&self) -> bool {
        match self.config.floor {
            Floor::Nothing => false,
            Floor::OneIn(n) => {
                self.unreserved_waits() && self.by_reservation_in_a_row >= i128::from(n) * ION
            }
        }
    }

    fn continue_batch(&mut self) -> Option<(usize, Phase)> {
        let Batch { span, .. } = self.config.batch?;
        let (slot, origin, left) = self.batch.take()?;
        let disk = self.disks[slot].as_ref()?;
        if left == 0 || disk.standing != Standing::Ready {
            return None;
        }
        if disk.head().0.position.abs_diff(origin) >= span.0 {
            return None;
        }
        self.batch = Some((slot, origin, left - 1));
        let due = disk.reservation.is_some_and(|r| r.at() <= self.now);
        Some((slot, if due { Phase::Reservation } else { Phase::Weight }))
    }

    fn serve(&mut self, slot: usize, phase: Phase, by: By) -> OracleDecision {
        let waits = self.unreserved_waits();
        let is_short = self.made_good() < i128::from(self.config.debt_bound.0);
        let horizon = i128::from(self.config.debt_horizon.0);
        let (now, v) = (self.now, self.v);
        let disk = self.disks[slot].as_mut().unwrap();
        let cost = disk.cost(&self.meter);
        disk.peak = ((cost + 999) / 1_000).max(disk.peak - disk.peak / 32);
        self.largest = cost.max(self.largest - cost / 8);
        let debt = i128::from(self.config.debt_bound.0);
        let own = disk.reservation.map_or(0, |tag| tag.rate);
        let owed = (debt / 2 + 2 * self.given.longest_stall(now, debt / 2)) * own / 1_000;
        let ahead = self.lead_of(slot).max(owed.min(65_536 * ION));
        let in_flight: i128 = self.disks.iter().flatten().map(|d| d.in_flight).sum();
        let flight = self.largest * (in_flight + 1);
        let busy = self.given.note(now, cost, [horizon, debt], flight);
        let disk = self.disks[slot].as_mut().unwrap();
        let front = disk.front();
        let place = disk.place();
        disk.settle(now);
        let (io, given, request) = disk.queues.get_mut(&front).unwrap().remove(place).unwrap();
        disk.in_flight += 1;
        disk.sent += 1;
        match phase {
            Phase::Reservation => {
                disk.reservation.as_mut().unwrap().sum += cost * SECOND / ION;
                disk.catch_up(v, self.config.lead, front);
                if disk.is_across() {
                    disk.hold_below(v, ahead, front);
                } else {
                    disk.share.lower_to(v + ahead * FINE / disk.share.rate);
                }
                if waits {
                    self.by_reservation_in_a_row += cost;
                }
            }
            Phase::Weight => {
                if by != By::Batch {
                    let start =
                        if disk.is_across() { disk.streams[&front].at() } else { disk.share.at() };
                    self.v = v.max(start);
                }
                match self.config.floor {
                    _ if by == By::LeftOver => {}
                    Floor::OneIn(n) if by == By::Floor => {
                        self.by_reservation_in_a_row -= cost * i128::from(n)
                    }
                    Floor::OneIn(_) if waits && is_short && disk.reservation.is_some() => {
                        self.by_reservation_in_a_row += cost;
                    }
                    Floor::OneIn(n) if disk.reservation.is_none() => {
                        let rest = self.by_reservation_in_a_row - cost * i128::from(n);
                        self.by_reservation_in_a_row = rest.max(0);
                    }
                    _ => self.by_reservation_in_a_row = 0,
                }
            }
        }
        self.pace.note(busy, self.v);
        let tag = disk.streams.get_mut(&front).unwrap();
        disk.clock = disk.clock.max(tag.at());
        tag.sum += cost * FINE;
        if disk.is_across() {
            disk.anchor = self.v;
        } else {
            disk.share.sum += cost * FINE;
            let (queues, clock) = (&disk.queues, disk.clock);
            disk.streams.retain(|p, tag| !queues[p].is_empty() || tag.at() >= clock);
            disk.forget_alone();
        }
        self.charge_in_advance(slot, phase, cost);
        let disk = self.disks[slot].as_mut().unwrap();
        let bytes = i128::from(clamp_bytes(io.bytes));
        for (tag, amount) in
            [(&mut disk.limit, cost * SECOND / ION), (&mut disk.bandwidth, bytes * SECOND)]
        {
            if let Some(limit) = tag
                && by != By::LeftOver
            {
                limit.charge(amount, now);
            }
        }
        let amounts = [cost * SECOND / ION, bytes * SECOND];
        let charged = (by != By::LeftOver).then_some(amounts);
        disk.charge_lane(front, io.kind.direction(), charged, now);
        disk.forget_turns();
        self.look(slot);
        let disk = self.disks[slot].as_mut().unwrap();
        let until = disk.own_until();
        for limit in [&mut disk.limit, &mut disk.bandwidth].into_iter().flatten() {
            if by != By::LeftOver {
                limit.wait_for_other(until, now);
            }
        }
        if let Some(batch) = self.config.batch
            && !matches!(by, By::Batch | By::LeftOver)
        {
            self.batch = Some((slot, io.position, batch.requests - 1));
        }
        let priority = disk.priorities.resolve(given);
        if !disk.waits() {
            disk.standing = Standing::Empty;
            disk.wait_no_more();
        } else if by == By::LeftOver && disk.lanes.is_some() {
            disk.standing = Standing::Blocked;
            let patience = self.lateness_beside_limit(slot);
            self.place(slot, patience, u64::from(self.config.lead));
        } else if by == By::LeftOver {
            disk.held_at = disk.share_at();
        } else if disk.until() > now {
            disk.held_at = disk.share_at();
            let due_later = disk.reservation.is_some_and(|r| r.at() >= disk.until());
            disk.standing = if due_later { Standing::Pending } else { Standing::Blocked };
            disk.begin_to_wait(now);
        }
        if self.reported > 0 {
            self.visit();
        }
        OracleDecision::Dispatch(slot, request, phase, Cost::from_millionths(cost as u64), priority)
    }

    pub(super) fn forgiven(&self) -> Nanos {
        Nanos(self.forgiven as u64)
    }

    pub(super) fn behind(&self) -> Nanos {
        Nanos(self.most_overdue().map_or(0, |(due, _)| (self.now - due).max(0)) as u64)
    }
}
