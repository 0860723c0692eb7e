//! Wire types of the hourly history of datastores.

use super::top::LatencyMicros;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a datastore did in an hour. Rates and means are over the part of it that was seen: a daemon
/// that did not run saw nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DatastoreHour {
    /// When it began, in seconds since 1970.
    pub begin: i64,
    /// Seconds of it that were seen.
    pub seen_seconds: f64,
    /// Reads that were done.
    pub reads: u64,
    /// Writes that were done.
    pub writes: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Reads and writes per second.
    pub iops: f64,
    /// Bytes read and written per second.
    pub bytes_per_sec: f64,
    /// Mean number of requests outstanding, queued ones included.
    pub outstanding: f64,
    /// The highest mean over one interval of some seconds.
    pub outstanding_peak: f64,
    /// From dispatch to completion, at most a tenth too high; absent when nothing was done.
    pub device_micros: Option<LatencyMicros>,
    /// From arrival to completion, likewise.
    pub total_micros: Option<LatencyMicros>,
    /// Intervals that are good points of the datastore's model.
    pub intervals: u64,
    /// Other intervals, by why they are not.
    pub left_out: BTreeMap<String, u64>,
    /// Points that are kept of the hour for the model.
    pub points: u64,
}
