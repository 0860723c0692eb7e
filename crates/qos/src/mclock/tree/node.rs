//! The tags and state of one node of a tree.

use crate::cost::Cost;
use crate::mclock::amount::rate;
use crate::mclock::bucket::Fill;
use crate::mclock::claims::Claims;
use crate::mclock::disk::{NEVER_SERVED, Patience, Peak, bandwidths, rates};
use crate::mclock::limit::{Asker, Limit};
use crate::mclock::pair;
use crate::mclock::seats::Seats;
use crate::mclock::share_order::{Class, ShareOrder};
use crate::mclock::virtual_time::VirtualTime;
use crate::policy::Policy;
use crate::queue::Chain;
use crate::rate::Tag;
use crate::tournament::Tournament;
use alloc::boxed::Box;

/// A node of a tree. Never reused: the id of a node that was removed stays unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId {
    pub(super) slot: u32,
    pub(super) generation: u32,
}

/// The slot of the root.
pub(super) const ROOT: usize = 0;

impl NodeId {
    /// The datastore: the group that all others are in. It has no policy.
    pub const ROOT: NodeId = NodeId { slot: 0, generation: 0 };

    /// Of all nodes that there are at one time, each has another one. Small ones are used again.
    #[inline]
    pub(in crate::mclock) fn index(self) -> usize {
        self.slot as usize
    }
}

/// Where a node stands among the members of its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// No node.
    Free,
    /// Nothing in it may be served, but for its own limit.
    Out,
    /// Something in it may be served, and its own limit holds it back: among those that wait for a
    /// limit.
    Blocked,
    /// In the orders of its group. Its reservation tag is less what was forgiven.
    In,
}

#[derive(Clone)]
pub(super) struct Node {
    /// In its group's virtual time.
    pub(super) share: Tag,
    /// In inner nanoseconds; while [`Standing::In`] less what was forgiven.
    pub(super) reservation: Option<Tag>,
    pub(super) limit: pair::Slot,
    pub(super) bandwidth: pair::Slot,
    pub(super) kind: Kind,
    pub(super) parent: u32,
    pub(super) generation: u32,
    pub(super) standing: Standing,
    /// Under which it entered the order of shares.
    pub(super) class: Class,
    /// How it comes back to the orders of its group.
    pub(super) patience: Patience,
    /// In the orders of its group, while it is in them.
    pub(super) seat: u32,
    /// Among those that wait for limits, while it does.
    pub(super) waiting_seat: u32,
    /// Of its group's virtual time when it was last in the orders.
    pub(super) turn: u32,
    pub(super) peak: Peak,
    /// Requests in flight, of all leaves in it.
    pub(super) in_flight: u32,
    /// Since when nothing in it is queued or in flight. Of no meaning while something is.
    pub(super) idle_since: u64,
    /// What it adds to the claims of its group.
    pub(super) claims: Claims,
    pub(super) policy: Policy,
    pub(super) by_reservation: u64,
    pub(super) by_weight: u64,
    pub(super) cost: Cost,
}

/// What a node is.
#[derive(Clone)]
pub(super) enum Kind {
    /// It sends requests.
    Leaf(Chain),
    /// It has members.
    Group(Box<Group>),
}

/// What a group knows of its members.
#[derive(Clone)]
pub(super) struct Group {
    pub(super) shares: ShareOrder,
    /// Members by the earliest reservation tag in each, less what was forgiven.
    pub(super) reservations: Tournament,
    pub(super) seats: Seats,
    pub(super) virtual_time: VirtualTime,
    pub(super) members: u32,
    /// Of these, how many have requests queued.
    pub(super) waiting: u32,
    /// Of its members.
    pub(super) claims: Claims,
    /// What its members are promised where all of them ask, in IOs per second.
    pub(super) promised: u64,
    /// No reservation in it counts as due before that, less what was forgiven.
    pub(super) held: u64,
}

impl Group {
    pub(super) fn new() -> Group {
        Group {
            shares: ShareOrder::new(),
            reservations: Tournament::new(),
            seats: Seats::new(),
            virtual_time: VirtualTime::new(),
            members: 0,
            waiting: 0,
            claims: Claims::default(),
            promised: 0,
            held: 0,
        }
    }
}

