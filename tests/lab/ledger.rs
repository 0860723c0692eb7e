//! What a client may rely on: for each block the content that must survive a crash, and what may
//! have replaced it.
//!
//! A write that completed before a flush was sent is durable once that flush completes; one with
//! FUA when it completes itself. Anything issued later may be there or not, acknowledged or not,
//! but whole. The ledger assumes that the client has at most one write to a block under way.

use std::collections::VecDeque;
use std::fmt;

/// Size of a block in bytes.
pub const BLOCK: usize = 4096;

/// What a block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Zeroes: never written, zeroed or trimmed.
    Zeroes,
    /// The pattern of this version of the block.
    Version(u64),
}

/// Whether a write asks to be durable by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Force {
    /// A later flush makes it durable.
    No,
    /// FUA.
    Fua,
}

/// A block that is not what it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    block: u64,
    found: String,
    durable: Content,
    later: Vec<Content>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Violation { block, found, durable, later } = self;
        write!(f, "block {block} holds {found}; durable was {durable:?}, issued since: {later:?}")
    }
}

impl std::error::Error for Violation {}

#[derive(Clone, Debug)]
struct Entry {
    content: Content,
    force: Force,
    /// Position among all acknowledgements; `None` while under way.
    acknowledged: Option<u64>,
}

#[derive(Clone, Debug)]
struct Block {
    durable: Content,
    later: VecDeque<Entry>,
}

/// A flush under way: what it makes durable when it completes.
#[derive(Clone, Copy, Debug)]
pub struct Flush {
    up_to: u64,
}

/// What one client knows about a disk that it alone writes.
pub struct Ledger {
    seed: u64,
    blocks: Vec<Block>,
    acknowledged: u64,
    versions: u64,
    /// Blocks with acknowledged but not yet durable writes, in the order of acknowledgement.
    volatile: VecDeque<(u64, u64)>,
}

impl Ledger {
    /// A disk of `blocks` blocks of zeroes; `seed` tells its patterns from those of others.
    pub fn new(seed: u64, blocks: u64) -> Ledger {
        let block = Block { durable: Content::Zeroes, later: VecDeque::new() };
        Ledger {
            seed,
            blocks: vec![block; blocks as usize],
            acknowledged: 0,
            versions: 0,
            volatile: VecDeque::new(),
        }
    }

    /// The number of blocks.
    pub fn blocks(&self) -> u64 {
        self.blocks.len() as u64
    }

    /// Is a write to this block under way?
    pub fn is_busy(&self, block: u64) -> bool {
        self.blocks[block as usize].later.back().is_some_and(|e| e.acknowledged.is_none())
    }

    /// Notes a write of a new pattern and returns the bytes to write.
    pub fn write(&mut self, block: u64, force: Force) -> Vec<u8> {
        self.versions += 1;
        let content = Content::Version(self.versions);
        self.issue(block, content, force);
        self.bytes(block, content)
    }

    /// Notes a request that zeroes the block.
    pub fn zero(&mut self, block: u64, force: Force) {
        self.issue(block, Content::Zeroes, force);
    }

    fn issue(&mut self, block: u64, content: Content, force: Force) {
        assert!(!self.is_busy(block), "two writes to block {block} at once");
        self.blocks[block as usize].later.push_back(Entry { content, force, acknowledged: None });
    }

    /// The write under way to this block has completed.
    pub fn on_write_done(&mut self, block: u64) {
        self.acknowledged += 1;
        let state = &mut self.blocks[block as usize];
        let entry = state.later.back_mut().expect("a write under way");
        entry.acknowledged = Some(self.acknowledged);
        if entry.force == Force::Fua {
            state.durable = entry.content;
            state.later.clear();
        } else {
            self.volatile.push_back((self.acknowledged, block));
        }
    }

    /// Notes that a flush is sent now.
    pub fn flush(&self) -> Flush {
        Flush { up_to: self.acknowledged }
    }

    /// That flush has completed.
    pub fn on_flush_done(&mut self, flush: Flush) {
        while let Some(&(at, block)) = self.volatile.front().filter(|(at, _)| *at <= flush.up_to) {
            self.volatile.pop_front();
            let state = &mut self.blocks[block as usize];
            while state.later.front().is_some_and(|e| e.acknowledged.is_some_and(|a| a <= at)) {
                state.durable = state.later.pop_front().expect("just seen").content;
            }
        }
    }

