//! One decision: chooses the way to a leaf and charges all nodes on it.

use super::node::{Kind, ROOT};
use super::{DEPTH, MClockTree, TreeDecision, TreeDispatched, up};
use crate::config::Floor;
use crate::cost::Cost;
use crate::mclock::amount::time_amount;
use crate::mclock::decide::WAKES;
use crate::mclock::delivered::Flight;
use crate::mclock::disk::share_amount;
use crate::mclock::limit::HORIZON;
use crate::mclock::pair;
use crate::scheduler::Phase;

/// From a member of the root down to a leaf.
struct Way {
    nodes: [usize; DEPTH],
    length: usize,
    /// How many of them were chosen by a reservation: those down to the one that is due.
    reserved: usize,
    /// Of each of these, what holds its reservation.
    held: [u64; DEPTH],
    right: Right,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Right {
    /// A reservation is due.
    Reservation,
    /// Earliest share tags.
    Share,
    /// Earliest share tags of what the floor is for, although reservations are due.
    Floor,
}

impl Way {
    fn new(right: Right) -> Way {
        Way { nodes: [ROOT; DEPTH], length: 0, reserved: 0, held: [0; DEPTH], right }
    }

    fn push(&mut self, slot: usize) {
        self.nodes[self.length] = slot;
        self.length += 1;
    }

    fn end(&self) -> usize {
        if self.length == 0 { ROOT } else { self.nodes[self.length - 1] }
    }

    fn nodes(&self) -> &[usize] {
        &self.nodes[..self.length]
    }
}

impl<R> MClockTree<R> {
    /// The next request, or until when there is none.
    pub(super) fn decide(&mut self, now: u64) -> TreeDecision<R> {
        self.wake(now);
        match self.choose(now) {
            Some(way) => self.serve(&way, now),
            None => {
                self.delivered.pause();
                match self.blocked.first() {
                    Some((until, _)) => {
                        TreeDecision::WaitUntil(self.time.caller_time(until as u64))
                    }
                    None => TreeDecision::Idle,
                }
            }
        }
    }

    /// Lets nodes go whose limits allow it. A node may be inside another that its own limit holds
    /// back, so that none that is let go may be served.
    fn wake(&mut self, now: u64) {
        let mut woken = 0;
        while let Some((until, slot)) = self.blocked.first()
            && until as u64 <= now
            && (woken < WAKES || !self.nodes[ROOT].is_ready())
        {
            self.settle(slot as usize, now);
            woken += 1;
        }
    }

    fn choose(&mut self, now: u64) -> Option<Way> {
        if !self.nodes[ROOT].is_ready() {
            return None;
        }
        let flight = Flight { requests: self.in_flight + 1, largest: self.largest };
        if self.delivered.ends_stall(now, flight) {
            self.forgive_limited(now);
        }
        if let Some(tag) = self.first_due()
            && tag + self.forgiven <= now
        {
            let behind = now - self.forgiven - tag;
            self.forgiven += self.delivered.beyond(behind, self.group(ROOT).claims);
            self.late = ((now - self.forgiven).saturating_sub(tag), now);
            if !self.is_floor_due() {
                let mut way = Way::new(Right::Reservation);
                self.follow_reservations(&mut way, now);
                self.follow_shares(&mut way);
                return Some(way);
            }
        }
        let right = if self.is_floor_due() { Right::Floor } else { Right::Share };
        let mut way = Way::new(right);
        self.follow_shares(&mut way);
        Some(way)
    }

    /// Down to the last node whose reservation is due.
    fn follow_reservations(&self, way: &mut Way, now: u64) {
        let mut held = 0;
        while let Some(group) = self.nodes[way.end()].group()
            && let Some((tag, slot)) = group.reservations.first()
            && held.max(tag as u64) + self.forgiven <= now
        {
            let slot = slot as usize;
            held = self.nodes[slot].group().map_or(held, |group| held.max(group.held));
            way.held[way.length] = held;
            way.push(slot);
        }
        way.reserved = way.length;
    }

    /// Down to the node whose reservation is the earliest.
    fn follow_latest(&self, way: &mut Way) {
        while let Some(group) = self.nodes[way.end()].group()
            && let Some((tag, slot)) = group.reservations.first()
        {
            let own = self.nodes[way.end()].reservation.as_ref();
            if way.length > 0 && own.is_some_and(|own| own.at <= tag as u64) {
                return;
            }
            way.push(slot as usize);
        }
    }

    /// Down to a leaf.
    fn follow_shares(&self, way: &mut Way) {
        while let Kind::Group(group) = &self.nodes[way.end()].kind {
            let next = match way.right {
                Right::Reservation | Right::Share => group.shares.first(),
                Right::Floor => group.shares.first_unreserved(),
            };
            match next {
                Some(slot) => way.push(slot as usize),
                None => unreachable!("a group that may be served has a member that may be"),
            }
        }
    }

    fn is_floor_due(&self) -> bool {
        match self.config.floor {
            Floor::Nothing => false,
            Floor::OneIn(n) => {
                self.group(ROOT).shares.first_unreserved().is_some()
                    && self.floor_debt >= i64::from(n) * Cost::ONE.as_millionths() as i64
            }
        }
    }

