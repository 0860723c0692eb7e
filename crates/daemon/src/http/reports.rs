//! What disks were promised and got.

use super::app::{Answer, App};
use super::error::{Flags, Param};
use axum::Json;
use axum::extract::State;
use headgate_api::report::{DiskPeriod, PromiseSample, Report};
#[cfg(test)]
use headgate_api::types::ErrorBody;
use headgate_control::ControlError;
use headgate_model::Name;
use serde::Deserialize;
use std::ops::Range;

/// A time, by the first second in it and the first after it.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub(super) struct TimeFlags {
    /// Seconds since 1970; 24 h before `until` when absent.
    since: Option<i64>,
    /// Seconds since 1970; now when absent.
    until: Option<i64>,
}

impl TimeFlags {
    fn range(&self) -> Result<Range<i64>, ControlError> {
        let now = (headgate_history::wall_clock().0 / 1_000_000_000).cast_signed();
        let until = self.until.unwrap_or(now + 1);
        let since = self.since.unwrap_or_else(|| until.saturating_sub(24 * 3_600));
        if since >= until || since < 0 {
            return Err(ControlError::Invalid {
                error: format!("there is no time from {since} to {until}"),
                expected: "seconds since 1970, 'since' before 'until'".into(),
            });
        }
        Ok(since..until)
    }
}

/// What a disk did and waited for, the oldest first: by the minute for up to six hours of the last
/// day, else by the hour. Times in which it asked for nothing and had no reservation are left out.
#[cfg_attr(test, utoipa::path(get, path = "/v1/disks/{name}/history", tag = "statistics",
    params(("name" = String, Path), TimeFlags), responses((status = 200, body = [DiskPeriod]),
    (status = 404, body = ErrorBody), (status = 422, body = ErrorBody))))]
pub(super) async fn disk_history(
    State(app): State<App>,
    Param(name): Param<Name>,
    Flags(flags): Flags<TimeFlags>,
) -> Answer<Vec<DiskPeriod>> {
    let within = flags.range()?;
    Ok(Json(app.blocking(move |control| control.disk_history(&name, within)).await?))
}

/// How promises were kept, by disk, machine and tenant, over the hours that begin in a time.
#[cfg_attr(test, utoipa::path(get, path = "/v1/report", tag = "statistics", params(TimeFlags),
    responses((status = 200, body = Report), (status = 422, body = ErrorBody))))]
pub(super) async fn report(
    State(app): State<App>,
    Flags(flags): Flags<TimeFlags>,
) -> Answer<Report> {
    let within = flags.range()?;
    Ok(Json(app.blocking(move |control| control.report(within)).await?))
}

/// The samples that a report is made of: an hour of a disk each. They are kept for 62 days.
#[cfg_attr(test, utoipa::path(get, path = "/v1/report/samples", tag = "statistics", params(TimeFlags),
    responses((status = 200, body = [PromiseSample]), (status = 422, body = ErrorBody))))]
pub(super) async fn report_samples(
    State(app): State<App>,
    Flags(flags): Flags<TimeFlags>,
) -> Answer<Vec<PromiseSample>> {
    let within = flags.range()?;
    Ok(Json(app.blocking(move |control| control.promise_samples(within)).await?))
}
