//! Requests that a trace layer has kept, as they go over the API.

use headgate_devices::{IoKind, layer};
use headgate_units::Bytes;
use serde::{Deserialize, Serialize};

/// Some requests of a datastore's trace, in the order in which they completed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TracePart {
    /// The requests.
    pub requests: Vec<TracedRequest>,
    /// The `from` of the next part. Equal to `recorded`: there is none yet.
    pub next: u64,
    /// Requests recorded since the layer was set, including those that it has dropped.
    pub recorded: u64,
}

/// A request of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TracedRequest {
    /// Its number among all that were recorded, from 0. A gap is what was dropped.
    pub serial: u64,
    /// Its disk.
    pub disk: String,
    /// When it came to the layer, in nanoseconds on the host's `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// What it asked for.
    pub op: TracedOp,
    /// Where on its disk, in bytes.
    pub offset: u64,
    /// How much, in bytes.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub bytes: Bytes,
    /// How long it took below the layer, in nanoseconds.
    pub latency_ns: u64,
    /// `EIO` or `ENOSPC`, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What a traced request asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum TracedOp {
    /// A read.
    Read,
    /// A write, or zeroes that must be allocated.
    Write,
    /// A flush.
    Flush,
    /// A discard, or zeroes that may be a hole.
    Discard,
}

impl From<IoKind> for TracedOp {
    fn from(kind: IoKind) -> TracedOp {
        match kind {
            IoKind::Read => TracedOp::Read,
            IoKind::Write => TracedOp::Write,
            IoKind::Flush => TracedOp::Flush,
            IoKind::Discard => TracedOp::Discard,
        }
    }
}

impl From<layer::TracedRequest> for TracedRequest {
    fn from(request: layer::TracedRequest) -> TracedRequest {
        let layer::TracedRequest { serial, disk, submitted, completed, io, result } = request;
        TracedRequest {
            serial,
            disk,
            at_ns: submitted.0,
            op: io.kind.into(),
            offset: io.offset,
            bytes: io.bytes,
            latency_ns: (completed - submitted).0,
            error: result.err().map(|fault| fault.to_string()),
        }
    }
}

impl From<layer::TracePart> for TracePart {
    fn from(part: layer::TracePart) -> TracePart {
        let layer::TracePart { requests, next, recorded } = part;
        let requests = requests.into_iter().map(TracedRequest::from).collect();
        TracePart { requests, next, recorded }
    }
}
