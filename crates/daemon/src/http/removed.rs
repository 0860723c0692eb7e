//! Routes of removed disks.

use super::app::{Answer, App};
use super::error::{ApiError, Body, Param};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use headgate_api::removed::{DiskRestore, RemovedDisk};
#[cfg(test)]
use headgate_api::types::ErrorBody;
use headgate_api::types::{Changed, Disk};

/// Removed disks whose content is kept.
#[cfg_attr(test, utoipa::path(get, path = "/v1/removed", tag = "disks", responses((status = 200, body = [RemovedDisk]))))]
pub(super) async fn list_removed(State(app): State<App>) -> Json<Vec<RemovedDisk>> {
    Json(app.control.removed_disks())
}

/// Serves a removed disk again: the one with this id, or the last one that had this name.
#[cfg_attr(test, utoipa::path(post, path = "/v1/removed/{name}/restore", tag = "disks", params(("name" = String, Path)),
    request_body = DiskRestore, responses(
    (status = 200, body = Changed<Disk>), (status = 404, body = ErrorBody),
    (status = 409, body = ErrorBody, description = "the name is taken, or the disk does not fit any more"))))]
pub(super) async fn restore_disk(
    State(app): State<App>,
    Param(name): Param<String>,
    Body(request): Body<DiskRestore>,
) -> Answer<Changed<Disk>> {
    Ok(Json(app.blocking(move |control| control.restore_disk(&name, request)).await?))
}

/// Deletes the content of a removed disk: of the one with this id, or the last one that had this
/// name.
#[cfg_attr(test, utoipa::path(delete, path = "/v1/removed/{name}", tag = "disks", params(("name" = String, Path)), responses(
    (status = 204), (status = 404, body = ErrorBody))))]
pub(super) async fn purge_removed(
    State(app): State<App>,
    Param(name): Param<String>,
) -> Result<StatusCode, ApiError> {
    app.blocking(move |control| control.purge_removed(&name)).await?;
    Ok(StatusCode::NO_CONTENT)
}
