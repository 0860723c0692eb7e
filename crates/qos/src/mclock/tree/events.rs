//! What happens to leaves: requests come, complete, and are taken back.

use super::node::{Kind, NodeId};
use super::{MClockTree, NotQueued, TreeError, up};
use crate::cost::Io;
use crate::mclock::disk::Patience;
use crate::priority::Given;
use crate::queue::Queued;
use alloc::vec::Vec;
use headgate_units::Nanos;

impl<R> MClockTree<R> {
    /// Queues a request behind the others of its leaf. O(1) where the leaf has requests queued,
    /// else O(Σ log n) in the members that may be served of the groups that it is in.
    ///
    /// # Errors
    /// [`NotQueued`] returns the request where the id names no leaf.
    pub fn enqueue(
        &mut self,
        now: Nanos,
        leaf: NodeId,
        io: Io,
        request: R,
    ) -> Result<(), NotQueued<R>> {
        let slot = match self.leaf(leaf) {
            Ok(slot) => slot,
            Err(reason) => return Err(NotQueued { reason, request }),
        };
        let now = self.time.advance(now);
        let size = self.charging.size(slot, &io);
        let (direction, given) = (io.kind.direction(), Given::new(io.priority));
        let queued = Queued { position: io.position, size, direction, given };
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
        Ok(())
    }

    /// Takes those queued requests of a leaf that `wanted` picks out of the queue, in order and
    /// uncharged. O(queued of the leaf).
    ///
    /// # Errors
    /// [`TreeError::UnknownNode`], [`TreeError::NotALeaf`].
    pub fn extract(
        &mut self,
        now: Nanos,
        leaf: NodeId,
        wanted: &mut dyn FnMut(&R) -> bool,
    ) -> Result<Vec<R>, TreeError> {
        let slot = self.leaf(leaf)?;
        let now = self.time.advance(now);
        let Kind::Leaf(queue) = &mut self.nodes[slot].kind else {
            unreachable!("the id names a leaf");
        };
        let waited = !queue.is_empty();
        let taken = self.requests.extract(queue, wanted);
        let emptied = waited && queue.is_empty();
        if emptied {
            self.wait_no_more(slot);
            self.claim(slot);
            self.settle(slot, now);
        }
        Ok(taken)
    }

    /// A dispatched request of the leaf finished. Leaves that were removed are ignored. O(depth).
    pub fn complete(&mut self, now: Nanos, leaf: NodeId) {
        let now = self.time.advance(now);
        let Ok(slot) = self.leaf(leaf) else { return };
        if self.nodes[slot].in_flight > 0 {
            self.land(slot, 1, now);
            self.claim(slot);
        }
    }

    /// So many requests of a leaf are no longer in flight.
    pub(super) fn land(&mut self, leaf: usize, requests: u32, now: u64) {
        self.in_flight -= requests as usize;
        let mut at = Some(leaf);
        while let Some(slot) = at {
            let node = &mut self.nodes[slot];
            node.in_flight -= requests;
            if node.in_flight == 0 && !node.waits() {
                node.idle_since = now;
            }
            at = up(&self.nodes, slot);
        }
    }

    /// A leaf has its first request queued: so have the groups in which nobody had.
    pub(super) fn begin_to_wait(&mut self, mut slot: usize, now: u64) {
        let anticipation = self.config.anticipation.0;
        while let Some(parent) = up(&self.nodes, slot) {
            let node = &mut self.nodes[slot];
            let idles = node.in_flight == 0 && now - node.idle_since > anticipation;
            node.patience = if idles { Patience::Asked } else { Patience::InFlight };
            node.ask_limits(now);
            let group = self.group_mut(parent);
            group.waiting += 1;
            if group.waiting > 1 {
                return;
            }
            slot = parent;
        }
    }

    /// A leaf has no request queued any more.
    pub(super) fn wait_no_more(&mut self, mut slot: usize) {
        while let Some(parent) = up(&self.nodes, slot) {
            let group = self.group_mut(parent);
            group.waiting -= 1;
            if group.waiting > 0 {
                return;
            }
            slot = parent;
        }
    }

    pub(super) fn leaf(&self, leaf: NodeId) -> Result<usize, TreeError> {
        let slot = self.slot(leaf)?;
        match self.nodes[slot].kind {
            Kind::Leaf(_) => Ok(slot),
            Kind::Group(_) => Err(TreeError::NotALeaf(leaf)),
        }
    }
}
