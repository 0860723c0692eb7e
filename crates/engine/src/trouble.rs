//! What becomes of requests that the storage fails: see
//! `docs/decisions/0063-trouble.md`.

use crate::request::IoError;
use headgate_stats::ErrorKind;

/// Which writes that the storage failed a disk holds instead of failing them. Discards and
/// write-zeroes count as writes. Flushes are never held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HoldWrites {
    /// None.
    #[default]
    Never,
    /// Those that failed for want of space.
    NoSpace,
    /// All.
    Always,
}

/// Which reads that the storage failed a disk holds instead of failing them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HoldReads {
    /// None.
    #[default]
    Never,
    /// All.
    Always,
}

/// What a disk does with requests that its storage fails. The default fails them.
///
/// A disk that holds a request sends none of its others either, until the storage is seen to take
/// one of those that it failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TroublePolicy {
    /// Of writes.
    pub writes: HoldWrites,
    /// Of reads.
    pub reads: HoldReads,
}

impl IoError {
    /// What kind of trouble of the storage it tells of; `None`: it is the request's own fault, or
    /// nobody's.
    pub fn kind(self) -> Option<ErrorKind> {
        match self {
            IoError::NoSpace => Some(ErrorKind::NoSpace),
            IoError::Backend(libc::EIO) => Some(ErrorKind::Io),
            IoError::Backend(_) => Some(ErrorKind::Other),
            IoError::Invalid | IoError::Unsupported | IoError::Cancelled => None,
        }
    }
}
