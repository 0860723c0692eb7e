//! Heads of the chunks of structured replies, and what requests and replies have to do with each
//! other.

use super::form::Form;
use crate::wire::{NbdError, be16, be32, be64, chunk};
use thiserror::Error;

/// Length of a chunk without its payload, in bytes.
pub(super) const CHUNK_HEAD: usize = 20;
/// What the payload of a chunk with data begins with: where the data belong.
pub(super) const DATA_HEAD: usize = 8;
/// The longest chunk of extents that is received, in bytes: 2^20 of them, more than known servers
/// send.
const MAX_STATUS: u32 = 4 + (8 << 20);
/// The longest error with its text, in bytes.
const MAX_TEXT: u32 = 64 << 10;

/// What a successful reply to a request brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Brings {
    /// Nothing but success.
    Nothing,
    /// So many bytes of the export, from a byte of it on.
    Data {
        /// The first byte.
        offset: u64,
        /// How many bytes.
        len: u32,
    },
    /// What a range of so many bytes holds.
    Status {
        /// Length in bytes.
        len: u32,
    },
}

/// A breach of the protocol by the server. The connection is of no use any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ReplyError {
    /// Something else than a reply of the form that was agreed on.
    #[error("a reply starts with {0:#x}, which no reply does that was agreed on")]
    Magic(u32),
    /// A reply to no request of the client.
    #[error("a reply names request {0:#x}, which is not outstanding")]
    Cookie(u64),
    /// A chunk that does not belong to such a request, comes twice, or has a length that does not
    /// fit its type.
    #[error("a chunk of type {kind} with {len} bytes does not belong to its request")]
    Chunk {
        /// The type; see [`chunk`].
        kind: u16,
        /// Length of its payload in bytes.
        len: u32,
    },
    /// Data of another place than was asked for, or of one that has come before.
    #[error("a reply brings {len} bytes at {offset}, which were not asked for or came before")]
    Piece {
        /// The first byte of the export.
        offset: u64,
        /// Length in bytes.
        len: u32,
    },
    /// A read that succeeds without all of its data.
    #[error("a reply to a read of {0} bytes ends without all of them")]
    Incomplete(u32),
    /// A simple reply to a request of which chunks have come.
    #[error("a reply to request {0:#x} begins with chunks and ends without")]
    Mixed(u64),
    /// More by reservation than in all.
    #[error(
        "a reply's counters contradict each other: {by_reservation} millionths of an IO by \
         reservation, and {all} in all"
    )]
    Counters {
        /// What the disk is said to have received in all, in millionths of an IO.
        all: u64,
        /// The part of it by reservation, in millionths of an IO.
        by_reservation: u64,
    },
}

/// Whether a chunk is the last one of its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Last {
    Yes,
    No,
}

/// What a chunk says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Says {
    /// That the reply is over.
    Nothing,
    /// Data, from a byte of the export on.
    Data { begin: u64 },
    /// Zeroes, so many from a byte of the export on.
    Zeroes { begin: u64, len: u32 },
    /// What a range holds, in a context.
    Extents { context: u32 },
    /// Why the request failed. Not 0.
    Error { number: u32 },
}

/// The head of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    pub(super) cookie: u64,
    pub(super) last: Last,
    /// What its request asked for.
    pub(super) brings: Brings,
    pub(super) says: Says,
    /// Bytes of payload that follow.
    pub(super) left: u32,
    /// What to call it when it is one too many.
    pub(super) error: ReplyError,
}

impl Chunk {
    /// The chunk that `bytes` begin with, and how many of them its head takes. `None`: more bytes
    /// are needed. O(1).
    pub(super) fn read(
        bytes: &[u8],
        form: Form,
        brings: impl Fn(u64) -> Option<Brings>,
    ) -> Result<Option<(Chunk, usize)>, ReplyError> {
        let (Some(flags), Some(kind)) = (be16(bytes, 4), be16(bytes, 6)) else { return Ok(None) };
        let (Some(cookie), Some(len)) = (be64(bytes, 8), be32(bytes, 16)) else { return Ok(None) };
        let brings = brings(cookie).ok_or(ReplyError::Cookie(cookie))?;
        let error = ReplyError::Chunk { kind, len };
        let last = if flags & chunk::FLAG_DONE != 0 { Last::Yes } else { Last::No };
        // Where replies are counted, only what a range holds is told in chunks.
        let counted = form.counting().is_agreed();
        if counted && !matches!(brings, Brings::Status { .. }) {
            return Err(error);
        }
        let begins = match (kind, brings) {
            (chunk::NONE, _) if len == 0 && last == Last::Yes => 0,
            (chunk::OFFSET_DATA, Brings::Data { .. }) if len as usize > DATA_HEAD => DATA_HEAD,
            (chunk::OFFSET_HOLE, Brings::Data { .. }) if len == 12 => 12,
            (chunk::BLOCK_STATUS, Brings::Status { .. })
                if (12..=MAX_STATUS).contains(&len) && len % 8 == 4 =>
            {
                4
            }
            (kind, _) if kind & chunk::ERROR_BIT != 0 && (6..=MAX_TEXT).contains(&len) => 4,
            _ => return Err(error),
        };
        let Some(said) = bytes.get(CHUNK_HEAD..CHUNK_HEAD + begins) else { return Ok(None) };
        let long = be64(said, 0).unwrap_or(0);
        let word = |at| be32(said, at).unwrap_or(0);
        let says = match kind {
            chunk::NONE => Says::Nothing,
            chunk::OFFSET_DATA => Says::Data { begin: long },
            chunk::OFFSET_HOLE => Says::Zeroes { begin: long, len: word(8) },
            chunk::BLOCK_STATUS => Says::Extents { context: word(0) },
            // No error has the number 0, and yet this is one.
            _ => Says::Error { number: if word(0) == 0 { NbdError::Io.code() } else { word(0) } },
        };
        let left = len - begins as u32;
        Ok(Some((Chunk { cookie, last, brings, says, left, error }, CHUNK_HEAD + begins)))
    }
}
