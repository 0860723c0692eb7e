//! What one line or record of a trace says.

use crate::disks::DiskId;
use crate::error::Problem;
use crate::record::Kind;
use headgate_units::Nanos;

/// A request with the time as the trace has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Raw {
    /// Nanoseconds after the format's own origin.
    pub at: u64,
    pub kind: Kind,
    pub offset: u64,
    pub bytes: u64,
    pub disk: DiskId,
    pub latency: Option<Nanos>,
}

impl Raw {
    /// Checks the range.
    pub(super) fn checked(self) -> Result<Raw, Problem> {
        if self.kind == Kind::Flush {
            return Ok(Raw { offset: 0, bytes: 0, ..self });
        }
        if self.bytes == 0 {
            return Err(Problem::new("the length", b"0", "at least one byte"));
        }
        if self.offset.checked_add(self.bytes).is_none() {
            let range = format!("{} + {}", self.offset, self.bytes);
            return Err(Problem::new("offset + length", range.as_bytes(), "at most 2^64 - 1"));
        }
        Ok(self)
    }
}

/// What a line is, if it is not wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// A request.
    Request(Raw),
    /// A header, a comment, an event that is not a request.
    Other,
}
