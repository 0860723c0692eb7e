//! mClock of disks that are in groups: what a datastore runs where a tenant or a machine has a
//! policy of its own (`docs/decisions/0115-tenants.md`).
//!
//! A [tree](crate::MClockTree) decides. Groups are as they were [given](Groups), a disk is a group
//! in the one that it is in, or in the root, and its leaves are its streams: one for each final
//! priority, which weighs `10·priority`. The flat scheduler stays beside it with nothing queued: it
//! knows the disks' ids, policies and priorities, and what requests are charged. So a disk is the
//! same in both, and a datastore goes from one to the other and back while it serves:
//!
//! - What is queued goes along, each stream's in order, and what is in flight counts where it ends.
//! - Limits and reservations of disks go along with what they are owed and what they owe, and so do
//!   those of a group that stays, while its policy changes or disks come and go.
//! - Places by shares do not. Disks, groups and streams begin beside each other, as after a pause.
//!   So within one switch the bound of fairness holds before and after it, and not across it.
//!
//! Policies are set one by one here, and a group may promise more than its limit for the moment
//! between two of them. Whoever sets them judges them all together before.
//!
//! # What is different from the flat scheduler
//! - Priorities order a disk's own streams, whatever their scope.
//! - Service at other servers (dmClock) is not counted.
//! - No plug, no batches, no soft limits, no limits of one direction: refused where groups are set.
//!
//! # Cost
//! That of a tree with two levels more than the groups have. A disk keeps a leaf for each of up to
//! 16 priorities, and more while they have requests queued.

mod groups;
mod regroup;
#[cfg(test)]
mod tests;

pub(crate) use groups::without_rule;
pub use groups::{GROUP_DEPTH, Group, GroupId, Groups, GroupsError};

use super::MClock;
use super::tree::{MClockTree, NodeId, Part, TreeDecision};
use crate::config::Adjustment;
use crate::cost::Io;
use crate::dmclock::ServedElsewhere;
use crate::learned_cost::{Charging, CostTable};
use crate::policy::{Burst, Policy};
use crate::priority::{PriorityPolicy, SHARES_PER_PRIORITY};
use crate::queue::Queued;
use crate::scheduler::{
    Decision, DiskCounters, DiskId, Dispatched, Rejected, ReservationDebt, Scheduler, UnknownDisk,
};
use alloc::vec::Vec;
use headgate_units::{Nanos, Priority, Shares};

/// A disk's leaves beyond this many go when they have nothing to do.
const KEPT: usize = 16;

/// A dispatch that makes a group wait for its limit tells so many disks of it at most.
const TOLD: usize = 64;

/// The mClock scheduler of disks in groups. See the module documentation.
#[derive(Clone)]
pub struct Grouped<R> {
    /// With nothing queued.
    flat: MClock<R>,
    tree: MClockTree<R>,
    /// Each after the one that it is in.
    groups: Vec<Hung>,
    /// By slot.
    disks: Vec<Option<DiskNode>>,
    /// Of a leaf's slot, whose it is.
    owners: Vec<(u32, Priority)>,
}

/// A group in the tree.
#[derive(Clone)]
struct Hung {
    id: GroupId,
    parent: Option<GroupId>,
    node: NodeId,
    policy: Policy,
    /// Slots of all disks in it, also in groups in it.
    disks: Vec<u32>,
}

/// A disk in the tree.
#[derive(Clone)]
struct DiskNode {
    node: NodeId,
    /// That it is in.
    group: NodeId,
    /// Its streams, in the order in which they came.
    leaves: Vec<(Priority, NodeId)>,
}

/// How much a stream weighs among those of its disk, and nothing else.
fn stream_policy(priority: Priority) -> Policy {
    let shares = Shares::new(u64::from(priority.get()) * SHARES_PER_PRIORITY);
    Policy::shared(shares.unwrap_or_default()).with_burst(Burst::NONE)
}

impl<R> Grouped<R> {
    /// How it charges.
    pub(crate) fn charging(&mut self) -> &mut Charging {
        self.flat.charging()
    }

    /// Charges by this table from now on.
    pub(crate) fn set_costs(&mut self, table: CostTable) {
        self.flat.charging().set_table(table);
        self.tree.set_costs(table);
    }

    pub(crate) fn flat(&self) -> &MClock<R> {
        &self.flat
    }

    fn known(&self, disk: DiskId) -> Result<(usize, &DiskNode), UnknownDisk> {
        let slot = self.flat.slot(disk)?;
        self.disks.get(slot).and_then(Option::as_ref).map(|d| (slot, d)).ok_or(UnknownDisk(disk))
    }

    fn id_of(&self, slot: usize) -> DiskId {
        DiskId { slot: slot as u32, generation: self.flat.disks[slot].generation }
    }

