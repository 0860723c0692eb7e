//! A 4-ary heap of disks by tag that knows where each disk stands, so that any entry can be moved or taken out.
//!
//! Entries carry their tag, so comparisons touch the heap's own lines alone: the four children of a node share one cache
//! line, and a sift over 100,000 entries reads nine. Where a disk stands is kept in a dense array beside the heap.

use crate::rate::before;

/// Tag in the upper half, disk slot in the lower: equal tags go to the lower slot.
#[derive(Clone, Copy)]
struct Entry(u128);

impl Entry {
    #[inline]
    fn new(tag: u64, slot: u32) -> Entry {
        Entry((u128::from(tag) << 64) | u128::from(slot))
    }

    #[inline]
    fn tag(self) -> u64 {
        (self.0 >> 64) as u64
    }

    #[inline]
    fn slot(self) -> u32 {
        self.0 as u32
    }

    /// Tags are points on a circle ([`before`]).
    #[inline]
    fn precedes(self, other: Entry) -> bool {
        (self.0.wrapping_sub(other.0) as i128) < 0
    }
}

/// The children of one node.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Family([Entry; ARITY]);

const ARITY: usize = 4;

/// Node 3 is the root and node `i` has the children `4(i - 2) ..= 4(i - 2) + 3`: families are whole lines.
const ROOT: usize = 3;

const ABSENT: u32 = u32::MAX;

/// See the module documentation. All operations but [`Heap::make_room`] are O(log n) in the entries present.
pub(crate) struct Heap {
    families: Vec<Family>,
    /// One past the last node.
    end: usize,
    /// Node of each slot, or [`ABSENT`].
    nodes: Vec<u32>,
}

impl Heap {
    /// Memory per slot, present or absent, in bytes.
    pub(crate) const BYTES_PER_SLOT: usize = size_of::<Entry>() + size_of::<u32>();

    pub(crate) fn new() -> Heap {
        Heap { families: vec![Family([Entry(0); ARITY])], end: ROOT, nodes: Vec::new() }
    }

