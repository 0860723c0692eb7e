//! Requests whose range is not one of whole blocks, cut into parts that are, and edges within one
//! block. Pure: the port serves the parts one after the other.

use super::buddy::Block;
use headgate_engine::request::Op;

/// How far such a request is.
#[derive(Debug, Default)]
pub struct Unaligned {
    /// Bytes that are served.
    pub done: u32,
    pub step: Step,
}

/// What is being done with the part after them.
#[derive(Debug, Default)]
pub enum Step {
    /// It is to be begun.
    #[default]
    Next,
    /// Its payload is being received.
    Filling(Block),
    /// It waits for its block.
    Locking(Block),
    /// It has its block, which is to be read.
    Locked(Block),
    /// Its block is read and changed, and is to be written back.
    Changed(Block),
    /// It is at the disk.
    AtDisk(Doing),
    /// The disk is asked for its place in an image in memory.
    Placing(Block),
}

/// What the disk does for a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// All of it.
    All,
    /// Reads the block of which a part will be changed.
    ReadToChange,
    /// Writes the changed block.
    WriteBack,
}

/// A part of a request's range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// First byte of the blocks that it lies in.
    pub start: u64,
    /// Length of those blocks in bytes.
    pub span: u32,
    /// Where it begins within them.
    pub skip: u32,
    /// Its length in bytes.
    pub len: u32,
}

impl Part {
    /// The first part of a range that is not empty. Whole blocks come as many as fit into
    /// `longest`, which is a multiple of the block size.
    pub fn first(offset: u64, len: u32, block: u32, longest: u32) -> Part {
        let skip = (offset % u64::from(block)) as u32;
        let start = offset - u64::from(skip);
        if skip == 0 && len >= block {
            let len = (len - len % block).min(longest);
            return Part { start, span: len, skip, len };
        }
        Part { start, span: block, skip, len: len.min(block - skip) }
    }

    /// Whether only a part of a block belongs to it.
    pub fn is_edge(&self) -> bool {
        self.len != self.span
    }

    /// The buffer that it needs in bytes, and where in that its payload goes: the payload of an
    /// edge waits behind the block that it will be put into.
    pub fn buffer(&self, op: Op) -> (u32, u32) {
        match op {
            Op::Read => (self.span, 0),
            Op::Write(_) if self.is_edge() => (2 * self.span, self.span),
            Op::Write(_) => (self.span, 0),
            _ if self.is_edge() => (self.span, 0),
            _ => (0, 0),
        }
    }
}

/// The whole blocks within a range, if there are any.
pub fn inward(offset: u64, len: u32, block: u32) -> Option<(u64, u32)> {
    let (block, end) = (u64::from(block), offset + u64::from(len));
    let (start, end) = (offset.next_multiple_of(block), end - end % block);
    // No longer than the range was.
    (start < end).then(|| (start, (end - start) as u32))
}

/// The blocks that a range touches; where that is more than a request may have, the first of them.
pub fn outward(offset: u64, len: u32, block: u32) -> (u64, u32) {
    let start = offset - offset % u64::from(block);
    let end = (offset + u64::from(len)).next_multiple_of(u64::from(block));
    let most = u32::MAX - u32::MAX % block;
    (start, u32::try_from(end - start).unwrap_or(most).min(most))
}

#[cfg(test)]
mod tests {
    use super::*;
    use headgate_engine::request::Durability;
    use proptest::prelude::*;

    fn parts(offset: u64, len: u32, block: u32, longest: u32) -> Vec<Part> {
        let (mut done, mut all) = (0, Vec::new());
        while done < len {
            let part = Part::first(offset + u64::from(done), len - done, block, longest);
            done += part.len;
            all.push(part);
        }
        all
    }

    #[test]
    fn a_range_is_an_edge_whole_blocks_and_an_edge() {
        let part = |start, span, skip, len| Part { start, span, skip, len };
        assert_eq!(
            parts(700, 2000, 512, 1024),
            [
                part(512, 512, 188, 324),
                part(1024, 1024, 0, 1024),
                part(2048, 512, 0, 512),
                part(2560, 512, 0, 140)
            ]
        );
        assert_eq!(parts(1, 1, 4096, 65536), [part(0, 4096, 1, 1)]);
        let write = Op::Write(Durability::Cached);
        assert_eq!(
            [part(0, 512, 1, 2).buffer(write), part(0, 1024, 0, 1024).buffer(write)],
            [(1024, 512), (1024, 0)]
        );
    }

    proptest! {
        #[test]
        fn parts_cover_their_range_and_rounding_keeps_to_blocks(
            offset in 0u64..1 << 20,
            len in 1u32..1 << 20,
            shift in 9u32..13,
        ) {
            let block = 1 << shift;
            let mut at = offset;
            for part in parts(offset, len, block, 65536) {
                prop_assert_eq!(part.start + u64::from(part.skip), at);
                prop_assert!(part.len > 0 && part.skip + part.len <= part.span);
                prop_assert!(part.start.is_multiple_of(block.into()) && part.span.is_multiple_of(block));
                prop_assert!(!part.is_edge() || part.span == block);
                at += u64::from(part.len);
            }
            prop_assert_eq!(at, offset + u64::from(len));
            let end = offset + u64::from(len);
            let (start, long) = outward(offset, len, block);
            prop_assert!(start <= offset && start + u64::from(long) >= end);
            prop_assert!(start.is_multiple_of(block.into()) && long.is_multiple_of(block));
            if let Some((start, long)) = inward(offset, len, block) {
                prop_assert!(start >= offset && start + u64::from(long) <= end && long > 0);
                prop_assert!(start.is_multiple_of(block.into()) && long.is_multiple_of(block));
            }
        }
    }

    #[test]
    fn a_range_that_grows_beyond_a_requests_length_is_cut() {
        assert_eq!(outward(1, u32::MAX, 512), (0, u32::MAX - 511));
        assert_eq!(inward(1, 511, 512), None);
    }
}
