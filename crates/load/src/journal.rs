//! A ledger that outlives the load generator: what was sent and what became durable, in a file.
//!
//! A write is recorded **before** it is sent, what is durable after it was acknowledged. The file
//! is not synced: it survives the death of this process and of the server, not of the machine. A
//! record cut short at the end is ignored: its write was never sent.
//!
//! ```text
//! head:    "HGLOADJ1" | identity u64 | block size u32 | 0 u32 | first byte u64 | end byte u64
//! records: block u64 | generation u32 | kind u32 (1 sent, 2 sent zeroes, 3 durable)
//! ```
//! All little-endian.

use crate::ledger::{Block, Fill, Ledger};
use crate::pattern::Generation;
use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use thiserror::Error;

const MAGIC: &[u8; 8] = b"HGLOADJ1";
const HEAD: usize = 40;
const RECORD: usize = 16;
const SENT: u32 = 1;
const SENT_ZEROES: u32 = 2;
const DURABLE: u32 = 3;

/// Why a journal cannot be used.
#[derive(Debug, Error)]
pub enum JournalError {
    /// The file system said no.
    #[error("journal {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// Not written by this program, or damaged.
    #[error("journal {path}: {what}; remove it to start anew")]
    Bad {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
}

/// The scope of a journal, which must be the same in each run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope {
    /// Names the run's blocks; kept from the journal's first run.
    pub identity: u64,
    /// Bytes of a block.
    pub block_size: u32,
    /// First byte covered.
    pub first: u64,
    /// First byte not covered.
    pub end: u64,
}

/// An open journal.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    batch: Vec<u8>,
}

impl Journal {
    /// Opens the journal at `path`, or starts one. Answers it, the scope with the journal's
    /// identity, and the ledger as it stands. An existing file is rewritten without history, as a
    /// new file that takes its place.
    ///
    /// # Errors
    /// The file cannot be used, or is for another scope.
    pub fn open(path: &Path, scope: Scope) -> Result<(Journal, Scope, Ledger), JournalError> {
        let io = |source| JournalError::Io { path: path.to_owned(), source };
        let bad = |what: String| JournalError::Bad { path: path.to_owned(), what };
        let mut ledger = Ledger::new(scope.block_size, scope.first..scope.end).map_err(bad)?;
        let mut found = scope;
        match File::open(path) {
            Ok(file) => {
                found.identity = load(BufReader::new(file), scope, &mut ledger).map_err(bad)?
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(io(e)),
        }
        let new = path.with_extension("new");
        let mut journal = Journal {
            path: path.to_owned(),
            file: File::create(&new).map_err(io)?,
            batch: head(found),
        };
        for (block, issued, durable) in ledger.summary() {
            journal.push(block, issued, SENT);
            if durable.0 > 0 {
                journal.push(block, durable, DURABLE);
            }
        }
        for (block, generation) in ledger.zero_generations() {
            journal.push(block, generation, SENT_ZEROES);
        }
        journal.write()?;
        std::fs::rename(&new, path).map_err(io)?;
        Ok((journal, found, ledger))
    }

    /// A write of one block is about to be sent: [`write`](Self::write) before it is.
    pub fn on_issue(&mut self, block: Block, generation: Generation, fill: Fill) {
        let kind = match fill {
            Fill::Pattern => SENT,
            Fill::Zeroes => SENT_ZEROES,
        };
        self.push(block, generation, kind);
    }

    /// A generation became durable.
    pub fn on_durable(&mut self, block: Block, generation: Generation) {
        self.push(block, generation, DURABLE);
    }

    fn push(&mut self, block: Block, generation: Generation, kind: u32) {
        self.batch.extend_from_slice(&block.0.to_le_bytes());
        self.batch.extend_from_slice(&generation.0.to_le_bytes());
        self.batch.extend_from_slice(&kind.to_le_bytes());
    }

    /// Hands the records so far to the kernel.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&mut self) -> Result<(), JournalError> {
        if !self.batch.is_empty() {
            let written = self.file.write_all(&self.batch);
            written.map_err(|source| JournalError::Io { path: self.path.clone(), source })?;
            self.batch.clear();
        }
        Ok(())
    }
}

