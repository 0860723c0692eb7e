//! What a disk does about errors of its storage, and what it has seen of them.

use headgate_stats::{ErrorCounts, ErrorKind, ErrorOp};
use headgate_units::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

/// What a disk does with a write that its storage fails, in QEMU's words. Discards and write-zeroes
/// count as writes. A flush that fails is always reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum WriteErrors {
    /// The client gets the error.
    Report,
    /// The disk holds its requests while there is no space, and reports any other error.
    #[default]
    Enospc,
    /// The disk holds its requests.
    Stop,
}

impl WriteErrors {
    /// The word on the command line and in the catalog.
    pub fn as_str(self) -> &'static str {
        match self {
            WriteErrors::Report => "report",
            WriteErrors::Enospc => "enospc",
            WriteErrors::Stop => "stop",
        }
    }
}

/// What a disk does with a read that its storage fails, in QEMU's words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum ReadErrors {
    /// The client gets the error.
    #[default]
    Report,
    /// The disk holds its requests.
    Stop,
}

impl ReadErrors {
    /// The word on the command line and in the catalog.
    pub fn as_str(self) -> &'static str {
        match self {
            ReadErrors::Report => "report",
            ReadErrors::Stop => "stop",
        }
    }
}

/// What a disk has seen of its storage's trouble.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TroubleSample {
    /// Errors since it was opened, held or reported.
    pub counts: ErrorCounts,
    /// The last of them.
    pub last: Option<ErrorSample>,
    /// When a client was last told of one, on `CLOCK_MONOTONIC`.
    pub reported: Option<Nanos>,
    /// What it holds, while it does.
    pub hold: Option<HoldSample>,
    /// How often it began to hold since it was opened.
    pub holds: u64,
}

/// An error of a disk's storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorSample {
    /// When, on `CLOCK_MONOTONIC`.
    pub at: Nanos,
    /// What failed.
    pub op: ErrorOp,
    /// How.
    pub kind: ErrorKind,
    /// The same in words.
    pub error: String,
    /// Where its range begins.
    pub offset: Bytes,
    /// The length of its range.
    pub len: Bytes,
}

/// What a disk holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldSample {
    /// Since when, on `CLOCK_MONOTONIC`.
    pub since: Nanos,
    /// Why, in words.
    pub error: String,
    /// How many requests.
    pub requests: usize,
    /// How often one of them was tried in vain.
    pub tries: u64,
}

/// Trouble goes on for so long after the last error that a client was told.
pub const FAILING: Nanos = Nanos::from_secs(10);

impl TroubleSample {
    /// The last error, if a client was told of one so lately at `now`, on `CLOCK_MONOTONIC`, that
    /// the storage counts as failing.
    pub fn failing(&self, now: Nanos) -> Option<&ErrorSample> {
        let lately = self.reported.is_some_and(|at| now.since(at) < FAILING);
        self.last.as_ref().filter(|_| lately)
    }
}
