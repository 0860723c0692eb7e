//! Where logical pages are.

use crate::geometry::PageAddr;
use alloc::vec;
use alloc::vec::Vec;

/// Where a logical page is, in 32 bits. Zero is nowhere, so that the map of a disk that was never
/// written costs no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Entry(u32);

const TRIMMED: u32 = 1 << 31;

/// What an entry says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Where {
    Nowhere,
    /// Its data is there.
    Data(PageAddr),
    /// It was trimmed, and that page says so.
    Trimmed(PageAddr),
}

impl Entry {
    pub const NOWHERE: Entry = Entry(0);

    pub fn data(page: PageAddr) -> Entry {
        Entry(page.0 + 1)
    }

    pub fn trimmed(page: PageAddr) -> Entry {
        Entry((page.0 + 1) | TRIMMED)
    }

    pub fn get(self) -> Where {
        match self.0 {
            0 => Where::Nowhere,
            entry if entry & TRIMMED == 0 => Where::Data(PageAddr(entry - 1)),
            entry => Where::Trimmed(PageAddr((entry & !TRIMMED) - 1)),
        }
    }
}

/// A map of so many pages that are nowhere.
pub(crate) fn nowhere(pages: u32) -> Vec<Entry> {
    // Zeroed memory, which the system gives page by page when it is first written.
    vec![Entry::NOWHERE; pages as usize]
}

/// A page that says which logical pages were trimmed ("tombstone"): kept while any copy that is
/// older than it may be on the medium, or a crash would bring old data back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tombstone {
    pub owner: usize,
    pub first: u32,
    pub count: u32,
    pub sequence: u64,
    /// Logical pages whose map entry points here.
    pub live: u32,
}
