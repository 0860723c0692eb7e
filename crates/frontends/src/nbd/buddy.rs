//! Which pages of a connection's buffer memory are taken: a binary buddy allocator over page
//! numbers.
//!
//! Of the blocks that fit best it gives out the lowest, so a client of steady depth keeps using the
//! same few pages, and the rest of the memory is never touched. Taking and giving cost one step per
//! order, and touch only bitmaps.

/// The largest block is `1 << MAX_ORDER` pages: 32 MiB of 4 KiB pages, the longest request.
pub const MAX_ORDER: u8 = 13;

/// `1 << order` pages from page `page`. Comes from [`Buddy::take`] and goes back to [`Buddy::give`]
/// of the same allocator.
#[derive(Debug, PartialEq, Eq)]
pub struct Block {
    page: u32,
    order: u8,
}

impl Block {
    /// The first page.
    pub fn page(&self) -> u32 {
        self.page
    }

    /// How many pages it has.
    pub fn pages(&self) -> u32 {
        1 << self.order
    }
}

/// The order of the smallest block of at least `pages` pages, if there is one.
pub fn order_of(pages: u32) -> Option<u8> {
    let order = pages.max(1).checked_next_power_of_two()?.trailing_zeros() as u8;
    (order <= MAX_ORDER).then_some(order)
}

/// The allocator.
#[derive(Debug)]
pub struct Buddy {
    /// By order: the free blocks, bit `page >> order`.
    free: Vec<BitSet>,
}

impl Buddy {
    /// Manages `largest << MAX_ORDER` pages, all free.
    pub fn new(largest: u32) -> Buddy {
        let mut free: Vec<_> =
            (0..=MAX_ORDER).map(|order| BitSet::new(largest << (MAX_ORDER - order))).collect();
        if let Some(top) = free.last_mut() {
            (0..largest).for_each(|block| top.insert(block));
        }
        Buddy { free }
    }

    /// Takes a block of `1 << order` pages. `None`: no free block is that long.
    pub fn take(&mut self, order: u8) -> Option<Block> {
        let (found, mut index) =
            (order..=MAX_ORDER).find_map(|o| Some((o, self.free[usize::from(o)].pop_first()?)))?;
        for lower in (order..found).rev() {
            index *= 2;
            self.free[usize::from(lower)].insert(index + 1);
        }
        Some(Block { page: index << order, order })
    }

    /// Takes a block back and joins it with its free neighbours.
    pub fn give(&mut self, block: Block) {
        let Block { page, mut order } = block;
        let mut index = page >> order;
        while order < MAX_ORDER && self.free[usize::from(order)].remove(index ^ 1) {
            index /= 2;
            order += 1;
        }
        self.free[usize::from(order)].insert(index);
    }
}

/// A set of small integers that knows its least member.
#[derive(Debug)]
struct BitSet {
    words: Vec<u64>,
    len: u32,
    /// No word below this one has a bit set.
    first: usize,
}

impl BitSet {
    fn new(bits: u32) -> BitSet {
        BitSet { words: vec![0; bits.div_ceil(64) as usize], len: 0, first: 0 }
    }

    fn insert(&mut self, bit: u32) {
        let word = bit as usize / 64;
        self.words[word] |= 1 << (bit % 64);
        self.len += 1;
        self.first = self.first.min(word);
    }

    /// Was the bit set.
    fn remove(&mut self, bit: u32) -> bool {
        let word = &mut self.words[bit as usize / 64];
        let mask = 1 << (bit % 64);
        let was_set = *word & mask != 0;
        *word &= !mask;
        if was_set {
            self.len -= 1;
        }
        was_set
    }

    fn pop_first(&mut self) -> Option<u32> {
        if self.len == 0 {
            return None;
        }
        self.first += self.words[self.first..].iter().position(|&word| word != 0)?;
        let bit = self.first as u32 * 64 + self.words[self.first].trailing_zeros();
        self.remove(bit);
        Some(bit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn orders_cover_every_request() {
        assert_eq!(order_of(0), Some(0));
        assert_eq!(order_of(1), Some(0));
        assert_eq!(order_of(3), Some(2));
        assert_eq!(order_of(1 << MAX_ORDER), Some(MAX_ORDER));
        assert_eq!(order_of((1 << MAX_ORDER) + 1), None);
    }

    #[test]
    fn the_lowest_pages_are_used_again() {
        let mut buddy = Buddy::new(2);
        let blocks: Vec<_> = (0..4).map(|_| buddy.take(0).unwrap()).collect();
        assert_eq!(blocks.iter().map(Block::page).collect::<Vec<_>>(), [0, 1, 2, 3]);
        blocks.into_iter().rev().for_each(|block| buddy.give(block));
        assert_eq!(buddy.take(0).unwrap().page(), 0);
    }

    proptest! {
        #[test]
        fn blocks_never_overlap_and_all_come_back(
            steps in prop::collection::vec((any::<bool>(), 0..=MAX_ORDER, any::<prop::sample::Index>()), 1..200),
        ) {
            let mut buddy = Buddy::new(2);
            let mut taken: Vec<Block> = Vec::new();
            // The naive view: pages in use, and whether an aligned run is free.
            let mut used = vec![false; 2 << MAX_ORDER];
            for (take, order, which) in steps {
                if take {
                    let run = 1usize << order;
                    let fits = used.chunks(run).any(|pages| pages.iter().all(|page| !page));
                    let block = buddy.take(order);
                    prop_assert_eq!(block.is_some(), fits);
                    if let Some(block) = block {
                        let start = block.page() as usize;
                        prop_assert_eq!((1usize << block.order, start % run), (run, 0));
                        prop_assert!(used[start..start + run].iter().all(|page| !page));
                        used[start..start + run].fill(true);
                        taken.push(block);
                    }
                } else if !taken.is_empty() {
                    let block = taken.swap_remove(which.index(taken.len()));
                    let start = block.page() as usize;
                    used[start..start + (1 << block.order)].fill(false);
                    buddy.give(block);
                }
            }
            taken.into_iter().for_each(|block| buddy.give(block));
            prop_assert!(buddy.take(MAX_ORDER).is_some() && buddy.take(MAX_ORDER).is_some());
        }
    }
}
