//! The whole state from the records on the medium.

use crate::config::Config;
use crate::error::{ConfigError, OwnerError};
use crate::ftl::Ftl;
use crate::geometry::{BlockId, PageAddr};
use crate::map::{Entry, Tombstone, Where};
use crate::medium::{Content, Medium, PageState, Record};
use crate::owner::KnownOwner;
use crate::pool::Open;
use alloc::vec;
use alloc::vec::Vec;
use thiserror::Error;

/// Why a state cannot be rebuilt.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RecoverError {
    /// The configuration does not fit the medium.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The owners do not fit the medium, or each other.
    #[error(transparent)]
    Owner(#[from] OwnerError),
}

/// What the records of one block say.
struct Found {
    block: BlockId,
    /// Least sequence number of data in it: nothing in it is older.
    opened: u64,
    latest: u64,
    /// The page behind the last that is not erased.
    next: u32,
}

impl<M: Medium> Ftl<M> {
    /// Rebuilds a layer from what is on the medium: after a crash, or just to go on. The owners are
    /// those that its caller remembers ([`Ftl::add_owner`]); pages of anybody else are given up.
    ///
    /// Every page is looked at once: O(pages + pages that trims name). Meanwhile each logical page
    /// takes 8 bytes more.
    ///
    /// # What comes back
    /// - Every logical page as its last write or trim left it that the medium completed. Of a write
    ///   that was cut short, either the old or the new page.
    /// - Blocks that were being filled are filled further. Blocks without a valid page are erased
    ///   before they are used.
    /// - Space is divided by weight as at the beginning, mean utilisations begin anew, statistics
    ///   are zero.
    ///
    /// # Errors
    /// [`RecoverError`]: the owners or the configuration do not fit. The isolation may be another
    /// than before: blocks with pages of several owners then go to one of them until they are
    /// collected.
    pub fn recover(
        medium: M,
        config: Config,
        owners: &[KnownOwner],
    ) -> Result<Ftl<M>, RecoverError> {
        let mut ftl = Ftl::empty(medium, config)?;
        for known in owners {
            let id = known.id;
            if ftl.place_of(id).is_some() {
                return Err(OwnerError::Exists(id).into());
            }
            if known.spec.pages == 0 {
                return Err(OwnerError::NoPages(id).into());
            }
            let (needed, left) = ftl.room_for(known.spec.pages);
            if needed > left {
                return Err(OwnerError::NoSpace { id, needed, left }.into());
            }
            ftl.enter(*known);
            ftl.sequence = ftl.sequence.max(known.since);
        }
        ftl.divide();
        let found = ftl.read_records();
        ftl.mark_valid();
        ftl.sort_blocks(found);
        Ok(ftl)
    }

    /// The newest copy of each logical page into the maps. Returns what is known of the blocks that
    /// are not erased.
    fn read_records(&mut self) -> Vec<Found> {
        let mut newest: Vec<Vec<u64>> =
            self.owners.iter().map(|owner| vec![0; owner.spec.pages as usize]).collect();
        let mut blocks = Vec::new();
        for block in (0..self.geometry.blocks()).map(BlockId) {
            let mut found = Found { block, opened: u64::MAX, latest: 0, next: 0 };
            for offset in 0..self.geometry.pages_per_block() {
                let at = self.geometry.page_at(block, offset);
                let record = match self.medium.page(at) {
                    PageState::Erased => continue,
                    PageState::Unreadable => None,
                    PageState::Written(record) => Some(record),
                };
                found.next = offset + 1;
                let Some(record) = record else { continue };
                self.sequence = self.sequence.max(record.sequence.saturating_add(1));
                if let Content::Data { .. } = record.content {
                    found.opened = found.opened.min(record.sequence);
                }
                found.latest = found.latest.max(record.sequence);
                self.read_record(at, record, &mut newest);
            }
            if found.next == 0 {
                self.put_free(block);
            } else {
                found.opened = found.opened.min(found.latest);
                blocks.push(found);
            }
        }
        blocks
    }

