use crate::geometry::{BlockId, Geometry, PageAddr};
use crate::owner::OwnerId;
use alloc::string::String;
use thiserror::Error;

/// What a page's out-of-band area says of it. All records of a medium together are the translation
/// layer's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Whose page it is.
    pub owner: OwnerId,
    /// What the page holds.
    pub content: Content,
    /// When it was written, counted in page programs from 1. Of two records for the same logical
    /// page the greater holds.
    pub sequence: u64,
}

/// What a page holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Data of the owner's logical page.
    Data {
        /// The logical page, from 0.
        page: u32,
    },
    /// No data, but the word that the owner's logical pages `first` to `first + count - 1` were
    /// trimmed.
    Trim {
        /// First logical page.
        first: u32,
        /// How many.
        count: u32,
    },
}

/// What a look at a page finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageState {
    /// Erased, and not programmed since.
    Erased,
    /// Programmed.
    Written(Record),
    /// Neither: power went while it was programmed or erased.
    Unreadable,
}

/// Why a medium did not do what it was told.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MediumError {
    /// The address is outside the medium.
    #[error("page {0} is outside the medium")]
    NoSuchPage(u32),
    /// Pages of a block are programmed in their order, once after each erase.
    #[error("page {page} cannot be programmed: the next of its block is {next}")]
    OutOfOrder {
        /// What was to be programmed.
        page: u32,
        /// What may be.
        next: u32,
    },
    /// The medium failed, or lost power.
    #[error("the medium failed: {0}")]
    Failed(String),
}

/// Erase blocks of pages with out-of-band records: flash, or zones of a zoned drive.
///
/// The translation layer calls the changing methods in the order in which they must take effect. A
/// medium that queues them must keep that order for operations that touch the same block; data that
/// a [`program`](Medium::program) writes is the data of the request that the layer's caller is in.
///
/// # What is assumed of a medium
/// 1. A page is programmed whole or not: after a crash it is [`PageState::Erased`], the record, or
///    [`PageState::Unreadable`], never another record.
/// 2. What a returned call did survives a crash.
/// 3. An erase that a crash cut short may leave any of the block's pages as they were, erased or
///    unreadable, but pages behind an erased one cannot be programmed unless the whole block is
///    erased.
pub trait Medium {
    /// How it is built. Does not change.
    fn geometry(&self) -> Geometry;

    /// Programs the next page of a block.
    ///
    /// # Errors
    /// [`MediumError`]; afterwards the page counts as unreadable.
    fn program(&mut self, page: PageAddr, record: Record) -> Result<(), MediumError>;

    /// Programs the next page of a block with what another page holds.
    ///
    /// # Errors
    /// As [`Medium::program`].
    fn copy(&mut self, from: PageAddr, to: PageAddr, record: Record) -> Result<(), MediumError>;

    /// Erases a block.
    ///
    /// # Errors
    /// [`MediumError`]; afterwards the block's pages count as unreadable.
    fn erase(&mut self, block: BlockId) -> Result<(), MediumError>;

    /// The record of a page: cheap, the layer asks for each page that it moves.
    fn page(&self, page: PageAddr) -> PageState;

    /// How often the block was erased in its life.
    fn erases(&self, block: BlockId) -> u32;
}
