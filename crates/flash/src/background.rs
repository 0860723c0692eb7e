//! Collection, erasing and levelling in small steps, for whoever schedules them between requests.

use crate::blocks::State;
use crate::collect::Step;
use crate::error::FtlError;
use crate::ftl::Ftl;
use crate::geometry::BlockId;
use crate::medium::Medium;
use crate::op::{Cause, Sink};
use crate::owner::OwnerId;
use alloc::vec::Vec;

/// One step of background work: at most one page moved or one block erased.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Whose blocks it is about; `None` where they are everybody's or nobody's.
    pub owner: Option<OwnerId>,
    /// What it will do.
    pub kind: WorkKind,
    /// What for: collection or levelling.
    pub cause: Cause,
}

/// What a step of background work does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkKind {
    /// Moves one page.
    Move,
    /// Erases one block.
    Erase,
}

#[derive(Clone, Copy, Debug)]
enum Task {
    Dirty(BlockId),
    Collect(usize),
    Level,
}

impl<M: Medium> Ftl<M> {
    /// What [`Ftl::step`] would do now, if there is anything to do in the background: blocks of
    /// removed owners to be erased, pools with less than
    /// [`Thresholds::background`](crate::Thresholds::background) free blocks, a block that is being
    /// levelled. O(owners).
    pub fn work(&self) -> Option<Work> {
        let (block, owner, cause) = match self.task()? {
            Task::Dirty(block) => (block, None, Cause::Collection),
            Task::Collect(p) => {
                let block = self.pools[p].job.map(|job| job.block).or_else(|| self.victim(p))?;
                let owner =
                    if self.is_shared() { None } else { self.owners.get(p).and_then(|o| o.id) };
                (block, owner, Cause::Collection)
            }
            Task::Level => {
                let block = self.levelling.as_ref()?.block;
                let p = self.blocks[block.0 as usize].pool as usize;
                let owner =
                    if self.is_shared() { None } else { self.owners.get(p).and_then(|o| o.id) };
                (block, owner, Cause::Levelling)
            }
        };
        let valid = self.blocks[block.0 as usize].valid;
        let kind = if valid > 0 { WorkKind::Move } else { WorkKind::Erase };
        Some(Work { owner, kind, cause })
    }

    /// Does one step of background work: at most one page is moved or one block erased. `None`:
    /// there was nothing to do.
    ///
    /// What is begun here and not finished when a write needs the space is finished by that write.
    ///
    /// # Errors
    /// [`FtlError`].
    pub fn step<S: Sink>(&mut self, sink: &mut S) -> Result<Option<Work>, FtlError> {
        if self.stopped {
            return Err(FtlError::Stopped);
        }
        let (Some(task), Some(work)) = (self.task(), self.work()) else { return Ok(None) };
        match task {
            Task::Dirty(block) => {
                self.dirty.pop_front();
                self.erase(block, Cause::Collection, sink)?;
            }
            Task::Level => self.level_one(sink)?,
            Task::Collect(p) => {
                let mut job = match self.pools[p].job.take() {
                    Some(job) => job,
                    None => {
                        self.adjust(p);
                        self.choose(p, None)?
                    }
                };
                if self.advance(&mut job, sink)? == Step::Moved {
                    self.pools[p].job = Some(job);
                }
                // The pools take turns.
                self.turn = p + 1;
            }
        }
        if work.kind == WorkKind::Erase {
            self.look_at_wear();
        }
        Ok(Some(work))
    }

    fn task(&self) -> Option<Task> {
        if let Some(&block) = self.dirty.front() {
            return Some(Task::Dirty(block));
        }
        let pools = self.pools.len();
        (0..pools)
            .map(|i| (self.turn + i) % pools)
            .find(|&p| self.is_short(p))
            .map(Task::Collect)
            .or_else(|| self.can_level().then_some(Task::Level))
    }

    /// Whether a pool has a block to collect in the background.
    fn is_short(&self, p: usize) -> bool {
        let pool = &self.pools[p];
        if pool.job.is_some() {
            return true;
        }
        let spare = pool.quota.saturating_sub(pool.data);
        let wanted = self.config.thresholds.background.min(spare / 4);
        let over = pool.held > pool.quota;
        if !over && pool.room() >= wanted || self.free.len() == 0 {
            return false;
        }
        let pages = self.geometry.pages_per_block();
        pool.closed.len() > 0
            && self.victim(p).is_some_and(|block| self.blocks[block.0 as usize].valid < pages)
    }

    /// A removed owner's blocks, as far as nobody else has pages in them, go to be erased.
    pub(crate) fn vacate(&mut self, p: usize) {
        self.seal_above(p, 0);
        let held: Vec<u32> = self.pools[p].ages.iter().map(|&(_, block)| block).collect();
        for block in held {
            let entry = self.blocks[block as usize];
            if entry.valid > 0 {
                continue;
            }
            match entry.state {
                State::Closed => self.take_out(p, BlockId(block)),
                State::Leaving => {
                    if self.pools[p].job.is_some_and(|job| job.block.0 == block) {
                        self.pools[p].job = None;
                    }
                    if self.levelling.is_some_and(|job| job.block.0 == block) {
                        self.levelling = None;
                    }
                }
                State::Free | State::Open | State::Dirty => continue,
            }
            let opened = self.opened[block as usize];
            if self.pools[p].ages.remove(&(opened, block)) {
                self.pools[p].held -= 1;
            }
            self.blocks[block as usize].pool = crate::blocks::NONE;
            self.put_dirty(BlockId(block));
        }
    }

    /// Closes the open blocks of slots from `width` of each stream on, and with 0 all, though they
    /// are not full.
    pub(crate) fn seal_above(&mut self, p: usize, width: u32) {
        let (stripe, slots) = (self.stripe() as usize, self.pools[p].slots.len());
        for slot in 0..slots {
            let is_levelled = slot + 1 == slots;
            if !(width == 0 || !is_levelled && slot % stripe >= width as usize) {
                continue;
            }
            if let Some(open) = self.pools[p].slots[slot].take() {
                self.close(p, open.block);
            }
        }
    }
}
