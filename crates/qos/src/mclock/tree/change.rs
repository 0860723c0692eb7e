//! Nodes come and go, with their policies. Changes of those.

use super::node::{Group, Kind, Node, NodeId, ROOT, Standing};
use super::{DEPTH, MClockTree, TreeError, up};
use crate::cost::Cost;
use crate::mclock::amount::rate;
use crate::mclock::disk::{NEVER_SERVED, Patience, bandwidths, rates};
use crate::mclock::pair;
use crate::policy::{LimitMode, Policy};
use crate::queue::Chain;
use crate::rate::Tag;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use headgate_units::Nanos;

impl<R> MClockTree<R> {
    /// Adds a group without members. O(depth).
    ///
    /// # Errors
    /// The parent is no group or too deep, what is promised is above the limit of a group, or the
    /// policy has soft limits or limits of one direction.
    pub fn add_group(
        &mut self,
        now: Nanos,
        parent: NodeId,
        policy: Policy,
    ) -> Result<NodeId, TreeError> {
        self.add(now, parent, policy, || Kind::Group(Box::new(Group::new())))
    }

    /// Adds a leaf. O(depth).
    ///
    /// # Errors
    /// As [`MClockTree::add_group`].
    pub fn add_leaf(
        &mut self,
        now: Nanos,
        parent: NodeId,
        policy: Policy,
    ) -> Result<NodeId, TreeError> {
        self.add(now, parent, policy, || Kind::Leaf(Chain::EMPTY))
    }

    fn add(
        &mut self,
        now: Nanos,
        parent: NodeId,
        policy: Policy,
        kind: impl FnOnce() -> Kind,
    ) -> Result<NodeId, TreeError> {
        has_rules(policy)?;
        let promised = policy.reservation().map_or(0, |r| r.get());
        if let Ok(group) = self.slot(parent) {
            self.may_promise(group, 0, promised)?;
        }
        self.add_unjudged(now, parent, policy, kind)
    }

    /// Adds a node, though a group would promise more than its limit.
    ///
    /// # Errors
    /// The parent is no group or too deep.
    pub(in crate::mclock) fn put_node(
        &mut self,
        now: Nanos,
        parent: NodeId,
        policy: Policy,
        part: Part,
    ) -> Result<NodeId, TreeError> {
        self.add_unjudged(now, parent, policy, || match part {
            Part::Group => Kind::Group(Box::new(Group::new())),
            Part::Leaf => Kind::Leaf(Chain::EMPTY),
        })
    }

    fn add_unjudged(
        &mut self,
        now: Nanos,
        parent: NodeId,
        policy: Policy,
        kind: impl FnOnce() -> Kind,
    ) -> Result<NodeId, TreeError> {
        let group = self.slot(parent)?;
        if self.nodes[group].group().is_none() {
            return Err(TreeError::NotAGroup(parent));
        }
        let depth = core::iter::successors(Some(group), |slot| up(&self.nodes, *slot)).count();
        if depth > DEPTH {
            return Err(TreeError::TooDeep);
        }
        let promised = policy.reservation().map_or(0, |r| r.get());
        let now = self.time.advance(now);
        self.promise(group, 0, promised, now);
        let clock = self.group(group).virtual_time;
        self.group_mut(group).members += 1;
        let slot = self.free.pop().map_or(self.nodes.len(), |slot| slot as usize);
        let generation = self.nodes.get(slot).map_or(0, |gone| gone.generation);
        let slack = self.config.limit_slack.0;
        let node = Node::new(kind(), group, generation, policy, now, slack, clock);
        self.charging.register(slot);
        match self.nodes.get_mut(slot) {
            Some(gone) => *gone = node,
            None => self.nodes.push(node),
        }
        Ok(self.id(slot))
    }

