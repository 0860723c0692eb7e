//! How copies were.

use headgate_api::copies::{Copy, CopyState};
use std::collections::{BTreeMap, VecDeque};

/// Copies that are over and are remembered.
const PAST: usize = 100;

/// Copies that are over since the daemon began.
#[derive(Debug, Default)]
pub(crate) struct Copied {
    past: VecDeque<Copy>,
    counts: BTreeMap<CopyState, u64>,
}

impl Copied {
    /// All of them, the last one first.
    pub(super) fn all(&self) -> impl Iterator<Item = &Copy> {
        self.past.iter()
    }

    /// How many ended in this state.
    pub(super) fn count(&self, state: CopyState) -> u64 {
        self.counts.get(&state).copied().unwrap_or(0)
    }

    pub(super) fn add(&mut self, over: Copy) {
        *self.counts.entry(over.state).or_default() += 1;
        self.past.push_front(over);
        self.past.truncate(PAST);
    }
}