    /// Prepares for slots below `slots`: inserting them allocates nothing. Amortised O(1) per slot.
    pub(crate) fn make_room(&mut self, slots: usize) {
        if self.nodes.len() < slots {
            self.nodes.resize(slots, ABSENT);
        }
        let families = (slots + ROOT).div_ceil(ARITY);
        if self.families.len() < families {
            self.families.resize(families, Family([Entry(0); ARITY]));
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.end - ROOT
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.end == ROOT
    }

    /// The earliest tag and its disk.
    #[inline]
    pub(crate) fn first(&self) -> Option<(u64, u32)> {
        if self.is_empty() {
            return None;
        }
        let entry = self.entry(ROOT);
        Some((entry.tag(), entry.slot()))
    }

    /// Puts a disk that is absent in.
    pub(crate) fn insert(&mut self, slot: u32, tag: u64) {
        debug_assert_eq!(self.nodes[slot as usize], ABSENT);
        let node = self.end;
        self.end += 1;
        self.sift_up(node, Entry::new(tag, slot));
    }

    /// Takes a disk out if it is there.
    pub(crate) fn remove(&mut self, slot: u32) {
        let node = self.nodes[slot as usize];
        if node == ABSENT {
            return;
        }
        self.nodes[slot as usize] = ABSENT;
        self.end -= 1;
        let node = node as usize;
        if node != self.end {
            let last = self.entry(self.end);
            self.settle(node, last);
        }
    }

    /// Gives a disk that is present another tag.
    pub(crate) fn change(&mut self, slot: u32, tag: u64) {
        let node = self.nodes[slot as usize];
        debug_assert_ne!(node, ABSENT);
        self.settle(node as usize, Entry::new(tag, slot));
    }

    /// Gives a disk that is present a tag that is not earlier than before.
    #[inline]
    pub(crate) fn delay(&mut self, slot: u32, tag: u64) {
        let node = self.nodes[slot as usize];
        debug_assert_ne!(node, ABSENT);
        debug_assert!(!before(tag, self.entry(node as usize).tag()));
        self.sift_down(node as usize, Entry::new(tag, slot));
    }

    #[inline]
    fn entry(&self, node: usize) -> Entry {
        self.families[node / ARITY].0[node % ARITY]
    }

    #[inline]
    fn place(&mut self, node: usize, entry: Entry) {
        self.families[node / ARITY].0[node % ARITY] = entry;
        self.nodes[entry.slot() as usize] = node as u32;
    }

    fn settle(&mut self, node: usize, entry: Entry) {
        if node > ROOT && entry.precedes(self.entry(node / ARITY + 2)) {
            self.sift_up(node, entry);
        } else {
            self.sift_down(node, entry);
        }
    }

    fn sift_up(&mut self, mut node: usize, entry: Entry) {
        while node > ROOT {
            let parent = node / ARITY + 2;
            let above = self.entry(parent);
            if !entry.precedes(above) {
                break;
            }
            self.place(node, above);
            node = parent;
        }
        self.place(node, entry);
    }

    #[inline]
    fn sift_down(&mut self, mut node: usize, entry: Entry) {
        loop {
            let first = (node - 2) * ARITY;
            if first >= self.end {
                break;
            }
            let family = &self.families[node - 2].0;
            let present = (self.end - first).min(ARITY);
            let (lane, least) =
                if present == ARITY { least_of_four(family) } else { least_of(&family[..present]) };
            if !least.precedes(entry) {
                break;
            }
            self.place(node, least);
            node = first + lane;
        }
        self.place(node, entry);
    }

    #[cfg(test)]
    pub(crate) fn tag_of(&self, slot: u32) -> Option<u64> {
        match self.nodes.get(slot as usize) {
            Some(&node) if node != ABSENT => Some(self.entry(node as usize).tag()),
            _ => None,
        }
    }

    /// Order, positions and counts agree.
    #[cfg(test)]
    pub(crate) fn self_check(&self) {
        for node in ROOT..self.end {
            let entry = self.entry(node);
            assert_eq!(self.nodes[entry.slot() as usize] as usize, node, "position of slot {}", entry.slot());
            if node > ROOT {
                assert!(!entry.precedes(self.entry(node / ARITY + 2)), "node {node} precedes its parent");
            }
        }
        assert_eq!(self.nodes.iter().filter(|n| **n != ABSENT).count(), self.len());
    }
}

#[inline]
fn least_of_four(family: &[Entry; ARITY]) -> (usize, Entry) {
    let [a, b, c, d] = *family;
    let left = if b.precedes(a) { (1, b) } else { (0, a) };
    let right = if d.precedes(c) { (3, d) } else { (2, c) };
    if right.1.precedes(left.1) { right } else { left }
}

#[inline]
fn least_of(family: &[Entry]) -> (usize, Entry) {
    let mut least = (0, family[0]);
    for (lane, entry) in family.iter().enumerate().skip(1) {
        if entry.precedes(least.1) {
            least = (lane, *entry);
        }
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[derive(Clone, Debug)]
    enum Operation {
        Put(u32, u64),
        Remove(u32),
        Delay(u32, u64),
        TakeFirst,
    }

    fn operation() -> impl Strategy<Value = Operation> {
        let slot = 0u32..40;
        prop_oneof![
            3 => (slot.clone(), 0u64..100).prop_map(|(s, t)| Operation::Put(s, t)),
            1 => slot.clone().prop_map(Operation::Remove),
            1 => (slot, 0u64..100).prop_map(|(s, t)| Operation::Delay(s, t)),
            2 => Just(Operation::TakeFirst),
        ]
    }

    proptest! {
        #[test]
        fn yields_the_earliest_tag_and_the_lowest_slot_of_equals(
            origin in prop_oneof![Just(0u64), Just(u64::MAX - 50), any::<u64>()],
            operations in prop::collection::vec(operation(), 0..300),
        ) {
            let mut heap = Heap::new();
            heap.make_room(40);
            let mut model = BTreeMap::<u32, u64>::new();
            for operation in operations {
                match operation {
                    Operation::Put(slot, tag) => {
                        let absolute = origin.wrapping_add(tag);
                        if model.insert(slot, tag).is_some() { heap.change(slot, absolute) } else { heap.insert(slot, absolute) }
                    }
                    Operation::Remove(slot) => {
                        model.remove(&slot);
                        heap.remove(slot);
                    }
                    Operation::Delay(slot, by) => {
                        if let Some(tag) = model.get_mut(&slot) {
                            *tag += by;
                            heap.delay(slot, origin.wrapping_add(*tag));
                        }
                    }
                    Operation::TakeFirst => {
                        let expected = model.iter().map(|(slot, tag)| (*tag, *slot)).min();
                        let first = heap.first().map(|(tag, slot)| (tag.wrapping_sub(origin), slot));
                        prop_assert_eq!(first, expected);
                        if let Some((_, slot)) = first {
                            model.remove(&slot);
                            heap.remove(slot);
                        }
                    }
                }
                heap.self_check();
                prop_assert_eq!(heap.len(), model.len());
                prop_assert_eq!(heap.is_empty(), model.is_empty());
            }
            for slot in 0..40 {
                prop_assert_eq!(heap.tag_of(slot).map(|t| t.wrapping_sub(origin)), model.get(&slot).copied());
            }
        }
    }
}