    /// Removes a leaf, whose queued requests come back in order, or a group without members.
    /// Completions of what is in flight are ignored from now on.
    ///
    /// # Errors
    /// [`TreeError::UnknownNode`], [`TreeError::Root`], [`TreeError::HasMembers`].
    pub fn remove(&mut self, now: Nanos, node: NodeId) -> Result<Vec<R>, TreeError> {
        let slot = self.changeable(node)?;
        if let Some(group) = self.nodes[slot].group()
            && group.members > 0
        {
            return Err(TreeError::HasMembers { group: node, members: group.members });
        }
        let queued = match self.nodes[slot].kind {
            Kind::Leaf(_) => self.extract(now, node, &mut |_| true)?,
            Kind::Group(_) => Vec::new(),
        };
        let now = self.time.advance(now);
        let (in_flight, promised) = (self.nodes[slot].in_flight, self.nodes[slot].promised());
        if in_flight > 0 {
            self.land(slot, in_flight, now);
            self.claim(slot);
        }
        let parent = self.nodes[slot].parent as usize;
        self.promise(parent, promised, 0, now);
        self.group_mut(parent).members -= 1;
        let gone = &mut self.nodes[slot];
        gone.standing = Standing::Free;
        gone.kind = Kind::Leaf(Chain::EMPTY);
        (gone.limit, gone.bandwidth) = (None, None);
        // A slot whose generations are used up is not used again.
        if let Some(next) = gone.generation.checked_add(1) {
            gone.generation = next;
            self.free.push(slot as u32);
        }
        Ok(queued)
    }

    /// Gives a node another policy. In force at the next decision, for requests already queued
    /// too. O(Σ log n) in the members that may be served of the groups that it is in.
    ///
    /// # Errors
    /// The node is unknown or the root, what is promised would be above a limit, or the policy has
    /// soft limits or limits of one direction.
    pub fn set_policy(
        &mut self,
        now: Nanos,
        node: NodeId,
        policy: Policy,
    ) -> Result<(), TreeError> {
        let slot = self.changeable(node)?;
        has_rules(policy)?;
        let inside = self.nodes[slot].group().map_or(0, |group| group.promised);
        within(node, inside, policy)?;
        let parent = self.nodes[slot].parent as usize;
        let old = self.nodes[slot].promised();
        let new = inside.max(policy.reservation().map_or(0, |r| r.get()));
        self.may_promise(parent, old, new)?;
        let now = self.time.advance(now);
        self.apply(slot, now, policy);
        Ok(())
    }

    /// Gives many nodes other policies at once: all of them, or none where what would be promised
    /// then is above a limit. So a reservation and the limit of a group that it needs are raised
    /// together. Of several for one node the last counts. O(k · depth · log k) for k of them, and
    /// what each costs alone.
    ///
    /// # Errors
    /// As [`MClockTree::set_policy`], for the first node that it holds for, from the leaves up.
    pub fn set_policies(
        &mut self,
        now: Nanos,
        changes: &[(NodeId, Policy)],
    ) -> Result<(), TreeError> {
        let mut policies = BTreeMap::new();
        for (node, policy) in changes {
            has_rules(*policy)?;
            policies.insert(self.changeable(*node)?, *policy);
        }
        self.may_have(&policies)?;
        let now = self.time.advance(now);
        for (slot, policy) in policies {
            self.apply(slot, now, policy);
        }
        Ok(())
    }

    /// Whether nodes may have these policies all at once.
    fn may_have(&self, policies: &BTreeMap<usize, Policy>) -> Result<(), TreeError> {
        // Level by level from below: what groups promise more and less to their members.
        let mut levels: [BTreeMap<usize, (u64, u64)>; DEPTH + 1] = Default::default();
        let depth = |slot: &usize| {
            core::iter::successors(Some(*slot), |slot| up(&self.nodes, *slot)).count() - 1
        };
        for slot in policies.keys() {
            levels[depth(slot)].entry(*slot).or_default();
        }
        for level in (1..=DEPTH).rev() {
            for (slot, (more, less)) in core::mem::take(&mut levels[level]) {
                let node = &self.nodes[slot];
                let inside = node.group().map_or(0, |group| group.promised) + more - less;
                let policy = policies.get(&slot).copied().unwrap_or(node.policy);
                within(self.id(slot), inside, policy)?;
                let own = policy.reservation().map_or(0, |r| r.get());
                let group = levels[level - 1].entry(node.parent as usize).or_default();
                group.0 += own.max(inside);
                group.1 += node.promised();
            }
        }
        Ok(())
    }

