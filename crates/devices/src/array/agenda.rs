use alloc::collections::{BinaryHeap, VecDeque};
use core::cmp::Reverse;
use headgate_units::Nanos;

/// What happens in an array and when, earliest first; of what happens at the same time, first
/// planned first.
///
/// What comes over the link comes in order, and answers mostly do: queues keep those, and the heap
/// has little more than one entry for each spindle. Which of the three has the next event is known
/// before anybody asks, as an array is asked several times for each event. O(log spindles), or
/// O(log n) for n answers where they overtake each other.
#[derive(Clone, Debug)]
pub(super) struct Agenda {
    /// Of what comes over the link, and of answers.
    queues: [VecDeque<Planned>; 2],
    heap: BinaryHeap<Reverse<Planned>>,
    planned: u64,
    /// The key of the next event, [`NEVER`] if there is none, and where it is.
    first: (u128, Place),
}

/// The time in the upper half, the number of the plan in the lower one: one comparison, which
/// processors do without a branch.
type Key = u128;

/// No key is as large: nothing is planned for the last nanosecond of all.
const NEVER: Key = Key::MAX;

#[derive(Clone, Copy, Debug)]
struct Planned {
    key: Key,
    event: Event,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    Received,
    Answered,
    Heap,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
        Agenda {
            queues: Default::default(),
            heap: BinaryHeap::new(),
            planned: 0,
            first: (NEVER, Place::Heap),
        }
    }

    pub(super) fn plan(&mut self, at: Nanos, event: Event) {
        let key = Key::from(at.0) << 64 | Key::from(self.planned);
        self.planned += 1;
        let planned = Planned { key, event };
        let in_order = |queue: &VecDeque<Planned>| queue.back().is_none_or(|last| last.key < key);
        let place = match event {
            Event::Received { .. } if in_order(&self.queues[0]) => {
                self.queues[0].push_back(planned);
                Place::Received
            }
            Event::Answered { .. } if in_order(&self.queues[1]) => {
                self.queues[1].push_back(planned);
                Place::Answered
            }
            _ => {
                self.heap.push(Reverse(planned));
                Place::Heap
            }
        };
        if key < self.first.0 {
            self.first = (key, place);
        }
    }

    /// When the next event is.
    #[inline]
    pub(super) fn next(&self) -> Option<Nanos> {
        (self.first.0 != NEVER).then_some(time_of(self.first.0))
    }

    /// Whether an event is due.
    #[inline]
    pub(super) fn is_due(&self, now: Nanos) -> bool {
        time_of(self.first.0) <= now && self.first.0 != NEVER
    }

    /// The next event, if it is due.
    pub(super) fn take_due(&mut self, now: Nanos) -> Option<(Nanos, Event)> {
        if !self.is_due(now) {
            return None;
        }
        let taken = match self.first.1 {
            Place::Received => self.queues[0].pop_front(),
            Place::Answered => self.queues[1].pop_front(),
            Place::Heap => self.heap.pop().map(|Reverse(planned)| planned),
        };
        let key = |planned: Option<&Planned>| planned.map_or(NEVER, |planned| planned.key);
        let [received, answered] = [0, 1].map(|queue| key(self.queues[queue].front()));
        let heap = self.heap.peek().map_or(NEVER, |Reverse(planned)| planned.key);
        self.first = (heap, Place::Heap);
        for (key, place) in [(received, Place::Received), (answered, Place::Answered)] {
            if key < self.first.0 {
                self.first = (key, place);
            }
        }
        taken.map(|planned| (time_of(planned.key), planned.event))
    }
}

#[inline]
fn time_of(key: Key) -> Nanos {
    Nanos((key >> 64) as u64)
}

impl PartialEq for Planned {
    fn eq(&self, other: &Planned) -> bool {
        self.key == other.key
    }
}

impl Eq for Planned {}

impl PartialOrd for Planned {
    fn partial_cmp(&self, other: &Planned) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Planned {
    fn cmp(&self, other: &Planned) -> core::cmp::Ordering {
        self.key.cmp(&other.key)
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
