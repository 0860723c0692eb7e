//! Which chunks of the disk are copied.

use super::error::SetupError;
use crate::extent::Extent;
use alloc::vec::Vec;
use headgate_units::Bytes;

/// What a chunk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Chunk {
    /// Its content as of the instant is in a buffer or at the target, or known to be zeroes.
    Copied,
    /// Nothing that changes it was sent since the instant.
    Frozen,
}

/// A bit for each chunk.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Chunks {
    size: u64,
    /// Chunks are of two to the power of this.
    shift: u32,
    words: Vec<u64>,
    copied: u64,
}

impl Chunks {
    /// All of them frozen, and as large as they must be to be as few as may be.
    pub(super) fn new(size: Bytes, smallest: Bytes, room: Bytes) -> Result<Chunks, SetupError> {
        if !smallest.0.is_power_of_two() {
            return Err(SetupError::ChunkNotAPowerOfTwo);
        }
        let last = size.0.checked_sub(1).ok_or(SetupError::Empty)?;
        let bits = room.0.saturating_mul(8);
        let mut shift = smallest.0.trailing_zeros();
        while shift < 63 && last >> shift >= bits {
            shift += 1;
        }
        let words = usize::try_from((last >> shift) / 64 + 1).map_err(|_| SetupError::NoMemory)?;
        let mut frozen = Vec::new();
        frozen.try_reserve_exact(words).map_err(|_| SetupError::NoMemory)?;
        frozen.resize(words, 0);
        Ok(Chunks { size: size.0, shift, words: frozen, copied: 0 })
    }

    pub(super) fn chunk(&self) -> u64 {
        1 << self.shift
    }

    /// How much is copied.
    pub(super) fn copied(&self) -> Bytes {
        Bytes(self.copied)
    }

    pub(super) fn is_full(&self) -> bool {
        self.copied == self.size
    }

    /// So much, in whole chunks, and one at least.
    pub(super) fn whole(&self, len: Bytes) -> u64 {
        len.0.max(self.chunk()) & !(self.chunk() - 1)
    }

    /// The border at this byte or before. The end of the disk is one.
    pub(super) fn border_before(&self, at: u64) -> u64 {
        if at >= self.size { self.size } else { at & !(self.chunk() - 1) }
    }

    /// The border at this byte or behind.
    pub(super) fn border_behind(&self, at: u64) -> u64 {
        at.checked_next_multiple_of(self.chunk()).map_or(self.size, |border| border.min(self.size))
    }

    /// Where something else than this begins, from a byte on and up to another.
    pub(super) fn run_end(&self, kind: Chunk, from: u64, to: u64) -> u64 {
        if from >= to {
            return to;
        }
        let (first, last) = (from >> self.shift, (to - 1) >> self.shift);
        for word in first / 64..=last / 64 {
            let Some(copied) = self.words.get(word as usize) else { return to };
            let mut others = if kind == Chunk::Copied { !copied } else { *copied };
            if word == first / 64 {
                others &= u64::MAX << (first % 64);
            }
            if others != 0 {
                let chunk = word * 64 + u64::from(others.trailing_zeros());
                return if chunk > last { to } else { from.max(chunk << self.shift) };
            }
        }
        to
    }

    /// Its frozen chunks are copied from now on.
    pub(super) fn mark(&mut self, extent: Extent) {
        let (first, last) = (extent.start().0 >> self.shift, (extent.end().0 - 1) >> self.shift);
        for chunk in first..=last {
            let Some(word) = self.words.get_mut((chunk / 64) as usize) else { return };
            let bit = 1 << (chunk % 64);
            if *word & bit == 0 {
                *word |= bit;
                self.copied += self.chunk().min(self.size - (chunk << self.shift));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunks(size: u64, chunk: u64) -> Chunks {
        Chunks::new(Bytes(size), Bytes(chunk), Bytes(1 << 20)).unwrap()
    }

    fn extent(start: u64, len: u64) -> Extent {
        Extent::new(Bytes(start), Bytes(len)).unwrap()
    }

    #[test]
    fn chunks_are_as_small_as_the_bitmap_allows() {
        let chunk = |size, room| Chunks::new(Bytes(size), Bytes(4), Bytes(room)).unwrap().chunk();
        for (size, room, expected) in [
            (1, 1, 4),
            (32, 1, 4),
            (33, 1, 8),
            (64, 1, 8),
            (65, 1, 16),
            (65, 2, 8),
            (u64::MAX, 1, 1 << 61),
        ] {
            assert_eq!(chunk(size, room), expected, "{size} in {room}");
        }
        let mib = Bytes::from_mib(1);
        for (gib, kib) in [(512, 64), (513, 128), (8192, 1024)] {
            let made = Chunks::new(Bytes::from_gib(gib), Bytes::from_kib(64), mib).unwrap();
            assert_eq!(made.chunk(), Bytes::from_kib(kib).0, "{gib} GiB");
            assert!(made.words.len() * 8 <= 1 << 20);
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let new = |size, chunk, room| Chunks::new(Bytes(size), Bytes(chunk), Bytes(room));
        assert_eq!(new(0, 4, 9), Err(SetupError::Empty));
        assert_eq!(new(9, 3, 9), Err(SetupError::ChunkNotAPowerOfTwo));
        assert_eq!(new(9, 0, 9), Err(SetupError::ChunkNotAPowerOfTwo));
        assert_eq!(new(u64::MAX, 1, u64::MAX), Err(SetupError::NoMemory));
    }

    /// Against a list of booleans.
    #[test]
    fn runs_end_where_they_end() {
        for seed in 0..50_u64 {
            let size = 4 * 150 - 3;
            let mut made = chunks(size, 4);
            let mut plain = [false; 150];
            let mut random = seed;
            for _ in 0..seed {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let start = (random >> 33) % 150;
                let len = (1 + (random >> 50) % 9).min(150 - start);
                made.mark(extent(start * 4, (len * 4).min(size - start * 4)));
                plain[start as usize..(start + len) as usize].fill(true);
            }
            let copied = (0..size).filter(|byte| plain[(byte / 4) as usize]).count() as u64;
            assert_eq!(made.copied(), Bytes(copied));
            for kind in [Chunk::Copied, Chunk::Frozen] {
                for from in 0..size {
                    for to in [from + 1, from + 7, from + 300, size] {
                        let to = to.min(size);
                        let same =
                            |byte: &u64| plain[(byte / 4) as usize] == (kind == Chunk::Copied);
                        let end = from + (from..to).take_while(same).count() as u64;
                        assert_eq!(made.run_end(kind, from, to), end, "{from} to {to}");
                    }
                }
            }
        }
    }

    #[test]
    fn borders_are_at_chunks_and_at_the_end() {
        let made = chunks(10, 4);
        for (at, before, behind) in
            [(0, 0, 0), (1, 0, 4), (4, 4, 4), (9, 8, 10), (10, 10, 10), (u64::MAX, 10, 10)]
        {
            assert_eq!(made.border_before(at), before, "{at}");
            assert_eq!(made.border_behind(at), behind, "{at}");
        }
        assert_eq!([0, 3, 4, 11].map(|len| made.whole(Bytes(len))), [4, 4, 4, 8]);
    }

    #[test]
    fn the_last_chunk_counts_as_much_as_it_holds() {
        let mut made = chunks(10, 4);
        made.mark(extent(8, 2));
        assert_eq!(made.copied(), Bytes(2));
        made.mark(extent(0, 10));
        assert!(made.is_full());
    }
}
