//! Traces of VMware's virtual SCSI disks as CloudPhysics published them (C. Waldspurger and others:
//! "Efficient MRC Construction with SHARDS", FAST 2015). Binary, little-endian, one disk to a file.
//! Sectors of 512 bytes, time in microseconds.
//!
//! | version | serial | bytes | elements | command | version | sector | time | response | record |
//! |---|---|---|---|---|---|---|---|---|---|
//! | 1 | 0 | 4 | 8 | 12 | 14 | 16 | 24 | – | 32 bytes |
//! | 2 | 4 | 8 | 12 | 0 | 2 | 16 | 24 | 32 | 40 bytes |
//!
//! The unit of the response is not published: it is left alone.

use super::line::{Line, Raw};
use crate::disks::Disks;
use crate::error::Problem;
use crate::fields::SECTOR;
use crate::record::Kind;

/// How records are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    One,
    Two,
}

/// Versions stand in the upper byte.
const VERSION_1: u16 = 0x0100;
const VERSION_2: u16 = 0x0200;

/// Records that must agree before a file without a header is taken for this format.
const AGREEING: usize = 8;

impl Version {
    /// What the first bytes of a file are, `None` if they are something else.
    pub(crate) fn detect(head: &[u8]) -> Option<Version> {
        [Version::One, Version::Two].into_iter().find(|version| {
            let mut first = head.chunks_exact(version.record_bytes()).take(AGREEING).peekable();
            first.peek().is_some() && first.all(|record| version.says_so(record))
        })
    }

    pub(crate) const fn record_bytes(self) -> usize {
        match self {
            Version::One => 32,
            Version::Two => 40,
        }
    }

    const fn positions(self) -> (usize, usize) {
        match self {
            Version::One => (12, 4),
            Version::Two => (0, 8),
        }
    }

    fn says_so(self, record: &[u8]) -> bool {
        let (command, _) = self.positions();
        let expected = match self {
            Version::One => VERSION_1,
            Version::Two => VERSION_2,
        };
        u16_at(record, command + 2) == expected
    }

    /// Takes a record of [`Version::record_bytes`].
    pub(crate) fn record(self, record: &[u8], disks: &mut Disks) -> Result<Line, Problem> {
        let (command, length) = self.positions();
        if !self.says_so(record) {
            return Err(Problem::new("the record", record, "the version of the first record"));
        }
        let kind = match u16_at(record, command) {
            0x08 | 0x28 | 0xa8 | 0x88 => Kind::Read,
            0x0a | 0x2a | 0xaa | 0x8a => Kind::Write,
            0x35 | 0x91 => Kind::Flush,
            // Inquiries, reservations and such; UNMAP keeps its ranges elsewhere.
            _ => return Ok(Line::Other),
        };
        let (sector, micros) = (u64_at(record, 16), u64_at(record, 24));
        let too_large = |field, value: u64| {
            Problem::new(field, value.to_string().as_bytes(), "at most 2^64 in bytes or ns")
        };
        let raw = Raw {
            at: micros.checked_mul(1_000).ok_or_else(|| too_large("the time", micros))?,
            kind,
            offset: sector.checked_mul(SECTOR).ok_or_else(|| too_large("the sector", sector))?,
            bytes: u64::from(u32_at(record, length)),
            disk: disks.intern(b"0")?,
            latency: None,
        };
        raw.checked().map(Line::Request)
    }
}

fn part<const N: usize>(record: &[u8], at: usize) -> [u8; N] {
    record.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
}

fn u16_at(record: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(part(record, at))
}

fn u32_at(record: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(part(record, at))
}

fn u64_at(record: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(part(record, at))
}
