//! What a disk's requests wait for.

use super::app::{Answer, App};
use super::error::Param;
use axum::Json;
use axum::extract::State;
use headgate_api::blame::Blame;
#[cfg(test)]
use headgate_api::types::ErrorBody;
use headgate_model::Name;

/// What a disk's requests waited for, and behind whom, over the last five seconds; `null` where it
/// asked for nothing.
#[cfg_attr(test, utoipa::path(get, path = "/v1/disks/{name}/blame", tag = "statistics",
    params(("name" = String, Path)), responses(
    (status = 200, body = Option<Blame>), (status = 404, body = ErrorBody))))]
pub(super) async fn disk_blame(
    State(app): State<App>,
    Param(name): Param<Name>,
) -> Answer<Option<Blame>> {
    let observer = app.observer.clone();
    let blame = move |control: &headgate_control::Control| {
        let name = control.disk(&name)?.name;
        Ok(observer.blame(&name))
    };
    Ok(Json(app.blocking(blame).await?))
}
