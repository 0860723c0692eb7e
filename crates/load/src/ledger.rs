//! The ledger: the legal contents of each block of a disk, for `--verify` and crash tests. Pure.
//!
//! # The rules
//! A block is the unit that the disk promises to write whole; it is never read while it is written,
//! and never written twice at once, so that every write has one predecessor. Its writes are
//! generations 1, 2, 3 and so on. Then:
//!
//! 1. **Durable.** When a flush is acknowledged, every write that was acknowledged *before the
//!    flush was sent* is durable; a write with FUA is durable when it is acknowledged. A durable
//!    generation, or a later one, is there for ever.
//! 2. **Visible.** What was acknowledged, or read, is what later reads see, or something newer: as
//!    long as the server lives. Its death takes back what is visible but not durable, down to the
//!    last durable generation.
//! 3. **In flight.** A write that was sent but not acknowledged (it failed, or the server died) may
//!    appear at any later time or never: until a newer write of that block is acknowledged, which
//!    rules it out.
//! 4. **Whole.** All sectors of a block are of one generation, at the offset they were written for,
//!    with the bytes that were written. This holds after a crash too.
//! 5. A block that was never written may hold anything but a block of this run that belongs
//!    elsewhere.
//!
//! So a block read holds a generation of `floor ..= issued`: `floor` is the visible one while the
//! server lives and the durable one after its death; `issued` is the last one sent. A generation
//! made by write-zeroes is seen as zeroes.
//!
//! All calls are O(blocks named), but [`Ledger::on_crash`] and [`Ledger::on_flushed`]: O(blocks it
//! concerns).

use crate::pattern::{Content, Generation};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use thiserror::Error;

/// Most blocks in one ledger: 16 bytes each.
pub const MAX_BLOCKS: u64 = 64 << 20;

/// A block's place on the disk, counted in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Block(pub u64);

/// The content that a write leaves in its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// The pattern.
    Pattern,
    /// Zeroes.
    Zeroes,
}

/// A block that holds what it must not.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("block {} at disk offset {offset}: expected {expected}, found {found}: {kind}", block.0)]
pub struct Fault {
    /// Which block.
    pub block: Block,
    /// Its first byte on the disk.
    pub offset: u64,
    /// The generations that it may hold.
    pub expected: Expected,
    /// What it holds.
    pub found: Content,
    /// What that means.
    pub kind: FaultKind,
}

/// The legal generations of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The oldest.
    pub floor: Generation,
    /// The newest.
    pub issued: Generation,
    /// Below this nothing may ever be seen again.
    pub durable: Generation,
}

impl std::fmt::Display for Expected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.floor == self.issued {
            write!(f, "{}", self.floor)?;
        } else {
            write!(f, "generation {} to {}", self.floor.0, self.issued.0)?;
        }
        match self.durable.0 {
            0 => Ok(()),
            n => write!(f, " (durable: {n})"),
        }
    }
}

/// The kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FaultKind {
    /// Older than a flushed write.
    #[error("a durable write is lost")]
    Lost,
    /// Older than what was acknowledged or seen while this server lived.
    #[error("stale data")]
    Stale,
    /// Newer than what was ever sent.
    #[error("a write that was never sent")]
    NeverSent,
    /// Parts of several writes.
    #[error("a torn write")]
    Torn,
    /// Another block's data.
    #[error("a misplaced write")]
    Misplaced,
    /// Bytes that were never written.
    #[error("damaged data")]
    Damaged,
}

/// The state of one block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct State {
    issued: u32,
    visible: u32,
    durable: u32,
    /// Readers at work, or [`WRITER`].
    users: u32,
}

const WRITER: u32 = u32::MAX;

/// A flush on its way: what it covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushTicket(u64);

/// See the module.
#[derive(Clone, Debug)]
pub struct Ledger {
    block_size: u32,
    first: u64,
    blocks: Vec<State>,
    /// Acknowledged, not yet durable: in the order of acknowledgement, numbered from `acknowledged
    /// - pending.len()`.
    pending: VecDeque<(Block, Generation)>,
    acknowledged: u64,
    /// Generations that are zeroes, per block.
    zeroes: BTreeMap<u64, Vec<u32>>,
    written: u64,
}

impl Ledger {
    /// A ledger of the blocks that lie wholly inside the bytes `span`, none of them written.
    ///
    /// # Errors
    /// More than [`MAX_BLOCKS`] blocks, or none.
    pub fn new(block_size: u32, span: Range<u64>) -> Result<Ledger, String> {
        let size = u64::from(block_size.max(1));
        let first = span.start.div_ceil(size);
        let count = (span.end / size).saturating_sub(first);
        if count == 0 || count > MAX_BLOCKS {
            return Err(format!(
                "{count} blocks of {size} bytes would have to be verified: 1 to {MAX_BLOCKS} were expected; choose another --offset-range"
            ));
        }
        Ok(Ledger {
            block_size,
            first,
            blocks: vec![State::default(); count as usize],
            pending: VecDeque::new(),
            acknowledged: 0,
            zeroes: BTreeMap::new(),
            written: 0,
        })
    }

