//! Garbage collection: which block, when, and its pages' way out.

use crate::blocks::State;
use crate::config::{CopyBack, Isolation, Streams, Victims};
use crate::equations::Utilisation;
use crate::error::FtlError;
use crate::ftl::Ftl;
use crate::geometry::{BlockId, PageAddr, PlaneId};
use crate::map::Entry;
use crate::medium::{Content, Medium, PageState, Record};
use crate::op::{Cause, Op, Sink};
use crate::pool::{Job, Seen};

/// What one step of a job did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A page left, or was found not to be needed any more.
    Moved,
    /// No page is left, and the block is free.
    Freed,
}

impl<M: Medium> Ftl<M> {
    /// Collects until the pool may open a block for a host's page and keep its foreground
    /// threshold.
    pub(crate) fn make_room<S: Sink>(
        &mut self,
        p: usize,
        trigger: Option<usize>,
        sink: &mut S,
    ) -> Result<(), FtlError> {
        let foreground = self.config.thresholds.foreground;
        let mut in_vain = 0;
        // An adjustment is followed by a collection, also where it gave room: what comes of it has
        // to be seen before the next one. And there is one only, though it may take several blocks
        // to free one: else a write might chase its quota through the whole pool.
        let mut first = self.pools[p].room() <= foreground;
        if first && self.pools[p].job.is_none() {
            self.adjust(p);
        }
        loop {
            let gained = if self.pools[p].room() <= foreground || first {
                first = false;
                match self.collect(p, trigger, sink) {
                    // Full of others' pages, from a time without isolation. Those will leave as
                    // their owners write.
                    Err(FtlError::NoSpace) if !self.stopped && self.free.len() > foreground => {
                        return Ok(());
                    }
                    Err(FtlError::NoSpace) if !self.stopped => self.reclaim(trigger, sink)?,
                    outcome => outcome?,
                }
            } else if self.free.len() <= 1 {
                self.reclaim(trigger, sink)?
            } else {
                self.look_at_wear();
                return Ok(());
            };
            in_vain = if gained == 0 { in_vain + 1 } else { 0 };
            if in_vain > self.geometry.blocks() {
                return Err(FtlError::NoSpace);
            }
        }
    }

    /// Frees a block when there is none.
    pub(crate) fn keep_one_free<S: Sink>(
        &mut self,
        p: usize,
        trigger: Option<usize>,
        sink: &mut S,
    ) -> Result<(), FtlError> {
        for _ in 0..self.geometry.blocks() {
            if self.free.len() > 0 {
                return Ok(());
            }
            match self.reclaim(trigger, sink) {
                Err(FtlError::NoSpace) if !self.stopped => self.collect(p, trigger, sink)?,
                outcome => outcome?,
            };
        }
        Ok(())
    }

    /// Frees a block outside the caller's quota: one of a removed owner, else of the pool that
    /// holds most above its quota. Where blocks still hold pages of several owners, from a time
    /// without isolation, it may be any that has something to gain.
    fn reclaim<S: Sink>(&mut self, trigger: Option<usize>, sink: &mut S) -> Result<u32, FtlError> {
        if let Some(block) = self.dirty.pop_front() {
            self.erase(block, Cause::Collection, sink)?;
            return Ok(self.geometry.pages_per_block());
        }
        let pages = self.geometry.pages_per_block();
        let gains = |p: usize| match (self.pools[p].job, self.pools[p].closed.emptiest()) {
            (Some(_), _) => pages,
            (None, Some(block)) => pages - self.blocks[block.0 as usize].valid,
            (None, None) => 0,
        };
        let excess = |p: usize| self.pools[p].held.saturating_sub(self.pools[p].quota);
        let able = (0..self.pools.len()).filter(|&p| gains(p) > 0);
        let p =
            able.max_by_key(|&p| (excess(p), gains(p), usize::MAX - p)).ok_or(FtlError::NoSpace)?;
        self.collect(p, trigger, sink)
    }