    /// Checks what was read after a crash, with nothing under way any more. What is found becomes
    /// what is expected; the caller flushes before it relies on that.
    pub fn on_read_back(&mut self, block: u64, bytes: &[u8]) -> Result<(), Violation> {
        let state = &self.blocks[block as usize];
        let candidates =
            std::iter::once(state.durable).chain(state.later.iter().rev().map(|e| e.content));
        let Some(found) = candidates.into_iter().find(|c| self.bytes(block, *c) == bytes) else {
            return Err(Violation {
                block,
                found: self.describe(bytes),
                durable: state.durable,
                later: state.later.iter().map(|e| e.content).collect(),
            });
        };
        self.blocks[block as usize] = Block { durable: found, later: VecDeque::new() };
        self.volatile.retain(|(_, b)| *b != block);
        Ok(())
    }

    /// The bytes of a content: 16-byte cells of (seed and block mixed with the cell's index,
    /// version).
    fn bytes(&self, block: u64, content: Content) -> Vec<u8> {
        let Content::Version(version) = content else { return vec![0; BLOCK] };
        (0..BLOCK as u64 / 16)
            .flat_map(|cell| {
                let place = splitmix(self.seed ^ splitmix(block) ^ cell);
                [place.to_le_bytes(), version.to_le_bytes()].concat()
            })
            .collect()
    }

    /// Names what a block holds that nobody expected there.
    fn describe(&self, bytes: &[u8]) -> String {
        if bytes.len() != BLOCK {
            return format!("{} bytes", bytes.len());
        }
        let word =
            |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        if bytes.iter().all(|b| *b == 0) {
            return "zeroes".to_owned();
        }
        let version = word(8);
        let owner = (0..self.blocks()).find(|b| self.bytes(*b, Content::Version(version)) == bytes);
        match owner {
            Some(block) => format!("version {version} of block {block}"),
            None => {
                let mut versions: Vec<u64> =
                    (0..BLOCK / 16).map(|cell| word(cell * 16 + 8)).collect();
                versions.dedup();
                versions.truncate(8);
                format!("a mixture: {versions:?}")
            }
        }
    }
}

/// A step of the generator splitmix64: a cheap, well-mixing bijection.
pub fn splitmix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flushed_write_must_be_found_and_an_unflushed_one_may_be() {
        let mut ledger = Ledger::new(1, 4);
        let old = ledger.write(2, Force::No);
        ledger.on_write_done(2);
        let flush = ledger.flush();
        let new = ledger.write(2, Force::No);
        ledger.on_write_done(2);
        ledger.on_flush_done(flush);
        assert!(ledger.on_read_back(2, &[0; BLOCK]).is_err(), "the flushed write is lost");
        assert_eq!(ledger.on_read_back(2, &new), Ok(()));
        assert!(ledger.on_read_back(2, &old).is_err(), "what was read back once stays");
    }

    #[test]
    fn a_flush_does_not_cover_a_write_that_completes_after_it_was_sent() {
        let mut ledger = Ledger::new(1, 1);
        let bytes = ledger.write(0, Force::No);
        let flush = ledger.flush();
        ledger.on_write_done(0);
        ledger.on_flush_done(flush);
        assert_eq!(ledger.on_read_back(0, &[0; BLOCK]), Ok(()));
        assert!(ledger.on_read_back(0, &bytes).is_err());
    }

    #[test]
    fn a_forced_write_is_durable_at_once() {
        let mut ledger = Ledger::new(1, 1);
        let bytes = ledger.write(0, Force::Fua);
        ledger.on_write_done(0);
        ledger.zero(0, Force::Fua);
        assert!(ledger.clone_for_test().on_read_back(0, &bytes).is_ok(), "zeroing is under way");
        ledger.on_write_done(0);
        assert!(ledger.on_read_back(0, &bytes).is_err());
    }

    #[test]
    fn a_torn_or_misplaced_block_is_named() {
        let mut ledger = Ledger::new(1, 2);
        let here = ledger.write(0, Force::No);
        let there = ledger.write(1, Force::No);
        let swapped = ledger.on_read_back(0, &there).unwrap_err().to_string();
        assert!(swapped.contains("version 2 of block 1"), "{swapped}");
        let torn = [&here[..512], &[0; BLOCK - 512]].concat();
        assert!(ledger.on_read_back(0, &torn).unwrap_err().to_string().contains("a mixture"));
    }

    impl Ledger {
        fn clone_for_test(&self) -> Ledger {
            Ledger { blocks: self.blocks.clone(), volatile: self.volatile.clone(), ..*self }
        }
    }
}