    /// At the end of a stall: of the most overdue nodes those that a limit may hold back lose what
    /// is beyond the bound, each by itself, with all that is in them. They may have been late
    /// before the stall for their limits' sake.
    #[inline(never)]
    fn forgive_limited(&mut self, now: u64) {
        let latest = now - self.debt_bound() - self.forgiven;
        while self.first_due().is_some_and(|tag| tag < latest) {
            let mut way = Way::new(Right::Reservation);
            self.follow_latest(&mut way);
            let limited = way.nodes().iter().find(|slot| self.nodes[**slot].is_limited());
            let Some(&slot) = limited else { return };
            let node = &mut self.nodes[slot];
            match &mut node.kind {
                Kind::Group(group) => group.held = latest,
                Kind::Leaf(_) => {
                    if let Some(tag) = &mut node.reservation {
                        tag.raise_to(latest);
                    }
                }
            }
            let mut at = slot;
            while let Some(parent) = up(&self.nodes, at) {
                self.enter_orders(at);
                at = parent;
            }
        }
    }

    /// Takes the first request of the leaf and advances the tags of all nodes on the way.
    fn serve(&mut self, way: &Way, now: u64) -> TreeDecision<R> {
        let leaf = way.end();
        let Kind::Leaf(queue) = &mut self.nodes[leaf].kind else {
            unreachable!("a way ends at a leaf");
        };
        let size = queue.head_size();
        let (cost, bytes) = self.charging.charge(size);
        let Some((request, _)) = self.requests.pop(queue) else {
            unreachable!("a leaf that may be served has a request queued");
        };
        let is_empty = queue.is_empty();
        self.largest = cost.max(self.largest.less(cost.part(8)));
        let phase = match way.right {
            Right::Reservation => Phase::Reservation,
            Right::Share | Right::Floor => Phase::Weight,
        };
        self.account_floor(way, cost);
        let mut pause = 0;
        for (level, slot) in way.nodes().iter().copied().enumerate() {
            if level < way.reserved {
                let lead = self.lead_of(slot, pause, now);
                self.charge_reservation(slot, way.held[level], cost, now);
                self.forget_lag(slot);
                self.forget_service(slot, lead);
            } else {
                let share = self.nodes[slot].share.at;
                let parent = self.nodes[slot].parent as usize;
                self.group_mut(parent).virtual_time.raise_to(share);
                self.nodes[slot].by_weight += 1;
            }
            let node = &mut self.nodes[slot];
            if node.is_limited() {
                pause = HORIZON;
            }
            node.share.advance(share_amount(cost));
            pair::charge(&mut node.limit, &mut node.bandwidth, cost, bytes, now);
            node.peak.note(cost);
            node.in_flight += 1;
            node.cost += cost;
        }
        let flight = Flight { requests: self.in_flight + 1, largest: self.largest };
        self.delivered.note(now, cost, flight);
        self.in_flight += 1;
        let root = &mut self.nodes[ROOT];
        (root.in_flight, root.by_weight) = (root.in_flight + 1, root.by_weight + 1);
        root.cost += cost;
        if is_empty {
            self.wait_no_more(leaf);
        }
        self.claim(leaf);
        self.settle_all(leaf, now);
        self.follow_least(way);
        let due = (way.reserved > 0).then(|| self.id(way.nodes[way.reserved - 1]));
        let leaf = self.id(leaf);
        TreeDecision::Dispatch(TreeDispatched { leaf, request, phase, due, cost, size })
    }

    /// A node whose reservation is due, or that of something in it.
    #[inline]
    fn charge_reservation(&mut self, slot: usize, held: u64, cost: Cost, now: u64) {
        let ahead = MClockTree::<R>::reserved_ahead(&self.nodes[slot]);
        let latest = now - self.forgiven;
        let node = &mut self.nodes[slot];
        node.by_reservation += 1;
        if let Some(tag) = &mut node.reservation {
            tag.raise_to(held);
            tag.advance(time_amount(cost));
            if let Some(ahead) = ahead {
                tag.lower_to(latest + ahead);
            }
        }
    }

    /// V is no less than the smallest P of the members that may be served, also where members are
    /// served by reservations alone for a while: their lead is counted from the one that has least.
    fn follow_least(&mut self, way: &Way) {
        for slot in &way.nodes[..way.reserved] {
            let parent = self.nodes[*slot].parent as usize;
            if let Some(first) = self.group(parent).shares.first() {
                let least = self.nodes[first as usize].share.at;
                self.group_mut(parent).virtual_time.raise_to(least);
            }
        }
    }

    fn account_floor(&mut self, way: &Way, cost: Cost) {
        let Floor::OneIn(n) = self.config.floor else { return };
        let millionths = cost.as_millionths() as i64;
        let paid = millionths * i64::from(n);
        let waits = self.group(ROOT).shares.first_unreserved().is_some();
        let reserved = self.is_reserved(way.nodes());
        // That a reservation is not due for a moment is no plenty.
        let short = || self.delivered.is_short(self.group(ROOT).claims.rate);
        match way.right {
            Right::Floor => self.floor_debt -= paid,
            Right::Share if !reserved => self.floor_debt = (self.floor_debt - paid).max(0),
            Right::Share if !waits || !short() => self.floor_debt = 0,
            Right::Share | Right::Reservation if waits => self.floor_debt += millionths,
            Right::Share | Right::Reservation => {}
        }
    }
}