    /// Erases what only waits for it.
    fn scrape<S: Sink>(&mut self, sink: &mut S) -> Result<(), FtlError> {
        let is_empty = |job: &Job| self.blocks[job.block.0 as usize].valid == 0;
        if let Some(block) = self.dirty.pop_front() {
            return self.erase(block, Cause::Collection, sink);
        }
        if self.levelling.as_ref().is_some_and(is_empty) {
            return self.level_now(sink);
        }
        if let Some(p) = self.pools.iter().position(|pool| pool.job.as_ref().is_some_and(is_empty))
            && let Some(mut job) = self.pools[p].job.take()
        {
            self.advance(&mut job, sink)?;
        }
        Ok(())
    }

    /// Collects one block of a pool, or finishes the one that was begun. Returns the pages gained.
    fn collect<S: Sink>(
        &mut self,
        p: usize,
        trigger: Option<usize>,
        sink: &mut S,
    ) -> Result<u32, FtlError> {
        let mut job = match self.pools[p].job.take() {
            Some(job) => job,
            None => match self.choose(p, trigger) {
                // What is to be gained may be in the block that is being levelled.
                Err(FtlError::NoSpace) if self.levels_in(p) => {
                    while self.levelling.is_some() {
                        self.level_now(sink)?;
                    }
                    return Ok(1);
                }
                outcome => outcome?,
            },
        };
        let pages = self.geometry.pages_per_block();
        let gained = pages - self.blocks[job.block.0 as usize].valid;
        while self.advance(&mut job, sink)? == Step::Moved {}
        Ok(gained)
    }

    /// Begins to collect a block of the pool.
    pub(crate) fn choose(&mut self, p: usize, trigger: Option<usize>) -> Result<Job, FtlError> {
        let pages = self.geometry.pages_per_block();
        // First-in-first-out may meet full blocks, but there must be others behind them.
        let emptiest = self.pools[p].closed.emptiest().ok_or(FtlError::NoSpace)?;
        if self.blocks[emptiest.0 as usize].valid == pages {
            return Err(FtlError::NoSpace);
        }
        let block = self.victim(p).ok_or(FtlError::NoSpace)?;
        let valid = self.blocks[block.0 as usize].valid;
        self.look_over(block)?;
        self.take_out(p, block);
        self.stats.victims += 1;
        self.stats.victim_valid += u64::from(valid);
        self.pools[p].meter.add(Utilisation::of(valid.into(), pages.into()));
        self.pools[p].last_collected = self.stats.victims;
        if let Some(stats) = self.owners.get(p).filter(|_| !self.is_shared()).map(|o| o.stats) {
            self.pools[p].pace.on_victim(stats.host_writes, stats.moved);
        }
        let own = if self.is_shared() { trigger } else { Some(p) };
        if let Some(o) = trigger.or(own) {
            self.owners[o].stats.victims += 1;
            self.owners[o].stats.victim_valid += u64::from(valid);
        }
        Ok(Job::new(block, Cause::Collection, trigger.or(own)))
    }

    /// Whether the maps point to the valid pages of a block. Each page is looked at again when it
    /// moves; but here the memory that holds the entries is asked for all of them at once instead
    /// of one after the other, which is most of what moving costs.
    fn look_over(&mut self, block: BlockId) -> Result<(), FtlError> {
        let first = self.geometry.page_at(block, 0).0;
        let end = first + self.geometry.pages_per_block();
        let mut from = first;
        while let Some(page) = self.valid.next(from, end) {
            from = page + 1;
            let at = PageAddr(page);
            let PageState::Written(record) = self.medium.page(at) else { return self.corrupt(at) };
            let Some(o) = self.place_of(record.owner) else { return self.corrupt(at) };
            if let Content::Data { page } = record.content
                && self.owners[o].map.get(page as usize) != Some(&Entry::data(at))
            {
                return self.corrupt(at);
            }
        }
        Ok(())
    }

    fn corrupt(&mut self, at: PageAddr) -> Result<(), FtlError> {
        self.stopped = true;
        Err(FtlError::Corrupt(at.0))
    }

