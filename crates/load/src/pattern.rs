//! The pattern of verified blocks. Every sector holds the disk offset and the generation that it
//! was written for, and the rest follows from them. So any block shows where it belongs, how old it
//! is, and whether it is whole.
//!
//! ```text
//! 0 identity u64 | 8 disk offset u64 | 16 generation u32 | 20 folded u32 | 24 words that follow from the three
//! ```
//! The identity belongs to one run (or one journal): blocks of earlier runs are foreign.

use crate::workload::mix;
use std::fmt;

/// The unit of self-description, in bytes: nothing smaller is written whole by any device.
pub const SECTOR: usize = 512;

const HEAD: usize = 24;
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Which version of a block: 1 is the first write of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub u32);

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("older data"),
            n => write!(f, "generation {n}"),
        }
    }
}

/// The content found in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// This block of this run, whole.
    Whole(Generation),
    /// Zero bytes only.
    Zeroes,
    /// Sectors of different generations; 0: a sector that is not of this run.
    Torn {
        /// Of the first sector.
        first: Generation,
        /// Of the first sector that differs.
        then: Generation,
        /// Where that begins, in bytes from the block's start.
        at: usize,
    },
    /// Begins as a sector of this run, and goes on wrong.
    Broken {
        /// Of the first sector.
        first: Generation,
        /// The first byte that is wrong, from the block's start.
        at: usize,
    },
    /// A sector of this run that belongs to another disk offset.
    Misplaced {
        /// Where it belongs.
        belongs: u64,
        /// Its generation.
        generation: Generation,
        /// Where it was found, in bytes from the block's start.
        at: usize,
    },
    /// Nothing of this run.
    Foreign,
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Content::Whole(generation) => write!(f, "{generation}"),
            Content::Zeroes => f.write_str("zeroes"),
            Content::Torn { first, then, at } => {
                write!(f, "{first} up to byte {at}, then {then}")
            }
            Content::Broken { first, at } => write!(f, "{first}, wrong from byte {at} on"),
            Content::Misplaced { belongs, generation, at } => {
                write!(f, "at byte {at}, {generation} of disk offset {belongs}")
            }
            Content::Foreign => f.write_str("data that this run never wrote"),
        }
    }
}

fn root(identity: u64, offset: u64, generation: Generation) -> u64 {
    mix(identity ^ mix(offset.wrapping_add(STEP).wrapping_add(u64::from(generation.0) << 40)))
}

fn fold(root: u64) -> u32 {
    (root ^ root >> 32) as u32
}

fn word(root: u64, i: usize) -> u64 {
    let x = root.wrapping_add((i as u64 + 1).wrapping_mul(STEP));
    x ^ x >> 29
}

/// Fills `block`, a whole number of sectors, with what `generation` of the block at disk offset
/// `offset` holds.
pub fn fill(block: &mut [u8], identity: u64, offset: u64, generation: Generation) {
    for (i, sector) in block.chunks_exact_mut(SECTOR).enumerate() {
        let offset = offset + (i * SECTOR) as u64;
        let root = root(identity, offset, generation);
        let (head, body) = sector.split_at_mut(HEAD);
        head[0..8].copy_from_slice(&identity.to_le_bytes());
        head[8..16].copy_from_slice(&offset.to_le_bytes());
        head[16..20].copy_from_slice(&generation.0.to_le_bytes());
        head[20..24].copy_from_slice(&fold(root).to_le_bytes());
        for (i, bytes) in body.chunks_exact_mut(8).enumerate() {
            bytes.copy_from_slice(&word(root, i).to_le_bytes());
        }
    }
}

struct Stamp {
    offset: u64,
    generation: Generation,
    root: u64,
}

/// The stamp of a sector of this run, if its head is one.
fn stamp(sector: &[u8], identity: u64) -> Option<Stamp> {
    let word = |at: usize| Some(u64::from_le_bytes(sector.get(at..at + 8)?.try_into().ok()?));
    let (found, offset, last) = (word(0)?, word(8)?, word(16)?);
    let generation = Generation(last as u32);
    let root = root(identity, offset, generation);
    (found == identity && (last >> 32) as u32 == fold(root)).then_some(Stamp {
        offset,
        generation,
        root,
    })
}

fn first_wrong_byte(sector: &[u8], root: u64) -> Option<usize> {
    let body = &sector[HEAD..];
    let wrong = body
        .chunks_exact(8)
        .enumerate()
        .find(|(i, bytes)| **bytes != word(root, *i).to_le_bytes())?;
    let expected = word(root, wrong.0).to_le_bytes();
    let within =
        wrong.1.iter().zip(expected).position(|(found, expected)| *found != expected).unwrap_or(0);
    Some(HEAD + wrong.0 * 8 + within)
}

