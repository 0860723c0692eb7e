//! Whether the tables agree with each other and with the medium.

use crate::blocks::State;
use crate::ftl::Ftl;
use crate::geometry::{BlockId, PageAddr};
use crate::map::Where;
use crate::medium::{Content, Medium, PageState};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

macro_rules! hold {
    ($what:expr, $($said:tt)+) => {
        if !$what {
            return Err(format!($($said)+));
        }
    };
}

impl<M: Medium> Ftl<M> {
    /// Looks at everything: whether maps, valid pages, counts, lists, quotas and records agree. For
    /// tests; O(pages).
    ///
    /// # Errors
    /// The first contradiction, in words.
    pub fn check(&self) -> Result<(), String> {
        self.check_maps()?;
        self.check_blocks()?;
        self.check_quotas()
    }

    fn check_maps(&self) -> Result<(), String> {
        let mut pointed = BTreeSet::new();
        let mut trims: BTreeMap<u32, u32> = BTreeMap::new();
        for (o, owner) in self.owners.iter().enumerate() {
            for (page, entry) in owner.map.iter().enumerate() {
                match entry.get() {
                    Where::Nowhere => {}
                    Where::Data(at) => {
                        hold!(pointed.insert(at.0), "two pages at {at:?}");
                        let PageState::Written(record) = self.medium.page(at) else {
                            return Err(format!("owner place {o} page {page}: nothing at {at:?}"));
                        };
                        let content = Content::Data { page: page as u32 };
                        hold!(
                            record.content == content && Some(record.owner) == owner.id,
                            "page {page}: {record:?} at {at:?}"
                        );
                    }
                    Where::Trimmed(at) => {
                        *trims.entry(at.0).or_default() += 1;
                        let tombstone =
                            self.tombstones.get(&at.0).ok_or(format!("no tombstone {at:?}"))?;
                        let range = tombstone.first..tombstone.first + tombstone.count;
                        hold!(
                            tombstone.owner == o && range.contains(&(page as u32)),
                            "{tombstone:?}: {page}"
                        );
                    }
                }
            }
            let own = self.tombstones.values().filter(|tombstone| tombstone.owner == o).count();
            hold!(
                own == owner.tombstones as usize,
                "{own} tombstones of {o}, not {}",
                owner.tombstones
            );
        }
        let kept: BTreeMap<u32, u32> =
            self.tombstones.iter().map(|(&at, t)| (at, t.live)).collect();
        hold!(trims == kept, "tombstones are pointed to by {trims:?}, and say {kept:?}");
        pointed.extend(trims.keys());
        for page in 0..self.geometry.pages() {
            let (valid, needed) = (self.valid.is_set(page), pointed.contains(&page));
            hold!(valid == needed, "page {page}: valid {valid}, needed {needed}");
        }
        Ok(())
    }

    fn check_blocks(&self) -> Result<(), String> {
        let mut held = vec![0; self.pools.len()];
        let (mut free, mut dirty) = (0, 0);
        for id in (0..self.geometry.blocks()).map(BlockId) {
            let block = &self.blocks[id.0 as usize];
            let pages = (0..self.geometry.pages_per_block())
                .map(|offset| self.geometry.page_at(id, offset));
            let valid = pages.clone().filter(|page| self.valid.is_set(page.0)).count();
            hold!(
                valid == block.valid as usize,
                "{id:?}: {valid} valid pages, not {}",
                block.valid
            );
            hold!(block.erases == self.medium.erases(id), "{id:?}: wear");
            let mut erased = pages.map(|page| self.medium.page(page) == PageState::Erased);
            let aged = self.ages.contains(&(self.opened[id.0 as usize], id.0));
            match block.state {
                State::Free => {
                    free += 1;
                    let listed = self.free.contains(self.geometry.plane_of(id).0, block.erases, id);
                    hold!(erased.all(|erased| erased) && listed && !aged, "{id:?} is not free");
                }
                State::Dirty => {
                    dirty += 1;
                    hold!(valid == 0 && self.dirty.contains(&id), "{id:?} is not dirty");
                }
                State::Open | State::Closed | State::Leaving => {
                    held[block.pool as usize] += 1;
                    hold!(aged, "{id:?} has no age");
                    self.check_held(id, &self.pools[block.pool as usize])?;
                }
            }
        }
        hold!(free == self.free.len(), "{free} free blocks, not {}", self.free.len());
        hold!(dirty == self.dirty.len(), "{dirty} dirty blocks, not {}", self.dirty.len());
        for (p, pool) in self.pools.iter().enumerate() {
            hold!(held[p] == pool.held, "pool {p} holds {}, not {}", held[p], pool.held);
            hold!(pool.ages.len() == pool.held as usize, "pool {p}: ages");
            let closed = self
                .blocks
                .iter()
                .filter(|b| b.pool as usize == p && b.state == State::Closed)
                .count();
            hold!(closed == pool.closed.len() as usize, "pool {p}: closed blocks");
            let fewest =
                |b: &crate::blocks::Block| b.pool as usize == p && b.state == State::Closed;
            let fewest = self.blocks.iter().filter(|b| fewest(b)).map(|b| b.valid).min();
            let listed = pool.closed.emptiest().map(|block| self.blocks[block.0 as usize].valid);
            hold!(fewest == listed, "pool {p}: emptiest has {listed:?}, not {fewest:?}");
            self.check_victim(p)?;
        }
        Ok(())
    }

