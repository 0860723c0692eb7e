//! One decision: chooses the next disk and charges it.

use super::MClock;
use super::amount::time_amount;
use super::delivered::Flight;
use super::disk::{MANY, Patience, Run, State, share_amount};
use super::paired::LaneCharge;
use super::plug::PlugDecision;
use super::share_order::Class;
use crate::config::Floor;
use crate::cost::Cost;
use crate::scheduler::{Decision, DiskId, Dispatched, Phase};

/// The next disk, and the rule that chose it.
#[derive(Clone, Copy, Debug)]
struct Choice {
    slot: usize,
    right: Right,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Right {
    /// Most overdue reservation.
    Reservation,
    /// Earliest share tag.
    Share,
    /// Earliest share tag of a disk without reservation, although reservations are due.
    Floor,
    /// Near the request before it.
    Batch(Phase),
    /// Earliest share tag of a disk that a soft limit holds back, as no other may be served.
    LeftOver,
}

impl<R> MClock<R> {
    /// The next request, or until when there is none.
    #[inline]
    pub(super) fn decide(&mut self, now: u64) -> Decision<R> {
        self.wake(now);
        match self.choose(now) {
            Some(choice) => match self.hold_back(choice, now) {
                None => self.serve(choice, now),
                Some(until) => Decision::WaitUntil(self.time.caller_time(until)),
            },
            None => {
                self.delivered.pause();
                match self.blocked.first() {
                    Some((until, _)) => Decision::WaitUntil(self.time.caller_time(until as u64)),
                    None => Decision::Idle,
                }
            }
        }
    }

    /// Unblocks disks whose limit tag has passed.
    #[inline]
    fn wake(&mut self, now: u64) {
        for _ in 0..WAKES {
            let Some((_, slot)) = self.blocked.first().filter(|(until, _)| *until as u64 <= now)
            else {
                break;
            };
            self.unblock(slot as usize, now);
        }
    }

    #[inline]
    fn choose(&mut self, now: u64) -> Option<Choice> {
        if self.batch.is_some()
            && let Some(choice) = self.continue_batch(now)
        {
            return Some(choice);
        }
        let flight = Flight { requests: self.in_flight + 1, largest: self.largest };
        if self.delivered.ends_stall(now, flight) {
            self.forgive_limited(now);
        }
        if let Some((tag, slot)) = self.reservations.first()
            && self.is_due(tag as u64, now)
        {
            if self.disks[slot as usize].state == State::Pending {
                self.unblock(slot as usize, now);
            }
            self.forgive(tag as u64, now);
            self.late = ((now - self.forgiven).saturating_sub(tag as u64), now);
            if !self.is_floor_due() {
                return Some(Choice { slot: slot as usize, right: Right::Reservation });
            }
        }
        if self.is_floor_due() {
            let slot = self.shares.first_unreserved()?;
            return Some(Choice { slot: slot as usize, right: Right::Floor });
        }
        if let Some(slot) = self.shares.first() {
            return Some(Choice { slot: slot as usize, right: Right::Share });
        }
        let (_, slot) = self.left_over.first()?;
        Some(Choice { slot: slot as usize, right: Right::LeftOver })
    }

    /// Until when the choice waits for a better one.
    #[inline]
    fn hold_back(&mut self, choice: Choice, now: u64) -> Option<u64> {
        if self.plug.is_off() || choice.right != Right::Share {
            return None;
        }
        let front = self.front_priority(choice.slot);
        let rivals = self.rivals_in_flight(choice.slot);
        let until = match self.plug.decide(now, (choice.slot as u32, front), rivals) {
            PlugDecision::Go => return None,
            PlugDecision::Wait { until } => until,
        };
        // Reservations that fall due, and disks that limits let go, are not held back.
        let due = self.reservations.first().map_or(until, |(tag, _)| tag as u64 + self.forgiven);
        let free = self.blocked.first().map_or(until, |(at, _)| at as u64);
        Some(until.min(due).min(free).max(now + 1))
    }

    fn is_due(&self, tag: u64, now: u64) -> bool {
        tag + self.forgiven <= now
    }