/// The content of `block`, read from disk offset `offset`.
pub fn inspect(block: &[u8], identity: u64, offset: u64) -> Content {
    let mut first = None;
    for (i, sector) in block.chunks_exact(SECTOR).enumerate() {
        let at = i * SECTOR;
        match (stamp(sector, identity), first) {
            (Some(stamp), _) if stamp.offset != offset + at as u64 => {
                return Content::Misplaced {
                    belongs: stamp.offset,
                    generation: stamp.generation,
                    at,
                };
            }
            (Some(stamp), _) => {
                if let Some(wrong) = first_wrong_byte(sector, stamp.root) {
                    return Content::Broken {
                        first: first.unwrap_or(stamp.generation),
                        at: at + wrong,
                    };
                }
                let first = *first.get_or_insert(stamp.generation);
                if i > 0 && first != stamp.generation {
                    return Content::Torn { first, then: stamp.generation, at };
                }
            }
            (None, Some(first)) if sector[..8] == identity.to_le_bytes() => {
                return Content::Broken { first, at };
            }
            (None, Some(first)) => return Content::Torn { first, then: Generation(0), at },
            (None, None) if i == 0 => {
                // Not ours from the start: look whether one of ours begins further on.
                return leading_foreign(block, identity, offset);
            }
            (None, None) => return Content::Foreign,
        }
    }
    first.map_or(Content::Foreign, Content::Whole)
}

fn leading_foreign(block: &[u8], identity: u64, offset: u64) -> Content {
    let found =
        block.chunks_exact(SECTOR).enumerate().find_map(|(i, s)| Some((i, stamp(s, identity)?)));
    match found {
        Some((i, stamp)) if stamp.offset != offset + (i * SECTOR) as u64 => Content::Misplaced {
            belongs: stamp.offset,
            generation: stamp.generation,
            at: i * SECTOR,
        },
        Some((i, stamp)) => {
            Content::Torn { first: Generation(0), then: stamp.generation, at: i * SECTOR }
        }
        None if block.iter().all(|b| *b == 0) => Content::Zeroes,
        None => Content::Foreign,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn block(sectors: usize, offset: u64, generation: u32) -> Vec<u8> {
        let mut block = vec![0; sectors * SECTOR];
        fill(&mut block, 42, offset, Generation(generation));
        block
    }

    proptest! {
        #[test]
        fn a_block_tells_what_it_is(identity: u64, sectors in 1usize..9, offset in 0u64..1 << 50, generation: u32) {
            let mut block = vec![0; sectors * SECTOR];
            fill(&mut block, identity, offset, Generation(generation));
            prop_assert_eq!(inspect(&block, identity, offset), Content::Whole(Generation(generation)));
            prop_assert_eq!(inspect(&block, identity ^ 1, offset), Content::Foreign);
            let elsewhere = inspect(&block, identity, offset + 4096);
            prop_assert_eq!(
                elsewhere,
                Content::Misplaced { belongs: offset, generation: Generation(generation), at: 0 }
            );
        }

        #[test]
        fn no_changed_bit_goes_unnoticed(sectors in 1usize..9, at in 0usize..4096, bit in 0u8..8) {
            let mut bytes = block(sectors, 8192, 7);
            let at = at % bytes.len();
            bytes[at] ^= 1 << bit;
            prop_assert_ne!(inspect(&bytes, 42, 8192), Content::Whole(Generation(7)));
        }
    }

    #[test]
    fn each_fault_has_its_name() {
        let mut torn = block(8, 0, 3);
        torn[1024..].copy_from_slice(&block(8, 0, 4)[1024..]);
        let expected = Content::Torn { first: Generation(3), then: Generation(4), at: 1024 };
        assert_eq!(inspect(&torn, 42, 0), expected);

        let mut half = vec![0; 4096];
        assert_eq!(inspect(&half, 42, 0), Content::Zeroes);
        half[2048..].copy_from_slice(&block(8, 0, 4)[2048..]);
        let expected = Content::Torn { first: Generation(0), then: Generation(4), at: 2048 };
        assert_eq!(inspect(&half, 42, 0), expected);

        let mut cut = block(8, 0, 3);
        cut[2048..].fill(0);
        let expected = Content::Torn { first: Generation(3), then: Generation(0), at: 2048 };
        assert_eq!(inspect(&cut, 42, 0), expected);
        let mut flipped = block(8, 0, 3);
        flipped[700] ^= 0x10;
        assert_eq!(inspect(&flipped, 42, 0), Content::Broken { first: Generation(3), at: 700 });

        let mut mixed = block(8, 0, 3);
        mixed[512..1024].copy_from_slice(&block(1, 99 * 512, 5));
        let expected = Content::Misplaced { belongs: 99 * 512, generation: Generation(5), at: 512 };
        assert_eq!(inspect(&mixed, 42, 0), expected);
        assert_eq!(inspect(&[7; 4096], 42, 0), Content::Foreign);
    }
}
