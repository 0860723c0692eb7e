use crate::blocks::{Block, FreeBlocks, State, ValidPages};
use crate::config::{Config, Isolation, Levelling, Rating, Streams};
use crate::equations::MilliIops;
use crate::error::{ConfigError, FtlError};
use crate::geometry::{BlockId, Geometry, PageAddr, PlaneId};
use crate::map::{Entry, Tombstone, Where};
use crate::medium::{Content, Medium, Record};
use crate::op::{Cause, Op, Sink};
use crate::owner::{KnownOwner, OwnerId, OwnerStats};
use crate::owners::Owner;
use crate::pool::{Job, Open, Pool};
use crate::stats::{FtlStats, Wear};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec;
use alloc::vec::Vec;

/// A page-mapped flash translation layer over a [`Medium`].
///
/// Its callers say which owner writes, reads or trims which of its pages; it answers with
/// operations for the medium, in a [`Sink`]. Every call takes effect at once, on the medium and in
/// the map, in the order of the calls.
///
/// # Complexity
/// A write without collection is O(1), a page moved likewise. Choosing a victim is O(N_p/4096) for
/// greedy, O(N_p/64 + buckets in use) for cost-benefit, O(log blocks) for FIFO. Opening and erasing
/// a block is O(log blocks). Memory: 4 bytes for each logical page, 1 bit for each physical page,
/// about 150 bytes for each block.
pub struct Ftl<M> {
    pub(crate) medium: M,
    pub(crate) geometry: Geometry,
    pub(crate) config: Config,
    pub(crate) owners: Vec<Owner>,
    /// Place in `owners` and one, by number.
    pub(crate) numbers: Vec<u32>,
    /// In the shared mode one, else one for each place in `owners`.
    pub(crate) pools: Vec<Pool>,
    pub(crate) blocks: Vec<Block>,
    /// The sequence number when each block was opened.
    pub(crate) opened: Vec<u64>,
    pub(crate) valid: ValidPages,
    pub(crate) free: FreeBlocks,
    /// All blocks with records, by the sequence number when they were opened.
    pub(crate) ages: BTreeSet<(u64, u32)>,
    /// Open and closed blocks by wear, where wear is levelled.
    pub(crate) wear: BTreeSet<(u32, u32)>,
    pub(crate) dirty: VecDeque<BlockId>,
    pub(crate) tombstones: BTreeMap<u32, Tombstone>,
    /// Of the next record.
    pub(crate) sequence: u64,
    /// Blocks of nobody's quota that may become somebody's.
    pub(crate) unassigned: u32,
    /// Of all owners together, under isolation.
    pub(crate) shares: u64,
    /// Page writes per second of the device, given or sought.
    pub(crate) rated: Option<MilliIops>,
    /// Victims when it last changed.
    pub(crate) rated_at: u64,
    pub(crate) levelling: Option<Job>,
    pub(crate) erases_since_levelled: u32,
    pub(crate) turn: usize,
    pub(crate) stats: FtlStats,
    pub(crate) stopped: bool,
}

