//! Blocks of a disk that one port reads, changes and writes back while nobody else writes to them.
//!
//! An NBD client may write less than a block. Its port locks the block, and then sends requests as
//! any other. Requests that write to the block from elsewhere wait until it is unlocked; reads do
//! not: they get the block as it was or as it will be.

use crate::request::{Op, Request};
use std::collections::VecDeque;

/// Whether a block is its port's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Requests that came before write to it still.
    Waiting,
    /// It is.
    Locked,
}

#[derive(Clone, Copy, Debug)]
struct Lock {
    port: u32,
    offset: u64,
    len: u64,
    state: State,
}

/// The locks of a disk, at most one for each port, and the requests that wait for them.
#[derive(Debug, Default)]
pub(crate) struct BlockLocks {
    /// In the order in which they were asked for.
    locks: Vec<Lock>,
    held: VecDeque<u32>,
}

fn overlap(a: (u64, u64), b: (u64, u64)) -> bool {
    a.0 < b.0.saturating_add(b.1) && b.0 < a.0.saturating_add(a.1)
}

/// The range that a request writes to, if it does.
pub(crate) fn written(request: &Request) -> Option<(u64, u64)> {
    match request.op {
        Op::Write(_) | Op::PlacedWrite | Op::Discard | Op::WriteZeroes { .. } => {
            Some((request.offset, request.len))
        }
        Op::Read | Op::Splice | Op::Flush | Op::BlockStatus | Op::Cache | Op::Share => None,
    }
}

impl BlockLocks {
    /// Nothing is locked, and nothing waits: what almost always is.
    #[inline]
    pub(crate) fn is_unused(&self) -> bool {
        self.locks.is_empty()
    }

    /// Whether they can go to another disk with their ports: nobody waits for anything.
    pub(crate) fn can_go(&self) -> bool {
        self.held.is_empty() && self.locks.iter().all(|lock| lock.state == State::Locked)
    }

    /// Whether a port's request has to wait.
    pub(crate) fn stops(&self, port: u32, request: &Request) -> bool {
        let Some(range) = written(request) else { return false };
        let contains =
            |lock: &Lock| lock.offset <= range.0 && range.0 + range.1 <= lock.offset + lock.len;
        // Who has the block writes it back, whoever waits for it.
        let own = |lock: &&Lock| lock.port == port && lock.state == State::Locked;
        if self.locks.iter().find(own).is_some_and(contains) {
            return false;
        }
        self.locks.iter().any(|lock| lock.port != port && overlap(range, (lock.offset, lock.len)))
    }

    /// Keeps a request until it is not stopped any more.
    pub(crate) fn hold(&mut self, key: u32) {
        self.held.push_back(key);
    }

    /// The requests that wait.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &u32> {
        self.held.iter()
    }

    /// Takes out those that wait and are wanted, in order. O(waiting).
    pub(crate) fn extract(&mut self, wanted: &mut dyn FnMut(&u32) -> bool) -> Vec<u32> {
        let mut taken = Vec::new();
        self.held.retain(|key| {
            let takes = wanted(key);
            taken.extend(takes.then_some(*key));
            !takes
        });
        taken
    }

    /// A port asks for a block. It is told by [`grant`](BlockLocks::grant).
    pub(crate) fn ask(&mut self, port: u32, offset: u64, len: u64) {
        debug_assert!(self.locks.iter().all(|lock| lock.port != port), "one lock for each port");
        self.locks.push(Lock { port, offset, len, state: State::Waiting });
    }

    /// The ports whose blocks are theirs from now on. `is_written` says whether a request that is
    /// queued or at the storage writes to a range.
    pub(crate) fn grant(&mut self, is_written: &mut dyn FnMut(u64, u64) -> bool) -> Vec<u32> {
        let mut granted = Vec::new();
        for index in 0..self.locks.len() {
            let Lock { port, offset, len, state } = self.locks[index];
            let behind = || {
                let mut before = self.locks[..index].iter();
                before.any(|lock| overlap((offset, len), (lock.offset, lock.len)))
            };
            if state == State::Waiting && !behind() && !is_written(offset, len) {
                self.locks[index].state = State::Locked;
                granted.push(port);
            }
        }
        granted
    }

    /// Whether the port asked for a block, and has not given it back.
    pub(crate) fn has_asked(&self, port: u32) -> bool {
        self.locks.iter().any(|lock| lock.port == port)
    }

    /// A port gives its block back, or its wish up. What waited is to be queued again, in order:
    /// it may have to wait for another lock.
    pub(crate) fn release(&mut self, port: u32) -> Vec<u32> {
        self.locks.retain(|lock| lock.port != port);
        self.held.drain(..).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Durability;

    fn request(op: Op, offset: u64, len: u64) -> Request {
        Request { op, offset, len, cookie: 0, ioprio: 0 }
    }

    #[test]
    fn writers_of_others_wait_and_readers_and_the_owner_do_not() {
        let mut locks = BlockLocks::default();
        assert!(locks.is_unused());
        locks.ask(1, 512, 512);
        let write = |offset, len| request(Op::Write(Durability::Cached), offset, len);
        for (port, asked, stops) in [
            (2, write(512, 512), true),
            (2, write(0, 513), true),
            (2, write(0, 512), false),
            (2, write(1024, 512), false),
            (2, request(Op::Discard, 0, 4096), true),
            (2, request(Op::Read, 0, 4096), false),
            (2, request(Op::Flush, 0, 0), false),
            (1, write(512, 512), false),
        ] {
            assert_eq!(locks.stops(port, &asked), stops, "{port} {asked:?}");
        }
        // Another waits for the block: its owner writes it back all the same.
        locks.grant(&mut |_, _| false);
        locks.ask(2, 0, 4096);
        assert!(!locks.stops(1, &write(512, 512)) && locks.stops(1, &write(512, 1024)));
    }

    #[test]
    fn a_block_is_given_when_all_writes_before_are_done_and_to_one_port_at_a_time() {
        let mut locks = BlockLocks::default();
        locks.ask(1, 0, 512);
        locks.ask(2, 0, 512);
        locks.ask(3, 512, 512);
        assert_eq!(locks.grant(&mut |offset, _| offset == 0), [3]);
        assert_eq!(locks.grant(&mut |_, _| false), [1]);
        locks.hold(7);
        locks.hold(8);
        assert_eq!(locks.grant(&mut |_, _| false), [0u32; 0]);
        assert_eq!(locks.extract(&mut |key| *key == 8), [8]);
        assert_eq!(locks.release(1), [7]);
        assert_eq!(locks.grant(&mut |_, _| false), [2]);
        assert!(locks.has_asked(2) && !locks.has_asked(1));
        locks.release(2);
        locks.release(3);
        assert!(locks.is_unused());
    }
}
