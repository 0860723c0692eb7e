//! Metadata contexts: what a client may ask about the blocks of an export besides their content.
//!
//! An export has `base:allocation`, and `qemu:dirty-bitmap:NAME` for each of its dirty bitmaps. The
//! numbers of the bitmaps follow their order, so a [`Contexts`] says all that was selected in one
//! word.

use crate::wire::{BASE_ALLOCATION_ID, DIRTY_BITMAP, FIRST_BITMAP_ID, MAX_STRING};
use alloc::borrow::ToOwned;
use alloc::string::String;
use core::fmt;
use core::str::FromStr;
use thiserror::Error;

/// The most dirty bitmaps of an export that clients are offered. Further ones do not exist for
/// them.
pub const MAX_BITMAPS: usize = 62;

/// The longest name of a dirty bitmap, in bytes: QEMU's own limit.
pub const MAX_BITMAP_NAME: usize = 1023;

// The first context and all bitmaps have a bit each, and a context's name is a string of the
// protocol.
const _: () = assert!(MAX_BITMAPS < u64::BITS as usize && BASE_ALLOCATION_ID == 1);
const _: () = assert!(FIRST_BITMAP_ID == BASE_ALLOCATION_ID + 1);
const _: () = assert!(DIRTY_BITMAP.len() + MAX_BITMAP_NAME <= MAX_STRING);

/// The name of a dirty bitmap: 1 to [`MAX_BITMAP_NAME`] bytes of UTF-8 without NUL.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BitmapName(String);

/// What cannot be the name of a dirty bitmap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a dirty bitmap's name has 1 to {MAX_BITMAP_NAME} bytes, and no NUL")]
pub struct BadBitmapName;

impl BitmapName {
    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for BitmapName {
    type Err = BadBitmapName;

    fn from_str(name: &str) -> Result<BitmapName, BadBitmapName> {
        let fits = (1..=MAX_BITMAP_NAME).contains(&name.len()) && !name.contains('\0');
        if fits { Ok(BitmapName(name.to_owned())) } else { Err(BadBitmapName) }
    }
}

impl fmt::Display for BitmapName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The number of a context on the wire, from 1 to 1 + [`MAX_BITMAPS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ContextId(u32);

impl ContextId {
    /// That of `base:allocation`.
    pub const BASE_ALLOCATION: ContextId = ContextId(BASE_ALLOCATION_ID);

    /// That of the bitmap at `index` of its export's, if it is one of the [`MAX_BITMAPS`] that are
    /// offered.
    #[must_use]
    pub fn of_bitmap(index: usize) -> Option<ContextId> {
        let index = u32::try_from(index).ok().filter(|index| *index < MAX_BITMAPS as u32)?;
        Some(ContextId(FIRST_BITMAP_ID + index))
    }

    /// Which of its export's bitmaps it is, if it is one.
    #[must_use]
    pub fn bitmap(self) -> Option<usize> {
        self.0.checked_sub(FIRST_BITMAP_ID).map(|index| index as usize)
    }

    /// The number.
    #[must_use]
    pub fn get(self) -> u32 {
        self.0
    }

    fn bit(self) -> u64 {
        1 << (self.0 - BASE_ALLOCATION_ID)
    }
}

/// A set of contexts of one export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contexts(u64);

impl Contexts {
    /// None of them.
    pub const NONE: Contexts = Contexts(0);
    /// `base:allocation` alone.
    pub const BASE_ALLOCATION: Contexts = Contexts(1);

    /// These and one more.
    #[must_use]
    pub fn with(self, id: ContextId) -> Contexts {
        Contexts(self.0 | id.bit())
    }

    /// Whether this one is among them.
    #[must_use]
    pub fn has(self, id: ContextId) -> bool {
        self.0 & id.bit() != 0
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many there are, at most 1 + [`MAX_BITMAPS`].
    #[must_use]
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Each of them, from the lowest number on.
    pub fn ids(self) -> impl Iterator<Item = ContextId> {
        (0..u64::BITS)
            .filter(move |bit| self.0 >> bit & 1 == 1)
            .map(|bit| ContextId(BASE_ALLOCATION_ID + bit))
    }

    /// The one with the highest number.
    #[must_use]
    pub fn last(self) -> Option<ContextId> {
        let bit = self.0.checked_ilog2()?;
        Some(ContextId(BASE_ALLOCATION_ID + bit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bitmap_that_is_offered_has_a_number_and_no_other() {
        let mut all = Contexts::BASE_ALLOCATION;
        for index in 0..62 {
            let id = ContextId::of_bitmap(index).unwrap();
            assert_eq!((id.get() as usize, id.bitmap()), (2 + index, Some(index)));
            assert!(!all.has(id));
            all = all.with(id);
            assert!(all.has(id) && all.last() == Some(id));
        }
        assert_eq!(ContextId::of_bitmap(62), None);
        assert_eq!(ContextId::of_bitmap(usize::MAX), None);
        assert_eq!(ContextId::BASE_ALLOCATION.bitmap(), None);
        assert_eq!(all.len(), 63);
        assert!(all.ids().map(ContextId::get).eq(1..=63));
        assert!(Contexts::NONE.is_empty() && Contexts::NONE.last().is_none());
    }

    #[test]
    fn names_of_bitmaps_are_short_text() {
        for name in ["a", "since:monday", "\u{fc}ber", &"x".repeat(1023)] {
            assert_eq!(name.parse::<BitmapName>().unwrap().as_str(), name);
        }
        for name in ["", "a\0", &"x".repeat(1024)] {
            assert_eq!(name.parse::<BitmapName>(), Err(BadBitmapName));
        }
    }
}
