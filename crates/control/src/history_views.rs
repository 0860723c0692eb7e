//! The API's views of history and of the models learned from it.

use headgate_api::history::DatastoreHour;
use headgate_api::placement::{DatastoreModel, ModelSource};
use headgate_api::top::LatencyMicros;
use headgate_history::{Learnt, Source, StoreHour};
use headgate_placement::{DeviceModel, LeftOut};
use headgate_units::Nanos;

/// The API's view of a datastore's model.
pub fn datastore_model(learnt: &Learnt) -> DatastoreModel {
    let model = learnt.model.as_ref();
    let counted = LeftOut::ALL.into_iter().zip(learnt.totals.left_out);
    DatastoreModel {
        ability: model.map(|model| model.slope.ability()),
        slope_ns: model.map(|model| model.slope.as_picos() as f64 / 1e3),
        slope_low_ns: model.map(|model| model.low as f64 / 1e3),
        slope_high_ns: model.map(|model| model.high as f64 / 1e3),
        r_squared: model.map(|model| model.explained.as_f64()),
        text: model.map(DeviceModel::to_string),
        model: learnt.model,
        source: model.map(|_| match learnt.source {
            Source::Day => ModelSource::Day,
            Source::Month => ModelSource::Month,
            Source::Earlier(_) => ModelSource::Earlier,
            Source::Recorded => ModelSource::Recorded,
        }),
        learnt_at: match learnt.source {
            Source::Earlier(at) if model.is_some() => Some(at.0 / 1_000_000_000),
            _ => None,
        },
        refusal: learnt.refusal.as_ref().map(ToString::to_string),
        intervals: learnt.totals.taken,
        left_out: counted.filter(|&(_, n)| n > 0).map(|(why, n)| (why.to_string(), n)).collect(),
    }
}

/// The API's view of one hour of a datastore; `begin` is in seconds since 1970.
pub(super) fn hour_view(begin: i64, hour: &StoreHour) -> DatastoreHour {
    let micros = |latency: Option<Nanos>| latency.map(|latency| latency.0 / 1_000);
    let both = |p50: Option<Nanos>, p99: Option<Nanos>| {
        Some(LatencyMicros { p50: micros(p50)?, p99: micros(p99)? })
    };
    let counted = LeftOut::ALL.into_iter().zip(hour.totals.left_out);
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
        intervals: hour.totals.taken,
        left_out: counted.filter(|&(_, n)| n > 0).map(|(why, n)| (why.to_string(), n)).collect(),
        points: hour.points.points().len() as u64,
    }
}
