use crate::DiskId;
use headgate_units::{Bytes, Nanos};
use serde::Serialize;

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Data from the disk.
    Read,
    /// Data to the disk.
    Write,
    /// Completed writes to stable storage. Has no range: offset and bytes are 0.
    Flush,
    /// A range is not needed any more.
    Discard,
}

/// One request of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// When it was issued, after the earliest request of the trace.
    pub at: Nanos,
    /// What it asks for.
    pub kind: Kind,
    /// Where, in bytes. `offset + bytes` does not exceed 2⁶⁴ - 1.
    pub offset: u64,
    /// How much: at least 1, but 0 for a flush.
    pub bytes: Bytes,
    /// Which disk, see [`TraceReader::disks`](crate::TraceReader::disks).
    pub disk: DiskId,
    /// From issue to completion, where the format has it.
    pub latency: Option<Nanos>,
}