    /// The leaf of a disk's stream, new if need be. O(leaves of the disk).
    #[inline]
    fn leaf(&mut self, now: Nanos, slot: usize, priority: Priority) -> Option<NodeId> {
        let disk = self.disks.get(slot)?.as_ref()?;
        match disk.leaves.iter().find(|(known, _)| *known == priority) {
            Some((_, leaf)) => Some(*leaf),
            None => self.new_leaf(now, slot, priority),
        }
    }

    #[inline(never)]
    fn new_leaf(&mut self, now: Nanos, slot: usize, priority: Priority) -> Option<NodeId> {
        let disk = self.disks.get_mut(slot)?.as_mut()?;
        if disk.leaves.len() >= KEPT {
            let tree = &mut self.tree;
            disk.leaves.retain(|(_, leaf)| {
                let idles = tree.load(*leaf) == (0, 0);
                !(idles && tree.remove(now, *leaf).is_ok())
            });
        }
        let leaf = self.tree.put_node(now, disk.node, stream_policy(priority), Part::Leaf).ok()?;
        disk.leaves.push((priority, leaf));
        let at = leaf.index();
        if self.owners.len() <= at {
            self.owners.resize(at + 1, (0, Priority::MIN));
        }
        self.owners[at] = (slot as u32, priority);
        Some(leaf)
    }

    /// Queues a request of a disk at the leaf of its stream. `Err`: the disk is not in the tree.
    fn put(&mut self, now: Nanos, slot: usize, queued: Queued, request: R) -> Result<(), R> {
        let priority = self.flat.priorities_of(slot).resolve(queued.given.get());
        let Some(leaf) = self.leaf(now, slot, priority) else { return Err(request) };
        self.tree.put(now, leaf, queued, request);
        Ok(())
    }

    /// All that a disk has queued, each stream's in order.
    fn drain(&mut self, now: Nanos, slot: usize) -> Vec<(Queued, R)> {
        let mut drained = Vec::new();
        if let Some(Some(disk)) = self.disks.get(slot) {
            for (_, leaf) in &disk.leaves {
                drained.append(&mut self.tree.drain(now, *leaf));
            }
        }
        drained
    }

    fn counters_of(&self, disk: &DiskNode) -> DiskCounters {
        let loads = disk.leaves.iter().map(|(_, leaf)| self.tree.load(*leaf));
        let (queued, in_flight) = loads.fold((0, 0), |sum, load| (sum.0 + load.0, sum.1 + load.1));
        let counted = self.tree.counters(disk.node).unwrap_or_default();
        DiskCounters {
            by_reservation: counted.by_reservation,
            by_weight: counted.by_weight,
            cost: counted.cost,
            queued,
            in_flight: in_flight as usize,
        }
    }

    /// Disks that a limit of their group holds back together with this one, with how much each has
    /// queued, since it was dispatched. At most [`TOLD`]; none where there are more.
    pub(crate) fn held_with(&self, disk: DiskId) -> impl Iterator<Item = (DiskId, usize)> + '_ {
        let held = self.known(disk).ok().and_then(|(_, known)| self.tree.held_until(known.group));
        let group = held.and_then(|(_, node)| self.groups.iter().find(|group| group.node == node));
        let slots = group.map_or(&[][..], |group| &group.disks);
        let slots = if slots.len() > TOLD { &[] } else { slots };
        slots.iter().filter(move |slot| **slot != disk.slot).filter_map(|slot| {
            let known = self.disks.get(*slot as usize)?.as_ref()?;
            let queued: usize = known.leaves.iter().map(|(_, leaf)| self.tree.load(*leaf).0).sum();
            (queued > 0).then(|| (self.id_of(*slot as usize), queued))
        })
    }

    /// All disks.
    pub(crate) fn all(&self) -> impl Iterator<Item = DiskId> + '_ {
        let known = self.disks.iter().enumerate().filter(|(_, disk)| disk.is_some());
        known.map(|(slot, _)| self.id_of(slot))
    }
}

impl<R> Scheduler<R> for Grouped<R> {
    fn register(&mut self, now: Nanos, policy: Policy) -> DiskId {
        let disk = self.flat.register(now, policy);
        self.hang(now, disk.slot as usize, NodeId::ROOT, policy);
        disk
    }

    fn set_policy(&mut self, now: Nanos, disk: DiskId, policy: Policy) -> Result<(), UnknownDisk> {
        let node = self.known(disk)?.1.node;
        self.flat.set_policy(now, disk, policy)?;
        let set = self.tree.put_policy(now, node, policy);
        debug_assert_eq!(set, Ok(()), "the node is there as long as the disk");
        Ok(())
    }

    fn policy(&self, disk: DiskId) -> Result<Policy, UnknownDisk> {
        self.flat.policy(disk)
    }

