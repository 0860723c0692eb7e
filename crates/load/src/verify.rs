//! Verification of a running load: the [`Ledger`], the pattern and the journal put together.

use crate::journal::{Journal, JournalError, Scope};
use crate::ledger::{Block, Fault, Fill, FlushTicket, Ledger};
use crate::link::{Durability, Kind, Op, Outcome};
use crate::pattern::{fill, inspect};
use std::ops::Range;
use std::path::Path;

/// Faults reported in full; more are only counted.
const FAULTS_TOLD: usize = 20;

/// The claim of a request in flight on the ledger.
#[derive(Clone, Debug)]
pub(crate) enum Claim {
    Nothing,
    Read(Range<u64>),
    Write(Range<u64>),
    Flush(FlushTicket),
}

pub(crate) struct Verifier {
    ledger: Ledger,
    journal: Option<Journal>,
    identity: u64,
    scratch: Vec<u8>,
    pub(crate) faults: Vec<Fault>,
    pub(crate) fault_count: u64,
    pub(crate) checked: u64,
}

impl Verifier {
    pub(crate) fn new(scope: Scope, journal: Option<&Path>) -> Result<Verifier, JournalError> {
        let (journal, scope, ledger) = match journal {
            Some(path) => {
                let (journal, scope, ledger) = Journal::open(path, scope)?;
                (Some(journal), scope, ledger)
            }
            None => {
                let ledger = Ledger::new(scope.block_size, scope.first..scope.end);
                let ledger = ledger
                    .map_err(|what| JournalError::Bad { path: "(in memory)".into(), what })?;
                (None, scope, ledger)
            }
        };
        Ok(Verifier {
            ledger,
            journal,
            identity: scope.identity,
            scratch: Vec::new(),
            faults: Vec::new(),
            fault_count: 0,
            checked: 0,
        })
    }

    pub(crate) fn has_history(&self) -> bool {
        self.ledger.written() > 0
    }

    /// Reserves what the request touches. `None`: another request is at work there.
    pub(crate) fn claim(&mut self, op: &Op) -> Option<Claim> {
        if op.kind == Kind::Flush {
            return Some(Claim::Flush(self.ledger.begin_flush()));
        }
        let Some(blocks) = self.ledger.blocks_of(op.offset, op.len) else {
            // Argument checks let only whole blocks pass; a read of a part of one would be judged
            // by nobody.
            return (op.kind == Kind::Read).then_some(Claim::Nothing);
        };
        let zeroes_or_pattern = match op.kind {
            Kind::Read => {
                return self.ledger.begin_read(blocks.clone()).then_some(Claim::Read(blocks));
            }
            Kind::WriteZeroes => Fill::Zeroes,
            _ => Fill::Pattern,
        };
        if !self.ledger.begin_write(blocks.clone(), zeroes_or_pattern) {
            return None;
        }
        if let Some(journal) = &mut self.journal {
            for block in blocks.clone().map(Block) {
                journal.on_issue(block, self.ledger.issued(block), zeroes_or_pattern);
            }
        }
        Some(Claim::Write(blocks))
    }

    /// The data of a claimed write.
    pub(crate) fn payload(&mut self, op: &Op) -> &[u8] {
        if op.kind != Kind::Write {
            return &[];
        }
        self.scratch.resize(op.len as usize, 0);
        let size = self.ledger.block_size() as usize;
        for (i, block) in self.scratch.chunks_exact_mut(size).enumerate() {
            let offset = op.offset + (i * size) as u64;
            let generation = self.ledger.issued(Block(offset / size as u64));
            fill(block, self.identity, offset, generation);
        }
        &self.scratch
    }

    /// Call before anything claimed is sent.
    pub(crate) fn before_send(&mut self) -> Result<(), JournalError> {
        self.journal.as_mut().map_or(Ok(()), Journal::write)
    }

    pub(crate) fn complete(&mut self, claim: Claim, op: &Op, outcome: Outcome, data: &[u8]) {
        match (claim, outcome) {
            (Claim::Nothing, _) | (Claim::Flush(_), Outcome::Failed(_)) => {}
            (Claim::Read(blocks), Outcome::Done) => {
                self.judge(blocks.clone(), data);
                self.ledger.end_read(blocks);
            }
            (Claim::Read(blocks), Outcome::Failed(_)) => self.ledger.end_read(blocks),
            (Claim::Write(blocks), Outcome::Done) => {
                self.ledger.on_written(blocks.clone(), op.durability);
                if let (Durability::Fua, Some(journal)) = (op.durability, &mut self.journal) {
                    for block in blocks.map(Block) {
                        journal.on_durable(block, self.ledger.issued(block));
                    }
                }
            }
            (Claim::Write(blocks), Outcome::Failed(_)) => self.ledger.on_write_unknown(blocks),
            (Claim::Flush(ticket), Outcome::Done) => {
                if let Some(journal) = &mut self.journal {
                    for (block, generation) in self.ledger.covered(ticket) {
                        journal.on_durable(block, generation);
                    }
                }
                self.ledger.on_flushed(ticket);
            }
        }
    }

    fn judge(&mut self, blocks: Range<u64>, data: &[u8]) {
        let size = self.ledger.block_size() as usize;
        for (block, bytes) in blocks.map(Block).zip(data.chunks_exact(size)) {
            let found = inspect(bytes, self.identity, block.0 * size as u64);
            self.checked += 1;
            if let Err(fault) = self.ledger.judge(block, found) {
                self.fault_count += 1;
                if self.faults.len() < FAULTS_TOLD {
                    self.faults.push(fault);
                }
            }
        }
    }

    /// The request will never be answered.
    pub(crate) fn lose(&mut self, claim: Claim) {
        match claim {
            Claim::Nothing | Claim::Flush(_) => {}
            Claim::Read(blocks) => self.ledger.end_read(blocks),
            Claim::Write(blocks) => self.ledger.on_write_unknown(blocks),
        }
    }

    pub(crate) fn on_crash(&mut self) {
        self.ledger.on_crash();
    }

    /// The next stretch of written blocks from `from` on, of at most `max_len` bytes: offset and
    /// length.
    pub(crate) fn next_written(&self, from: Block, max_len: u32) -> Option<(u64, u32)> {
        let size = self.ledger.block_size();
        let most = u64::from((max_len / size).max(1));
        let mut blocks = self.ledger.written_from(from);
        let first = blocks.next()?;
        let run = 1 + blocks.zip(1..most).take_while(|(b, i)| b.0 == first.0 + i).count() as u32;
        Some((first.0 * u64::from(size), run * size))
    }

    pub(crate) fn block_after(&self, offset: u64, len: u32) -> Block {
        Block((offset + u64::from(len)) / u64::from(self.ledger.block_size()))
    }
}
