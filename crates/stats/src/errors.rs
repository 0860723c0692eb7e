//! Errors of the storage under a disk, counted by what failed and how.

use crate::disk::Op;

/// What failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ErrorOp {
    /// A read.
    Read,
    /// A write, a discard or a write-zeroes.
    Write,
    /// A flush.
    Flush,
    /// A question or an advice.
    Other,
}

impl ErrorOp {
    /// Every one.
    pub const ALL: [ErrorOp; 4] = [ErrorOp::Read, ErrorOp::Write, ErrorOp::Flush, ErrorOp::Other];

    /// The word in metrics and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            ErrorOp::Read => "read",
            ErrorOp::Write => "write",
            ErrorOp::Flush => "flush",
            ErrorOp::Other => "other",
        }
    }
}

impl From<Op> for ErrorOp {
    fn from(op: Op) -> ErrorOp {
        match op {
            Op::Read => ErrorOp::Read,
            Op::Write | Op::Discard | Op::WriteZeroes => ErrorOp::Write,
            Op::Flush => ErrorOp::Flush,
            Op::Other => ErrorOp::Other,
        }
    }
}

/// How it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ErrorKind {
    /// The storage or a quota is full: `ENOSPC`, `EDQUOT`, `EFBIG`.
    NoSpace,
    /// The storage cannot read or write: `EIO`.
    Io,
    /// Any other error.
    Other,
}

impl ErrorKind {
    /// Every one.
    pub const ALL: [ErrorKind; 3] = [ErrorKind::NoSpace, ErrorKind::Io, ErrorKind::Other];

    /// The word in metrics and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            ErrorKind::NoSpace => "no-space",
            ErrorKind::Io => "io",
            ErrorKind::Other => "other",
        }
    }
}

/// How often the storage under a disk failed, whatever the client was told of it. A request that is
/// tried again and fails again counts again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErrorCounts([[u64; ErrorKind::ALL.len()]; ErrorOp::ALL.len()]);

impl ErrorCounts {
    /// One more.
    pub fn add(&mut self, op: ErrorOp, kind: ErrorKind) {
        let count = &mut self.0[op as usize][kind as usize];
        *count = count.saturating_add(1);
    }

    /// How often this failed in this way.
    pub fn get(&self, op: ErrorOp, kind: ErrorKind) -> u64 {
        self.0[op as usize][kind as usize]
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (ErrorOp, ErrorKind, u64)> + '_ {
        ErrorOp::ALL
            .into_iter()
            .flat_map(|op| ErrorKind::ALL.map(|kind| (op, kind, self.get(op, kind))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_has_a_count_of_its_own() {
        let mut counts = ErrorCounts::default();
        for (n, (op, kind)) in
            (1..).zip(ErrorOp::ALL.into_iter().flat_map(|op| ErrorKind::ALL.map(|kind| (op, kind))))
        {
            (0..n).for_each(|_| counts.add(op, kind));
        }
        assert_eq!(
            counts.iter().map(|(.., n)| n).collect::<alloc::vec::Vec<_>>(),
            (1..=12).collect::<alloc::vec::Vec<u64>>()
        );
    }
}