    /// How late reservations may be now.
    pub(super) fn debt_bound(&self) -> u64 {
        self.delivered.debt_bound(self.claims)
    }

    /// In shortage, shifts all reservations together so that the most overdue is no further behind
    /// than the bound.
    #[inline]
    fn forgive(&mut self, most_overdue: u64, now: u64) {
        let behind = now - self.forgiven - most_overdue;
        self.forgiven += self.delivered.beyond(behind, self.claims);
    }

    /// At the end of a stall: of the most overdue disks those with a limit lose what is beyond the
    /// bound, each by itself. They may have been late before the stall for their limits' sake, by
    /// more than the bound has room for. Shifted together with them, the others would lose what the
    /// storage can give them.
    #[inline(never)]
    fn forgive_limited(&mut self, now: u64) {
        let latest = now - self.debt_bound() - self.forgiven;
        while let Some((tag, slot)) = self.reservations.first()
            && (tag as u64) < latest
            && self.disks[slot as usize].is_limited()
            && let Some(reservation) = &mut self.disks[slot as usize].reservation
        {
            reservation.raise_to(latest);
            let tag = u128::from(reservation.at);
            self.reservations.enter(self.disks[slot as usize].seat, tag, slot);
        }
    }

    fn is_floor_due(&self) -> bool {
        match self.config.floor {
            Floor::Nothing => false,
            Floor::OneIn(n) => {
                self.shares.first_unreserved().is_some()
                    && self.floor_debt >= i64::from(n) * Cost::ONE.as_millionths() as i64
            }
        }
    }

    fn continue_batch(&mut self, now: u64) -> Option<Choice> {
        let config = self.config.batch?;
        let run = self.batch.take()?;
        let disk = &self.disks[run.slot as usize];
        if run.left == 0 || disk.state != State::Ready {
            return None;
        }
        let position = self.requests.head_position(&disk.queue)?;
        if position.abs_diff(run.origin) >= config.span.0 {
            return None;
        }
        let phase = match disk.reservation {
            Some(tag) if self.is_due(tag.at, now) => Phase::Reservation,
            _ => Phase::Weight,
        };
        self.batch = Some(Run { left: run.left - 1, ..run });
        Some(Choice { slot: run.slot as usize, right: Right::Batch(phase) })
    }

    /// Takes the first request of the chosen disk's next stream and advances the disk's tags.
    #[inline]
    fn serve(&mut self, choice: Choice, now: u64) -> Decision<R> {
        let Choice { slot, right } = choice;
        if right == Right::LeftOver {
            self.forget_credit(slot, Patience::HeldBack);
        }
        let disk = &mut self.disks[slot];
        let entered = disk.share.at;
        let size = disk.queue.head_size();
        let (cost, bytes) = self.charging.charge(size);
        if let Some(config) = self.config.batch
            && !matches!(right, Right::Batch(_) | Right::LeftOver)
            && let Some(origin) = self.requests.head_position(&disk.queue)
        {
            self.batch = Some(Run { slot: slot as u32, origin, left: config.requests - 1 });
        }
        let Some((request, given)) = self.requests.pop(&mut disk.queue) else {
            unreachable!("a disk that is ready has a request queued");
        };
        let peak = disk.peak;
        disk.peak.note(cost);
        if disk.peak != peak && disk.reservation.is_some() {
            self.claims.change_peak(peak, disk.peak);
        }
        self.largest = cost.max(self.largest.less(cost.part(8)));
        let phase = match right {
            Right::Reservation | Right::Batch(Phase::Reservation) => Phase::Reservation,
            Right::Share | Right::Floor | Right::LeftOver | Right::Batch(Phase::Weight) => {
                Phase::Weight
            }
        };
        match phase {
            Phase::Reservation => {
                disk.by_reservation += 1;
                if let Some(tag) = &mut disk.reservation {
                    tag.advance(time_amount(cost));
                }
                self.forget_lag(slot);
                self.forget_service_in_pauses(slot, now);
            }
            Phase::Weight => {
                disk.by_weight += 1;
                if !matches!(right, Right::Batch(_)) {
                    self.virtual_time.raise_to(disk.share.at);
                }
            }
        }
        self.account_floor(slot, right, phase, cost);
        let disk = &mut self.disks[slot];
        let start = disk.share.at;
        disk.share.advance(share_amount(cost));
        if right != Right::LeftOver {
            disk.charge_limits(cost, bytes, now);
        }
        let flight = Flight { requests: self.in_flight + 1, largest: self.largest };
        let busy = self.delivered.note(now, cost, flight);
        self.pace.note(busy, self.virtual_time.0);
        disk.cost += cost;
        disk.in_flight += 1;
        self.in_flight += 1;
        let id = DiskId { slot: slot as u32, generation: disk.generation };
        if self.is_spread(slot) {
            self.charge_in_advance(slot, now, phase, cost);
        }
        let disk = &mut self.disks[slot];
        if disk.label == MANY || self.competes_across(slot) {
            if self.has_lanes(slot) {
                let soft = right == Right::LeftOver;
                let charge = if soft { LaneCharge::Nothing } else { LaneCharge::Full };
                self.charge_lane(slot, charge, cost, bytes, now);
            }
            self.served_from(slot, start, cost, now);
        }
        self.replace(slot, right, phase, now, entered);
        if !self.parts.is_empty() {
            self.forget_in_turn(now);
        }
        let priority = self.priorities_of(slot).resolve(given.get());
        Decision::Dispatch(Dispatched { disk: id, request, phase, cost, priority, size })
    }