    fn read_record(&mut self, at: PageAddr, record: Record, newest: &mut [Vec<u64>]) {
        let Some(o) = self.place_of(record.owner) else { return };
        if record.sequence < self.owners[o].since {
            return;
        }
        let (first, count, entry) = match record.content {
            Content::Data { page } => (page, 1, Entry::data(at)),
            Content::Trim { first, count } => (first, count, Entry::trimmed(at)),
        };
        let end = (first as usize).saturating_add(count as usize).min(newest[o].len());
        let range = (first as usize).min(end)..end;
        for (newest, place) in
            newest[o][range.clone()].iter_mut().zip(&mut self.owners[o].map[range])
        {
            if record.sequence > *newest {
                (*newest, *place) = (record.sequence, entry);
            }
        }
    }

    /// Pages that the maps point to are valid.
    fn mark_valid(&mut self) {
        for o in 0..self.owners.len() {
            for page in 0..self.owners[o].map.len() {
                match self.owners[o].map[page].get() {
                    Where::Nowhere => {}
                    Where::Data(at) => self.mark(at),
                    Where::Trimmed(at) => self.mark_trim(o, at),
                }
            }
        }
    }

    fn mark(&mut self, at: PageAddr) {
        self.valid.set(at.0);
        self.blocks[self.geometry.block_of(at).0 as usize].valid += 1;
    }

    fn mark_trim(&mut self, owner: usize, at: PageAddr) {
        if let Some(tombstone) = self.tombstones.get_mut(&at.0) {
            tombstone.live += 1;
            return;
        }
        let PageState::Written(Record {
            content: Content::Trim { first, count }, sequence, ..
        }) = self.medium.page(at)
        else {
            return;
        };
        let count = count.min(self.owners[owner].spec.pages - first);
        self.tombstones.insert(at.0, Tombstone { owner, first, count, sequence, live: 1 });
        self.owners[owner].tombstones += 1;
        self.mark(at);
    }

    /// Each block into the hands of the owner of its first valid page, the oldest first.
    fn sort_blocks(&mut self, mut found: Vec<Found>) {
        found.sort_by_key(|found| (found.latest, found.block));
        for Found { block, opened, latest, next } in found {
            let first = self.geometry.page_at(block, 0).0;
            let end = first + self.geometry.pages_per_block();
            let owner = self.valid.next(first, end).and_then(|page| {
                match self.medium.page(PageAddr(page)) {
                    PageState::Written(record) => self.place_of(record.owner),
                    PageState::Erased | PageState::Unreadable => None,
                }
            });
            let Some(owner) = owner else {
                self.opened[block.0 as usize] = opened;
                self.ages.insert((opened, block.0));
                self.put_dirty(block);
                continue;
            };
            let p = self.pool_of(owner);
            self.hold(p, block, opened);
            if next == self.geometry.pages_per_block() || !self.resume(p, Open { block, next }) {
                self.close(p, block);
                self.blocks[block.0 as usize].modified = latest;
            }
        }
    }

    /// Goes on with a block that was not full, if there is a slot for it.
    fn resume(&mut self, p: usize, open: Open) -> bool {
        let (stripe, width) = (self.stripe() as usize, self.pools[p].width as usize);
        let own = self.geometry.plane_of(open.block).0 as usize % width;
        let slots = self.pools[p].slots.len();
        let for_levelled = self.levels().then_some(slots - 1);
        let any = (0..slots - 1).filter(|slot| slot % stripe < width).chain(for_levelled);
        let Some(slot) =
            core::iter::once(own).chain(any).find(|&slot| self.pools[p].slots[slot].is_none())
        else {
            return false;
        };
        self.blocks[open.block.0 as usize].state = crate::blocks::State::Open;
        self.pools[p].slots[slot] = Some(open);
        true
    }
}
