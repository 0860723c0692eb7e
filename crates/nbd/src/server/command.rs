//! A request's head: 28 bytes that become a checked command, or an error for the client.

use super::contexts::Contexts;
use super::{Export, MAX_PAYLOAD, Writes};
use crate::counters;
use crate::wire::{NbdError, REQUEST_LEN, REQUEST_MAGIC, command, command_flag as flag};

/// What client and server agreed on in the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// The form of the server's replies.
    pub replies: Replies,
    /// The metadata contexts that the client selected for its export. If there are none, a request
    /// for block status is invalid.
    pub contexts: Contexts,
}

/// The form of the server's replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replies {
    /// One reply per request; a read's data follows it.
    Simple,
    /// Reads, block status and errors are answered by chunks with types.
    Structured,
    /// As [`Replies::Simple`], and counts behind the heads of requests and of replies. Block status
    /// is answered by chunks: see [`counters`].
    Counted(counters::Version),
}

impl Replies {
    /// Whether counts stand behind heads.
    pub fn are_counted(self) -> bool {
        matches!(self, Replies::Counted(_))
    }
}

/// How many extents a reply to a block status request may have for each context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentCount {
    /// `NBD_CMD_FLAG_REQ_ONE`.
    One,
    /// As many as the server likes.
    Many,
}

/// When a write counts as done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// When it is in the server's volatile cache; a later [`Op::Flush`] makes it durable.
    Cached,
    /// When it is on stable storage (`NBD_CMD_FLAG_FUA`).
    Fua,
}

/// Whether [`Op::WriteZeroes`] may deallocate the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmap {
    /// The range may become a hole that reads as zeroes.
    May,
    /// The range must stay allocated (`NBD_CMD_FLAG_NO_HOLE`).
    MustNot,
}

/// What [`Op::WriteZeroes`] does where zeroing is no faster than writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZeroSpeed {
    /// It writes zeroes, however long that takes.
    Any,
    /// It fails at once with [`NbdError::NotSupported`] (`NBD_CMD_FLAG_FAST_ZERO`).
    FastOnly,
}

/// An operation on a range of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Returns the range's data.
    Read,
    /// Writes the payload to the range.
    Write(Durability),
    /// Makes every write durable that was answered before. Has no range.
    Flush,
    /// The range's content is no longer needed and may read as anything.
    Trim,
    /// The client will soon read the range.
    Cache,
    /// The range reads as zeroes afterwards.
    WriteZeroes {
        /// Whether the range may become a hole.
        unmap: Unmap,
        /// Whether the request may take as long as a write.
        speed: ZeroSpeed,
        /// When it counts as done.
        durability: Durability,
    },
    /// Returns what the selected contexts say about the parts of the range.
    BlockStatus,
}

impl Op {
    /// Whether the request or its reply carries the range's data.
    pub fn has_payload(self) -> bool {
        matches!(self, Op::Read | Op::Write(_))
    }

    /// Whether the range may read otherwise afterwards.
    pub fn changes_data(self) -> bool {
        matches!(self, Op::Write(_) | Op::Trim | Op::WriteZeroes { .. })
    }
}

/// A checked request. `offset` and `len` are multiples of the block size, the range lies inside the
/// export and is not empty (a flush has none), and reads and writes are at most [`MAX_PAYLOAD`]
/// long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// Identifies the request in its reply.
    pub cookie: u64,
    /// The operation.
    pub op: Op,
    /// First byte of the range.
    pub offset: u64,
    /// Length of the range in bytes. For a write, as many bytes of payload follow the request.
    pub len: u32,
    /// How many extents the reply may have, for [`Op::BlockStatus`].
    pub extents: ExtentCount,
}

/// A request that is answered with an error and otherwise ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Identifies the request in its reply.
    pub cookie: u64,
    /// The error to reply with.
    pub error: NbdError,
    /// Bytes of payload that follow the request.
    pub payload: u32,
}

/// A request's head, read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// A request to serve.
    Command(Command),
    /// A request to reply to with an error.
    Refused(Refusal),
    /// The client is done (`NBD_CMD_DISC`).
    Disconnect,
    /// Not a request. Client and server are out of step for good.
    BadMagic(u32),
}

