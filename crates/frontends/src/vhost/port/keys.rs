//! Keys of a port's polls in its shard.

use super::MAX_QUEUES;

/// Key of the poll that brings the port back. No ring has it: see [`poll_key`].
pub(super) const RECALL_KEY: u32 = 0;

/// The key of a ring's poll: the queue's index, and which of the rings started there.
pub(super) fn poll_key(index: u16, generation: u32) -> u32 {
    const { assert!(MAX_QUEUES <= 256) };
    generation << 8 | u32::from(index)
}

/// The next number of a ring. Never one whose [`poll_key`] could be [`RECALL_KEY`].
pub(super) fn next_generation(last: u32) -> u32 {
    last % 0x00ff_ffff + 1
}

pub(super) fn queue_of(key: u32) -> u16 {
    (key & 0xff) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_ring_has_the_key_that_brings_the_port_back() {
        let mut last = 0;
        for expected in [1, 2] {
            last = next_generation(last);
            assert_eq!(last, expected);
        }
        for last in [0, (1 << 24) - 2, (1 << 24) - 1] {
            assert_ne!(poll_key(0, next_generation(last)), RECALL_KEY);
        }
    }
}
