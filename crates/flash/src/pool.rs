//! Blocks that are collected together: all of them in the shared mode, else one owner's.

use crate::blocks::Buckets;
use crate::equations::Utilisation;
use crate::geometry::BlockId;
use crate::op::Cause;
use crate::pace::Pace;
use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Open {
    pub block: BlockId,
    /// The next page to program.
    pub next: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Pool {
    /// Blocks that it may hold.
    pub quota: u32,
    /// Blocks that it holds: open, closed and leaving.
    pub held: u32,
    /// Blocks that its owners' pages fill when all are written. What the quota has above is
    /// over-provisioning space.
    pub data: u32,
    pub closed: Buckets,
    /// All blocks it holds, by the sequence number at which they were opened.
    pub ages: BTreeSet<(u64, u32)>,
    /// Open blocks: `stripe` for each stream, of which `width` are in use, then the one for
    /// levelled pages.
    pub slots: Vec<Option<Open>>,
    pub width: u32,
    pub cursor: u32,
    pub job: Option<Job>,
    pub meter: Meter,
    pub pace: Pace,
    /// Whether the last adjustment asked for a block and there was none to have.
    pub wanting: Wanting,
    /// Its collections when its quota last changed.
    pub adjusted_at: u64,
    /// Collections of all pools when this one last collected.
    pub last_collected: u64,
}

/// Whether a pool got what it asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanting {
    Nothing,
    Space,
}

impl Pool {
    pub fn new(pages_per_block: u32, slots: usize, window: u32) -> Pool {
        Pool {
            quota: 0,
            held: 0,
            data: 0,
            closed: Buckets::new(pages_per_block),
            ages: BTreeSet::new(),
            slots: vec![None; slots],
            width: 1,
            cursor: 0,
            job: None,
            meter: Meter::new(window),
            pace: Pace::new(window),
            wanting: Wanting::Nothing,
            adjusted_at: 0,
            last_collected: 0,
        }
    }

    /// Whether so many collections have passed since the last adjustment.
    pub fn has_settled(&self, wait: u64) -> bool {
        self.meter.victims() - self.adjusted_at >= wait
    }

    /// Blocks that it may still take.
    pub fn room(&self) -> u32 {
        self.quota.saturating_sub(self.held)
    }
}

/// Pages on their way out of a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    pub block: BlockId,
    /// Pages before this one have been dealt with.
    pub from: u32,
    pub cause: Cause,
    /// Whose write made it necessary.
    pub trigger: Option<usize>,
    pub seen: Seen,
}

/// Whose valid pages a victim held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Nobody,
    One(usize),
    Several,
}

impl Job {
    pub fn new(block: BlockId, cause: Cause, trigger: Option<usize>) -> Job {
        Job { block, from: 0, cause, trigger, seen: Seen::Nobody }
    }
}

/// The mean utilisation of victims, exponential over a window of them.
#[derive(Clone, Debug)]
pub(crate) struct Meter {
    window: u32,
    victims: u64,
    /// Millionths times 2²⁰.
    mean: i64,
}

impl Meter {
    pub fn new(window: u32) -> Meter {
        Meter { window: window.max(1), victims: 0, mean: 0 }
    }

    pub fn add(&mut self, u: Utilisation) {
        self.victims += 1;
        // Until the window is full, the plain mean.
        let over = self.victims.min(u64::from(self.window)) as i64;
        self.mean += ((i64::from(u.millionths()) << 20) - self.mean) / over;
    }

    pub fn victims(&self) -> u64 {
        self.victims
    }

    pub fn value(&self) -> Option<Utilisation> {
        let millionths = u32::try_from((self.mean + (1 << 19)) >> 20).unwrap_or(0);
        (self.victims > 0).then(|| Utilisation::from_millionths(millionths))
    }
}
