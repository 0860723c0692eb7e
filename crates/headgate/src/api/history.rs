//! What datastores did, by the hour, as it goes over the API.

use super::top::LatencyMicros;
use crate::samples::StoreHour;
use headgate_placement::LeftOut;
use headgate_units::Nanos;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// What a datastore did in an hour. Rates and means are over the part of it that was seen: a daemon that did not run saw nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
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

impl DatastoreHour {
    pub(crate) fn new(begin: i64, hour: &StoreHour) -> DatastoreHour {
        let micros = |latency: Option<Nanos>| latency.map(|latency| latency.0 / 1_000);
        let both = |p50: Option<Nanos>, p99: Option<Nanos>| {
            Some(LatencyMicros { p50: micros(p50)?, p99: micros(p99)? })
        };
        let counted = LeftOut::ALL.into_iter().zip(hour.tally.left_out);
        DatastoreHour {
            begin,
            seen_seconds: hour.seen.as_secs_f64(),
            reads: hour.reads.count,
            writes: hour.writes.count,
            errors: hour.errors,
            iops: hour.per_second(hour.reads.count.saturating_add(hour.writes.count)),
            bytes_per_sec: hour.per_second(hour.reads.bytes.0.saturating_add(hour.writes.bytes.0)),
            outstanding: hour.mean_outstanding(),
            outstanding_peak: hour.peak.as_f64(),
            device_micros: both(hour.device.at_permille(500), hour.device.at_permille(990)),
            total_micros: both(hour.total.at_permille(500), hour.total.at_permille(990)),
            intervals: hour.tally.taken,
            left_out: counted.filter(|&(_, n)| n > 0).map(|(why, n)| (why.to_string(), n)).collect(),
            points: hour.points.points().len() as u64,
        }
    }
}
