//! A log of all that reached a disk, and what a power cut at any point of it may leave.
//!
//! QEMU's `blklogwrites` writes the log, in the format of the kernel's dm-log-writes: a superblock,
//! then for each write, flush and discard an entry and the data.
//!
//! A disk with a volatile cache promises that what was written before a flush is there once the
//! flush completes. Of what came later it may have any part: some requests and not others, and of a
//! request some sectors and not others.

use crate::ledger::splitmix;
use anyhow::{Context, bail, ensure};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes of a sector, in the log and on the disk.
pub const SECTOR: usize = 512;

const MAGIC: u64 = 0x006a_7366_7773_6872;
const FLUSH: u64 = 1;
const FUA: u64 = 2;
const DISCARD: u64 = 4;
const MARK: u64 = 8;

/// What an entry does to the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Writes sectors; none if the request is a flush alone.
    Write(Vec<u8>),
    /// Zeroes so many sectors.
    Zero(u64),
    /// Nothing: a mark in the log.
    Nothing,
}

/// One request in the log.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Where the log ended when this entry was whole, in bytes.
    pub end: u64,
    /// First sector.
    pub sector: u64,
    /// What it does.
    pub action: Action,
    /// All that came before is durable behind it.
    pub flushes: bool,
    /// It is durable itself.
    pub forced: bool,
}

impl Entry {
    /// Whether it changes nothing: a flush alone, or a mark.
    pub fn is_empty(&self) -> bool {
        match &self.action {
            Action::Write(data) => data.is_empty(),
            Action::Zero(sectors) => *sectors == 0,
            Action::Nothing => true,
        }
    }
}

/// All requests, in the order in which they reached the disk.
#[derive(Debug)]
pub struct WriteLog {
    /// The requests.
    pub entries: Vec<Entry>,
}

fn word(bytes: &[u8], at: usize) -> anyhow::Result<u64> {
    let bytes = bytes.get(at * 8..at * 8 + 8).context("the log ends within an entry")?;
    Ok(u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
}

impl WriteLog {
    /// Reads a log. What was being written when its writer ended is left out.
    pub fn read(path: &Path) -> anyhow::Result<WriteLog> {
        let bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
        WriteLog::parse(&bytes)
    }

    fn parse(bytes: &[u8]) -> anyhow::Result<WriteLog> {
        ensure!(word(bytes, 0)? == MAGIC, "no log of writes: magic {:#x}", word(bytes, 0)?);
        let sector = bytes.get(24..28).context("no superblock")?;
        let sector = u32::from_le_bytes(sector.try_into().expect("four bytes"));
        ensure!(sector as usize == SECTOR, "sectors of {sector} bytes, expected {SECTOR}");
        let (mut entries, mut at) = (Vec::new(), SECTOR);
        while let Some(head) = bytes.get(at..at + SECTOR) {
            let [first, sectors, flags, data] = [0, 1, 2, 3].map(|n| word(head, n));
            let [first, sectors, flags, data] = [first?, sectors?, flags?, data?];
            if [first, sectors, flags, data] == [0; 4] {
                break;
            }
            ensure!(flags & !(FLUSH | FUA | DISCARD | MARK) == 0, "flags {flags:#x} at {at}");
            at += SECTOR;
            // `data` is the length of a mark's text. A write has its sectors, zeroes too; a discard
            // has nothing in the log.
            let (len, action) = if flags & MARK != 0 {
                (data, Action::Nothing)
            } else if flags & DISCARD != 0 {
                (0, Action::Zero(sectors))
            } else {
                let len = sectors.checked_mul(SECTOR as u64).context("a length")?;
                let data = bytes.get(at..).and_then(|rest| rest.get(..usize::try_from(len).ok()?));
                let Some(data) = data else { break };
                (len, Action::Write(data.to_vec()))
            };
            at += usize::try_from(len)?.next_multiple_of(SECTOR);
            let (flushes, forced) = (flags & FLUSH != 0, flags & FUA != 0);
            entries.push(Entry { end: at as u64, sector: first, action, flushes, forced });
        }
        Ok(WriteLog { entries })
    }

    /// How many entries were in the log when it was so long.
    pub fn entries_at(&self, bytes: u64) -> usize {
        self.entries.partition_point(|entry| entry.end <= bytes)
    }
}

/// A disk as it grows along the log.
pub struct Replay<'l> {
    log: &'l WriteLog,
    /// What is durable.
    path: PathBuf,
    durable: File,
    /// The end of the entries that are in it.
    flushed: usize,
}

/// What a power cut met.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    /// Requests that no flush covered.
    pub volatile: usize,
    /// Of these, those of which something was kept.
    pub kept: usize,
}

