//! Puts requests in the order of their times, within a window.

use crate::formats::Raw;
use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};

/// Requests that wait for earlier ones. O(1) for what comes in order, O(log n) for the others.
#[derive(Debug)]
pub(crate) struct Reorder {
    window: usize,
    /// Each later than, or as late as, the one before.
    in_order: VecDeque<Raw>,
    stragglers: BinaryHeap<Reverse<Straggler>>,
    arrived: u64,
    /// Of what went out last.
    last: u64,
}

/// Earlier than what was there when it came.
#[derive(Clone, Copy, Debug)]
struct Straggler {
    raw: Raw,
    arrival: u64,
}

impl Straggler {
    fn key(&self) -> (u64, u64) {
        (self.raw.at, self.arrival)
    }
}

impl PartialEq for Straggler {
    fn eq(&self, other: &Straggler) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Straggler {}

impl PartialOrd for Straggler {
    fn partial_cmp(&self, other: &Straggler) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Straggler {
    fn cmp(&self, other: &Straggler) -> Ordering {
        self.key().cmp(&other.key())
    }
}

/// A request is so much earlier than what went out already, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLate(pub u64);

impl Reorder {
    /// Sorts `window` requests at a time; 0 sorts nothing.
    pub(crate) fn new(window: usize) -> Reorder {
        Reorder {
            window,
            in_order: VecDeque::new(),
            stragglers: BinaryHeap::new(),
            arrived: 0,
            last: 0,
        }
    }

    /// Takes a request and, once the window is full, gives the earliest.
    #[inline]
    pub(crate) fn push(&mut self, raw: Raw) -> Result<Option<Raw>, TooLate> {
        if raw.at < self.last {
            return Err(TooLate(self.last - raw.at));
        }
        if self.in_order.back().is_none_or(|back| back.at <= raw.at) {
            self.in_order.push_back(raw);
        } else {
            self.arrived += 1;
            self.stragglers.push(Reverse(Straggler { raw, arrival: self.arrived }));
        }
        let full = self.in_order.len() + self.stragglers.len() > self.window;
        Ok(if full { self.pop() } else { None })
    }

    /// The earliest request that waits. Of those with the same time the one that came first.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Raw> {
        let straggler = self.stragglers.peek().map(|Reverse(straggler)| straggler.raw.at);
        // A straggler of the same time came after.
        let next = match (self.in_order.front(), straggler) {
            (Some(front), Some(at)) if at < front.at => {
                self.stragglers.pop().map(|Reverse(s)| s.raw)
            }
            (Some(_), _) => self.in_order.pop_front(),
            (None, _) => self.stragglers.pop().map(|Reverse(s)| s.raw),
        };
        if let Some(raw) = next {
            self.last = raw.at;
        }
        next
    }

    /// Requests that came after a later one.
    pub(crate) fn stragglers(&self) -> u64 {
        self.arrived
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disks::Disks;
    use crate::record::Kind;
    use proptest::prelude::*;

    fn raw(at: u64, offset: u64) -> Raw {
        let disk = Disks::default().intern(b"a").unwrap();
        Raw { at, kind: Kind::Read, offset, bytes: 1, disk, latency: None }
    }

    proptest! {
        #[test]
        fn a_window_as_long_as_the_trace_sorts_it_and_keeps_ties(times in prop::collection::vec(0u64..20, 0..60)) {
            let mut reorder = Reorder::new(times.len());
            for (i, &at) in times.iter().enumerate() {
                prop_assert_eq!(reorder.push(raw(at, i as u64)), Ok(None));
            }
            let out: Vec<_> = std::iter::from_fn(|| reorder.pop()).map(|raw| (raw.at, raw.offset)).collect();
            let mut sorted: Vec<_> = times.iter().enumerate().map(|(i, &at)| (at, i as u64)).collect();
            sorted.sort();
            prop_assert_eq!(out, sorted);
        }

        #[test]
        fn times_never_go_back_and_nothing_is_lost(
            times in prop::collection::vec(0u64..50, 0..200),
            window in 0usize..9,
        ) {
            let mut reorder = Reorder::new(window);
            let (mut out, mut refused) = (Vec::new(), 0);
            for &at in &times {
                match reorder.push(raw(at, 0)) {
                    Ok(popped) => out.extend(popped.map(|raw| raw.at)),
                    Err(_) => refused += 1,
                }
            }
            out.extend(std::iter::from_fn(|| reorder.pop()).map(|raw| raw.at));
            prop_assert!(out.is_sorted());
            prop_assert_eq!(out.len() + refused, times.len());
        }
    }
}
