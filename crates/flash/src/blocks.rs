//! What is known of each erase block, and lists of blocks.

use crate::geometry::BlockId;
use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

pub(crate) const NONE: u32 = u32::MAX;

/// What a block is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Free,
    Open,
    /// Full, in a bucket of its pool.
    Closed,
    /// Its pages are being moved away.
    Leaving,
    /// Without valid pages and of no pool: to be erased.
    Dirty,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    /// Valid pages.
    pub valid: u32,
    /// Neighbours in the bucket.
    next: u32,
    prev: u32,
    pub pool: u32,
    /// The sequence number when a page was last overwritten, or the block closed.
    pub modified: u64,
    pub erases: u32,
    pub state: State,
}

/// Blocks of one pool that can be collected, by how many of their pages are valid, and within a
/// bucket in the order in which they came to have that many: the first is the one longest
/// unchanged.
#[derive(Clone, Debug)]
pub(crate) struct Buckets {
    ends: Vec<(u32, u32)>,
    /// Which buckets have blocks: a bit each, and a bit for each word of those.
    words: Vec<u64>,
    summary: Vec<u64>,
    len: u32,
}

impl Buckets {
    pub fn new(pages_per_block: u32) -> Buckets {
        let buckets = pages_per_block as usize + 1;
        let words = buckets.div_ceil(64);
        Buckets {
            ends: vec![(NONE, NONE); buckets],
            words: vec![0; words],
            summary: vec![0; words.div_ceil(64)],
            len: 0,
        }
    }

    pub fn len(&self) -> u32 {
        self.len
    }

    /// O(1).
    #[inline]
    pub fn insert(&mut self, blocks: &mut [Block], block: BlockId) {
        let valid = blocks[block.0 as usize].valid as usize;
        let (_, last) = self.ends[valid];
        if last == NONE {
            self.ends[valid] = (block.0, block.0);
            self.words[valid / 64] |= 1 << (valid % 64);
            self.summary[valid / 4096] |= 1 << (valid / 64 % 64);
        } else {
            self.ends[valid].1 = block.0;
            blocks[last as usize].next = block.0;
        }
        let entry = &mut blocks[block.0 as usize];
        (entry.prev, entry.next) = (last, NONE);
        self.len += 1;
    }

    /// O(1). The block's count is that under which it was inserted.
    #[inline]
    pub fn remove(&mut self, blocks: &mut [Block], block: BlockId) {
        let Block { valid, next, prev, .. } = blocks[block.0 as usize];
        let valid = valid as usize;
        if prev == NONE {
            self.ends[valid].0 = next;
        } else {
            blocks[prev as usize].next = next;
        }
        if next == NONE {
            self.ends[valid].1 = prev;
        } else {
            blocks[next as usize].prev = prev;
        }
        if self.ends[valid].0 == NONE {
            self.words[valid / 64] &= !(1 << (valid % 64));
            if self.words[valid / 64] == 0 {
                self.summary[valid / 4096] &= !(1 << (valid / 64 % 64));
            }
        }
        self.len -= 1;
    }

    /// The block with the fewest valid pages. O(N_p/4096).
    #[inline]
    pub fn emptiest(&self) -> Option<BlockId> {
        let (i, summary) = self.summary.iter().enumerate().find(|(_, summary)| **summary != 0)?;
        let word = i * 64 + summary.trailing_zeros() as usize;
        let valid = word * 64 + self.words[word].trailing_zeros() as usize;
        Some(BlockId(self.ends[valid].0))
    }

    /// The first block of each bucket that has any, by rising count. O(N_p/64) and O(1) for each.
    pub fn firsts(&self) -> impl Iterator<Item = BlockId> + '_ {
        self.words.iter().enumerate().flat_map(move |(word, &bits)| {
            core::iter::successors((bits != 0).then_some(bits), |bits| {
                let rest = bits & (bits - 1);
                (rest != 0).then_some(rest)
            })
            .map(move |bits| BlockId(self.ends[word * 64 + bits.trailing_zeros() as usize].0))
        })
    }
}

/// The free blocks: by plane, and there by wear.
#[derive(Clone, Debug)]
pub(crate) struct FreeBlocks {
    planes: Vec<BTreeSet<(u32, u32)>>,
    len: u32,
}

impl FreeBlocks {
    pub fn new(planes: u32) -> FreeBlocks {
        FreeBlocks { planes: vec![BTreeSet::new(); planes as usize], len: 0 }
    }

    pub fn len(&self) -> u32 {
        self.len
    }

    pub fn insert(&mut self, plane: u32, erases: u32, block: BlockId) {
        if self.planes[plane as usize].insert((erases, block.0)) {
            self.len += 1;
        }
    }

    pub fn in_plane(&self, plane: u32) -> usize {
        self.planes[plane as usize].len()
    }

    /// The plane with the most.
    pub fn richest(&self) -> u32 {
        let most = (0..self.planes.len())
            .max_by_key(|&plane| (self.planes[plane].len(), self.planes.len() - plane));
        most.unwrap_or(0) as u32
    }

    pub fn take_youngest(&mut self, plane: u32) -> Option<BlockId> {
        let (_, block) = self.planes[plane as usize].pop_first()?;
        self.len -= 1;
        Some(BlockId(block))
    }

    pub fn take_oldest(&mut self, plane: u32) -> Option<BlockId> {
        let (_, block) = self.planes[plane as usize].pop_last()?;
        self.len -= 1;
        Some(BlockId(block))
    }

    /// The most worn of all: its wear and its plane. O(planes).
    pub fn oldest(&self) -> Option<(u32, u32)> {
        let oldest = |(plane, blocks): (usize, &BTreeSet<(u32, u32)>)| {
            blocks.last().map(|&(erases, _)| (erases, plane as u32))
        };
        self.planes.iter().enumerate().filter_map(oldest).max()
    }

    pub fn contains(&self, plane: u32, erases: u32, block: BlockId) -> bool {
        self.planes[plane as usize].contains(&(erases, block.0))
    }
}

impl Block {
    pub fn new(erases: u32) -> Block {
        Block {
            valid: 0,
            next: NONE,
            prev: NONE,
            pool: NONE,
            modified: 0,
            erases,
            state: State::Free,
        }
    }
}

/// One bit for each page: whether it is valid.
#[derive(Clone, Debug)]
pub(crate) struct ValidPages(Vec<u64>);

impl ValidPages {
    pub fn new(pages: u32) -> ValidPages {
        ValidPages(vec![0; (pages as usize).div_ceil(64)])
    }

    #[inline]
    pub fn set(&mut self, page: u32) {
        self.0[page as usize / 64] |= 1 << (page % 64);
    }

    #[inline]
    pub fn clear(&mut self, page: u32) {
        self.0[page as usize / 64] &= !(1 << (page % 64));
    }

    pub fn is_set(&self, page: u32) -> bool {
        self.0[page as usize / 64] & (1 << (page % 64)) != 0
    }

    /// The first valid page from `from` on, before `end`. O(pages/64).
    #[inline]
    pub fn next(&self, from: u32, end: u32) -> Option<u32> {
        let mut at = from;
        while at < end {
            let bits = self.0[at as usize / 64] >> (at % 64);
            if bits != 0 {
                let found = at + bits.trailing_zeros();
                return (found < end).then_some(found);
            }
            at = (at / 64 + 1) * 64;
        }
        None
    }
}
