//! The numbers of the protocol, and the layout of requests. All fields on the wire are big-endian.

/// Opens the server's greeting: `NBDMAGIC`.
pub const GREETING_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// Second word of the greeting and head of every option: `IHAVEOPT`.
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// Head of every reply to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Head of a request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Head of a simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Head of a structured reply chunk.
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// Longest string of the protocol (export name, query, message), in bytes.
pub const MAX_STRING: usize = 4096;
/// Length of a request without its payload, in bytes.
pub const REQUEST_LEN: usize = 28;

/// Handshake flags, from the server and (the same bits) from the client.
pub mod handshake {
    /// The peer speaks the fixed newstyle.
    pub const FIXED_NEWSTYLE: u16 = 1;
    /// No padding after the answer to `NBD_OPT_EXPORT_NAME`.
    pub const NO_ZEROES: u16 = 1 << 1;
}

/// What an export can do.
#[allow(missing_docs)]
pub mod export {
    pub const HAS_FLAGS: u16 = 1;
    pub const READ_ONLY: u16 = 1 << 1;
    pub const SEND_FLUSH: u16 = 1 << 2;
    pub const SEND_FUA: u16 = 1 << 3;
    pub const SEND_TRIM: u16 = 1 << 5;
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    pub const SEND_DF: u16 = 1 << 7;
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    pub const SEND_CACHE: u16 = 1 << 10;
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Options of the negotiation.
#[allow(missing_docs)]
pub mod option {
    pub const EXPORT_NAME: u32 = 1;
    pub const ABORT: u32 = 2;
    pub const LIST: u32 = 3;
    pub const STARTTLS: u32 = 5;
    pub const INFO: u32 = 6;
    pub const GO: u32 = 7;
    pub const STRUCTURED_REPLY: u32 = 8;
    pub const LIST_META_CONTEXT: u32 = 9;
    pub const SET_META_CONTEXT: u32 = 10;
}

/// Types of replies to options. Errors have the top bit set.
#[allow(missing_docs)]
pub mod option_reply {
    pub const ACK: u32 = 1;
    pub const SERVER: u32 = 2;
    pub const INFO: u32 = 3;
    pub const META_CONTEXT: u32 = 4;
    /// Set in every error.
    pub const ERROR: u32 = 1 << 31;
    pub const ERR_UNSUP: u32 = (1 << 31) + 1;
    pub const ERR_POLICY: u32 = (1 << 31) + 2;
    pub const ERR_INVALID: u32 = (1 << 31) + 3;
    pub const ERR_TLS_REQD: u32 = (1 << 31) + 5;
    pub const ERR_UNKNOWN: u32 = (1 << 31) + 6;
    pub const ERR_TOO_BIG: u32 = (1 << 31) + 9;
}

/// Kinds of information on an export.
#[allow(missing_docs)]
pub mod info {
    pub const EXPORT: u16 = 0;
    pub const NAME: u16 = 1;
    pub const DESCRIPTION: u16 = 2;
    pub const BLOCK_SIZE: u16 = 3;
}

/// Types of requests.
#[allow(missing_docs)]
pub mod command {
    pub const READ: u16 = 0;
    pub const WRITE: u16 = 1;
    pub const DISC: u16 = 2;
    pub const FLUSH: u16 = 3;
    pub const TRIM: u16 = 4;
    pub const CACHE: u16 = 5;
    pub const WRITE_ZEROES: u16 = 6;
    pub const BLOCK_STATUS: u16 = 7;
}

/// Flags of requests.
#[allow(missing_docs)]
pub mod command_flag {
    pub const FUA: u16 = 1;
    pub const NO_HOLE: u16 = 1 << 1;
    pub const DF: u16 = 1 << 2;
    pub const REQ_ONE: u16 = 1 << 3;
    pub const FAST_ZERO: u16 = 1 << 4;
}

/// Structured reply chunks.
#[allow(missing_docs)]
pub mod chunk {
    pub const FLAG_DONE: u16 = 1;
    pub const NONE: u16 = 0;
    pub const OFFSET_DATA: u16 = 1;
    pub const OFFSET_HOLE: u16 = 2;
    pub const BLOCK_STATUS: u16 = 5;
    /// Set in every error.
    pub const ERROR_BIT: u16 = 1 << 15;
    pub const ERROR: u16 = (1 << 15) + 1;
}

/// The metadata context that every export has.
pub const BASE_ALLOCATION: &str = "base:allocation";
/// The number under which the server reports [`BASE_ALLOCATION`].
pub const BASE_ALLOCATION_ID: u32 = 1;
/// What a dirty bitmap's name follows in the name of its metadata context.
pub const DIRTY_BITMAP: &str = "qemu:dirty-bitmap:";
/// The number under which the server reports an export's first dirty bitmap. The next ones follow.
pub const FIRST_BITMAP_ID: u32 = 2;
/// Extent state of `base:allocation`: not allocated.
pub const STATE_HOLE: u32 = 1;
/// Extent state of `base:allocation`: reads as zeroes.
pub const STATE_ZERO: u32 = 1 << 1;
/// Extent state of `qemu:dirty-bitmap:`: may have changed.
pub const STATE_DIRTY: u32 = 1;

/// Errors of the transmission phase, with their numbers on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum NbdError {
    /// The export is read-only.
    NotPermitted = 1,
    /// The storage failed.
    Io = 5,
    /// The request is malformed, misaligned or out of range.
    Invalid = 22,
    /// The storage is full, or a write goes past the end of the disk.
    NoSpace = 28,
    /// The request is longer than the server serves in one piece.
    Overflow = 75,
    /// A fast zeroing is not possible.
    NotSupported = 95,
}

impl NbdError {
    /// The number on the wire.
    pub fn code(self) -> u32 {
        self as u32
    }

    /// A sentence for the client's user, at most 100 bytes.
    pub fn message(self) -> &'static str {
        match self {
            NbdError::NotPermitted => "the export is read-only",
            NbdError::Io => "the storage under the disk failed",
            NbdError::Invalid => {
                "the request is malformed, not aligned to the block size, or outside the disk"
            }
            NbdError::NoSpace => "no space left, or the write goes past the end of the disk",
            NbdError::Overflow => "the request is longer than the advertised maximum",
            NbdError::NotSupported => "the range cannot be zeroed faster than by writing",
        }
    }
}

/// A request's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// See [`command_flag`].
    pub flags: u16,
    /// See [`command`].
    pub command: u16,
    /// Comes back in the reply.
    pub cookie: u64,
    /// First byte of the range.
    pub offset: u64,
    /// Length of the range in bytes.
    pub len: u32,
}

impl Request {
    /// As it goes over the wire.
    pub fn to_bytes(self) -> [u8; REQUEST_LEN] {
        let mut bytes = [0; REQUEST_LEN];
        bytes[0..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.flags.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.command.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_be_bytes());
        bytes[24..28].copy_from_slice(&self.len.to_be_bytes());
        bytes
    }
}

/// The head of an option.
pub fn option_head(option: u32, len: u32) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[0..8].copy_from_slice(&OPTION_MAGIC.to_be_bytes());
    bytes[8..12].copy_from_slice(&option.to_be_bytes());
    bytes[12..16].copy_from_slice(&len.to_be_bytes());
    bytes
}

/// An integer at `at`, if the bytes are there.
pub fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.try_into().ok().map(u16::from_be_bytes)
}

/// An integer at `at`, if the bytes are there.
pub fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes)
}

/// An integer at `at`, if the bytes are there.
pub fn be64(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at + 8)?.try_into().ok().map(u64::from_be_bytes)
}