    /// Bytes of a block.
    pub fn block_size(&self) -> u32 {
        self.block_size
    }

    /// How many blocks were written at least once.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// The written blocks from `from` on, in order.
    pub fn written_from(&self, from: Block) -> impl Iterator<Item = Block> + '_ {
        let skip = from.0.saturating_sub(self.first) as usize;
        let states = self.blocks.iter().enumerate().skip(skip);
        states.filter(|(_, s)| s.issued > 0).map(|(i, _)| Block(self.first + i as u64))
    }

    /// The blocks of a request, if all of it lies in the ledger and on whole blocks.
    pub fn blocks_of(&self, offset: u64, len: u32) -> Option<Range<u64>> {
        let size = u64::from(self.block_size);
        let end = offset.checked_add(len.into())?;
        let range = offset / size..end / size;
        let inside =
            range.start >= self.first && range.end <= self.first + self.blocks.len() as u64;
        (inside && len > 0 && offset.is_multiple_of(size) && end.is_multiple_of(size))
            .then_some(range)
    }

    fn state(&mut self, block: u64) -> &mut State {
        &mut self.blocks[(block - self.first) as usize]
    }

    fn get(&self, block: u64) -> State {
        self.blocks[(block - self.first) as usize]
    }

    /// Reserves blocks for a read. `false`: one of them is being written, choose others.
    pub fn begin_read(&mut self, blocks: Range<u64>) -> bool {
        if blocks.clone().any(|b| self.get(b).users >= WRITER - 1) {
            return false;
        }
        blocks.for_each(|b| self.state(b).users += 1);
        true
    }

    /// Reserves blocks for a write and gives them a new generation each. `false`: one of them is in
    /// use, choose others.
    pub fn begin_write(&mut self, blocks: Range<u64>, fill: Fill) -> bool {
        if blocks.clone().any(|b| self.get(b).users > 0 || self.get(b).issued == u32::MAX) {
            return false;
        }
        for block in blocks {
            self.state(block).users = WRITER;
            let issued = self.issue(block);
            if fill == Fill::Zeroes {
                self.zeroes.entry(block).or_default().push(issued);
            }
        }
        true
    }

    fn issue(&mut self, block: u64) -> u32 {
        let state = self.state(block);
        state.issued += 1;
        let issued = state.issued;
        if issued == 1 {
            self.written += 1;
        }
        issued
    }

    /// The generation that the write in flight gives the block.
    pub fn issued(&self, block: Block) -> Generation {
        Generation(self.get(block.0).issued)
    }

    /// The read is over, well or not.
    pub fn end_read(&mut self, blocks: Range<u64>) {
        for block in blocks {
            let state = self.state(block);
            state.users = state.users.saturating_sub(1);
        }
    }

    /// The write was acknowledged; `durable` with FUA.
    pub fn on_written(&mut self, blocks: Range<u64>, durable: crate::link::Durability) {
        for block in blocks {
            let state = self.state(block);
            state.users = 0;
            state.visible = state.issued;
            let generation = Generation(state.issued);
            if durable == crate::link::Durability::Fua {
                state.durable = state.issued;
                self.forget_zeroes(block);
            } else {
                self.pending.push_back((Block(block), generation));
                self.acknowledged += 1;
            }
        }
    }

    /// The write failed, or will never be answered: rule 3.
    pub fn on_write_unknown(&mut self, blocks: Range<u64>) {
        blocks.for_each(|b| self.state(b).users = 0);
    }

    /// A flush is about to be sent. Give the answer to [`on_flushed`](Self::on_flushed) if it
    /// succeeds.
    pub fn begin_flush(&self) -> FlushTicket {
        FlushTicket(self.acknowledged)
    }

    /// The flush was acknowledged.
    pub fn on_flushed(&mut self, ticket: FlushTicket) {
        while self.acknowledged - (self.pending.len() as u64) < ticket.0 {
            let Some((block, generation)) = self.pending.pop_front() else { break };
            let state = self.state(block.0);
            state.durable = state.durable.max(generation.0);
            self.forget_zeroes(block.0);
        }
    }

    /// Zero generations older than the durable one no longer matter.
    fn forget_zeroes(&mut self, block: u64) {
        let durable = self.get(block).durable;
        if let Some(list) = self.zeroes.get_mut(&block) {
            list.retain(|g| *g >= durable);
            if list.is_empty() {
                self.zeroes.remove(&block);
            }
        }
    }

    /// The server died. Flushes on their way cover nothing, and what was visible counts only if
    /// durable.
    pub fn on_crash(&mut self) {
        let pending = std::mem::take(&mut self.pending);
        for state in &mut self.blocks {
            state.visible = state.durable;
        }
        drop(pending);
    }

    fn expected(&self, block: Block) -> Expected {
        let state = self.get(block.0);
        Expected {
            floor: Generation(state.visible.max(state.durable)),
            issued: Generation(state.issued),
            durable: Generation(state.durable),
        }
    }

    /// Judges what a block was read to hold. What is legal and was seen is visible from now on.
    ///
    /// # Errors
    /// The [`Fault`]; the ledger is not changed by it.
    pub fn judge(&mut self, block: Block, found: Content) -> Result<(), Fault> {
        let expected = self.expected(block);
        let legal = expected.floor.0..=expected.issued.0;
        let kind = match found {
            Content::Whole(g) if legal.contains(&g.0) && !self.is_zeroes(block, g.0) => {
                // Rule 2: having been read, it stays.
                self.state(block.0).visible = g.0;
                return Ok(());
            }
            Content::Whole(g) if g > expected.issued => FaultKind::NeverSent,
            Content::Whole(g) if g < expected.durable => FaultKind::Lost,
            Content::Whole(_) => FaultKind::Stale,
            Content::Zeroes if self.seen_as_zeroes(block, legal.clone()) => return Ok(()),
            Content::Zeroes | Content::Foreign if legal.contains(&0) => return Ok(()),
            // Zeroes that were durable, or came after what was: an old state, but none that a flush
            // had settled.
            Content::Zeroes if self.zeroes.contains_key(&block.0) => FaultKind::Stale,
            Content::Zeroes | Content::Foreign if expected.durable.0 > 0 => FaultKind::Lost,
            Content::Zeroes | Content::Foreign => FaultKind::Stale,
            Content::Misplaced { .. } => FaultKind::Misplaced,
            Content::Torn { .. } => FaultKind::Torn,
            Content::Broken { .. } => FaultKind::Damaged,
        };
        let offset = block.0 * u64::from(self.block_size);
        Err(Fault { block, offset, expected, found, kind })
    }

    fn is_zeroes(&self, block: Block, generation: u32) -> bool {
        self.zeroes.get(&block.0).is_some_and(|list| list.contains(&generation))
    }

    fn seen_as_zeroes(&mut self, block: Block, legal: std::ops::RangeInclusive<u32>) -> bool {
        // Several generations may look alike: only the oldest is known to be reached.
        let oldest = self
            .zeroes
            .get(&block.0)
            .and_then(|list| list.iter().copied().find(|g| legal.contains(g)));
        let Some(oldest) = oldest else { return false };
        self.state(block.0).visible = oldest;
        true
    }
}