/// Reads a request's head and checks it against the session and the export. Constant time.
pub fn parse(head: &[u8; REQUEST_LEN], session: Session, export: Export) -> Head {
    let [m0, m1, m2, m3, f0, f1, t0, t1, rest @ ..] = *head;
    let [c0, c1, c2, c3, c4, c5, c6, c7, o0, o1, o2, o3, o4, o5, o6, o7, l0, l1, l2, l3] = rest;
    let magic = u32::from_be_bytes([m0, m1, m2, m3]);
    if magic != REQUEST_MAGIC {
        return Head::BadMagic(magic);
    }
    let raw = Raw {
        flags: u16::from_be_bytes([f0, f1]),
        kind: u16::from_be_bytes([t0, t1]),
        offset: u64::from_be_bytes([o0, o1, o2, o3, o4, o5, o6, o7]),
        len: u32::from_be_bytes([l0, l1, l2, l3]),
    };
    if raw.kind == command::DISC {
        return Head::Disconnect;
    }
    let cookie = u64::from_be_bytes([c0, c1, c2, c3, c4, c5, c6, c7]);
    match raw.check(session, export) {
        Ok((op, extents)) => {
            Head::Command(Command { cookie, op, offset: raw.offset, len: raw.len, extents })
        }
        Err(error) => {
            let payload = if raw.kind == command::WRITE { raw.len } else { 0 };
            Head::Refused(Refusal { cookie, error, payload })
        }
    }
}

/// The fields of a request, unchecked.
struct Raw {
    flags: u16,
    kind: u16,
    offset: u64,
    len: u32,
}

impl Raw {
    fn check(&self, session: Session, export: Export) -> Result<(Op, ExtentCount), NbdError> {
        let op = self.op(session)?;
        if op.changes_data() && export.writes == Writes::Refused {
            return Err(NbdError::NotPermitted);
        }
        match op {
            Op::Flush => {
                if self.offset != 0 || self.len != 0 {
                    return Err(NbdError::Invalid);
                }
            }
            _ => self.check_range(op, export)?,
        }
        if op.has_payload() && self.len > MAX_PAYLOAD {
            let unfragmented = op == Op::Read && self.flags & flag::DF != 0;
            return Err(if unfragmented { NbdError::Overflow } else { NbdError::Invalid });
        }
        let extents =
            if self.flags & flag::REQ_ONE != 0 { ExtentCount::One } else { ExtentCount::Many };
        Ok((op, extents))
    }

    /// The operation, if the flags belong to it. FUA is valid with every request.
    fn op(&self, session: Session) -> Result<Op, NbdError> {
        let durability =
            if self.flags & flag::FUA != 0 { Durability::Fua } else { Durability::Cached };
        let (op, flags) = match self.kind {
            command::READ => {
                let df = if session.replies == Replies::Structured { flag::DF } else { 0 };
                (Op::Read, df)
            }
            command::WRITE => (Op::Write(durability), 0),
            command::FLUSH => (Op::Flush, 0),
            // A trimmed range may read as anything until it is written again: FUA has nothing to
            // make durable.
            command::TRIM => (Op::Trim, 0),
            command::CACHE => (Op::Cache, 0),
            command::WRITE_ZEROES => {
                let unmap =
                    if self.flags & flag::NO_HOLE != 0 { Unmap::MustNot } else { Unmap::May };
                let speed = if self.flags & flag::FAST_ZERO != 0 {
                    ZeroSpeed::FastOnly
                } else {
                    ZeroSpeed::Any
                };
                (Op::WriteZeroes { unmap, speed, durability }, flag::NO_HOLE | flag::FAST_ZERO)
            }
            command::BLOCK_STATUS if !session.contexts.is_empty() => {
                (Op::BlockStatus, flag::REQ_ONE)
            }
            _ => return Err(NbdError::Invalid),
        };
        if self.flags & !(flags | flag::FUA) != 0 { Err(NbdError::Invalid) } else { Ok(op) }
    }