    /// Gives a node a policy that was checked.
    pub(super) fn apply(&mut self, slot: usize, now: u64, policy: Policy) {
        let parent = self.nodes[slot].parent as usize;
        let old = self.nodes[slot].promised();
        let standing = self.nodes[slot].standing;
        self.leave(slot, standing);
        self.change(slot, now, policy);
        self.claim(slot);
        let new = self.nodes[slot].promised();
        self.promise(parent, old, new, now);
        self.settle_all(slot, now);
    }

    /// What a tag is ahead is kept as service, so a new rate is in force at the next dispatch.
    fn change(&mut self, slot: usize, now: u64, policy: Policy) {
        let waits = self.nodes[slot].waits();
        self.nodes[slot].patience = if waits { Patience::Unbroken } else { Patience::Asked };
        self.forget_credit(slot);
        let v = self.group(self.nodes[slot].parent as usize).virtual_time.at();
        let slack = self.config.limit_slack.0;
        let node = &mut self.nodes[slot];
        let old = core::mem::replace(&mut node.policy, policy);
        pair::change(&mut node.limit, rates(policy), now, slack);
        pair::change(&mut node.bandwidth, bandwidths(policy), now, slack);
        node.share.change_rate(rate(policy.shares().get()), v);
        node.reservation = policy.reservation().map(|reservation| match node.reservation {
            Some(mut tag) => {
                tag.change_rate(rate(reservation.get()), now);
                tag
            }
            None => Tag::new(NEVER_SERVED, rate(reservation.get())),
        });
        if old.reservation().is_none() && policy.reservation().is_some() {
            node.patience = Patience::Asked;
        }
        if policy.reservation() < old.reservation() {
            let ahead = Cost::ONE.max(node.peak.cost());
            self.forget_service(slot, ahead);
        }
    }

    /// Whether a group, and those that it is in, may promise their members `new` in the place of
    /// `old`.
    fn may_promise(&self, mut group: usize, old: u64, new: u64) -> Result<(), TreeError> {
        let (mut old, mut new) = (old, new);
        while let (Some(parent), Some(members)) =
            (up(&self.nodes, group), self.nodes[group].group())
        {
            let node = &self.nodes[group];
            let promised = members.promised - old + new;
            within(self.id(group), promised, node.policy)?;
            let own = node.policy.reservation().map_or(0, |r| r.get());
            (old, new) = (node.promised(), own.max(promised));
            group = parent;
        }
        Ok(())
    }

    /// Counts that, and brings up to date whom the floor is for.
    fn promise(&mut self, mut group: usize, old: u64, new: u64, now: u64) {
        let (mut old, mut new) = (old, new);
        while old != new {
            let before = self.nodes[group].promised();
            let members = self.group_mut(group);
            members.promised = members.promised - old + new;
            (old, new) = (before, self.nodes[group].promised());
            let Some(parent) = up(&self.nodes, group) else { return };
            self.settle(group, now);
            group = parent;
        }
        self.settle(group, now);
    }

    fn changeable(&self, node: NodeId) -> Result<usize, TreeError> {
        match self.slot(node)? {
            ROOT => Err(TreeError::Root),
            slot => Ok(slot),
        }
    }
}

fn within(group: NodeId, promised: u64, policy: Policy) -> Result<(), TreeError> {
    match policy.limit() {
        Some(limit) if promised > limit.get() => {
            Err(TreeError::PromisedAboveLimit { group, promised, limit })
        }
        _ => Ok(()),
    }
}

/// What a new node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::mclock) enum Part {
    /// A group without members.
    Group,
    /// It sends requests.
    Leaf,
}

/// Whether the tree has rules for all that a policy says.
pub(in crate::mclock) fn has_rules(policy: Policy) -> Result<(), TreeError> {
    if policy.limits_directions() {
        return Err(TreeError::Unsupported("limits of reads or of writes alone"));
    }
    if policy.limit_mode() == LimitMode::Soft {
        return Err(TreeError::Unsupported("soft limits"));
    }
    Ok(())
}
