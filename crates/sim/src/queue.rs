use headgate_units::Nanos;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What will happen when, earliest first; of what happens at the same time, first planned first.
///
/// A binary heap: with one entry for each device, timer and message on its way it is small, and stays in the first
/// levels of the cache. O(log n).
pub(crate) struct Queue<E> {
    heap: BinaryHeap<Reverse<Entry<E>>>,
    planned: u64,
}

struct Entry<E> {
    at: u64,
    order: u64,
    event: E,
}

/// Orders of what is planned with [`Queue::push_first`] stay below, all others above.
const LATE: u64 = 1 << 63;

impl<E: Copy> Queue<E> {
    pub(crate) fn new() -> Queue<E> {
        Queue { heap: BinaryHeap::new(), planned: 0 }
    }

    #[inline]
    pub(crate) fn push(&mut self, at: Nanos, event: E) {
        self.planned += 1;
        self.heap.push(Reverse(Entry { at: at.0, order: LATE | self.planned, event }));
    }

    /// Plans something that comes before all else at its time, such as the end of what is measured.
    pub(crate) fn push_first(&mut self, at: Nanos, event: E) {
        self.planned += 1;
        self.heap.push(Reverse(Entry { at: at.0, order: self.planned, event }));
    }

    /// The next event, if it happens before `end`.
    #[inline]
    pub(crate) fn pop_before(&mut self, end: Nanos) -> Option<(Nanos, E)> {
        match self.heap.peek() {
            Some(Reverse(next)) if next.at < end.0 => {
                self.heap.pop().map(|Reverse(entry)| (Nanos(entry.at), entry.event))
            }
            _ => None,
        }
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Entry<E>) -> bool {
        (self.at, self.order) == (other.at, other.order)
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
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
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