    /// Puts a disk that was just served where its new tags belong. If it was ready, it is in the
    /// order of shares with the tag `entered`.
    #[inline]
    fn replace(&mut self, slot: usize, right: Right, phase: Phase, now: u64, entered: u64) {
        if self.disks[slot].queue.is_empty() {
            self.retire(slot);
            return;
        }
        if right == Right::LeftOver {
            if self.has_lanes(slot) {
                self.stand_by_again(slot, now);
            } else {
                self.stand_by(slot, now);
            }
            return;
        }
        let until = self.disks[slot].blocked_until();
        if until > now {
            self.block(slot, until, phase, now);
            return;
        }
        if self.has_lanes(slot) {
            self.await_lanes(slot, now);
        }
        let disk = &self.disks[slot];
        // In a shortage V stands, and with it the bound that tags are held to.
        if disk.share.at != entered {
            let tag = self.virtual_time.full(disk.share.at);
            self.shares.enter(disk.class(), disk.seat, tag, slot as u32);
        }
        if phase == Phase::Reservation
            && let Some(tag) = &disk.reservation
        {
            self.reservations.enter(disk.seat, u128::from(tag.at), slot as u32);
        }
    }

    fn account_floor(&mut self, slot: usize, right: Right, phase: Phase, cost: Cost) {
        let millionths = cost.as_millionths() as i64;
        match (right, self.config.floor) {
            (_, Floor::Nothing) | (Right::LeftOver, _) => {}
            (Right::Floor, Floor::OneIn(n)) => self.floor_debt -= millionths * i64::from(n),
            (_, Floor::OneIn(n)) if phase == Phase::Weight && !self.takes_from_floor(slot) => {
                // Served by its share while more is due, it is owed the rest still.
                self.floor_debt = match self.disks[slot].class() {
                    Class::Unreserved => (self.floor_debt - millionths * i64::from(n)).max(0),
                    Class::Reserved => 0,
                };
            }
            _ if self.shares.first_unreserved().is_some() => self.floor_debt += millionths,
            _ => {}
        }
    }
}

impl<R> MClock<R> {
    /// Whether what a disk gets by its share counts for the floor of others: it has a reservation,
    /// and storage gives less than is reserved. That its reservation is not due for a moment is no
    /// plenty.
    #[inline]
    fn takes_from_floor(&self, slot: usize) -> bool {
        self.disks[slot].reservation.is_some()
            && self.shares.first_unreserved().is_some()
            && self.delivered.is_short(self.claims.rate)
    }
}

/// How many disks one decision lets go at most. Each blocked disk was dispatched from before, so on
/// average one per decision is enough; after a pause the others follow with the next decisions,
/// instead of all delaying one. Few in tests of the rules, so that the bound is met there.
pub(super) const WAKES: usize = if cfg!(test) { 2 } else { 64 };
