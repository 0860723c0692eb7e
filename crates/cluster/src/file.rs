//! The board as a file on the shared datastore, as in the paper (section 3.2): one block per host,
//! no locks.
//!
//! Whatever happens to the file, the hosts make it good again by themselves within a period or two:
//! the file is opened anew for every exchange, and every exchange writes the whole own block, so a
//! file that was deleted, truncated or overwritten is simply written again.

use crate::blocks::{self, Block};
use crate::board::{Board, BoardError, View};
use crate::identity::Identity;
use crate::record::{FAREWELL, RECORD, Record, RecordKey};
use crate::sightings::Sightings;
use headgate_qos::window::{Absence, HostReport};
use headgate_units::Nanos;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The file in a datastore's directory.
pub const BOARD_FILE: &str = ".headgate-board";

/// Bytes of a block: what direct IO can write to any disk at once.
const BLOCK: usize = 4096;

/// Hosts that one board has room for.
pub const HOSTS_MAX: usize = 1024;

/// A host that was silent for so many periods loses its block when there is no other.
const ABANDONED: u64 = 60;

#[repr(C, align(4096))]
#[derive(Clone)]
struct Page([u8; BLOCK]);

/// What the page cache has to do with the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Caching {
    /// Nothing, where the file system can do without.
    Around,
    /// Everything goes through it, and from it to the storage at once.
    Through,
}

/// A board in a file that all hosts of a datastore reach.
#[derive(Debug)]
pub struct FileBoard {
    path: PathBuf,
    own: Identity,
    block: Option<usize>,
    /// How often the block was lost to another.
    lost: u64,
    sequence: u64,
    last: Option<HostReport>,
    sightings: Sightings,
    caching: Caching,
    most: usize,
}

