//! Which parts of a disk its clients changed between two instants: what an incremental backup
//! copies.
//!
//! [`Changes`] is marked by the thread that sends a disk's requests, and read by another. It
//! answers one question: what may have changed since the *base*, an instant of the past. Whoever
//! takes a new copy of the disk learns that, and makes the copy's instant the next base:
//!
//! 1. [`Changes::open`], before the copy begins. From now on changes are noted for the next base,
//!    too.
//! 2. The copy's instant passes.
//! 3. [`Changes::since_base`] has all that the copy does not share with the base, and perhaps what
//!    was changed just after the instant.
//! 4. The copy is whole: [`Changes::advance`] makes its instant the base. A copy that failed leaves
//!    the base where it is, for nothing was taken back.
//!
//! It errs in one direction: a part that is not named has not changed. One that is named may be as
//! it was: changes are noted in whole grains, when they are sent, whatever becomes of them.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use headgate_units::Bytes;

/// What changes are noted by: 64 KiB, as QEMU's bitmaps do by default. 1 TiB takes 2 MiB, twice.
pub const GRAIN: Bytes = Bytes::from_kib(64);

const GRAIN_BITS: u32 = GRAIN.0.trailing_zeros();
const WORD_BITS: u32 = u64::BITS.trailing_zeros();

/// What clients changed since two instants of one disk.
#[derive(Debug)]
pub struct Changes {
    size: Bytes,
    /// Since the base, and since the last [`Self::open`]. Both are always marked, so that which is
    /// which is of no interest to who marks.
    maps: [Box<[AtomicU64]>; 2],
    /// Which of them is since the base.
    base: AtomicUsize,
}

impl Changes {
    /// Of a disk of this size, of which nothing has changed since the base: it is now.
    #[must_use]
    pub fn new(size: Bytes) -> Changes {
        let map = || (0..words_of(size)).map(|_| AtomicU64::new(0)).collect();
        Changes { size, maps: [map(), map()], base: AtomicUsize::new(0) }
    }

    /// How large the disk was.
    #[must_use]
    pub fn size(&self) -> Bytes {
        self.size
    }

    /// A client is about to change this range. What lies beyond the disk is not noted: it has
    /// always changed. O(1) for up to 4 MiB.
    #[inline]
    pub fn mark(&self, offset: u64, len: u64) {
        let end = offset.saturating_add(len).min(self.size.0);
        if offset >= end {
            return;
        }
        let (first, last) = (offset >> GRAIN_BITS, (end - 1) >> GRAIN_BITS);
        for word in first >> WORD_BITS..=last >> WORD_BITS {
            let begin = first.saturating_sub(word << WORD_BITS);
            let end = (last - (word << WORD_BITS)).min(u64::from(u64::BITS) - 1);
            let bits = (u64::MAX << begin) & (u64::MAX >> (u64::from(u64::BITS) - 1 - end));
            for map in &self.maps {
                // Most changes are of what has changed before, and a load keeps the line shared.
                let known = &map[word as usize];
                if known.load(Ordering::Relaxed) & bits != bits {
                    known.fetch_or(bits, Ordering::Relaxed);
                }
            }
        }
    }

    /// A copy is about to begin: what was noted for the next base until now is of no use.
    pub fn open(&self) {
        let next = 1 - self.base.load(Ordering::Acquire);
        self.maps[next].iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }

    /// What may have changed since the base, of a disk of this size now. What lies beyond the size
    /// that was noted has.
    #[must_use]
    pub fn since_base(&self, size: Bytes) -> ChangedBlocks {
        let map = &self.maps[self.base.load(Ordering::Acquire)];
        let words = map.iter().map(|word| word.load(Ordering::Relaxed)).collect();
        ChangedBlocks { size: self.size, words }.resized(size)
    }

    /// The instant of the copy that began after the last [`Self::open`] is the base from now on.
    pub fn advance(&self) {
        self.base.fetch_xor(1, Ordering::AcqRel);
    }

    /// Notes as changed since the base what is known to be.
    pub fn absorb(&self, known: &ChangedBlocks) {
        let map = &self.maps[self.base.load(Ordering::Acquire)];
        let known = known.resized(self.size);
        for (word, known) in map.iter().zip(&known.words) {
            word.fetch_or(*known, Ordering::Relaxed);
        }
    }
}

/// Which parts of a disk may differ between two instants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedBlocks {
    size: Bytes,
    /// A bit for each grain, from the lowest on. Bits beyond the disk are 0.
    words: Box<[u64]>,
}

/// Whether a range may differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// It does not.
    None,
    /// It may.
    Possible,
}

