//! mClock as the definitions have it, in the fewest lines, and the mistakes that can be made in it.
//!
//! Without a mistake it keeps the theorems: they are about the definitions, not about the product.
//! With one it must break the theorem that the mistake is about.

use super::world::{Answer, Setup, Subject};
use super::{MS, SECOND};
use headgate_qos::{LimitMode, Policy};
use headgate_units::{Iops, Nanos};
use std::collections::VecDeque;

/// What is wrong on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    None,
    /// Virtual time is the wall clock, as in Algorithm 1 of the paper to the letter.
    WallClock,
    /// A disk keeps its turn for as long as it sleeps.
    CreditForSleep,
    /// Shares count requests, not their cost.
    SharesPerRequest,
    /// Eight requests of a disk whenever it is its turn.
    TurnsOfEight,
    /// A disk that returns begins behind all that wait.
    ReturnsLast,
    /// Reservations are not looked at.
    NoReservations,
    /// A reservation is held at half its rate.
    HalfTheReservation,
    /// The share tag decides among disks that are due, however often they had more.
    DueByShares,
    /// Half a second of the limit is kept, by disks that sleep too.
    DeepBucket,
    /// A limit counts requests, not their cost.
    LimitPerRequest,
    /// A limit begins anew when the policy is set, whatever was sent before.
    LimitForgetsDebt,
    /// A limit is looked at every 30 ms, and what could have gone before is lost.
    CoarseLimit,
    /// One slot of the window is kept for disks with reservations.
    KeepsSlot,
    /// Who is first by shares and held back by its limit holds back the others.
    HeadOfLine,
    /// A gate that was asked in vain is not asked again when a request arrives.
    LostWakeUp,
    /// Reservations are owed all that a shortage cost.
    EndlessDebt,
    /// Nothing is kept for disks without a reservation.
    NoFloor,
    /// After a shortage reservations begin at half their rate for three seconds.
    SlowStart,
}

struct Disk {
    policy: Policy,
    queue: VecDeque<(u32, u64)>,
    /// Tags: times in nanoseconds, and the share tag in parts of a reference IO per share.
    reservation: u64,
    limit: u64,
    share: u128,
}

struct Textbook {
    mistake: Mistake,
    window: u32,
    in_flight: u32,
    disks: Vec<Disk>,
    clock: u128,
    /// Reference IOs by reservation since the last that was not.
    in_a_row: u64,
    /// The disk whose turn it is, and how many requests of the turn are left.
    turn: (usize, u32),
    late_until: u64,
    changed: bool,
    wake: Option<Nanos>,
}

const DEBT: u64 = 250 * MS;
const LEAD: u64 = 16;
/// Parts of a reference IO, divisible by all small shares.
const PART: u128 = 2_520_000_000;

/// Builds one.
pub fn textbook(mistake: Mistake) -> impl Fn(&Setup) -> Box<dyn Subject> {
    move |setup| {
        Box::new(Textbook {
            mistake,
            window: setup.window,
            in_flight: 0,
            disks: Vec::new(),
            clock: 0,
            in_a_row: 0,
            turn: (0, 0),
            late_until: 0,
            changed: false,
            wake: None,
        })
    }
}

impl Disk {
    fn reserved(&self) -> Option<u64> {
        self.policy.reservation().map(|r| r.get())
    }

    fn step(&self, cost: u64) -> u128 {
        u128::from(cost) * PART / u128::from(self.policy.shares().get())
    }

    fn may_go(&self, now: u64) -> bool {
        !self.queue.is_empty() && (self.policy.limit().is_none() || self.limit <= now)
    }
}

impl Textbook {
    fn is(&self, mistake: Mistake) -> bool {
        self.mistake == mistake
    }