fn head(scope: Scope) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&scope.identity.to_le_bytes());
    bytes.extend_from_slice(&scope.block_size.to_le_bytes());
    bytes.extend_from_slice(&0u32.to_le_bytes());
    bytes.extend_from_slice(&scope.first.to_le_bytes());
    bytes.extend_from_slice(&scope.end.to_le_bytes());
    bytes
}

/// Replays the records; answers the journal's identity.
fn load(mut file: impl Read, scope: Scope, ledger: &mut Ledger) -> Result<u64, String> {
    let mut bytes = [0; HEAD];
    file.read_exact(&mut bytes).map_err(|_| "it is no journal".to_owned())?;
    let identity = u64::from_le_bytes([
        bytes[8], bytes[9], bytes[10], bytes[11], bytes[12], bytes[13], bytes[14], bytes[15],
    ]);
    if bytes[..8] != MAGIC[..] {
        return Err("it is no journal".into());
    }
    if bytes[16..] != head(scope)[16..] {
        return Err("it is for another --offset-range or block size".into());
    }
    let mut rest = Vec::new();
    file.read_to_end(&mut rest).map_err(|e| e.to_string())?;
    for (i, record) in rest.chunks_exact(RECORD).enumerate() {
        let [a, b, c, d, e, f, g, h, i1, j, k, l, kind @ ..] = record else { continue };
        let block = Block(u64::from_le_bytes([*a, *b, *c, *d, *e, *f, *g, *h]));
        let generation = Generation(u32::from_le_bytes([*i1, *j, *k, *l]));
        let known = match kind {
            [1, 0, 0, 0] => ledger.replay_issued(block, generation, Fill::Pattern),
            [2, 0, 0, 0] => ledger.replay_issued(block, generation, Fill::Zeroes),
            [3, 0, 0, 0] => ledger.replay_durable(block, generation),
            _ => false,
        };
        if !known {
            return Err(format!("record {i} is damaged"));
        }
    }
    // Whoever wrote the journal is gone, and so is what only the dead server knew.
    ledger.on_crash();
    Ok(identity)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::Content;

    fn scope(identity: u64) -> Scope {
        Scope { identity, block_size: 4096, first: 0, end: 1 << 20 }
    }

    #[test]
    fn a_new_run_knows_what_the_last_one_wrote() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let (mut journal, first, _) = Journal::open(&path, scope(7)).unwrap();
        assert_eq!(first.identity, 7);
        journal.on_issue(Block(3), Generation(1), Fill::Pattern);
        journal.on_issue(Block(3), Generation(2), Fill::Pattern);
        journal.on_issue(Block(4), Generation(1), Fill::Zeroes);
        journal.on_durable(Block(3), Generation(1));
        journal.write().unwrap();
        // A record cut in the middle.
        journal.file.write_all(&[9; 7]).unwrap();
        drop(journal);
        for _ in 0..2 {
            let (_, second, mut ledger) = Journal::open(&path, scope(99)).unwrap();
            assert_eq!(second.identity, 7, "blocks written under the old identity are still ours");
            assert_eq!(ledger.written_from(Block(0)).collect::<Vec<_>>(), [Block(3), Block(4)]);
            assert!(ledger.judge(Block(3), Content::Zeroes).is_err());
            assert!(ledger.judge(Block(3), Content::Whole(Generation(2))).is_ok());
            assert!(ledger.judge(Block(4), Content::Zeroes).is_ok());
        }
    }

    #[test]
    fn a_file_that_is_no_journal_of_this_disk_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        std::fs::write(&path, b"something else that is precious to somebody").unwrap();
        assert!(Journal::open(&path, scope(1)).unwrap_err().to_string().contains("no journal"));
        std::fs::remove_file(&path).unwrap();
        drop(Journal::open(&path, scope(1)).unwrap());
        let other = Scope { end: 2 << 20, ..scope(1) };
        assert!(Journal::open(&path, other).unwrap_err().to_string().contains("--offset-range"));
        let mut bytes = std::fs::read(&path).unwrap();
        bytes.extend([0xff; 16]);
        std::fs::write(&path, bytes).unwrap();
        assert!(
            Journal::open(&path, scope(1)).unwrap_err().to_string().contains("record 0 is damaged")
        );
    }
}