impl FileBoard {
    /// The board of the datastore with this directory. Nothing is read or written yet.
    pub fn new(datastore: &Path, own: Identity) -> FileBoard {
        FileBoard {
            path: datastore.join(BOARD_FILE),
            own,
            block: None,
            lost: 0,
            sequence: 0,
            last: None,
            sightings: Sightings::new(Absence::Lost),
            caching: Caching::Around,
            most: HOSTS_MAX,
        }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The block that this host writes to, once it has one.
    pub fn block(&self) -> Option<usize> {
        self.block
    }

    fn failed(&self, doing: &'static str) -> impl FnOnce(io::Error) -> BoardError + use<> {
        let path = self.path.clone();
        move |source| BoardError::Io { doing, path, source }
    }

    /// Direct where the file system can: a network file system then neither answers from nor writes
    /// to this host's cache.
    fn open(&self) -> Result<(File, bool), BoardError> {
        let open = |flags| {
            OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .custom_flags(flags | libc::O_NOFOLLOW | libc::O_NONBLOCK)
                .open(&self.path)
        };
        let wanted = if self.caching == Caching::Through { 0 } else { libc::O_DIRECT };
        let opened = match open(wanted) {
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => open(0).map(|file| (file, false)),
            opened => opened.map(|file| (file, wanted != 0)),
        };
        let no_file = || BoardError::NoFile { path: self.path.clone() };
        let (file, direct) = opened.map_err(|e| match e.raw_os_error() {
            Some(libc::ELOOP | libc::EISDIR | libc::ENXIO) => no_file(),
            _ => self.failed("open")(e),
        })?;
        match file.metadata() {
            Ok(metadata) if metadata.is_file() => Ok((file, direct)),
            Ok(_) => Err(no_file()),
            Err(e) => Err(self.failed("look at")(e)),
        }
    }

    /// All blocks that the file has, in one read where the system allows it.
    fn read_blocks(&self, file: &File) -> Result<Vec<Block>, BoardError> {
        let length = file.metadata().map_err(self.failed("look at"))?.len();
        let count = usize::try_from(length / BLOCK as u64).unwrap_or(usize::MAX).min(self.most);
        let mut pages = vec![Page([0; BLOCK]); count];
        // SAFETY: a slice of `Page` is as many times 4,096 initialised bytes without padding, and
        // bytes have no alignment.
        let bytes = unsafe {
            std::slice::from_raw_parts_mut(pages.as_mut_ptr().cast::<u8>(), count * BLOCK)
        };
        let mut read = 0;
        while read < bytes.len() {
            match file.read_at(&mut bytes[read..], read as u64) {
                // Truncated meanwhile.
                Ok(0) => break,
                // Direct IO goes on at a block only.
                Ok(n) if n < BLOCK => break,
                Ok(n) => read += n - n % BLOCK,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(self.failed("read")(e)),
            }
        }
        let decode = |(number, page): (usize, &Page)| {
            let mut record = [0; RECORD];
            record.copy_from_slice(&page.0[..RECORD]);
            Record::decode(&record, RecordKey::Block(number as u32))
        };
        Ok(pages[..read / BLOCK].iter().enumerate().map(decode).collect())
    }

    fn open_and_read(&mut self) -> Result<((File, bool), Vec<Block>), BoardError> {
        let file = self.open()?;
        match self.read_blocks(&file.0) {
            // Opened, but not for blocks of this size.
            Err(BoardError::Io { source, .. })
                if file.1 && source.raw_os_error() == Some(libc::EINVAL) =>
            {
                self.caching = Caching::Through;
                let file = self.open()?;
                let blocks = self.read_blocks(&file.0)?;
                Ok((file, blocks))
            }
            blocks => Ok((file, blocks?)),
        }
    }

    fn write(
        &self,
        (file, direct): &(File, bool),
        block: usize,
        record: &[u8],
    ) -> Result<(), BoardError> {
        let mut page = Page([0; BLOCK]);
        page.0[..record.len()].copy_from_slice(record);
        file.write_all_at(&page.0, (block * BLOCK) as u64).map_err(self.failed("write"))?;
        if !direct {
            // So that other hosts can see it.
            file.sync_data().map_err(self.failed("write"))?;
        }
        Ok(())
    }

    /// The block to write to.
    fn claim(&mut self, now: Nanos, blocks: &[Block], period: Nanos) -> Result<usize, BoardError> {
        if let Some(block) = self.block
            && !blocks::is_ours(blocks.get(block), &self.own)
        {
            self.block = None;
            self.lost += 1;
        }
        if let Some(block) = self.block {
            return Ok(block);
        }
        let abandoned = Nanos(period.0.saturating_mul(ABANDONED));
        let is_abandoned = |record: &Record| self.sightings.silent(now, record) > abandoned;
        let block = blocks::choose(blocks, self.most, &self.own, self.lost, is_abandoned);
        self.block = block;
        block.ok_or_else(|| BoardError::Full { path: self.path.clone(), hosts: self.most })
    }
}

impl FileBoard {
    fn view(&self, now: Nanos, period: Nanos, blocks: &[Block]) -> View {
        let unreadable = |b: &&Block| !matches!(b, Ok(_) | Err(crate::RecordError::Empty));
        View {
            peers: self.sightings.peers(now, &self.own),
            settled: self.sightings.is_settled(period),
            duplicate: self.sightings.duplicate(now, &self.own, period),
            unreadable: u32::try_from(blocks.iter().filter(unreadable).count()).unwrap_or(u32::MAX),
        }
    }
}

impl Board for FileBoard {
    fn exchange(&mut self, now: Nanos, report: &HostReport) -> Result<View, BoardError> {
        let (file, blocks) = self.open_and_read()?;
        self.sightings.observe(now, report.period, blocks.iter().flatten().cloned());
        let block = self.claim(now, &blocks, report.period)?;
        self.sequence += 1;
        let record = self.own.record(self.sequence, report);
        self.last = Some(*report);
        self.write(&file, block, &record.encode(RecordKey::Block(block as u32)))?;
        Ok(self.view(now, report.period, &blocks))
    }

    fn read(&mut self, now: Nanos, period: Nanos) -> Result<View, BoardError> {
        let (_, blocks) = self.open_and_read()?;
        self.sightings.observe(now, period, blocks.iter().flatten().cloned());
        Ok(self.view(now, period, &blocks))
    }

    fn leave(&mut self) -> Result<(), BoardError> {
        let (Some(block), Some(last)) = (self.block, self.last) else { return Ok(()) };
        let (file, blocks) = self.open_and_read()?;
        if blocks::is_ours(blocks.get(block), &self.own) {
            let farewell = self.own.record(FAREWELL, &last);
            self.write(&file, block, &farewell.encode(RecordKey::Block(block as u32)))?;
        }
        self.block = None;
        Ok(())
    }
}
