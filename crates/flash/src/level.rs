//! Wear levelling: blocks with data that nobody overwrites are given up to those who overwrite theirs, across owners.
//!
//! A block's wear grows when it is collected, and the least worn free block is always used next. So wear differs only as far
//! as cold data keeps blocks out of use. When a block has been erased so many times more often than the least worn closed
//! one, whosever that is, the pages of that one move to the most worn free block of its plane, and it becomes free.

use crate::collect::Step;
use crate::config::Levelling;
use crate::error::FtlError;
use crate::ftl::Ftl;
use crate::geometry::BlockId;
use crate::medium::Medium;
use crate::op::{Cause, Sink};
use crate::pool::Job;

/// Erases between two blocks that are levelled, at least: it costs no more than a sixteenth of the blocks collected.
const APART: u32 = 16;

impl<M: Medium> Ftl<M> {
    /// Begins to level when the block that was just erased is too far ahead.
    pub(crate) fn look_at_wear(&mut self, erased: BlockId) {
        let Levelling::Spread(most) = self.config.levelling else { return };
        if self.levelling.is_some()
            || self.erases_since_levelled < APART
            || self.free.len() <= self.config.thresholds.foreground
        {
            return;
        }
        let Some(&(least, block)) = self.wear.first() else { return };
        if self.blocks[erased.0 as usize].erases.saturating_sub(least) <= most {
            return;
        }
        let block = BlockId(block);
        let p = self.blocks[block.0 as usize].pool as usize;
        self.take_out(p, block);
        self.levelling = Some(Job::new(block, Cause::Levelling, None));
        self.erases_since_levelled = 0;
    }

    /// Whether the block that is being levelled is the pool's.
    pub(crate) fn levels_in(&self, p: usize) -> bool {
        self.levelling.is_some_and(|job| self.blocks[job.block.0 as usize].pool as usize == p)
    }

    /// Whether the next step of levelling can be made without the last blocks that collection needs.
    pub(crate) fn can_level(&self) -> bool {
        let Some(job) = self.levelling else { return false };
        let entry = &self.blocks[job.block.0 as usize];
        let pool = &self.pools[entry.pool as usize];
        let foreground = self.config.thresholds.foreground;
        let is_open = pool.slots.last().is_some_and(Option::is_some);
        is_open || entry.valid == 0 || pool.room() > foreground && self.free.len() > foreground
    }

    /// One page of the block that is being levelled, or its erase, or nothing while there is no room.
    pub(crate) fn level_one<S: Sink>(&mut self, sink: &mut S) -> Result<(), FtlError> {
        if self.can_level() { self.level_now(sink) } else { Ok(()) }
    }

    pub(crate) fn level_now<S: Sink>(&mut self, sink: &mut S) -> Result<(), FtlError> {
        let Some(mut job) = self.levelling.take() else { return Ok(()) };
        if self.advance(&mut job, sink)? == Step::Moved {
            self.levelling = Some(job);
        }
        Ok(())
    }
}