    /// The block to collect next.
    pub(crate) fn victim(&self, p: usize) -> Option<BlockId> {
        let pool = &self.pools[p];
        match self.config.victims {
            // Without a free block only what is left of the open ones can be filled.
            _ if self.free.len() == 0 => pool.closed.emptiest(),
            Victims::Greedy => pool.closed.emptiest(),
            Victims::Fifo => {
                let closed = |block: &u32| self.blocks[*block as usize].state == State::Closed;
                pool.ages.iter().map(|&(_, block)| block).find(closed).map(BlockId)
            }
            Victims::CostBenefit => {
                let pages = self.geometry.pages_per_block();
                // age·(N_p - v)/(2v) without the division: of two blocks, by cross multiplication.
                let terms = |id: BlockId| {
                    let block = &self.blocks[id.0 as usize];
                    let age = u128::from(self.sequence - block.modified);
                    (age * u128::from(pages - block.valid), u128::from(block.valid))
                };
                pool.closed.firsts().reduce(|best, next| {
                    let ((benefit, cost), (other, its_cost)) = (terms(best), terms(next));
                    let next_is_better = cost > 0 && other * cost > benefit * its_cost;
                    if next_is_better { next } else { best }
                })
            }
        }
    }

    /// A closed block is to be emptied.
    pub(crate) fn take_out(&mut self, p: usize, block: BlockId) {
        self.pools[p].closed.remove(&mut self.blocks, block);
        let entry = &mut self.blocks[block.0 as usize];
        entry.state = State::Leaving;
        let erases = entry.erases;
        self.wear.remove(&(erases, block.0));
    }

    /// One page of a job, or the erase at its end. An error stops the layer, so that no page is
    /// ever half moved.
    pub(crate) fn advance<S: Sink>(
        &mut self,
        job: &mut Job,
        sink: &mut S,
    ) -> Result<Step, FtlError> {
        let outcome = self.try_advance(job, sink);
        if outcome.is_err() {
            self.stopped = true;
        }
        outcome
    }

    fn try_advance<S: Sink>(&mut self, job: &mut Job, sink: &mut S) -> Result<Step, FtlError> {
        let first = self.geometry.page_at(job.block, 0).0;
        let end = first + self.geometry.pages_per_block();
        match self.valid.next(first + job.from, end) {
            Some(page) => {
                job.from = page - first + 1;
                self.move_page(job, PageAddr(page), sink)?;
                Ok(Step::Moved)
            }
            None => {
                self.erase(job.block, job.cause, sink)?;
                if job.cause == Cause::Collection
                    && job.seen == Seen::Several
                    && let Some(o) = job.trigger
                {
                    self.owners[o].stats.victims_mixed += 1;
                }
                Ok(Step::Freed)
            }
        }
    }

    fn move_page<S: Sink>(
        &mut self,
        job: &mut Job,
        from: PageAddr,
        sink: &mut S,
    ) -> Result<(), FtlError> {
        let PageState::Written(record) = self.medium.page(from) else {
            return Err(FtlError::Corrupt(from.0));
        };
        let o = self.place_of(record.owner).ok_or(FtlError::Corrupt(from.0))?;
        match record.content {
            Content::Data { page } => {
                if self.owners[o].map.get(page as usize) != Some(&Entry::data(from)) {
                    return Err(FtlError::Corrupt(from.0));
                }
                let moved = Record { sequence: self.sequence, ..record };
                let to = self.rewrite(job, o, from, moved, sink)?;
                self.owners[o].map[page as usize] = Entry::data(to);
            }
            Content::Trim { .. } => {
                let tombstone = *self.tombstones.get(&from.0).ok_or(FtlError::Corrupt(from.0))?;
                let oldest = self.ages.first().map_or(u64::MAX, |&(opened, _)| opened);
                let entry = if oldest > tombstone.sequence {
                    // Nothing older is left that it would have to contradict.
                    self.owners[o].tombstones -= 1;
                    self.invalidate(from);
                    Entry::NOWHERE
                } else {
                    // With the sequence number it has: pages written since the trim must stay the
                    // newer ones.
                    let to = self.rewrite(job, o, from, record, sink)?;
                    self.tombstones.insert(to.0, tombstone);
                    Entry::trimmed(to)
                };
                self.tombstones.remove(&from.0);
                let range =
                    tombstone.first as usize..tombstone.first as usize + tombstone.count as usize;
                for place in &mut self.owners[o].map[range] {
                    if *place == Entry::trimmed(from) {
                        *place = entry;
                    }
                }
            }
        }
        Ok(())
    }

