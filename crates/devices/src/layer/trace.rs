//! Requests that a trace layer has kept, as they are handed out.

use super::Fault;
use crate::DeviceIo;
use alloc::string::String;
use alloc::vec::Vec;
use headgate_units::Nanos;

/// Some requests of a trace, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TracePart {
    /// The requests, in the order in which they completed.
    pub requests: Vec<TracedRequest>,
    /// Where the next part begins. As large as `recorded`: this was the last.
    pub next: u64,
    /// Requests that the layer has recorded since it was set, those included that it has dropped.
    pub recorded: u64,
}

/// A request of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracedRequest {
    /// Its number among all that the layer recorded, from 0.
    pub serial: u64,
    /// The disk's name.
    pub disk: String,
    /// When it came to the layer, on the host's `CLOCK_MONOTONIC`.
    pub submitted: Nanos,
    /// When it came back.
    pub completed: Nanos,
    /// What it asked for, at an offset within its disk.
    pub io: DeviceIo,
    /// Whether it succeeded.
    pub result: Result<(), Fault>,
}
