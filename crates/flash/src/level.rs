//! Wear levelling: blocks with data that nobody overwrites are given up to those who overwrite
//! theirs, across owners.
//!
//! A block's wear grows when it is collected, and the least worn free block is always used next. So
//! wear differs only as far as cold data keeps blocks out of use. When a free block has been erased
//! half as many times more often as is allowed than the least worn closed one, whosever that is,
//! the pages of that one move there, and it becomes free. A block that was levelled is closed
//! though it may not be full: it has as many valid pages as the one before.

use crate::blocks::State;
use crate::collect::Step;
use crate::config::Levelling;
use crate::error::FtlError;
use crate::ftl::Ftl;
use crate::geometry::BlockId;
use crate::medium::Medium;
use crate::op::{Cause, Sink};
use crate::pool::{Job, Open};

/// Erases between two blocks that are levelled, at least, from half the allowed spread on: it costs
/// no more than a sixteenth of the blocks collected.
const APART: u32 = 16;

/// The same beyond the allowed spread.
const APART_BEYOND: u32 = 4;

/// Of the least worn blocks, how many are looked at for one that rests.
const LOOKED_AT: usize = 64;

impl<M: Medium> Ftl<M> {
    /// Begins to level when the most worn free block is too far ahead. O(planes).
    pub(crate) fn look_at_wear(&mut self) {
        let Levelling::Spread(most) = self.config.levelling else { return };
        let foreground = self.config.thresholds.foreground;
        let since = self.erases_since_levelled;
        if self.levelling.is_some() || since < APART_BEYOND || self.free.len() <= foreground {
            return;
        }
        let (Some((least, block)), Some((erases, plane))) = (self.youngest(), self.free.oldest())
        else {
            return;
        };
        let p = self.blocks[block.0 as usize].pool as usize;
        let spread = erases.saturating_sub(least);
        let apart = if spread > most { APART_BEYOND } else { APART };
        if spread <= most / 2 || since < apart || self.pools[p].room() <= foreground {
            return;
        }
        self.seal_levelled(p);
        if let Some(slot) =
            self.pools[p].slots.iter_mut().find(|slot| slot.is_some_and(|open| open.block == block))
        {
            *slot = None;
            self.close(p, block);
        }
        let Some(worn) = self.free.take_oldest(plane) else { return };
        let (slot, sequence) = (self.pools[p].slots.len() - 1, self.sequence);
        self.hold(p, worn, sequence);
        self.blocks[worn.0 as usize].state = State::Open;
        self.pools[p].slots[slot] = Some(Open { block: worn, next: 0 });
        self.take_out(p, block);
        self.levelling = Some(Job::new(block, Cause::Levelling, None));
        self.erases_since_levelled = 0;
    }

    /// The least worn block with data. Of open ones only those that have not been filled while the
    /// whole medium could have been written: young blocks are opened first, and those in use will
    /// wear.
    fn youngest(&self) -> Option<(u32, BlockId)> {
        let rests = |block: u32| {
            let idle =
                self.sequence - self.opened[block as usize] > u64::from(self.geometry.pages());
            match self.blocks[block as usize].state {
                State::Closed => true,
                State::Open => idle,
                State::Free | State::Leaving | State::Dirty => false,
            }
        };
        let few = self.wear.iter().take(LOOKED_AT);
        few.copied()
            .find(|&(_, block)| rests(block))
            .map(|(erases, block)| (erases, BlockId(block)))
    }

    /// Closes the block for levelled pages; one without pages is free again.
    fn seal_levelled(&mut self, p: usize) {
        let Some(open) = self.pools[p].slots.last_mut().and_then(Option::take) else { return };
        if open.next == 0 {
            self.release(open.block);
            self.put_free(open.block);
        } else {
            self.close(p, open.block);
        }
    }

    /// Whether the block that is being levelled is the pool's.
    pub(crate) fn levels_in(&self, p: usize) -> bool {
        self.levelling.is_some_and(|job| self.blocks[job.block.0 as usize].pool as usize == p)
    }

    /// Whether the next step of levelling can be made without the last blocks that collection
    /// needs.
    pub(crate) fn can_level(&self) -> bool {
        let Some(job) = self.levelling else { return false };
        let entry = &self.blocks[job.block.0 as usize];
        let pool = &self.pools[entry.pool as usize];
        let foreground = self.config.thresholds.foreground;
        let is_open = pool.slots.last().is_some_and(Option::is_some);
        is_open || entry.valid == 0 || pool.room() > foreground && self.free.len() > foreground
    }

    /// One page of the block that is being levelled, or its erase, or nothing while there is no
    /// room.
    pub(crate) fn level_one<S: Sink>(&mut self, sink: &mut S) -> Result<(), FtlError> {
        if self.can_level() { self.level_now(sink) } else { Ok(()) }
    }

    pub(crate) fn level_now<S: Sink>(&mut self, sink: &mut S) -> Result<(), FtlError> {
        let Some(mut job) = self.levelling.take() else { return Ok(()) };
        let p = self.blocks[job.block.0 as usize].pool as usize;
        match self.advance(&mut job, sink)? {
            Step::Moved => self.levelling = Some(job),
            Step::Freed => self.seal_levelled(p),
        }
        Ok(())
    }
}