    /// Writes a page once more, elsewhere.
    fn rewrite<S: Sink>(
        &mut self,
        job: &mut Job,
        o: usize,
        from: PageAddr,
        record: Record,
        sink: &mut S,
    ) -> Result<PageAddr, FtlError> {
        let cause = job.cause;
        let p = self.pool_of(o);
        let plane = self.geometry.plane_of(job.block);
        if self.free.len() == 0 {
            self.scrape(sink)?;
        }
        let (p, slot) = self.destination(p, plane, cause)?;
        let Some(open) = self.pools[p].slots[slot] else { return Err(FtlError::NoSpace) };
        let to = self.geometry.page_at(open.block, open.next);
        let outcome = self.medium.copy(from, to, record);
        self.on_medium(outcome)?;
        if self.config.copy_back == CopyBack::InPlane && self.geometry.plane_of(open.block) == plane
        {
            sink.op(Op::CopyBack { from, to, cause });
            self.stats.copy_backs += 1;
        } else {
            sink.op(Op::Read { page: from, cause });
            sink.op(Op::Program { page: to, cause });
        }
        self.invalidate(from);
        self.programmed(p, slot, open, to);
        if cause == Cause::Levelling {
            self.stats.levelled += 1;
            self.owners[o].stats.levelled += 1;
            return Ok(to);
        }
        self.stats.moved += 1;
        self.owners[o].stats.moved += 1;
        if let Some(trigger) = job.trigger {
            self.owners[trigger].stats.moved_for += 1;
            if let Some(pages) = self.owners[trigger].moved_of.get_mut(o) {
                *pages += 1;
            }
            if trigger == o {
                self.owners[o].stats.moved_own_for += 1;
            }
        }
        job.seen = match job.seen {
            Seen::Nobody => Seen::One(o),
            Seen::One(other) if other != o => Seen::Several,
            same => same,
        };
        Ok(to)
    }

    /// Where a page of a plane goes: an open block of the same plane if the pool has or may have
    /// one. A pool and its slot.
    fn destination(
        &mut self,
        p: usize,
        plane: PlaneId,
        cause: Cause,
    ) -> Result<(usize, usize), FtlError> {
        let width = self.pools[p].width;
        let slot = match (cause, self.config.streams) {
            (Cause::Levelling, _) => self.pools[p].slots.len() - 1,
            (_, Streams::Together) => (plane.0 % width) as usize,
            (_, Streams::Apart) => (self.stripe() + plane.0 % width) as usize,
        };
        if self.pools[p].slots[slot].is_some() || self.open(p, slot, Some(plane)).is_ok() {
            return Ok((p, slot));
        }
        // No free block: any open one will do, of the pool if possible. Another's is needed only
        // after a crash of a layer without isolation.
        let open =
            |p: usize| self.pools[p].slots.iter().position(Option::is_some).map(|slot| (p, slot));
        open(p).or_else(|| (0..self.pools.len()).find_map(open)).ok_or(FtlError::NoSpace)
    }

    /// Erases a block without valid pages.
    pub(crate) fn erase<S: Sink>(
        &mut self,
        block: BlockId,
        cause: Cause,
        sink: &mut S,
    ) -> Result<(), FtlError> {
        let outcome = self.medium.erase(block);
        self.on_medium(outcome)?;
        sink.op(Op::Erase { block, cause });
        self.stats.erases += 1;
        self.erases_since_levelled = self.erases_since_levelled.saturating_add(1);
        self.release(block);
        self.blocks[block.0 as usize].erases += 1;
        self.put_free(block);
        Ok(())
    }

    /// A block is nobody's any more.
    pub(crate) fn release(&mut self, block: BlockId) {
        let opened = self.opened[block.0 as usize];
        self.ages.remove(&(opened, block.0));
        self.wear.remove(&(self.blocks[block.0 as usize].erases, block.0));
        let p = core::mem::replace(&mut self.blocks[block.0 as usize].pool, crate::blocks::NONE);
        if let Some(pool) = self.pools.get_mut(p as usize)
            && pool.ages.remove(&(opened, block.0))
        {
            pool.held -= 1;
        }
    }

    /// Whether the pools' quotas follow targets.
    pub(crate) fn control(&self) -> Option<&crate::config::Control> {
        match &self.config.isolation {
            Isolation::Dynamic(control) => Some(control),
            Isolation::Shared | Isolation::Static => None,
        }
    }
}