    /// Refuses empty ranges too. The specification leaves them open, and they can only be a
    /// client's mistake.
    fn check_range(&self, op: Op, export: Export) -> Result<(), NbdError> {
        let mask = u64::from(export.block_size) - 1;
        if self.len == 0 || (self.offset | u64::from(self.len)) & mask != 0 {
            return Err(NbdError::Invalid);
        }
        match self.offset.checked_add(u64::from(self.len)) {
            Some(end) if end <= export.size => Ok(()),
            _ if matches!(op, Op::Write(_) | Op::WriteZeroes { .. }) => Err(NbdError::NoSpace),
            _ => Err(NbdError::Invalid),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u32 = 1 << 20;

    const EXPORT: Export =
        Export { size: 64 << 20, block_size: 512, preferred: 4096, writes: Writes::Allowed };

    fn full() -> Session {
        Session { replies: Replies::Structured, contexts: Contexts::BASE_ALLOCATION }
    }

    fn head(kind: u16, flags: u16, offset: u64, len: u32) -> [u8; REQUEST_LEN] {
        let mut bytes = Vec::new();
        bytes.extend(REQUEST_MAGIC.to_be_bytes());
        bytes.extend(flags.to_be_bytes());
        bytes.extend(kind.to_be_bytes());
        bytes.extend(0x0102_0304_0506_0708u64.to_be_bytes());
        bytes.extend(offset.to_be_bytes());
        bytes.extend(len.to_be_bytes());
        bytes.try_into().unwrap()
    }

    fn op(kind: u16, flags: u16, offset: u64, len: u32) -> Result<Op, NbdError> {
        match parse(&head(kind, flags, offset, len), full(), EXPORT) {
            Head::Command(c) => Ok(c.op),
            Head::Refused(r) => Err(r.error),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_command_arrives_with_its_fields() {
        let parsed = parse(&head(command::READ, 0, 8192, 4096), full(), EXPORT);
        let expected = Command {
            cookie: 0x0102_0304_0506_0708,
            op: Op::Read,
            offset: 8192,
            len: 4096,
            extents: ExtentCount::Many,
        };
        assert_eq!(parsed, Head::Command(expected));
        assert_eq!(op(command::WRITE, 0, 0, 512), Ok(Op::Write(Durability::Cached)));
        assert_eq!(op(command::WRITE, flag::FUA, 0, 512), Ok(Op::Write(Durability::Fua)));
        assert_eq!(op(command::FLUSH, 0, 0, 0), Ok(Op::Flush));
        assert_eq!(op(command::TRIM, flag::FUA, 0, 512), Ok(Op::Trim));
        assert_eq!(op(command::CACHE, 0, 0, 512), Ok(Op::Cache));
        assert_eq!(
            op(command::WRITE_ZEROES, flag::NO_HOLE | flag::FAST_ZERO | flag::FUA, 0, 512),
            Ok(Op::WriteZeroes {
                unmap: Unmap::MustNot,
                speed: ZeroSpeed::FastOnly,
                durability: Durability::Fua
            })
        );
        assert_eq!(op(command::BLOCK_STATUS, flag::REQ_ONE, 0, 512), Ok(Op::BlockStatus));
        let disc = head(command::DISC, 0, 0, 0);
        assert_eq!(parse(&disc, full(), EXPORT), Head::Disconnect);
    }

    #[test]
    fn misaligned_and_empty_ranges_are_invalid() {
        for kind in [
            command::READ,
            command::WRITE,
            command::TRIM,
            command::CACHE,
            command::WRITE_ZEROES,
            command::BLOCK_STATUS,
        ] {
            assert_eq!(op(kind, 0, 1, 512), Err(NbdError::Invalid));
            assert_eq!(op(kind, 0, 512, 511), Err(NbdError::Invalid));
            assert_eq!(op(kind, 0, 512, 0), Err(NbdError::Invalid));
        }
        assert_eq!(op(command::FLUSH, 0, 512, 0), Err(NbdError::Invalid));
        assert_eq!(op(command::FLUSH, 0, 0, 512), Err(NbdError::Invalid));
    }

    #[test]
    fn past_the_end_writes_find_no_space_and_the_rest_is_invalid() {
        let size = EXPORT.size;
        for offset in [size, size - 512, u64::MAX - 511] {
            for kind in [command::WRITE, command::WRITE_ZEROES] {
                assert_eq!(op(kind, 0, offset, 1024), Err(NbdError::NoSpace));
            }
            for kind in [command::READ, command::TRIM, command::CACHE, command::BLOCK_STATUS] {
                assert_eq!(op(kind, 0, offset, 1024), Err(NbdError::Invalid));
            }
        }
        assert!(op(command::WRITE, 0, size - 512, 512).is_ok());
    }

    #[test]
    fn only_data_has_a_longest_length() {
        assert!(op(command::READ, 0, 0, 32 * MIB).is_ok());
        assert_eq!(op(command::READ, 0, 0, 32 * MIB + 512), Err(NbdError::Invalid));
        assert_eq!(op(command::READ, flag::DF, 0, 32 * MIB + 512), Err(NbdError::Overflow));
        assert_eq!(op(command::WRITE, 0, 0, 32 * MIB + 512), Err(NbdError::Invalid));
        assert!(op(command::TRIM, 0, 0, 64 * MIB).is_ok());
        assert!(op(command::WRITE_ZEROES, 0, 0, 64 * MIB).is_ok());
        assert!(op(command::BLOCK_STATUS, 0, 0, 64 * MIB).is_ok());
    }

    #[test]
    fn a_read_only_export_takes_nothing_that_changes_data() {
        let export = Export { writes: Writes::Refused, ..EXPORT };
        let (writes, reads) = (
            [command::WRITE, command::TRIM, command::WRITE_ZEROES],
            [command::READ, command::CACHE, command::BLOCK_STATUS],
        );
        for kind in writes {
            let parsed = parse(&head(kind, 0, 0, 4096), full(), export);
            let payload = if kind == command::WRITE { 4096 } else { 0 };
            let Head::Refused(refusal) = parsed else { panic!("{kind} is taken: {parsed:?}") };
            assert_eq!((refusal.error, refusal.payload), (NbdError::NotPermitted, payload));
        }
        for kind in reads {
            let parsed = parse(&head(kind, 0, 0, 4096), full(), export);
            assert!(matches!(parsed, Head::Command(_)), "{kind}: {parsed:?}");
        }
        let flush = parse(&head(command::FLUSH, 0, 0, 0), full(), export);
        assert!(matches!(flush, Head::Command(_)), "there may be others who write");
    }

    #[test]
    fn flags_of_another_command_and_unknown_commands_are_invalid() {
        assert_eq!(op(command::READ, flag::NO_HOLE, 0, 512), Err(NbdError::Invalid));
        assert_eq!(op(command::WRITE, flag::DF, 0, 512), Err(NbdError::Invalid));
        assert_eq!(op(command::TRIM, flag::REQ_ONE, 0, 512), Err(NbdError::Invalid));
        assert_eq!(op(command::READ, 1 << 9, 0, 512), Err(NbdError::Invalid));
        assert_eq!(op(8, 0, 0, 512), Err(NbdError::Invalid));
        assert_eq!(op(0xffff, 0, 0, 512), Err(NbdError::Invalid));
    }

    #[test]
    fn what_was_not_negotiated_is_invalid() {
        let plain = Session { replies: Replies::Simple, contexts: Contexts::NONE };
        for bytes in [head(command::READ, flag::DF, 0, 512), head(command::BLOCK_STATUS, 0, 0, 512)]
        {
            let refused = parse(&bytes, plain, EXPORT);
            assert!(
                matches!(refused, Head::Refused(r) if r.error == NbdError::Invalid),
                "{refused:?}"
            );
        }
    }

    #[test]
    fn a_refused_write_still_has_its_payload() {
        let refused = parse(&head(command::WRITE, 0, 1, 1000), full(), EXPORT);
        assert!(matches!(refused, Head::Refused(Refusal { payload: 1000, .. })), "{refused:?}");
        let refused = parse(&head(command::READ, 0, 1, 1000), full(), EXPORT);
        assert!(matches!(refused, Head::Refused(Refusal { payload: 0, .. })), "{refused:?}");
    }

    #[test]
    fn a_wrong_magic_is_no_request() {
        let mut bytes = head(command::READ, 0, 0, 512);
        bytes[0] ^= 1;
        assert!(matches!(parse(&bytes, full(), EXPORT), Head::BadMagic(_)));
    }
}
