//! A host's summary, and its parts as bytes.
//!
//! | bytes | what |
//! |---|---|
//! | 7 | `HGFLEET` |
//! | 1 | version, an ASCII digit: `1` |
//! | 16 | instance: this run of the host's daemon |
//! | 1 to 10 | how often the daemon was started |
//! | 1 to 10 | when it was said, in seconds since 1970 by the host's clock |
//! | rest | a record, or a list of records, as the key says |

use crate::bounds::{ADVICE_MAX, DATASTORES_EACH, DISKS_EACH, PART_MAX, VERSION};
use crate::codec::{PartError, Reader, Writer};
use crate::{AdviceWord, DatastoreWord, DiskWord, HostWord, PartKind, UnixSeconds};
use alloc::vec::Vec;

const MAGIC: &[u8; 7] = b"HGFLEET";

/// Whose word a part is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// This run of the daemon.
    pub instance: [u8; 16],
    /// How often it was started.
    pub epoch: u64,
    /// When this was said.
    pub at: UnixSeconds,
}

/// All that a host says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The host. Its chunks are counted by the [`Publisher`](crate::Publisher).
    pub host: HostWord,
    /// Its datastores.
    pub datastores: Vec<DatastoreWord>,
    /// Its disks.
    pub disks: Vec<DiskWord>,
    /// What it advises.
    pub advice: Vec<AdviceWord>,
}

/// What one key holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// The host.
    Host(HostWord),
    /// Some of its datastores.
    Datastores(Vec<DatastoreWord>),
    /// Some of its disks.
    Disks(Vec<DiskWord>),
    /// What it advises.
    Advice(Vec<AdviceWord>),
}

impl Part {
    /// The part as bytes, which only its kind of key tells how to read. O(n) for n bytes.
    pub fn encode(&self, header: Header) -> Vec<u8> {
        let mut to = Writer::default();
        to.bytes(MAGIC);
        to.bytes(&[b'0' + VERSION]);
        to.bytes(&header.instance);
        to.number(header.epoch);
        to.number(header.at.0);
        match self {
            Part::Host(host) => to.record(host),
            Part::Datastores(list) => to.list(list),
            Part::Disks(list) => to.list(list),
            Part::Advice(list) => to.list(list),
        }
        to.finish()
    }

    /// Reads what stands under a key of this kind. O(n) for n bytes, and no more memory than a
    /// small multiple of them.
    ///
    /// # Errors
    /// Why the bytes are no such part. No bytes panic.
    pub fn decode(kind: PartKind, bytes: &[u8]) -> Result<(Header, Part), PartError> {
        if bytes.len() > PART_MAX {
            return Err(PartError::TooLong(bytes.len()));
        }
        let mut from = Reader::new(bytes);
        let begins = from.take(MAGIC.len() + 1).map_err(|_| PartError::Foreign)?;
        match begins.split_last() {
            Some((digit, magic)) if magic == MAGIC && digit.is_ascii_digit() => {
                let version = digit - b'0';
                if version != VERSION {
                    return Err(PartError::Version(version));
                }
            }
            _ => return Err(PartError::Foreign),
        }
        let header = Header {
            instance: from.sixteen()?,
            epoch: from.number("epoch")?,
            at: UnixSeconds(from.number("time")?),
        };
        let part = match kind {
            PartKind::Host => Part::Host(from.record()?),
            PartKind::Datastores(_) => Part::Datastores(from.list("number", DATASTORES_EACH)?),
            PartKind::Disks(_) => Part::Disks(from.list("number", DISKS_EACH)?),
            PartKind::Advice => Part::Advice(from.list("number", ADVICE_MAX)?),
        };
        if from.is_empty() { Ok((header, part)) } else { Err(PartError::Trailing) }
    }
}

/// A list in pieces, as far as there may be any.
pub(crate) fn chunks<T: Clone>(list: &[T], each: usize, most: usize) -> Vec<Vec<T>> {
    list.chunks(each).take(most).map(<[T]>::to_vec).collect()
}

const fn longest_disk() -> usize {
    // Four names with their lengths, 19 numbers of ten bytes at most, the lengths of records.
    4 * (crate::NAME_MAX + 2) + 19 * 10 + 9
}

const fn longest_datastore() -> usize {
    crate::NAME_MAX + 2 + crate::NOTE_MAX + 2 + 26 * 10 + 6
}

const fn longest_advice() -> usize {
    2 * (crate::NAME_MAX + 2) + 2 * (crate::NOTE_MAX + 2) + 3
}

const HEADER: usize = 8 + 16 + 10 + 10 + 2;

const _: () = assert!(
    HEADER + DISKS_EACH * longest_disk() <= PART_MAX
        && HEADER + DATASTORES_EACH * longest_datastore() <= PART_MAX
        && HEADER + ADVICE_MAX * longest_advice() <= PART_MAX,
    "whatever a host says fits into a part"
);