impl<M: Medium> Ftl<M> {
    /// A layer without owners on a medium whose content is given up: blocks that are not erased are
    /// erased before their use.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn format(medium: M, config: Config) -> Result<Ftl<M>, ConfigError> {
        let mut ftl = Ftl::empty(medium, config)?;
        for block in 0..ftl.geometry.blocks() {
            let block = BlockId(block);
            if ftl.is_erased(block) {
                ftl.put_free(block);
            } else {
                ftl.put_dirty(block);
            }
        }
        Ok(ftl)
    }

    pub(crate) fn empty(medium: M, config: Config) -> Result<Ftl<M>, ConfigError> {
        if config.thresholds.foreground == 0 {
            return Err(ConfigError::NoForeground);
        }
        if let Isolation::Dynamic(control) = &config.isolation
            && control.window == 0
        {
            return Err(ConfigError::NoWindow);
        }
        let geometry = medium.geometry();
        let blocks = geometry.blocks();
        let mut ftl = Ftl {
            geometry,
            owners: Vec::new(),
            numbers: Vec::new(),
            pools: Vec::new(),
            blocks: (0..blocks).map(|block| Block::new(medium.erases(BlockId(block)))).collect(),
            opened: vec![0; blocks as usize],
            valid: ValidPages::new(geometry.pages()),
            free: FreeBlocks::new(geometry.planes()),
            ages: BTreeSet::new(),
            wear: BTreeSet::new(),
            dirty: VecDeque::new(),
            tombstones: BTreeMap::new(),
            sequence: 1,
            unassigned: 0,
            shares: 0,
            rated: match &config.isolation {
                Isolation::Dynamic(control) if control.rating == Rating::Given => {
                    Some(MilliIops::of(control.rated))
                }
                Isolation::Dynamic(_) | Isolation::Shared | Isolation::Static => None,
            },
            rated_at: 0,
            levelling: None,
            erases_since_levelled: 0,
            turn: 0,
            stats: FtlStats::default(),
            stopped: false,
            medium,
            config,
        };
        let least = ftl.kept_back().saturating_add(ftl.least_spare());
        if blocks <= least {
            return Err(ConfigError::TooFewBlocks { blocks, least: least.saturating_add(1) });
        }
        if ftl.is_shared() {
            let pool = ftl.new_pool();
            ftl.pools.push(pool);
            ftl.divide();
        }
        Ok(ftl)
    }

    /// The medium, and with it all state: what [`Ftl::recover`] takes.
    pub fn into_medium(self) -> M {
        self.medium
    }

    /// The medium.
    pub fn medium(&self) -> &M {
        &self.medium
    }

    /// How the medium is built.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// How the layer works.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What it did.
    pub fn stats(&self) -> FtlStats {
        self.stats
    }

    /// What happened to an owner's pages. `None`: nobody has that number.
    pub fn owner_stats(&self, owner: OwnerId) -> Option<OwnerStats> {
        self.place_of(owner).map(|o| self.owners[o].stats)
    }

    /// Of the pages that collection moved because `writer` wrote, those of `owner`: all of them add
    /// up to [`OwnerStats::moved_for`] as long as nobody leaves. `None`: nobody has one of the
    /// numbers, or there are more than 256 owners and one of the two came after them.
    pub fn moved_between(&self, writer: OwnerId, owner: OwnerId) -> Option<u64> {
        let (writer, owner) = (self.place_of(writer)?, self.place_of(owner)?);
        self.owners[writer].moved_of.get(owner).copied()
    }

    /// The owners, by their place in the tables, as [`Ftl::recover`] wants to know them.
    pub fn owners(&self) -> impl Iterator<Item = KnownOwner> + '_ {
        self.owners.iter().filter_map(|owner| {
            owner.id.map(|id| KnownOwner { id, spec: owner.spec, since: owner.since })
        })
    }

    /// How worn the blocks are. O(blocks).
    pub fn wear(&self) -> Wear {
        let erases = || self.blocks.iter().map(|block| block.erases);
        Wear {
            least: erases().min().unwrap_or(0),
            most: erases().max().unwrap_or(0),
            total: erases().map(u64::from).sum(),
        }
    }

    /// Blocks that are erased and in nobody's hands.
    pub fn free_blocks(&self) -> u32 {
        self.free.len()
    }

    /// Writes a page: at most one block is opened for it, after as much collection as its threshold
    /// asks for.
    ///
    /// # Errors
    /// [`FtlError`]. After an error of the medium the layer has stopped.
    pub fn write<S: Sink>(
        &mut self,
        owner: OwnerId,
        page: u32,
        sink: &mut S,
    ) -> Result<(), FtlError> {
        let o = self.target(owner, page.into(), 1)?;
        // What the old page needs is far away in memory: asked for now, it comes while the new page
        // is programmed.
        if let Where::Data(old) = self.owners[o].map[page as usize].get() {
            core::hint::black_box(self.blocks[self.geometry.block_of(old).0 as usize].valid);
        }
        let at = self.program_host(o, Content::Data { page }, sink)?;
        self.stats.host_writes += 1;
        self.owners[o].stats.host_writes += 1;
        let old = core::mem::replace(&mut self.owners[o].map[page as usize], Entry::data(at));
        self.forget(old);
        if self.levelling.is_some() {
            self.level_one(sink)?;
        }
        Ok(())
    }

    /// Reads a page. `None`: it was never written, or was trimmed; nothing is read then.
    ///
    /// # Errors
    /// [`FtlError::UnknownOwner`], [`FtlError::OutOfRange`], [`FtlError::Stopped`].
    pub fn read<S: Sink>(
        &mut self,
        owner: OwnerId,
        page: u32,
        sink: &mut S,
    ) -> Result<Option<PageAddr>, FtlError> {
        let o = self.target(owner, page.into(), 1)?;
        let Where::Data(at) = self.owners[o].map[page as usize].get() else { return Ok(None) };
        self.owners[o].stats.host_reads += 1;
        sink.op(Op::Read { page: at, cause: Cause::Host });
        Ok(Some(at))
    }

    /// Where a page is. `None`: nowhere, or there is no such page.
    pub fn locate(&self, owner: OwnerId, page: u32) -> Option<PageAddr> {
        let o = self.place_of(owner)?;
        match self.owners[o].map.get(page as usize)?.get() {
            Where::Data(at) => Some(at),
            Where::Nowhere | Where::Trimmed(_) => None,
        }
    }

    /// Gives `count` pages from `first` on up, durably: one page is programmed to say so. Returns
    /// how many pages had data and have none now. Zero also when the owner has too many trims
    /// outstanding (one for each 256 of its pages, and 64): then nothing is changed. O(count).
    ///
    /// # Errors
    /// [`FtlError`].
    pub fn trim<S: Sink>(
        &mut self,
        owner: OwnerId,
        first: u32,
        count: u32,
        sink: &mut S,
    ) -> Result<u32, FtlError> {
        let o = self.target(owner, first.into(), count.into())?;
        let range = first as usize..first as usize + count as usize;
        let has_data = |entry: &Entry| matches!(entry.get(), Where::Data(_));
        let most = self.owners[o].spec.pages / 256 + 64;
        if self.owners[o].tombstones >= most
            || !self.owners[o].map[range.clone()].iter().any(has_data)
        {
            return Ok(0);
        }
        let at = self.program_host(o, Content::Trim { first, count }, sink)?;
        let sequence = self.sequence - 1;
        self.stats.trim_writes += 1;
        let mut live = 0;
        for page in range {
            let entry = self.owners[o].map[page];
            if has_data(&entry) {
                self.owners[o].map[page] = Entry::trimmed(at);
                self.forget(entry);
                live += 1;
            }
        }
        self.tombstones.insert(at.0, Tombstone { owner: o, first, count, sequence, live });
        self.owners[o].tombstones += 1;
        Ok(live)
    }

    /// The owner's place, if the pages are its.
    fn target(&self, owner: OwnerId, first: u64, count: u64) -> Result<usize, FtlError> {
        if self.stopped {
            return Err(FtlError::Stopped);
        }
        let o = self.place_of(owner).ok_or(FtlError::UnknownOwner(owner))?;
        let pages = self.owners[o].spec.pages;
        let end = first + count;
        if end > u64::from(pages) {
            return Err(FtlError::OutOfRange { owner, page: end.max(1) - 1, pages });
        }
        Ok(o)
    }

    pub(crate) fn place_of(&self, owner: OwnerId) -> Option<usize> {
        match self.numbers.get(usize::from(owner.0)) {
            None | Some(0) => None,
            Some(&place) => Some(place as usize - 1),
        }
    }

    pub(crate) fn is_shared(&self) -> bool {
        matches!(self.config.isolation, Isolation::Shared)
    }

    pub(crate) fn pool_of(&self, owner: usize) -> usize {
        if self.is_shared() { 0 } else { owner }
    }

    pub(crate) fn window(&self) -> u32 {
        match &self.config.isolation {
            Isolation::Dynamic(control) => control.window,
            Isolation::Shared | Isolation::Static => 32,
        }
    }

    pub(crate) fn new_pool(&self) -> Pool {
        let slots = self.streams() * self.stripe() + 1;
        Pool::new(self.geometry.pages_per_block(), slots as usize, self.window())
    }

    pub(crate) fn streams(&self) -> u32 {
        match self.config.streams {
            Streams::Together => 1,
            Streams::Apart => 2,
        }
    }

    pub(crate) fn stripe(&self) -> u32 {
        self.config.stripe.clamp(1, self.geometry.planes())
    }

    pub(crate) fn levels(&self) -> bool {
        matches!(self.config.levelling, Levelling::Spread(_))
    }

    /// The medium's failure stops the layer.
    pub(crate) fn on_medium<T>(
        &mut self,
        outcome: Result<T, crate::medium::MediumError>,
    ) -> Result<T, FtlError> {
        outcome.map_err(|error| {
            self.stopped = true;
            FtlError::Medium(error)
        })
    }

    fn program_host<S: Sink>(
        &mut self,
        o: usize,
        content: Content,
        sink: &mut S,
    ) -> Result<PageAddr, FtlError> {
        let p = self.pool_of(o);
        let slot = self.host_slot(p, o, sink)?;
        let Some(open) = self.pools[p].slots[slot] else { return Err(FtlError::NoSpace) };
        let at = self.geometry.page_at(open.block, open.next);
        let owner = self.owners[o].id.unwrap_or(OwnerId(0));
        let outcome = self.medium.program(at, Record { owner, content, sequence: self.sequence });
        self.on_medium(outcome)?;
        sink.op(Op::Program { page: at, cause: Cause::Host });
        self.programmed(p, slot, open, at);
        Ok(at)
    }

    /// A slot with an open block for the next page that an owner writes.
    fn host_slot<S: Sink>(&mut self, p: usize, o: usize, sink: &mut S) -> Result<usize, FtlError> {
        // Without a free block, as after a crash, the open ones are where collection moves pages
        // to.
        if self.free.len() == 0 {
            self.keep_one_free(p, Some(o), sink)?;
        }
        let slot = self.next_slot(p);
        if self.pools[p].slots[slot].is_none() {
            self.make_room(p, Some(o), sink)?;
            // Collection may have opened the block already, or changed the number of slots.
            let slot = self.next_slot(p);
            if self.pools[p].slots[slot].is_none() {
                self.open(p, slot, None)?;
            }
        }
        let slot = self.next_slot(p);
        self.pools[p].cursor = slot as u32 + 1;
        Ok(slot)
    }

    fn next_slot(&self, p: usize) -> usize {
        let pool = &self.pools[p];
        if pool.cursor < pool.width { pool.cursor as usize } else { 0 }
    }

    /// Books a programmed page.
    pub(crate) fn programmed(&mut self, p: usize, slot: usize, open: Open, at: PageAddr) {
        self.sequence += 1;
        self.valid.set(at.0);
        self.blocks[open.block.0 as usize].valid += 1;
        let next = open.next + 1;
        if next == self.geometry.pages_per_block() {
            self.pools[p].slots[slot] = None;
            self.close(p, open.block);
        } else {
            self.pools[p].slots[slot] = Some(Open { block: open.block, next });
        }
    }

    pub(crate) fn close(&mut self, p: usize, block: BlockId) {
        let state = &mut self.blocks[block.0 as usize];
        state.state = State::Closed;
        state.modified = self.sequence;
        self.pools[p].closed.insert(&mut self.blocks, block);
    }

    /// A free block for a slot: in the plane asked for, or one of the slot's own planes, or any.
    pub(crate) fn open(
        &mut self,
        p: usize,
        slot: usize,
        plane: Option<PlaneId>,
    ) -> Result<(), FtlError> {
        let coldest = slot + 1 == self.pools[p].slots.len();
        let planes = self.geometry.planes();
        let mine = (slot as u32 % self.stripe()) % self.pools[p].width;
        let wanted = match plane {
            Some(plane) => plane.0,
            None => {
                let mut own = (mine..planes).step_by(self.pools[p].width as usize);
                let first = own.next().unwrap_or(0);
                own.fold(first, |best, plane| {
                    if self.free.in_plane(plane) > self.free.in_plane(best) { plane } else { best }
                })
            }
        };
        let plane = if self.free.in_plane(wanted) > 0 { wanted } else { self.free.richest() };
        let block = match coldest {
            true => self.free.take_oldest(plane),
            false => self.free.take_youngest(plane),
        };
        let block = block.ok_or(FtlError::NoSpace)?;
        let sequence = self.sequence;
        self.hold(p, block, sequence);
        self.blocks[block.0 as usize].state = State::Open;
        self.pools[p].slots[slot] = Some(Open { block, next: 0 });
        Ok(())
    }

    /// A block becomes a pool's.
    pub(crate) fn hold(&mut self, p: usize, block: BlockId, opened: u64) {
        self.blocks[block.0 as usize].pool = p as u32;
        self.opened[block.0 as usize] = opened;
        self.ages.insert((opened, block.0));
        self.pools[p].ages.insert((opened, block.0));
        self.pools[p].held += 1;
        if self.levels() {
            self.wear.insert((self.blocks[block.0 as usize].erases, block.0));
        }
    }

    /// What a map entry pointed to is of use to one page less.
    pub(crate) fn forget(&mut self, entry: Entry) {
        match entry.get() {
            Where::Nowhere => {}
            Where::Data(page) => self.invalidate(page),
            Where::Trimmed(page) => {
                let Some(tombstone) = self.tombstones.get_mut(&page.0) else { return };
                tombstone.live -= 1;
                if tombstone.live == 0 {
                    let owner = tombstone.owner;
                    self.tombstones.remove(&page.0);
                    self.owners[owner].tombstones -= 1;
                    self.invalidate(page);
                }
            }
        }
    }

    pub(crate) fn invalidate(&mut self, page: PageAddr) {
        self.valid.clear(page.0);
        let id = self.geometry.block_of(page);
        let Block { state, pool, .. } = self.blocks[id.0 as usize];
        if state == State::Closed {
            let buckets = &mut self.pools[pool as usize].closed;
            buckets.remove(&mut self.blocks, id);
            let block = &mut self.blocks[id.0 as usize];
            block.valid -= 1;
            block.modified = self.sequence;
            buckets.insert(&mut self.blocks, id);
        } else {
            self.blocks[id.0 as usize].valid -= 1;
        }
    }

    pub(crate) fn is_erased(&self, block: BlockId) -> bool {
        let pages = 0..self.geometry.pages_per_block();
        pages.into_iter().all(|offset| {
            self.medium.page(self.geometry.page_at(block, offset))
                == crate::medium::PageState::Erased
        })
    }

    pub(crate) fn put_free(&mut self, block: BlockId) {
        let plane = self.geometry.plane_of(block);
        let entry = &mut self.blocks[block.0 as usize];
        entry.state = State::Free;
        self.free.insert(plane.0, entry.erases, block);
    }

    pub(crate) fn put_dirty(&mut self, block: BlockId) {
        self.blocks[block.0 as usize].state = State::Dirty;
        self.dirty.push_back(block);
    }
}