    /// The reserved disk to serve, if one is due.
    fn due(&mut self, now: u64) -> Option<usize> {
        if self.is(Mistake::NoReservations) {
            return None;
        }
        let ready = |disk: &Disk| disk.reserved().is_some() && disk.may_go(now);
        let first = self.disks.iter().filter(|d| ready(d)).map(|d| d.reservation).min()?;
        let behind = now.saturating_sub(first);
        if behind > DEBT && !self.is(Mistake::EndlessDebt) {
            self.disks.iter_mut().for_each(|d| d.reservation += behind - DEBT);
            self.late_until = now + 3 * SECOND;
        }
        let floor = !self.is(Mistake::NoFloor) && self.in_a_row >= 100;
        if floor && self.disks.iter().any(|d| d.reserved().is_none() && d.may_go(now)) {
            return None;
        }
        let due = (0..self.disks.len()).filter(|i| {
            let disk = &self.disks[*i];
            ready(disk) && disk.reservation <= now
        });
        match self.mistake {
            Mistake::DueByShares => due.min_by_key(|i| self.disks[*i].share),
            _ => due.min_by_key(|i| self.disks[*i].reservation),
        }
    }

    /// The disk to serve by shares.
    fn by_shares(&self, now: u64) -> Option<usize> {
        let floor = self.in_a_row >= 100;
        let ready = |i: &usize| {
            let disk = &self.disks[*i];
            match self.mistake {
                Mistake::HeadOfLine => !disk.queue.is_empty(),
                _ => disk.may_go(now) && !(floor && disk.reserved().is_some()),
            }
        };
        if self.turn.1 > 0 && ready(&self.turn.0) {
            return Some(self.turn.0);
        }
        let first = (0..self.disks.len()).filter(ready).min_by_key(|i| self.disks[*i].share);
        let anybody = || {
            let may = |i: &usize| self.disks[*i].may_go(now);
            (0..self.disks.len()).filter(may).min_by_key(|i| self.disks[*i].share)
        };
        match first {
            Some(i) => self.disks[i].may_go(now).then_some(i),
            None => anybody(),
        }
    }

    fn charge(&mut self, now: u64, i: usize, cost: u64, by_reservation: bool) {
        let (mistake, clock) = (self.mistake, self.clock);
        let slow = mistake == Mistake::SlowStart && now < self.late_until;
        let disk = &mut self.disks[i];
        if let Some(limit) = disk.policy.limit() {
            let cost = if mistake == Mistake::LimitPerRequest { 1 } else { cost };
            let from = match mistake {
                Mistake::DeepBucket => disk.limit.max(now.saturating_sub(SECOND / 2)),
                Mistake::CoarseLimit => disk.limit.max(now).next_multiple_of(30 * MS),
                _ => disk.limit.max(now.saturating_sub(150 * MS)),
            };
            disk.limit = from + (cost * SECOND).div_ceil(limit.get());
        }
        let counted = if mistake == Mistake::SharesPerRequest { 1 } else { cost };
        let step = disk.step(counted);
        if by_reservation {
            let rate = disk.reserved().unwrap_or(1);
            let half = slow || mistake == Mistake::HalfTheReservation;
            disk.reservation += if half { 2 } else { 1 } * cost * SECOND / rate;
            disk.share = (disk.share + step).min(clock + disk.step(LEAD.max(4 * cost)));
            self.in_a_row += cost;
        } else {
            self.clock = self.clock.max(disk.share);
            disk.share += step;
            if mistake == Mistake::WallClock {
                disk.share = disk.share.max(u128::from(now) * PART / u128::from(SECOND));
            }
            if disk.reserved().is_none() {
                self.in_a_row = 0;
            }
        }
        if mistake == Mistake::TurnsOfEight {
            let left = if self.turn.0 == i && self.turn.1 > 0 { self.turn.1 } else { 8 };
            self.turn = (i, left - 1);
        }
    }

    /// A soft limit yields where nobody else may go.
    fn left_over(&self) -> Option<usize> {
        let soft = |i: &usize| {
            let disk = &self.disks[*i];
            !disk.queue.is_empty() && disk.policy.limit_mode() == LimitMode::Soft
        };
        (0..self.disks.len()).filter(soft).min_by_key(|i| self.disks[*i].share)
    }