impl ChangedBlocks {
    /// Of a disk of this size, nothing.
    #[must_use]
    pub fn none(size: Bytes) -> ChangedBlocks {
        ChangedBlocks { size, words: alloc::vec![0; words_of(size)].into() }
    }

    /// What [`Self::to_bytes`] gave for a disk of this size; `None` if it cannot have been that.
    #[must_use]
    pub fn from_bytes(size: Bytes, bytes: &[u8]) -> Option<ChangedBlocks> {
        let (words, rest) = bytes.as_chunks::<8>();
        let words: Box<[u64]> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let changed = ChangedBlocks { size, words };
        let fits = rest.is_empty() && changed.words.len() == words_of(size);
        (fits && changed.stray() == 0).then_some(changed)
    }

    /// A bit for each grain: bit `i % 8` of byte `i / 8`, filled up with 0 to whole words of 64.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// How large the disk is.
    #[must_use]
    pub fn size(&self) -> Bytes {
        self.size
    }

    /// How much may differ.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        let grains: u64 = self.words.iter().map(|word| u64::from(word.count_ones())).sum();
        let tail = self.size.0 % GRAIN.0;
        let last = self.size.0 >> GRAIN_BITS;
        let short = if tail > 0 && self.has(last) { GRAIN.0 - tail } else { 0 };
        Bytes((grains << GRAIN_BITS) - short)
    }

    /// How far the disk is alike from `offset` on, and whether it may differ there. Nothing from
    /// the disk's end on. Takes a step for each 4 MiB that it passes.
    #[must_use]
    pub fn run_at(&self, offset: u64) -> Option<(u64, Difference)> {
        if offset >= self.size.0 {
            return None;
        }
        let first = offset >> GRAIN_BITS;
        let is = self.has(first);
        let mut grain = first + 1;
        let grains = grains_of(self.size);
        while grain < grains {
            let word = self.words[(grain >> WORD_BITS) as usize];
            let other = if is { !word } else { word } >> (grain % u64::from(u64::BITS));
            if other != 0 {
                grain += u64::from(other.trailing_zeros());
                break;
            }
            grain = (grain | (u64::from(u64::BITS) - 1)) + 1;
        }
        let end = (grain.min(grains) << GRAIN_BITS).min(self.size.0);
        Some((end - offset, if is { Difference::Possible } else { Difference::None }))
    }

    /// What differs here or there, of a disk of this size.
    #[must_use]
    pub fn union(&self, other: &ChangedBlocks, size: Bytes) -> ChangedBlocks {
        let (mut all, other) = (self.resized(size), other.resized(size));
        all.words.iter_mut().zip(&other.words).for_each(|(word, other)| *word |= other);
        all
    }

    /// Of the disk with another size: what it has gained differs.
    #[must_use]
    pub fn resized(&self, size: Bytes) -> ChangedBlocks {
        let mut words = self.words.to_vec();
        words.resize(words_of(size), 0);
        let mut changed = ChangedBlocks { size, words: words.into() };
        if size > self.size {
            changed.mark_from(self.size);
        }
        let stray = changed.stray();
        if let Some(last) = changed.words.last_mut() {
            *last &= !stray;
        }
        changed
    }

    /// All from there on differs.
    fn mark_from(&mut self, from: Bytes) {
        for grain in from.0 >> GRAIN_BITS..grains_of(self.size) {
            self.words[(grain >> WORD_BITS) as usize] |= 1 << (grain % u64::from(u64::BITS));
        }
    }

    fn has(&self, grain: u64) -> bool {
        let word = self.words.get((grain >> WORD_BITS) as usize);
        word.is_some_and(|word| word >> (grain % u64::from(u64::BITS)) & 1 == 1)
    }

    /// Those bits of the last word that are beyond the disk.
    fn stray(&self) -> u64 {
        let used = grains_of(self.size) % u64::from(u64::BITS);
        match self.words.last() {
            Some(last) if used > 0 => last & (u64::MAX << used),
            _ => 0,
        }
    }
}

fn grains_of(size: Bytes) -> u64 {
    size.0.div_ceil(GRAIN.0)
}

