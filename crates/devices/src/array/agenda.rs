use alloc::collections::{BinaryHeap, VecDeque};
use core::cmp::Reverse;
use headgate_units::Nanos;

/// What happens in an array and when, earliest first; of what happens at the same time, first
/// planned first.
///
/// What comes over the link comes in order, and answers mostly do: queues keep those, and the heap
/// has little more than one entry for each spindle. O(log spindles), or O(log n) for n answers
/// where they overtake each other.
#[derive(Debug)]
pub(super) struct Agenda {
    /// Of what comes over the link, and of answers.
    queues: [VecDeque<Planned>; 2],
    heap: BinaryHeap<Reverse<Planned>>,
    planned: u64,
}

type Planned = (Nanos, u64, Event);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// A write's data has come over the link.
    Received { request: usize },
    /// A spindle finished a piece.
    PieceDone { spindle: usize },
    /// The client is answered.
    Answered { request: usize },
    /// Something in the cache is old enough.
    Ripe,
}

impl Agenda {
    pub(super) fn new() -> Agenda {
        Agenda { queues: Default::default(), heap: BinaryHeap::new(), planned: 0 }
    }

    pub(super) fn plan(&mut self, at: Nanos, event: Event) {
        let planned = (at, self.planned, event);
        self.planned += 1;
        let queue = match event {
            Event::Received { .. } => &mut self.queues[0],
            Event::Answered { .. } => &mut self.queues[1],
            Event::PieceDone { .. } | Event::Ripe => return self.heap.push(Reverse(planned)),
        };
        match queue.back().is_none_or(|last| last.0 <= at) {
            true => queue.push_back(planned),
            false => self.heap.push(Reverse(planned)),
        }
    }

    /// When the next event is.
    pub(super) fn next(&self) -> Option<Nanos> {
        self.first().map(|(at, ..)| at)
    }

    /// The next event, if it is due.
    pub(super) fn take_due(&mut self, now: Nanos) -> Option<(Nanos, Event)> {
        let (at, number, event) = self.first().filter(|&(at, ..)| at <= now)?;
        let is_first =
            |queue: &&mut VecDeque<Planned>| queue.front().is_some_and(|first| first.1 == number);
        match self.queues.iter_mut().find(is_first) {
            Some(queue) => _ = queue.pop_front(),
            None => _ = self.heap.pop(),
        }
        Some((at, event))
    }

    fn first(&self) -> Option<Planned> {
        let heap = self.heap.peek().map(|&Reverse(first)| first);
        let queues = self.queues.iter().filter_map(|queue| queue.front().copied());
        queues.chain(heap).min_by_key(|&(at, number, _)| (at, number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_a_list_sorted_by_time_and_then_by_what_was_planned_first(
            steps in prop::collection::vec((0u64..9, 0usize..5), 0..300),
        ) {
            let (mut agenda, mut plain, mut now) = (Agenda::new(), Vec::new(), Nanos::ZERO);
            for (index, (after, what)) in steps.into_iter().enumerate() {
                let event = match what {
                    0 => Event::Received { request: index },
                    1 => Event::PieceDone { spindle: index },
                    2 => Event::Answered { request: index },
                    3 => Event::Ripe,
                    _ => {
                        now += Nanos(after);
                        plain.sort_by_key(|&(at, _)| at);
                        let due = plain.iter().take_while(|&&(at, _)| at <= now).count();
                        for expected in plain.drain(..due) {
                            prop_assert_eq!(agenda.next(), Some(expected.0));
                            prop_assert_eq!(agenda.take_due(now), Some(expected));
                        }
                        prop_assert_eq!(agenda.take_due(now), None);
                        continue;
                    }
                };
                agenda.plan(now + Nanos(after), event);
                plain.push((now + Nanos(after), event));
            }
        }
    }
}