    fn has_room(&self) -> bool {
        let reserved = |d: &Disk| d.reserved().is_some() && !d.queue.is_empty();
        let kept = self.is(Mistake::KeepsSlot) && !self.disks.iter().any(reserved);
        self.in_flight + u32::from(kept && self.window > 1) < self.window
    }
}

impl Subject for Textbook {
    fn register(&mut self, now: Nanos, policy: Policy) {
        let queue = VecDeque::new();
        self.disks.push(Disk {
            policy,
            queue,
            reservation: now.0,
            limit: now.0,
            share: self.clock,
        });
    }

    fn set_policy(&mut self, now: Nanos, i: usize, policy: Policy) {
        let (mistake, clock) = (self.mistake, self.clock);
        let disk = &mut self.disks[i];
        let scaled = |at: u64, from: Option<Iops>, to: Option<Iops>| {
            let (Some(from), Some(to)) = (from, to) else { return now.0 };
            let ahead = u128::from(at.saturating_sub(now.0));
            now.0 + (ahead * u128::from(from.get()) / u128::from(to.get())) as u64
        };
        let (old, new) = (disk.policy, policy);
        disk.reservation = scaled(disk.reservation, old.reservation(), new.reservation());
        disk.limit = scaled(disk.limit, old.limit(), new.limit());
        if mistake == Mistake::LimitForgetsDebt {
            disk.limit = now.0;
        }
        let ahead = disk.share.saturating_sub(clock) * u128::from(old.shares().get());
        disk.share = disk.share.min(clock) + ahead / u128::from(new.shares().get());
        disk.policy = policy;
        self.changed = true;
    }

    fn enqueue(&mut self, now: Nanos, i: usize, cost: u64, request: u32) {
        let last = self.disks.iter().filter(|d| !d.queue.is_empty()).map(|d| d.share).max();
        let disk = &mut self.disks[i];
        if disk.queue.is_empty() {
            disk.reservation = disk.reservation.max(now.0);
            match self.mistake {
                Mistake::CreditForSleep => {}
                Mistake::ReturnsLast => disk.share = disk.share.max(last.unwrap_or(self.clock)),
                _ => {
                    let credit = disk.step(disk.policy.burst().get());
                    disk.share = disk.share.max(self.clock.saturating_sub(credit));
                }
            }
            if self.mistake != Mistake::DeepBucket {
                disk.limit = disk.limit.max(now.0);
            }
        }
        disk.queue.push_back((request, cost));
        self.changed |= self.mistake != Mistake::LostWakeUp || self.in_flight == 0;
    }

    fn withdraw(&mut self, _now: Nanos, i: usize) -> usize {
        self.changed = true;
        std::mem::take(&mut self.disks[i].queue).len()
    }

    fn is_due(&self, now: Nanos) -> bool {
        self.changed || self.wake.is_some_and(|at| at <= now)
    }

    fn wake(&self) -> Option<Nanos> {
        self.wake
    }

    fn next(&mut self, now: Nanos) -> Answer {
        (self.changed, self.wake) = (false, None);
        if !self.has_room() {
            return Answer::Idle;
        }
        let due = self.due(now.0);
        let by_rank = due.or_else(|| self.by_shares(now.0));
        let Some(i) = by_rank.or_else(|| self.left_over()) else {
            let waiting = self.disks.iter().filter(|d| !d.queue.is_empty());
            let held = waiting.map(|d| d.limit).filter(|at| *at > now.0);
            self.wake = held.min().map(Nanos);
            return self.wake.map_or(Answer::Idle, Answer::At);
        };
        let (request, cost) = self.disks[i].queue.pop_front().unwrap();
        let limit = self.disks[i].limit;
        self.charge(now.0, i, cost, due.is_some());
        if by_rank.is_none() {
            self.disks[i].limit = limit;
        }
        self.in_flight += 1;
        self.changed = true;
        Answer::Send { disk: i, request }
    }

    fn complete(&mut self, _now: Nanos, _disk: usize, _cost: u64) {
        self.in_flight -= 1;
        self.changed = true;
    }
}