    /// Cost-benefit looks at the first of each bucket only: none of the others may be better.
    fn check_victim(&self, p: usize) -> Result<(), String> {
        let pages = self.geometry.pages_per_block();
        let ratio = |block: &crate::blocks::Block| {
            let age = u128::from(self.sequence - block.modified);
            (age * u128::from(pages - block.valid), u128::from(block.valid))
        };
        let free = self.free.len() > 0 && self.config.victims == crate::Victims::CostBenefit;
        let Some(chosen) = self.victim(p).filter(|_| free) else { return Ok(()) };
        let (benefit, cost) = ratio(&self.blocks[chosen.0 as usize]);
        let closed =
            self.blocks.iter().filter(|b| b.pool as usize == p && b.state == State::Closed);
        for (other, its_cost) in closed.map(ratio) {
            hold!(
                other * cost <= benefit * its_cost,
                "pool {p}: {chosen:?} is not the best victim"
            );
        }
        Ok(())
    }

    fn check_held(&self, id: BlockId, pool: &crate::pool::Pool) -> Result<(), String> {
        let block = &self.blocks[id.0 as usize];
        let slots = pool.slots.iter().flatten().filter(|open| open.block == id);
        let jobs = pool.job.iter().chain(&self.levelling).filter(|job| job.block == id).count();
        let slots: Vec<_> = slots.collect();
        let (opens, leaves) = match block.state {
            State::Open => (1, 0),
            State::Leaving => (0, 1),
            State::Free | State::Closed | State::Dirty => (0, 0),
        };
        hold!(
            slots.len() == opens && jobs == leaves,
            "{id:?} {:?}: {slots:?}, {jobs} jobs",
            block.state
        );
        for open in slots {
            for offset in open.next..self.geometry.pages_per_block() {
                let page = self.medium.page(self.geometry.page_at(id, offset));
                hold!(
                    page == PageState::Erased,
                    "{id:?} open at {}: {offset} is {page:?}",
                    open.next
                );
            }
        }
        let in_wear = self.wear.contains(&(block.erases, id.0));
        let needed = self.levels() && matches!(block.state, State::Open | State::Closed);
        hold!(in_wear == needed, "{id:?}: wear list");
        Ok(())
    }

    /// Blocks that hold valid pages of more than one owner. None under isolation, unless the medium
    /// was written by a layer without. O(pages).
    pub fn mixed_blocks(&self) -> u32 {
        let mut mixed = 0;
        for block in (0..self.geometry.blocks()).map(BlockId) {
            let pages = (0..self.geometry.pages_per_block())
                .map(|offset| self.geometry.page_at(block, offset));
            let owners: BTreeSet<_> = pages
                .filter(|page| self.valid.is_set(page.0))
                .map(|page| self.owner_of(page))
                .collect();
            if owners.len() > 1 {
                mixed += 1;
            }
        }
        mixed
    }

    /// Whose page it is, by its record.
    pub fn owner_of(&self, page: PageAddr) -> Option<crate::OwnerId> {
        match self.medium.page(page) {
            PageState::Written(record) => Some(record.owner),
            PageState::Erased | PageState::Unreadable => None,
        }
    }

    fn check_quotas(&self) -> Result<(), String> {
        let quotas: u32 = self.pools.iter().map(|pool| pool.quota).sum();
        let all = self.geometry.blocks() - self.kept_back();
        hold!(
            quotas + self.unassigned == all,
            "quotas {quotas} and {} are not {all}",
            self.unassigned
        );
        for (p, pool) in self.pools.iter().enumerate() {
            let present =
                self.is_shared() || self.owners.get(p).is_some_and(|owner| owner.id.is_some());
            let least = if present { pool.data + self.least_spare() } else { 0 };
            hold!(pool.quota >= least, "pool {p}: quota {} below {least}", pool.quota);
        }
        Ok(())
    }
}
