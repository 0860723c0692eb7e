use headgate_units::Nanos;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// What will happen when, earliest first; of what happens at the same time, first planned first.
///
/// A binary heap with one entry for each device and timer, and beside it *lanes* for what always
/// happens equally long after it was planned, such as the arrival of a message: there, first come
/// is first served, and a plain queue does what the heap would. Often what was just planned is what
/// happens next: the earliest of what was planned lately stays outside the heap. O(log n) for the
/// heap, O(1) for lanes.
#[derive(Clone)]
pub(crate) struct Queue<E> {
    /// Not in the heap.
    soon: Option<Entry<E>>,
    heap: BinaryHeap<Reverse<Entry<E>>>,
    lanes: Vec<(Nanos, VecDeque<Entry<E>>)>,
    planned: u64,
}

/// One of the queue's lanes; the heap where there are too many.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lane(usize);

/// Every pop compares the first event of each lane.
const MOST_LANES: usize = 4;

#[derive(Clone)]
struct Entry<E> {
    at: u64,
    order: u64,
    event: E,
}

/// Orders of what is planned with [`Queue::push_first`] stay below, all others above.
const LATE: u64 = 1 << 63;

impl<E: Copy> Queue<E> {
    pub(crate) fn new() -> Queue<E> {
        Queue { soon: None, heap: BinaryHeap::new(), lanes: Vec::new(), planned: 0 }
    }

    /// The lane for what happens `delay` after it is planned.
    pub(crate) fn lane(&mut self, delay: Nanos) -> Lane {
        if let Some(known) = self.lanes.iter().position(|lane| lane.0 == delay) {
            return Lane(known);
        }
        if self.lanes.len() == MOST_LANES {
            return Lane(usize::MAX);
        }
        self.lanes.push((delay, VecDeque::new()));
        Lane(self.lanes.len() - 1)
    }

    /// Plans something in a lane, whose delay it is to `at` from now.
    #[inline]
    pub(crate) fn push_lane(&mut self, lane: Lane, at: Nanos, event: E) {
        match self.lanes.get_mut(lane.0) {
            // Never out of order, unless time ran backwards.
            Some((_, lane)) if lane.back().is_none_or(|last| last.at <= at.0) => {
                self.planned += 1;
                lane.push_back(Entry { at: at.0, order: LATE | self.planned, event });
            }
            _ => self.push(at, event),
        }
    }

    #[inline]
    pub(crate) fn push(&mut self, at: Nanos, event: E) {
        self.planned += 1;
        self.put(Entry { at: at.0, order: LATE | self.planned, event });
    }

    #[inline]
    fn put(&mut self, entry: Entry<E>) {
        match &mut self.soon {
            Some(soon) if *soon < entry => self.heap.push(Reverse(entry)),
            Some(soon) => self.heap.push(Reverse(std::mem::replace(soon, entry))),
            None => self.soon = Some(entry),
        }
    }

    /// Plans something that comes before all else at its time, such as the end of what is measured.
    pub(crate) fn push_first(&mut self, at: Nanos, event: E) {
        self.planned += 1;
        self.put(Entry { at: at.0, order: self.planned, event });
    }

    /// The next event, if it happens before `end`.
    #[inline]
    pub(crate) fn pop_before(&mut self, end: Nanos) -> Option<(Nanos, E)> {
        let mut first = self.heap.peek().map_or(u128::MAX, |Reverse(next)| next.key());
        let mut from = From::Heap;
        for (index, (_, lane)) in self.lanes.iter().enumerate() {
            if let Some(next) = lane.front()
                && next.key() < first
            {
                first = next.key();
                from = From::Lane(index);
            }
        }
        if let Some(soon) = &self.soon
            && soon.key() < first
        {
            first = soon.key();
            from = From::Soon;
        }
        if (first >> 64) as u64 >= end.0 {
            return None;
        }
        let entry = match from {
            From::Soon => self.soon.take(),
            From::Lane(index) => self.lanes[index].1.pop_front(),
            From::Heap => self.heap.pop().map(|Reverse(entry)| entry),
        };
        entry.map(|entry| (Nanos(entry.at), entry.event))
    }
}

/// Where the first event is.
enum From {
    Soon,
    Lane(usize),
    Heap,
}

impl<E> Entry<E> {
    /// One comparison, which processors do without a branch.
    #[inline]
    fn key(&self) -> u128 {
        u128::from(self.at) << 64 | u128::from(self.order)
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Entry<E>) -> bool {
        self.key() == other.key()
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Entry<E>) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    #[inline]
    fn cmp(&self, other: &Entry<E>) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn lanes_change_nothing_but_the_speed(
            planned in prop::collection::vec((0u64..5, 0usize..7), 0..300),
        ) {
            let (mut with, mut without) = (Queue::new(), Queue::new());
            let lanes: Vec<Lane> = (0..6).map(|n| with.lane(Nanos(10 * n))).collect();
            let mut now = Nanos(0);
            for (index, &(step, which)) in planned.iter().enumerate() {
                match lanes.get(which) {
                    Some(&lane) => with.push_lane(lane, now + Nanos(10 * which as u64), index),
                    None => with.push(now + Nanos(7), index),
                }
                without.push(now + Nanos(if which < 6 { 10 * which as u64 } else { 7 }), index);
                now += Nanos(step);
                let end = now;
                while let Some(event) = without.pop_before(end) {
                    prop_assert_eq!(with.pop_before(end), Some(event));
                }
                prop_assert_eq!(with.pop_before(end), None);
            }
        }

        #[test]
        fn by_time_then_first_come_with_the_marked_ones_ahead(
            planned in prop::collection::vec((0u64..20, any::<bool>()), 0..200),
        ) {
            let mut queue = Queue::new();
            let mut expected = Vec::new();
            for (index, &(at, first)) in planned.iter().enumerate() {
                if first { queue.push_first(Nanos(at), index) } else { queue.push(Nanos(at), index) }
                expected.push((at, !first, index));
            }
            expected.sort_unstable();
            let got: Vec<_> = std::iter::from_fn(|| queue.pop_before(Nanos(15))).collect();
            let expected: Vec<_> = expected
                .into_iter()
                .filter(|&(at, ..)| at < 15)
                .map(|(at, _, index)| (Nanos(at), index))
                .collect();
            prop_assert_eq!(got, expected);
        }
    }
}
