//! Moves nodes in and out of the orders of their groups, and bounds their tags when they enter.

use super::node::{Kind, Node, ROOT, Standing};
use super::{MClockTree, up};
use crate::cost::Cost;
use crate::mclock::amount::time_amount;
use crate::mclock::delivered::Room;
use crate::mclock::disk::{NEVER_SERVED, Patience, share_amount};
use crate::mclock::share_order::Class;
use crate::mclock::virtual_time::LEAD_IN_OWN_COSTS;
use crate::rate::before;

/// What a group's own place depends on: whether a member may be served, of which class, and the
/// earliest reservation.
type View = (bool, bool, Option<(u128, u32)>);

impl<R> MClockTree<R> {
    fn view(&self, group: usize) -> View {
        let group = self.group(group);
        let first = group.shares.first().is_some();
        (first, group.shares.first_unreserved().is_some(), group.reservations.first())
    }

    /// Puts a node where it belongs, and the groups that it is in as far as that changes theirs.
    pub(super) fn settle(&mut self, mut slot: usize, now: u64) {
        while let Some(parent) = up(&self.nodes, slot) {
            let before = self.view(parent);
            self.place(slot, now);
            if self.view(parent) == before {
                return;
            }
            slot = parent;
        }
    }

    /// Puts a node where it belongs, and all groups that it is in.
    pub(super) fn settle_all(&mut self, mut slot: usize, now: u64) {
        while let Some(parent) = up(&self.nodes, slot) {
            self.place(slot, now);
            slot = parent;
        }
    }

    /// Puts a node among the members of its group where it belongs.
    #[inline]
    pub(super) fn place(&mut self, slot: usize, now: u64) {
        let node = &self.nodes[slot];
        let until = node.blocked_until();
        let target = match node.is_ready() {
            false => Standing::Out,
            true if until > now => Standing::Blocked,
            true => Standing::In,
        };
        match (node.standing, target) {
            (Standing::In, Standing::In) => self.enter_orders(slot),
            (Standing::Out, Standing::Out) => {}
            (before, after) => {
                self.leave(slot, before);
                self.enter(slot, after, now);
            }
        }
    }

    /// Takes a node out of where it stands.
    pub(super) fn leave(&mut self, slot: usize, before: Standing) {
        match before {
            Standing::Free | Standing::Out => {}
            Standing::Blocked => {
                let seat = self.nodes[slot].waiting_seat;
                self.blocked.leave(seat);
                if self.waiting_seats.vacate(seat) {
                    self.blocked.reset();
                }
            }
            Standing::In => {
                let forgiven = self.forgiven;
                let node = &mut self.nodes[slot];
                if let Some(tag) = &mut node.reservation {
                    tag.at += forgiven;
                }
                let (parent, seat, class) = (node.parent as usize, node.seat, node.class);
                let group = self.group_mut(parent);
                group.shares.leave(class, seat);
                group.reservations.leave(seat);
                if group.seats.vacate(seat) {
                    group.shares.reset();
                    group.reservations.reset();
                }
                let turn = group.virtual_time.turn();
                self.nodes[slot].turn = turn;
            }
        }
        self.nodes[slot].standing = Standing::Out;
    }

    fn enter(&mut self, slot: usize, after: Standing, now: u64) {
        match after {
            Standing::Free | Standing::Out => {}
            Standing::Blocked => {
                self.forget_credit(slot);
                let seat = self.waiting_seats.take();
                let node = &mut self.nodes[slot];
                node.patience = Patience::HeldBack;
                node.waiting_seat = seat;
                self.blocked.enter(seat, u128::from(node.blocked_until()), slot as u32);
            }
            Standing::In => {
                self.forget_credit(slot);
                self.bound_lateness(slot, now);
                let parent = self.nodes[slot].parent as usize;
                if parent == ROOT {
                    self.delivered.begin(now);
                }
                let seat = self.group_mut(parent).seats.take();
                let node = &mut self.nodes[slot];
                node.patience = Patience::HeldBack;
                node.seat = seat;
                node.class = node.class_now();
            }
        }
        self.nodes[slot].standing = after;
        if after == Standing::In {
            self.enter_orders(slot);
        }
    }

    /// Gives a node that is in the orders of its group the places of its tags.
    #[inline]
    pub(super) fn enter_orders(&mut self, slot: usize) {
        let node = &mut self.nodes[slot];
        let (seat, share, earliest) = (node.seat, node.share.at, node.earliest());
        let (old, class) = (node.class, node.class_now());
        node.class = class;
        let group = self.group_mut(self.nodes[slot].parent as usize);
        if old != class {
            group.shares.leave(old, seat);
        }
        group.shares.enter(class, seat, group.virtual_time.full(share), slot as u32);
        match earliest {
            Some(tag) => group.reservations.enter(seat, u128::from(tag), slot as u32),
            None if group.reservations.first().is_none() => {}
            None => group.reservations.leave(seat),
        }
    }

    /// A reservation that becomes ready may be late by so much and no more, as in the flat
    /// scheduler; and what a group holds may be late by the bound.
    fn bound_lateness(&mut self, slot: usize, now: u64) {
        let bound = self.lateness_of(slot, now);
        let latest = now - bound;
        let due = self.first_due().map_or(latest, |tag| tag + self.forgiven);
        let (forgiven, held) = (self.forgiven, now - self.debt_bound());
        let node = &mut self.nodes[slot];
        if let Some(tag) = &mut node.reservation {
            tag.raise_to(due.min(latest));
            tag.at -= forgiven;
        }
        if let Some(group) = node.group_mut() {
            group.held = group.held.max(held - forgiven);
        }
    }

