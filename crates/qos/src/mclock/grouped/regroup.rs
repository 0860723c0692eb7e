//! Groups come, go and change, and disks go from one to another.

use super::groups::without_rule;
use super::{DiskNode, Group, GroupId, Grouped, Groups, GroupsError, Hung};
use crate::config::Config;
use crate::mclock::MClock;
use crate::mclock::carried::{Carried, CarriedTags};
use crate::mclock::disk::Peak;
use crate::mclock::tree::{MClockTree, NodeId, Part};
use crate::policy::Policy;
use crate::scheduler::DiskId;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use headgate_units::{Nanos, Priority};

impl<R> Grouped<R> {
    /// Whether the disks of a flat scheduler can be in these groups.
    pub(crate) fn check(flat: &MClock<R>, groups: &Groups) -> Result<(), GroupsError> {
        groups.check()?;
        if flat.config.batch.is_some() {
            return Err(GroupsError::Configured("batches"));
        }
        if flat.config.plug > Nanos::ZERO {
            return Err(GroupsError::Configured("plug"));
        }
        for (disk, policy) in flat.all() {
            if let Some(what) = without_rule(policy) {
                return Err(GroupsError::Disk { disk, what });
            }
        }
        Ok(())
    }

    /// An empty tree that decides as this flat scheduler is configured.
    pub(crate) fn tree_for(flat: &MClock<R>) -> Result<MClockTree<R>, GroupsError> {
        let config = Config { plug: Nanos::ZERO, batch: None, ..flat.config };
        MClockTree::new(config).map_err(|_| GroupsError::Configured("valid configuration"))
    }

    /// The disks of a flat scheduler, with all that they have queued and in flight, in no group of
    /// the empty tree yet.
    pub(crate) fn of_flat(now: Nanos, mut flat: MClock<R>, mut tree: MClockTree<R>) -> Grouped<R> {
        let inner = flat.time.advance(now);
        tree.begin_at(flat.reading());
        if let Some(table) = flat.charging.table() {
            tree.set_costs(table);
        }
        let all: Vec<(DiskId, Policy)> = flat.all().collect();
        let carried: Vec<_> =
            all.iter().map(|(disk, _)| flat.carry_away(disk.slot as usize, inner)).collect();
        let (groups, disks, owners) = (Vec::new(), Vec::new(), Vec::new());
        let mut grouped = Grouped { flat, tree, groups, disks, owners };
        for ((disk, policy), carried) in all.into_iter().zip(carried) {
            grouped.put_up(now, disk.slot as usize, NodeId::ROOT, policy, carried);
        }
        grouped
    }

    /// The flat scheduler, with all that disks have queued and in flight.
    pub(crate) fn into_flat(mut self, now: Nanos) -> MClock<R> {
        let inner = self.tree.advance(now);
        let slots: Vec<usize> = self.all().map(|disk| disk.slot as usize).collect();
        let mut carried = Vec::new();
        for slot in slots {
            carried.push((slot, self.take_down(now, slot)));
        }
        self.flat.resume(self.tree.reading());
        for (slot, carried) in carried {
            self.flat.carry_back(slot, inner, carried);
        }
        self.flat
    }

    /// Makes the groups what is said. What stays in place keeps its order.
    ///
    /// # Errors
    /// Before anything is changed.
    pub(crate) fn regroup(&mut self, now: Nanos, wanted: &Groups) -> Result<(), GroupsError> {
        Grouped::check(&self.flat, wanted)?;
        let before = core::mem::take(&mut self.groups);
        let old: BTreeMap<GroupId, usize> =
            before.iter().enumerate().map(|(at, group)| (group.id, at)).collect();
        let mut nodes: BTreeMap<GroupId, NodeId> = BTreeMap::new();
        for group in &wanted.groups {
            let known = old.get(&group.id).map(|at| &before[*at]);
            let hung = self.put_group(now, group, &nodes, known)?;
            nodes.insert(group.id, hung.node);
            self.groups.push(hung);
        }
        let members: BTreeMap<u32, GroupId> =
            wanted.members.iter().map(|(disk, group)| (disk.slot, *group)).collect();
        let disks: Vec<DiskId> = self.all().collect();
        for disk in disks {
            let group = members.get(&disk.slot).and_then(|group| nodes.get(group));
            self.move_to(now, disk, group.copied().unwrap_or(NodeId::ROOT));
        }
        for gone in before.iter().rev().filter(|one| nodes.get(&one.id) != Some(&one.node)) {
            let removed = self.tree.remove(now, gone.node);
            debug_assert!(removed.is_ok(), "nothing is in it any more: {:?}", removed.err());
        }
        self.note_disks(&members);
        Ok(())
    }