    fn adjust(&mut self, adjustment: Adjustment) {
        Scheduler::<R>::adjust(&mut self.flat, adjustment);
    }

    fn set_priorities(
        &mut self,
        now: Nanos,
        disk: DiskId,
        policy: PriorityPolicy,
    ) -> Result<(), UnknownDisk> {
        let slot = self.known(disk)?.0;
        if policy == self.flat.priorities(disk)? {
            return Ok(());
        }
        self.flat.set_priorities(now, disk, policy)?;
        for (queued, request) in self.drain(now, slot) {
            let put = self.put(now, slot, queued, request);
            debug_assert!(put.is_ok(), "the disk is in the tree");
        }
        Ok(())
    }

    fn priorities(&self, disk: DiskId) -> Result<PriorityPolicy, UnknownDisk> {
        self.flat.priorities(disk)
    }

    fn unregister(&mut self, now: Nanos, disk: DiskId) -> Result<Vec<R>, UnknownDisk> {
        let slot = self.known(disk)?.0;
        let carried = self.take_down(now, slot);
        for group in &mut self.groups {
            group.disks.retain(|known| *known != disk.slot);
        }
        self.flat.unregister(now, disk)?;
        Ok(carried.requests.into_iter().map(|(_, request)| request).collect())
    }

    fn extract(
        &mut self,
        now: Nanos,
        disk: DiskId,
        wanted: &mut dyn FnMut(&R) -> bool,
    ) -> Result<Vec<R>, UnknownDisk> {
        let mut leaves = self.known(disk)?.1.leaves.clone();
        leaves.sort_by_key(|(priority, _)| core::cmp::Reverse(*priority));
        let mut taken = Vec::new();
        for (_, leaf) in leaves {
            taken.extend(self.tree.extract(now, leaf, wanted).unwrap_or_default());
        }
        Ok(taken)
    }

    #[inline]
    fn enqueue(&mut self, now: Nanos, disk: DiskId, io: Io, request: R) -> Result<(), Rejected<R>> {
        let slot = match self.flat.slot(disk) {
            Ok(slot) => slot,
            Err(reason) => return Err(Rejected { reason, request }),
        };
        let size = self.flat.charging.size(slot, &io);
        let given = self.flat.given(slot, &io);
        let queued = Queued { position: io.position, size, direction: io.kind.direction(), given };
        let put = self.put(now, slot, queued, request);
        put.map_err(|request| Rejected { reason: UnknownDisk(disk), request })
    }

    /// Known, and not counted.
    fn served_elsewhere(
        &mut self,
        _now: Nanos,
        disk: DiskId,
        _elsewhere: ServedElsewhere,
    ) -> Result<(), UnknownDisk> {
        self.known(disk).map(drop)
    }

    #[inline]
    fn dispatch(&mut self, now: Nanos) -> Decision<R> {
        match self.tree.dispatch(now) {
            TreeDecision::Dispatch(sent) => {
                let (slot, priority) = self.owners[sent.leaf.index()];
                Decision::Dispatch(Dispatched {
                    disk: self.id_of(slot as usize),
                    request: sent.request,
                    phase: sent.phase,
                    cost: sent.cost,
                    priority,
                    size: sent.size,
                })
            }
            TreeDecision::WaitUntil(at) => Decision::WaitUntil(at),
            TreeDecision::Idle => Decision::Idle,
        }
    }

    /// Which of the disk's streams it was is not said, and makes no difference: streams have no
    /// reservation and no limit.
    #[inline]
    fn complete(&mut self, now: Nanos, disk: DiskId) {
        let Ok((_, known)) = self.known(disk) else { return };
        let flying = known.leaves.iter().find(|(_, leaf)| self.tree.load(*leaf).1 > 0);
        if let Some((_, leaf)) = flying {
            let leaf = *leaf;
            self.tree.complete(now, leaf);
        }
    }

    fn queued(&self) -> usize {
        self.tree.queued()
    }

    fn counters(&self, disk: DiskId) -> Result<DiskCounters, UnknownDisk> {
        let (before, now) = (self.flat.counters(disk)?, self.counters_of(self.known(disk)?.1));
        Ok(DiskCounters {
            by_reservation: before.by_reservation + now.by_reservation,
            by_weight: before.by_weight + now.by_weight,
            cost: before.cost + now.cost,
            ..now
        })
    }

    #[inline]
    fn limited_until(&self, disk: DiskId) -> Option<Nanos> {
        let (until, _) = self.tree.held_until(self.known(disk).ok()?.1.node)?;
        Some(self.tree.caller_time(until))
    }

    fn reservation_debt(&self) -> ReservationDebt {
        self.tree.reservation_debt()
    }
}