    fn lateness_of(&self, slot: usize, now: u64) -> u64 {
        let node = &self.nodes[slot];
        let is_new = node.reservation.as_ref().is_some_and(|tag| tag.at == NEVER_SERVED);
        match node.patience {
            _ if is_new => self.newcomers_lateness(now),
            Patience::Asked | Patience::BusyElsewhere => self.newcomers_lateness(now),
            Patience::HeldBack | Patience::InFlight => {
                let room = match self.is_limited_at_all(slot) {
                    true => Room::OneStall,
                    false => Room::TwoStalls,
                };
                self.delivered.lateness_kept(now, self.group(ROOT).claims, room)
            }
            Patience::Unbroken => self.debt_bound(),
        }
    }

    /// Whether a limit may hold it back, its own or that of a group that it is in.
    fn is_limited_at_all(&self, mut slot: usize) -> bool {
        while let Some(parent) = up(&self.nodes, slot) {
            if self.nodes[slot].is_limited() {
                return true;
            }
            slot = parent;
        }
        false
    }

    /// How late the reservation of a node may be that was idle.
    fn newcomers_lateness(&self, now: u64) -> u64 {
        let (most, (late, at)) = (self.config.debt_bound.0 / 2, self.late);
        let late = if now - at <= most { late.min(most) } else { 0 };
        late.max(self.config.anticipation.0)
    }

    /// How late reservations may be now.
    pub(super) fn debt_bound(&self) -> u64 {
        self.delivered.debt_bound(self.group(ROOT).claims)
    }

    /// The lower bound of the share tag of a node that comes back: its burst credit, or the lead if
    /// it waited.
    pub(super) fn forget_credit(&mut self, slot: usize) {
        let v = self.group(self.nodes[slot].parent as usize).virtual_time;
        let lead = u64::from(self.config.lead);
        let node = &mut self.nodes[slot];
        let burst = node.policy.burst().get();
        let ios = match node.patience {
            Patience::Asked | Patience::InFlight => burst,
            Patience::BusyElsewhere | Patience::HeldBack | Patience::Unbroken => burst.max(lead),
        };
        let bound = v.at().wrapping_sub(node.share.spacing(share_amount(Cost::from_ios(ios))));
        if v.has_left(node.turn) {
            node.share.set(bound);
        } else {
            node.share.raise_to(bound);
        }
        node.turn = v.turn();
    }

    /// The lower bound of the share tag of a node that is served by a reservation: the floor raises
    /// V beyond it.
    #[inline]
    pub(super) fn forget_lag(&mut self, slot: usize) {
        let v = self.group(self.nodes[slot].parent as usize).virtual_time.at();
        let lead = u64::from(self.config.lead);
        let node = &mut self.nodes[slot];
        if before(node.share.at, v) {
            let ios = Cost::from_ios(node.policy.burst().get().max(lead));
            node.share.raise_to(v.wrapping_sub(node.share.spacing(share_amount(ios))));
        }
    }

    /// The upper bound of the share tag of a node: so much ahead of V.
    pub(super) fn forget_service(&mut self, slot: usize, ahead: Cost) {
        let v = self.group(self.nodes[slot].parent as usize).virtual_time.at();
        let tag = &mut self.nodes[slot].share;
        tag.lower_to(v.wrapping_add(tag.spacing(share_amount(ahead))));
    }

    /// How far ahead of V service by reservations may bring a node: the lead, what its reservations
    /// are owed for pauses and stalls, of the storage and of the limits of groups that it is in,
    /// and of a group one request of each of its reservations.
    #[inline]
    pub(super) fn lead_of(&self, slot: usize, pause: u64, now: u64) -> Cost {
        let node = &self.nodes[slot];
        let own = Cost::from_ios(u64::from(self.config.lead));
        let own = own.max(node.peak.cost().times(LEAD_IN_OWN_COSTS)).max(self.largest);
        let claims = node.claims;
        let stall = self.delivered.longest_stall(now);
        let time = self.config.debt_bound.0 / 2 + 2 * stall + pause;
        // Nanoseconds at IOs per second are thousandths of millionths of an IO.
        let owed = u128::from(time) * u128::from(claims.rate) / 1_000;
        let most = u128::from(Cost::MAX.as_millionths());
        let round = match node.kind {
            Kind::Leaf(_) => 0,
            Kind::Group(_) => u128::from(claims.round) * 1_000,
        };
        own.max(Cost::from_millionths(owed.max(round).min(most) as u64))
    }

    /// How far a group's reservation may be ahead of the clock, in nanoseconds: by one request of
    /// each reservation in it and one of its own.
    #[inline]
    pub(super) fn reserved_ahead(node: &Node) -> Option<u64> {
        let (group, tag) = (node.group()?, node.reservation.as_ref()?);
        let thousandths = group.claims.round + node.peak.thousandths();
        let most = Cost::MAX.times(LEAD_IN_OWN_COSTS).as_millionths();
        let cost = Cost::from_millionths(thousandths.saturating_mul(1_000).min(most));
        Some(tag.spacing(time_amount(cost)))
    }

    /// Brings up to date what a leaf and the groups that it is in claim, after it began or ceased
    /// to wait or to have requests in flight, or sent a larger request. A group may claim something
    /// though nothing in it does.
    pub(super) fn claim(&mut self, mut slot: usize) {
        while let Some(parent) = up(&self.nodes, slot) {
            let node = &mut self.nodes[slot];
            let (old, new) = (node.claims, node.claims_now());
            if old != new {
                node.claims = new;
                let group = self.group_mut(parent);
                group.claims.add(new);
                group.claims.subtract(old);
            }
            slot = parent;
        }
    }

    /// Whether the floor is not for what such a way leads to.
    pub(super) fn is_reserved(&self, way: &[usize]) -> bool {
        way.iter().any(|slot| self.nodes[*slot].class == Class::Reserved)
    }
}
