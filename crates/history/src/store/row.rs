//! Rows of intervals, and how they and times are written.

use headgate_units::Nanos;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub(super) const SECOND: u64 = 1_000_000_000;

pub(super) const HOUR: u64 = 3_600;

pub(super) const DAY: u64 = 24 * HOUR;

/// Intervals of one length, one after the other.
#[derive(Serialize, Deserialize)]
pub(super) struct Row<T> {
    /// When the last ended.
    pub ended: Nanos,
    pub period: Nanos,
    pub intervals: Vec<T>,
}

pub(super) fn seconds(at: Nanos) -> i64 {
    (at.0 / SECOND).cast_signed()
}

pub(super) fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    postcard::to_stdvec(value).expect("samples are plain data")
}

/// Decodes a value; a damaged one counts as missing.
pub(super) fn decode<T: DeserializeOwned>(blob: &[u8]) -> Option<T> {
    postcard::from_bytes(blob).ok()
}