fn words_of(size: Bytes) -> usize {
    grains_of(size).div_ceil(u64::from(u64::BITS)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// Grains that differ, one by one.
    type Naive = BTreeSet<u64>;

    fn touched(offset: u64, len: u64, size: u64) -> Naive {
        (0..size.div_ceil(GRAIN.0))
            .filter(|grain| {
                let (begin, end) = (grain * GRAIN.0, ((grain + 1) * GRAIN.0).min(size));
                len > 0 && offset < end && begin < offset.saturating_add(len)
            })
            .collect()
    }

    fn named(changed: &ChangedBlocks) -> Naive {
        let mut all = Naive::new();
        let (mut at, mut before) = (0, None);
        while let Some((len, is)) = changed.run_at(at) {
            assert!(len > 0 && before != Some(is), "runs are as long as they can be");
            if is == Difference::Possible {
                all.extend(touched(at, len, changed.size().0));
            }
            (at, before) = (at + len, Some(is));
        }
        assert_eq!(at, changed.size().0, "the last run ends with the disk");
        all
    }

    #[derive(Clone, Debug)]
    enum Step {
        Mark(u64, u64),
        Open,
        Whole,
        Failed,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let len = prop_oneof![0..9u64, 1..200_000u64, 1..20_000_000u64, Just(u64::MAX)];
        prop::collection::vec(
            prop_oneof![
                6 => (0..12_000_000u64, len).prop_map(|(offset, len)| Step::Mark(offset, len)),
                1 => Just(Step::Open),
                1 => Just(Step::Whole),
                1 => Just(Step::Failed),
            ],
            1..40,
        )
    }

    proptest! {
        #[test]
        fn what_is_not_named_has_not_changed(
            size in 1..10_000_000u64,
            later in 1..10_000_000u64,
            steps in steps(),
        ) {
            let changes = Changes::new(Bytes(size));
            // What changed since the base, and since the copy that is under way began.
            let (mut since, mut copying) = (Naive::new(), None::<Naive>);
            for step in steps {
                match step {
                    Step::Mark(offset, len) => {
                        changes.mark(offset, len);
                        let touched = touched(offset, len, size);
                        copying.iter_mut().for_each(|all| all.extend(&touched));
                        since.extend(touched);
                    }
                    Step::Open => {
                        changes.open();
                        copying = Some(Naive::new());
                    }
                    Step::Whole => {
                        if let Some(newer) = copying.take() {
                            changes.advance();
                            since = newer;
                        }
                    }
                    Step::Failed => copying = None,
                }
                prop_assert_eq!(&named(&changes.since_base(Bytes(size))), &since);
            }
            // It has another size now.
            let mut expected = touched(size, u64::MAX, later);
            if later > size {
                expected.extend(size / GRAIN.0..later.div_ceil(GRAIN.0));
            }
            expected.extend(since.iter().filter(|grain| *grain * GRAIN.0 < later));
            let changed = changes.since_base(Bytes(later));
            prop_assert_eq!(&named(&changed), &expected);
            let bytes = changed.to_bytes();
            prop_assert_eq!(ChangedBlocks::from_bytes(Bytes(later), &bytes), Some(changed));
        }

        #[test]
        fn of_two_intervals_all_is_named_that_either_names(
            sizes in (1..9_000_000u64, 1..9_000_000u64, 1..9_000_000u64),
            marks in (steps(), steps()),
        ) {
            let of = |size: u64, steps: &[Step]| {
                let changes = Changes::new(Bytes(size));
                for step in steps {
                    if let Step::Mark(offset, len) = step {
                        changes.mark(*offset, *len);
                    }
                }
                changes.since_base(Bytes(size))
            };
            let (one, other) = (of(sizes.0, &marks.0), of(sizes.1, &marks.1));
            let union = one.union(&other, Bytes(sizes.2));
            let grown = |changed: &ChangedBlocks| {
                let mut all = named(changed);
                if sizes.2 > changed.size().0 {
                    all.extend(changed.size().0 / GRAIN.0..sizes.2.div_ceil(GRAIN.0));
                }
                all.retain(|grain| grain * GRAIN.0 < sizes.2);
                all
            };
            let expected: Naive = &grown(&one) | &grown(&other);
            prop_assert_eq!(&named(&union), &expected);
            let bytes: u64 = expected.iter().map(|g| GRAIN.0.min(sizes.2 - g * GRAIN.0)).sum();
            prop_assert_eq!(union.bytes(), Bytes(bytes));
            let again = Changes::new(Bytes(sizes.2));
            again.absorb(&one);
            prop_assert_eq!(&named(&again.since_base(Bytes(sizes.2))), &grown(&one));
        }
    }

    #[test]
    fn what_cannot_be_of_the_disk_is_not_taken() {
        let size = Bytes(3 * GRAIN.0 + 1);
        let bytes = ChangedBlocks::none(size).to_bytes();
        assert_eq!(bytes.len(), 8);
        for wrong in [&bytes[..7], &[0; 16][..], &[0b1_0000, 0, 0, 0, 0, 0, 0, 0][..]] {
            assert_eq!(ChangedBlocks::from_bytes(size, wrong), None);
        }
        assert_eq!(ChangedBlocks::none(Bytes(0)).run_at(0), None);
        assert_eq!(ChangedBlocks::none(size).run_at(size.0), None);
    }
}