/// Rebuilding a ledger from a journal: the same changes, without the reservations of a living run.
impl Ledger {
    /// A write of one block was sent.
    pub fn replay_issued(&mut self, block: Block, generation: Generation, fill: Fill) -> bool {
        if block.0 < self.first || block.0 - self.first >= self.blocks.len() as u64 {
            return false;
        }
        let state = self.state(block.0);
        let first = state.issued == 0;
        state.issued = state.issued.max(generation.0);
        if first {
            self.written += 1;
        }
        if fill == Fill::Zeroes {
            self.zeroes.entry(block.0).or_default().push(generation.0);
        }
        true
    }

    /// A generation of one block became durable.
    pub fn replay_durable(&mut self, block: Block, generation: Generation) -> bool {
        if block.0 < self.first || block.0 - self.first >= self.blocks.len() as u64 {
            return false;
        }
        let state = self.state(block.0);
        state.durable = state.durable.max(generation.0);
        self.forget_zeroes(block.0);
        true
    }

    /// The blocks that the flush makes durable; valid before [`on_flushed`](Self::on_flushed).
    pub fn covered(&self, ticket: FlushTicket) -> impl Iterator<Item = (Block, Generation)> + '_ {
        let settled = self.acknowledged - self.pending.len() as u64;
        let count = ticket.0.saturating_sub(settled) as usize;
        self.pending.iter().take(count).copied()
    }

    /// Per written block: its last generation, and the durable one.
    pub fn summary(&self) -> impl Iterator<Item = (Block, Generation, Generation)> + '_ {
        let states = self.blocks.iter().enumerate().filter(|(_, s)| s.issued > 0);
        states.map(|(i, s)| {
            (Block(self.first + i as u64), Generation(s.issued), Generation(s.durable))
        })
    }

    /// The generations of write-zeroes that still matter.
    pub fn zero_generations(&self) -> impl Iterator<Item = (Block, Generation)> + '_ {
        self.zeroes.iter().flat_map(|(b, list)| list.iter().map(|g| (Block(*b), Generation(*g))))
    }
}

#[cfg(test)]
#[path = "ledger_tests.rs"]
mod tests;