impl Node {
    pub(super) fn new(
        kind: Kind,
        parent: usize,
        generation: u32,
        policy: Policy,
        now: u64,
        slack: u64,
        virtual_time: VirtualTime,
    ) -> Node {
        Node {
            share: Tag::new(virtual_time.at(), rate(policy.shares().get())),
            reservation: policy.reservation().map(|r| Tag::new(NEVER_SERVED, rate(r.get()))),
            limit: rates(policy).map(|rates| Limit::new(now, rates, Fill::Full, slack)),
            bandwidth: bandwidths(policy).map(|rates| Limit::new(now, rates, Fill::Full, slack)),
            kind,
            parent: parent as u32,
            generation,
            standing: Standing::Out,
            class: Class::Unreserved,
            patience: Patience::Asked,
            seat: 0,
            waiting_seat: 0,
            turn: virtual_time.turn(),
            peak: Peak::INITIAL,
            in_flight: 0,
            idle_since: 0,
            claims: Claims::default(),
            policy,
            by_reservation: 0,
            by_weight: 0,
            cost: Cost::default(),
        }
    }

    /// Whether anything in it is queued.
    #[inline]
    pub(super) fn waits(&self) -> bool {
        match &self.kind {
            Kind::Leaf(queue) => !queue.is_empty(),
            Kind::Group(group) => group.waiting > 0,
        }
    }

    /// Whether anything in it may be served, but for its own limit.
    #[inline]
    pub(super) fn is_ready(&self) -> bool {
        match &self.kind {
            Kind::Leaf(queue) => !queue.is_empty(),
            Kind::Group(group) => group.shares.first().is_some(),
        }
    }

    /// Until when its own limit holds it back; 0 without one.
    #[inline]
    pub(super) fn blocked_until(&self) -> u64 {
        pair::open(&self.limit, &self.bandwidth)
    }

    pub(super) fn is_limited(&self) -> bool {
        self.limit.is_some() || self.bandwidth.is_some()
    }

    /// The earliest reservation tag in it, its own included, less what was forgiven. Only while
    /// it is [`Standing::In`].
    #[inline]
    pub(super) fn earliest(&self) -> Option<u64> {
        let own = self.reservation.as_ref().map(|tag| tag.at);
        match &self.kind {
            Kind::Leaf(_) => own,
            Kind::Group(group) => {
                let inside = group.reservations.first().map(|(tag, _)| tag as u64);
                let first = own.into_iter().chain(inside).min()?;
                Some(first.max(group.held))
            }
        }
    }

    /// Whether the floor may be meant for something in it: it has no reservation that its members
    /// do not use up, and a leaf in it that may be served has none either.
    #[inline]
    pub(super) fn class_now(&self) -> Class {
        let own = self.policy.reservation().map_or(0, |r| r.get());
        let unreserved = match &self.kind {
            Kind::Leaf(_) => own == 0,
            Kind::Group(group) => {
                own <= group.promised && group.shares.first_unreserved().is_some()
            }
        };
        if unreserved { Class::Unreserved } else { Class::Reserved }
    }

    /// What is promised to it where all of its leaves ask, in IOs per second.
    pub(super) fn promised(&self) -> u64 {
        let own = self.policy.reservation().map_or(0, |r| r.get());
        match &self.kind {
            Kind::Leaf(_) => own,
            Kind::Group(group) => own.max(group.promised),
        }
    }

    /// What it claims of its group now.
    #[inline]
    pub(super) fn claims_now(&self) -> Claims {
        if self.in_flight == 0 && !self.waits() {
            return Claims::default();
        }
        let own = match &self.reservation {
            Some(tag) => Claims { rate: tag.rate().get(), round: self.peak.thousandths() },
            None => Claims::default(),
        };
        match &self.kind {
            Kind::Leaf(_) => own,
            Kind::Group(group) => Claims {
                rate: own.rate.max(group.claims.rate),
                round: own.round + group.claims.round,
            },
        }
    }

    /// Tells its limits that something in it is queued, where nothing was.
    pub(super) fn ask_limits(&mut self, now: u64) {
        let asker = if self.in_flight == 0 { Asker::Idle } else { Asker::Busy };
        pair::ask(&mut self.limit, &mut self.bandwidth, now, asker);
    }

    pub(super) fn group(&self) -> Option<&Group> {
        match &self.kind {
            Kind::Group(group) => Some(group),
            Kind::Leaf(_) => None,
        }
    }

    pub(super) fn group_mut(&mut self) -> Option<&mut Group> {
        match &mut self.kind {
            Kind::Group(group) => Some(group),
            Kind::Leaf(_) => None,
        }
    }
}
