use crate::geometry::{BlockId, Geometry, PageAddr};
use crate::medium::{Content, Medium, MediumError, PageState, Record};
use crate::owner::OwnerId;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

/// A medium in memory: records without data, 16 bytes for each page. It insists on the order of
/// programs.
#[derive(Clone, Debug)]
pub struct Image {
    geometry: Geometry,
    slots: Vec<Slot>,
    /// Length of each [`Content::Trim`] by its page: rare, so not in the slots.
    trims: BTreeMap<u32, u32>,
    blocks: Vec<BlockState>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    sequence: u64,
    page: u32,
    owner: u16,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    #[default]
    Erased,
    Data,
    Trim,
    Unreadable,
}

#[derive(Clone, Copy, Debug, Default)]
struct BlockState {
    next: u32,
    erases: u32,
}

impl Image {
    /// A medium as it comes from the factory: all erased.
    pub fn new(geometry: Geometry) -> Image {
        Image {
            geometry,
            slots: vec![Slot::default(); geometry.pages() as usize],
            trims: BTreeMap::new(),
            blocks: vec![BlockState::default(); geometry.blocks() as usize],
        }
    }

    /// Makes a page unreadable, as a program or erase does that power left in the middle.
    /// Addresses outside the medium are ignored.
    pub fn spoil(&mut self, page: PageAddr) {
        if let Some(slot) = self.slots.get_mut(page.0 as usize) {
            slot.kind = Kind::Unreadable;
            self.trims.remove(&page.0);
            let block = self.geometry.block_of(page);
            let next = self.geometry.offset_of(page) + 1;
            let state = &mut self.blocks[block.0 as usize];
            state.next = state.next.max(next);
        }
    }

    #[inline]
    fn place(&mut self, page: PageAddr, record: Record) -> Result<(), MediumError> {
        if page.0 as usize >= self.slots.len() {
            return Err(MediumError::NoSuchPage(page.0));
        }
        let block = self.geometry.block_of(page);
        let state = &mut self.blocks[block.0 as usize];
        let next = self.geometry.page_at(block, state.next);
        if page != next {
            return Err(MediumError::OutOfOrder { page: page.0, next: next.0 });
        }
        state.next += 1;
        let (kind, first) = match record.content {
            Content::Data { page } => (Kind::Data, page),
            Content::Trim { first, count } => {
                self.trims.insert(page.0, count);
                (Kind::Trim, first)
            }
        };
        self.slots[page.0 as usize] =
            Slot { sequence: record.sequence, page: first, owner: record.owner.0, kind };
        Ok(())
    }
}

impl Medium for Image {
    #[inline]
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    #[inline]
    fn program(&mut self, page: PageAddr, record: Record) -> Result<(), MediumError> {
        self.place(page, record)
    }

    #[inline]
    fn copy(&mut self, _from: PageAddr, to: PageAddr, record: Record) -> Result<(), MediumError> {
        self.place(to, record)
    }

    fn erase(&mut self, block: BlockId) -> Result<(), MediumError> {
        let Some(state) = self.blocks.get_mut(block.0 as usize) else {
            return Err(MediumError::NoSuchPage(
                block.0.saturating_mul(self.geometry.pages_per_block()),
            ));
        };
        state.next = 0;
        state.erases += 1;
        let first = self.geometry.page_at(block, 0).0 as usize;
        let end = first + self.geometry.pages_per_block() as usize;
        self.slots[first..end].fill(Slot::default());
        if !self.trims.is_empty() {
            let pages: Vec<u32> =
                self.trims.range(first as u32..end as u32).map(|(&page, _)| page).collect();
            for page in pages {
                self.trims.remove(&page);
            }
        }
        Ok(())
    }

    #[inline]
    fn page(&self, page: PageAddr) -> PageState {
        let Some(slot) = self.slots.get(page.0 as usize) else { return PageState::Unreadable };
        let content = match slot.kind {
            Kind::Erased => return PageState::Erased,
            Kind::Unreadable => return PageState::Unreadable,
            Kind::Data => Content::Data { page: slot.page },
            Kind::Trim => {
                let count = self.trims.get(&page.0).copied().unwrap_or(0);
                Content::Trim { first: slot.page, count }
            }
        };
        PageState::Written(Record { owner: OwnerId(slot.owner), content, sequence: slot.sequence })
    }

    fn erases(&self, block: BlockId) -> u32 {
        self.blocks.get(block.0 as usize).map_or(0, |state| state.erases)
    }
}
