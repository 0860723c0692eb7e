//! Nodes of which the requests, the limits and the reservations go elsewhere, or come from there.

use super::node::{Kind, NodeId, ROOT};
use super::{MClockTree, TreeError, up};
use crate::learned_cost::CostTable;
use crate::mclock::carried::CarriedTags;
use crate::mclock::disk::NEVER_SERVED;
use crate::mclock::disk::{bandwidths, rates};
use crate::mclock::pair;
use crate::policy::Policy;
use crate::queue::Queued;
use crate::steady::Steady;
use alloc::vec::Vec;
use headgate_units::Nanos;

impl<R> MClockTree<R> {
    /// Goes on by another scheduler's clock, with so much forgiven. Before there are nodes.
    pub(in crate::mclock) fn begin_at(&mut self, (time, forgiven): (Steady, u64)) {
        self.time = time;
        self.forgiven = forgiven;
    }

    /// Its clock, and how much was forgiven.
    pub(in crate::mclock) fn reading(&self) -> (Steady, u64) {
        (self.time, self.forgiven)
    }

    pub(in crate::mclock) fn advance(&mut self, now: Nanos) -> u64 {
        self.time.advance(now)
    }

    /// The group that a node is in.
    pub(in crate::mclock) fn parent(&self, node: NodeId) -> Option<NodeId> {
        let slot = self.slot(node).ok()?;
        up(&self.nodes, slot).map(|parent| self.id(parent))
    }

    pub(in crate::mclock) fn set_costs(&mut self, table: CostTable) {
        self.charging.set_table(table);
    }

    /// As [`set_policy`](MClockTree::set_policy), though a group would promise more than its limit:
    /// for whoever changes policies one after the other, and judges all of them before.
    ///
    /// # Errors
    /// [`TreeError::UnknownNode`], [`TreeError::Root`].
    pub(in crate::mclock) fn put_policy(
        &mut self,
        now: Nanos,
        node: NodeId,
        policy: Policy,
    ) -> Result<(), TreeError> {
        let slot = self.slot(node)?;
        if slot == ROOT {
            return Err(TreeError::Root);
        }
        let now = self.time.advance(now);
        self.apply(slot, now, policy);
        Ok(())
    }

    /// Queues a request whose size was seen before.
    pub(in crate::mclock) fn put(&mut self, now: Nanos, leaf: NodeId, queued: Queued, request: R) {
        let now = self.time.advance(now);
        let slot = leaf.slot as usize;
        let Kind::Leaf(queue) = &mut self.nodes[slot].kind else {
            unreachable!("the id names a leaf");
        };
        let was_empty = queue.is_empty();
        self.requests.push(queue, queued, request);
        if was_empty {
            self.begin_to_wait(slot, now);
            self.claim(slot);
            self.settle(slot, now);
        }
    }

    /// Takes all that a leaf has queued, each with what was known of it.
    pub(in crate::mclock) fn drain(&mut self, now: Nanos, leaf: NodeId) -> Vec<(Queued, R)> {
        let now = self.time.advance(now);
        let slot = leaf.slot as usize;
        let Kind::Leaf(queue) = &mut self.nodes[slot].kind else {
            unreachable!("the id names a leaf");
        };
        let taken = self.requests.drain(queue);
        if !taken.is_empty() {
            self.wait_no_more(slot);
            self.claim(slot);
            self.settle(slot, now);
        }
        taken
    }

    /// How many requests a leaf has queued, and how many in flight.
    #[inline]
    pub(in crate::mclock) fn load(&self, leaf: NodeId) -> (usize, u32) {
        let node = &self.nodes[leaf.slot as usize];
        let queued = match &node.kind {
            Kind::Leaf(queue) => queue.len(),
            Kind::Group(_) => 0,
        };
        (queued, node.in_flight)
    }

    /// So many requests of a leaf are in flight that were dispatched elsewhere.
    pub(in crate::mclock) fn take_over_flight(&mut self, now: Nanos, leaf: NodeId, requests: u32) {
        let now = self.time.advance(now);
        self.in_flight += requests as usize;
        let mut at = Some(leaf.slot as usize);
        while let Some(slot) = at {
            let node = &mut self.nodes[slot];
            node.in_flight += requests;
            node.idle_since = now;
            at = up(&self.nodes, slot);
        }
        self.claim(leaf.slot as usize);
    }

    /// Of a node: its limits, and its reservation.
    pub(in crate::mclock) fn tags(&self, node: NodeId) -> CarriedTags {
        let node = &self.nodes[node.slot as usize];
        let forgiven = match node.standing {
            super::node::Standing::In => self.forgiven,
            _ => 0,
        };
        CarriedTags {
            limit: node.limit.clone(),
            bandwidth: node.bandwidth.clone(),
            due: node.reservation.as_ref().map(|tag| tag.at + forgiven),
            peak: node.peak,
        }
    }

    /// A node in which nothing was queued yet has them from now on, at the rates of its policy.
    pub(in crate::mclock) fn set_tags(&mut self, now: Nanos, node: NodeId, tags: CarriedTags) {
        let now = self.time.advance(now);
        let slack = self.config.limit_slack.0;
        let node = &mut self.nodes[node.slot as usize];
        let policy = node.policy;
        (node.limit, node.bandwidth) = (tags.limit, tags.bandwidth);
        pair::change(&mut node.limit, rates(policy), now, slack);
        pair::change(&mut node.bandwidth, bandwidths(policy), now, slack);
        if let Some(tag) = &mut node.reservation {
            tag.set(tags.due.unwrap_or(NEVER_SERVED));
        }
        node.peak = tags.peak;
        node.idle_since = now;
    }

    /// Until when limits forbid all that a node has queued, its own and those of the groups that it
    /// is in, in inner nanoseconds; and the highest of the nodes that are held back. O(depth).
    #[inline]
    pub(in crate::mclock) fn held_until(&self, node: NodeId) -> Option<(u64, NodeId)> {
        let now = self.time.now();
        let (mut at, mut held) = (Some(node.slot as usize), None);
        while let Some(slot) = at {
            let until = self.nodes[slot].blocked_until();
            if until > now {
                let (most, _) = held.unwrap_or((0, slot));
                held = Some((until.max(most), slot));
            }
            at = up(&self.nodes, slot);
        }
        held.map(|(until, slot)| (until, self.id(slot)))
    }

    /// On the caller's clock.
    pub(in crate::mclock) fn caller_time(&self, inner: u64) -> Nanos {
        self.time.caller_time(inner)
    }
}
