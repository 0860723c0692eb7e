//! Requests that free or zero a range: how many of a disk's its storage has at a time.
//!
//! On a file they are calls that may take seconds, for they take as long as there are extents in
//! the range, and they exclude each other. Side by side they would fill the datastore's window with
//! requests that wait for each other, and the other disks would find no place in it. See
//! `docs/decisions/0047-discards.md`.

use std::collections::VecDeque;

/// A disk's requests that free or zero ranges.
#[derive(Debug, Default)]
pub(crate) enum RangeQueue {
    /// They are like any others.
    #[default]
    Unbounded,
    /// One of them is with the scheduler or at the storage.
    OneAtATime {
        /// That one.
        under_way: Option<u32>,
        /// The others, first come first served.
        waiting: VecDeque<u32>,
    },
}

/// Where such a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// To the scheduler.
    Scheduler,
    /// It waits until another has ended.
    Behind,
}

impl RangeQueue {
    /// For storage that has one at a time.
    pub(crate) fn one_at_a_time() -> RangeQueue {
        RangeQueue::OneAtATime { under_way: None, waiting: VecDeque::new() }
    }

    /// A request comes.
    pub(crate) fn push(&mut self, key: u32) -> Place {
        let RangeQueue::OneAtATime { under_way, waiting } = self else { return Place::Scheduler };
        if under_way.is_some() {
            waiting.push_back(key);
            return Place::Behind;
        }
        *under_way = Some(key);
        Place::Scheduler
    }

    /// A request of the disk, of this kind or not, has ended or was taken back from the scheduler:
    /// which of those that wait goes to the scheduler.
    pub(crate) fn end(&mut self, key: u32) -> Option<u32> {
        let RangeQueue::OneAtATime { under_way, waiting } = self else { return None };
        if *under_way != Some(key) {
            return None;
        }
        *under_way = waiting.pop_front();
        *under_way
    }

    /// Those that wait, in order.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &u32> {
        let waiting = match self {
            RangeQueue::Unbounded => None,
            RangeQueue::OneAtATime { waiting, .. } => Some(waiting),
        };
        waiting.into_iter().flatten()
    }

    /// Takes out those that wait and are wanted, in order. O(waiting).
    pub(crate) fn extract(&mut self, wanted: &mut dyn FnMut(&u32) -> bool) -> Vec<u32> {
        let RangeQueue::OneAtATime { waiting, .. } = self else { return Vec::new() };
        let mut taken = Vec::new();
        waiting.retain(|key| {
            let takes = wanted(key);
            taken.extend(takes.then_some(*key));
            !takes
        });
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_goes_when_the_one_before_it_has_ended() {
        let mut ranges = RangeQueue::one_at_a_time();
        assert_eq!(
            [7, 8, 9, 6].map(|key| ranges.push(key)),
            [Place::Scheduler, Place::Behind, Place::Behind, Place::Behind]
        );
        assert_eq!(ranges.end(8), None, "it is not under way");
        assert_eq!(ranges.end(5), None, "another kind of request");
        assert_eq!(ranges.extract(&mut |key| *key == 9), [9]);
        assert!(ranges.extract(&mut |key| *key == 7).is_empty(), "it does not wait");
        assert_eq!((ranges.end(7), ranges.end(8), ranges.end(6)), (Some(8), Some(6), None));
        assert_eq!(ranges.push(7), Place::Scheduler);
    }

    #[test]
    fn without_a_bound_all_go() {
        let mut ranges = RangeQueue::Unbounded;
        assert_eq!([7, 8].map(|key| ranges.push(key)), [Place::Scheduler; 2]);
        assert_eq!((ranges.end(7), ranges.extract(&mut |_| true)), (None, Vec::new()));
    }
}
