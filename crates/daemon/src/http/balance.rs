//! Routes of advice that is carried out, and of datastores that are emptied.

use super::app::{Answer, App, Edited};
use super::edit::Edit;
use super::error::{ApiError, Body, Flags, Param};
use super::window::WindowFlags;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use headgate_api::balance::{AutomaticPatch, Balance, BalanceCreate};
use headgate_api::maintenance::{Maintenance, MaintenanceSet};
#[cfg(test)]
use headgate_api::types::ErrorBody;
use headgate_model::Name;
use headgate_placement::Automatic;

/// How far advice is carried out, or what would be done now.
#[cfg_attr(test, utoipa::path(get, path = "/v1/balance", tag = "placement", params(WindowFlags), responses(
    (status = 200, body = Balance), (status = 422, body = ErrorBody))))]
pub(super) async fn show_balance(
    State(app): State<App>,
    Flags(flags): Flags<WindowFlags>,
) -> Answer<Balance> {
    let window = flags.lookback()?;
    Ok(Json(app.blocking(move |control| control.balance(window)).await?))
}

/// Has what is advised now carried out, one move after the other unless told otherwise. Each is
/// made if it still stands when its turn comes. Nothing begins if nothing is advised.
#[cfg_attr(test, utoipa::path(post, path = "/v1/balance", tag = "placement", params(WindowFlags),
    request_body = BalanceCreate, responses(
    (status = 202, body = Balance),
    (status = 409, body = ErrorBody, description = "advice is being carried out already"),
    (status = 422, body = ErrorBody, description = "a value makes no sense"))))]
pub(super) async fn begin_balance(
    State(app): State<App>,
    Flags(flags): Flags<WindowFlags>,
    Body(request): Body<BalanceCreate>,
) -> Result<(StatusCode, Json<Balance>), ApiError> {
    let window = flags.lookback()?;
    let begun = app.blocking(move |control| control.begin_balance(window, &request)).await?;
    Ok((StatusCode::ACCEPTED, Json(begun)))
}

/// Begins no further advised move. Those under way go on.
#[cfg_attr(test, utoipa::path(delete, path = "/v1/balance", tag = "placement", responses(
    (status = 204), (status = 409, body = ErrorBody, description = "nothing is carried out"))))]
pub(super) async fn stop_balance(State(app): State<App>) -> Result<StatusCode, ApiError> {
    app.blocking(|control| control.stop_balance()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Changes when moves are made without an operator.
#[cfg_attr(test, utoipa::path(patch, path = "/v1/rules", tag = "placement", request_body = AutomaticPatch, responses(
    (status = 200, body = Object))))]
pub(super) async fn set_automatic(
    State(app): State<App>,
    Body(patch): Body<AutomaticPatch>,
) -> Edited<Automatic> {
    app.edit(move |control| {
        let before = control.rules().automatic;
        let now = control.set_automatic(&patch)?;
        Ok((Edit::between(&before, &now), now))
    })
    .await
}

/// How far a datastore's maintenance is.
#[cfg_attr(test, utoipa::path(get, path = "/v1/datastores/{name}/maintenance", tag = "datastores", params(("name" = String, Path)), responses(
    (status = 200, body = Maintenance), (status = 404, body = ErrorBody))))]
pub(super) async fn show_maintenance(
    State(app): State<App>,
    Param(name): Param<Name>,
) -> Answer<Maintenance> {
    Ok(Json(app.blocking(move |control| control.maintenance(&name)).await?))
}

/// Has a datastore emptied, its disks one after the other, or ends that; answers what will happen.
#[cfg_attr(test, utoipa::path(put, path = "/v1/datastores/{name}/maintenance", tag = "datastores", params(("name" = String, Path)),
    request_body = MaintenanceSet, responses(
    (status = 200, body = Maintenance), (status = 404, body = ErrorBody))))]
pub(super) async fn set_maintenance(
    State(app): State<App>,
    Param(name): Param<Name>,
    Body(wish): Body<MaintenanceSet>,
) -> Answer<Maintenance> {
    Ok(Json(app.blocking(move |control| control.set_maintenance(&name, wish.state)).await?))
}