    /// A group that is there keeps its node, unless it is in another one now.
    fn put_group(
        &mut self,
        now: Nanos,
        group: &Group,
        nodes: &BTreeMap<GroupId, NodeId>,
        known: Option<&Hung>,
    ) -> Result<Hung, GroupsError> {
        let Group { id, parent, policy } = *group;
        let above = parent.and_then(|parent| nodes.get(&parent)).copied();
        let above = above.unwrap_or(NodeId::ROOT);
        let hung = |node| Hung { id, parent, node, policy, disks: Vec::new() };
        if let Some(known) = known
            && self.tree.parent(known.node) == Some(above)
        {
            if known.policy != policy {
                let set = self.tree.put_policy(now, known.node, policy);
                debug_assert_eq!(set, Ok(()), "the node is there as long as the group");
            }
            return Ok(hung(known.node));
        }
        let node = self.tree.put_node(now, above, policy, Part::Group);
        let node = node.map_err(|_| GroupsError::TooDeep)?;
        if let Some(known) = known {
            let tags = self.tree.tags(known.node);
            self.tree.set_tags(now, node, tags);
        }
        Ok(hung(node))
    }

    /// Each group knows all disks in it.
    fn note_disks(&mut self, members: &BTreeMap<u32, GroupId>) {
        let places: BTreeMap<GroupId, usize> =
            self.groups.iter().enumerate().map(|(at, group)| (group.id, at)).collect();
        for (slot, group) in members {
            if !self.disks.get(*slot as usize).is_some_and(Option::is_some) {
                continue;
            }
            let mut at = places.get(group).copied();
            while let Some(place) = at {
                self.groups[place].disks.push(*slot);
                at = self.groups[place].parent.and_then(|parent| places.get(&parent).copied());
            }
        }
    }

    fn move_to(&mut self, now: Nanos, disk: DiskId, group: NodeId) {
        let slot = disk.slot as usize;
        let is_there = |known: &DiskNode| known.group == group;
        if self.disks[slot].as_ref().is_some_and(is_there) {
            return;
        }
        let policy = self.flat.disks[slot].policy();
        let carried = self.take_down(now, slot);
        self.put_up(now, slot, group, policy, carried);
    }

    /// Puts a disk into a group, with nothing queued.
    pub(super) fn hang(&mut self, now: Nanos, slot: usize, group: NodeId, policy: Policy) {
        let node = self.tree.put_node(now, group, policy, Part::Group);
        debug_assert!(node.is_ok(), "groups leave room for a disk and its streams");
        let Ok(node) = node else { return };
        if self.disks.len() <= slot {
            self.disks.resize_with(slot + 1, || None);
        }
        self.disks[slot] = Some(DiskNode { node, group, leaves: Vec::new() });
        let usual: Priority = self.flat.priorities_of(slot).resolve(None);
        self.leaf(now, slot, usual);
    }

    fn put_up(
        &mut self,
        now: Nanos,
        slot: usize,
        group: NodeId,
        policy: Policy,
        carried: Carried<R>,
    ) {
        self.hang(now, slot, group, policy);
        let Some(Some(disk)) = self.disks.get(slot) else { return };
        self.tree.set_tags(now, disk.node, carried.tags);
        if let Some((_, leaf)) = disk.leaves.first()
            && carried.in_flight > 0
        {
            self.tree.take_over_flight(now, *leaf, carried.in_flight);
        }
        for (queued, request) in carried.requests {
            let put = self.put(now, slot, queued, request);
            debug_assert!(put.is_ok(), "the disk was put up");
        }
    }

    /// Takes a disk out of the tree. What it has received there is counted at the flat one.
    pub(super) fn take_down(&mut self, now: Nanos, slot: usize) -> Carried<R> {
        let requests = self.drain(now, slot);
        let nothing = CarriedTags { limit: None, bandwidth: None, due: None, peak: Peak::INITIAL };
        let Some(disk) = self.disks.get_mut(slot).and_then(Option::take) else {
            return Carried { requests, tags: nothing, in_flight: 0 };
        };
        let done = self.counters_of(&disk);
        let tags = self.tree.tags(disk.node);
        for node in disk.leaves.iter().map(|(_, leaf)| *leaf).chain([disk.node]) {
            let removed = self.tree.remove(now, node);
            debug_assert!(removed.is_ok(), "leaves go before their disk: {:?}", removed.err());
        }
        let counted = &mut self.flat.disks[slot];
        counted.by_reservation += done.by_reservation;
        counted.by_weight += done.by_weight;
        counted.cost += done.cost;
        Carried { requests, tags, in_flight: done.in_flight as u32 }
    }
}
