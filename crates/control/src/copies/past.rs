//! How copies are, and were.

use crate::speed::Speed;
use headgate_api::copies::{Copy, CopyState};
use headgate_model::Name;
use headgate_units::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

/// Copies that are over and are remembered.
const PAST: usize = 100;

/// Copies that are over since the daemon began, and how fast the others were when somebody looked.
#[derive(Debug, Default)]
pub(crate) struct Copied {
    past: VecDeque<Copy>,
    counts: BTreeMap<CopyState, u64>,
    speeds: BTreeMap<Name, Speed>,
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

    /// A copy has copied so much now: how fast it was lately.
    pub(super) fn look(&mut self, copy: &Name, copied: Bytes) -> Speed {
        let speed = self.speeds.entry(copy.clone()).or_default();
        speed.look(Instant::now(), copied);
        speed.clone()
    }

    pub(super) fn add(&mut self, over: Copy) {
        self.speeds.remove(&over.disk);
        *self.counts.entry(over.state).or_default() += 1;
        self.past.push_front(over);
        self.past.truncate(PAST);
    }
}