impl<'l> Replay<'l> {
    /// A disk of zeroes, in a file that is made here.
    pub fn new(log: &'l WriteLog, path: &Path, size: u64) -> anyhow::Result<Replay<'l>> {
        let durable = File::options().read(true).write(true).create_new(true).open(path)?;
        durable.set_len(size)?;
        Ok(Replay { log, path: path.to_owned(), durable, flushed: 0 })
    }

    /// Writes to `to` what a power cut behind so many entries may have left, chosen by `seed`. Cuts
    /// go forward.
    pub fn cut(&mut self, after: usize, seed: u64, to: &Path) -> anyhow::Result<Cut> {
        ensure!(after <= self.log.entries.len(), "the log has {} entries", self.log.entries.len());
        let flush = self.log.entries[..after].iter().rposition(|entry| entry.flushes);
        let flush = flush.unwrap_or(0);
        ensure!(flush >= self.flushed, "cuts go forward");
        // The last flush may be a write itself, which is volatile.
        for entry in &self.log.entries[self.flushed..flush] {
            keep(&self.durable, entry, |_| true)?;
        }
        self.flushed = flush;
        std::fs::copy(&self.path, to)?;
        let disk = File::options().write(true).open(to)?;
        let mut cut = Cut { volatile: 0, kept: 0 };
        for (number, entry) in self.log.entries[..after].iter().enumerate().skip(flush) {
            if entry.is_empty() {
                continue;
            }
            let random = splitmix(seed ^ splitmix(number as u64));
            cut.volatile += 1;
            let any = keep(&disk, entry, |sector| entry.forced || survives(random, sector))?;
            cut.kept += usize::from(any);
        }
        Ok(cut)
    }
}

/// A third of the requests is lost, a third kept, and a third torn: a beginning of it is there, or
/// any sectors.
fn survives(random: u64, sector: u64) -> bool {
    match random % 6 {
        0 | 1 => false,
        2 | 3 => true,
        4 => sector < (random >> 8) % 8,
        _ => splitmix(random ^ sector) & 1 == 0,
    }
}

/// Does what an entry does, in the sectors of it that `survives` names. Answers whether there are
/// any.
fn keep(file: &File, entry: &Entry, survives: impl Fn(u64) -> bool) -> anyhow::Result<bool> {
    let zeroes;
    let data = match &entry.action {
        Action::Write(data) => data,
        Action::Zero(sectors) => {
            zeroes = vec![0; usize::try_from(*sectors)? * SECTOR];
            &zeroes
        }
        Action::Nothing => return Ok(false),
    };
    let mut any = false;
    for (sector, bytes) in (0..).zip(data.chunks(SECTOR)).filter(|(sector, _)| survives(*sector)) {
        file.write_all_at(bytes, (entry.sector + sector) * SECTOR as u64)?;
        any = true;
    }
    Ok(any)
}

/// Points at which to cut: spread evenly over the log, and moved a little by the seed.
pub fn cuts(log: &WriteLog, many: usize, from: usize, seed: u64) -> anyhow::Result<Vec<usize>> {
    let len = log.entries.len();
    if from >= len || many == 0 {
        bail!("no place for {many} cuts among the entries {from} to {len}");
    }
    let place = |n: usize| {
        let width = (len - from) as u64;
        let start = n as u64 * width / many as u64;
        let end = ((n as u64 + 1) * width / many as u64).max(start + 1);
        from + (start + splitmix(seed ^ n as u64) % (end - start)) as usize + 1
    };
    Ok((0..many).map(place).map(|at| at.min(len)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn superblock() -> Vec<u8> {
        let mut bytes = [MAGIC.to_le_bytes(), 1u64.to_le_bytes(), 0u64.to_le_bytes()].concat();
        bytes.extend(512u32.to_le_bytes());
        bytes.resize(SECTOR, 0);
        bytes
    }

    fn entry(log: &mut Vec<u8>, sector: u64, flags: u64, data: &[u8]) {
        let start = log.len();
        let sectors = (data.len() / SECTOR) as u64;
        for word in [sector, sectors, flags, 0] {
            log.extend(word.to_le_bytes());
        }
        log.resize(start + SECTOR, 0);
        log.extend(data);
    }

    /// Two writes, a flush, then a write of two sectors.
    fn log() -> WriteLog {
        let mut bytes = superblock();
        entry(&mut bytes, 0, 0, &[1; SECTOR]);
        entry(&mut bytes, 1, 0, &[2; SECTOR]);
        entry(&mut bytes, 0, FLUSH, &[]);
        entry(&mut bytes, 0, 0, &[3; 2 * SECTOR]);
        // Half an entry.
        entry(&mut bytes, 5, 0, &[4; SECTOR]);
        bytes.truncate(bytes.len() - 1);
        WriteLog::parse(&bytes).unwrap()
    }

    #[test]
    fn a_log_is_read_as_far_as_it_is_whole() {
        let log = log();
        assert_eq!(log.entries.len(), 4);
        assert!(log.entries[2].flushes);
        assert_eq!(log.entries_at(SECTOR as u64 * 3), 1);
        assert_eq!(log.entries_at(SECTOR as u64 * 3 - 1), 0);
        assert_eq!(log.entries_at(u64::MAX), 4);
        assert!(WriteLog::parse(&[0; 4096]).is_err());
    }

    #[test]
    fn what_was_flushed_is_always_there_and_the_rest_sometimes() {
        let log = log();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        let mut replay = Replay::new(&log, &path, 4096).unwrap();
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..200 {
            let cut = dir.path().join("cut");
            replay.cut(4, seed, &cut).unwrap();
            let bytes = std::fs::read(cut).unwrap();
            seen.insert((bytes[0], bytes[SECTOR]));
            assert!(bytes[2 * SECTOR..].iter().all(|byte| *byte == 0));
        }
        let expected = [(1, 2), (1, 3), (3, 2), (3, 3)];
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn before_a_flush_nothing_is_certain() {
        let log = log();
        let dir = tempfile::tempdir().unwrap();
        let cut = dir.path().join("cut");
        let mut replay = Replay::new(&log, &dir.path().join("disk"), 4096).unwrap();
        assert_eq!(replay.cut(2, 1, &cut).unwrap().volatile, 2);
        assert_eq!(replay.cut(4, 1, &cut).unwrap().volatile, 1);
        assert!(replay.cut(2, 1, &cut).is_err(), "cuts go forward");
    }

    #[test]
    fn cuts_lie_in_order_and_behind_where_they_may_begin() {
        let log = log();
        let places = cuts(&log, 10, 2, 7).unwrap();
        assert_eq!(places.len(), 10);
        assert!(places.is_sorted() && places[0] > 2 && places[9] == 4, "{places:?}");
        assert!(cuts(&log, 10, 4, 7).is_err());
    }
}
