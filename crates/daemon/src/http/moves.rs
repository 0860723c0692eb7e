//! Routes of live moves, and of other sizes.

use super::app::{Answer, App, Edited};
use super::edit::Edit;
use super::error::{ApiError, Body, Flags, Param};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use headgate_api::moves::{DiskMigrate, Move, MovePatch};
use headgate_api::resize::DiskResize;
#[cfg(test)]
use headgate_api::types::ErrorBody;
use headgate_api::types::{Changed, Disk, Force};
use headgate_model::Name;
use headgate_units::Bytes;
use serde::Deserialize;
use serde_json::json;

/// Flags of the end of a move.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub(super) struct CancelFlags {
    /// `yes`, of a move that is over: forgets the copy that cannot be removed, and leaves it.
    #[serde(default)]
    force: Force,
}

/// Gives a disk another size; answered when its storage has it and clients are told.
#[cfg_attr(test, utoipa::path(post, path = "/v1/disks/{name}/resize", tag = "disks", params(("name" = String, Path)),
    request_body = DiskResize, responses(
    (status = 200, body = Changed<Disk>),
    (status = 404, body = ErrorBody, description = "no such disk"),
    (status = 409, body = ErrorBody, description = "it moves, has clients or data in what would be cut off, or there is no room"),
    (status = 422, body = ErrorBody, description = "a value makes no sense, or it would be smaller"))))]
pub(super) async fn resize(
    State(app): State<App>,
    Param(name): Param<Name>,
    Body(request): Body<DiskResize>,
) -> Edited<Changed<Disk>> {
    app.edit(move |control| {
        let before = control.disk(&name)?.size;
        let changed = control.resize_disk(&name, request)?;
        let set = |size: Bytes| json!({"size": size.0});
        Ok((Edit::between(&set(before), &set(changed.now.size)), changed))
    })
    .await
}

/// Begins to move a disk to another datastore while it is used; answered when its copy is made and
/// copying has begun.
#[cfg_attr(test, utoipa::path(post, path = "/v1/disks/{name}/migrate", tag = "moves", params(("name" = String, Path)),
    request_body = DiskMigrate, responses(
    (status = 202, body = Changed<Move>),
    (status = 404, body = ErrorBody, description = "no such disk or datastore"),
    (status = 409, body = ErrorBody, description = "it moves already, or does not fit there or cannot be there"),
    (status = 422, body = ErrorBody, description = "a value makes no sense"))))]
pub(super) async fn migrate(
    State(app): State<App>,
    Param(name): Param<Name>,
    Body(request): Body<DiskMigrate>,
) -> Result<(StatusCode, Json<Changed<Move>>), ApiError> {
    let begun = app.blocking(move |control| control.migrate_disk(&name, request)).await?;
    Ok((StatusCode::ACCEPTED, Json(begun)))
}

/// Moves under way, and the last hundred that are over since the daemon began.
#[cfg_attr(test, utoipa::path(get, path = "/v1/moves", tag = "moves", responses((status = 200, body = [Move]))))]
pub(super) async fn list_moves(State(app): State<App>) -> Answer<Vec<Move>> {
    Ok(Json(app.blocking(|control| Ok(control.moves())).await?))
}

/// The move of a disk: the one under way, or else its last one.
#[cfg_attr(test, utoipa::path(get, path = "/v1/moves/{name}", tag = "moves", params(("name" = String, Path)), responses(
    (status = 200, body = Move), (status = 404, body = ErrorBody),
    (status = 409, body = ErrorBody, description = "it has not moved"))))]
pub(super) async fn show_move(State(app): State<App>, Param(name): Param<Name>) -> Answer<Move> {
    Ok(Json(app.blocking(move |control| control.view_of_move(&name)).await?))
}

/// Has the copy of a move rest or go on, or changes what it may take.
#[cfg_attr(test, utoipa::path(patch, path = "/v1/moves/{name}", tag = "moves", params(("name" = String, Path)),
    request_body = MovePatch, responses(
    (status = 200, body = Move), (status = 404, body = ErrorBody),
    (status = 409, body = ErrorBody, description = "the disk does not move"),
    (status = 422, body = ErrorBody, description = "a value makes no sense"))))]
pub(super) async fn set_move(
    State(app): State<App>,
    Param(name): Param<Name>,
    Body(patch): Body<MovePatch>,
) -> Edited<Move> {
    app.edit(move |control| {
        let before = control.view_of_move(&name)?;
        let now = control.change_move(&name, &patch)?;
        let set = |one: &Move| {
            json!({
                "state": one.state,
                "shares": one.shares,
                "limit": one.limit,
                "limit_bandwidth": one.limit_bandwidth,
            })
        };
        Ok((Edit::between(&set(&before), &set(&now)), now))
    })
    .await
}

/// Ends a move before its switch: the disk stays where it is.
#[cfg_attr(test, utoipa::path(delete, path = "/v1/moves/{name}", tag = "moves", params(("name" = String, Path), CancelFlags), responses(
    (status = 204), (status = 404, body = ErrorBody),
    (status = 409, body = ErrorBody, description = "the disk does not move, or has moved"))))]
pub(super) async fn cancel_move(
    State(app): State<App>,
    Param(name): Param<Name>,
    Flags(flags): Flags<CancelFlags>,
) -> Result<StatusCode, ApiError> {
    app.blocking(move |control| control.cancel_move(&name, flags.force)).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[cfg(test)]
mod tests {
    use super::super::testing::Bench;
    use serde_json::Value;

    #[test]
    fn what_stands_in_the_way_of_a_move_is_told_in_the_form_of_all_errors() {
        Bench::new().serve(|api| {
            let disk = r#"{"name":"m","size":1048576,"datastore":"default"}"#;
            assert_eq!(api.send("POST", "/v1/disks", disk).0, 201);
            for (method, path, body, status, words) in [
                ("POST", "/v1/disks/m/migrate", r#"{"to":"default"}"#, 422, "is on datastore"),
                ("POST", "/v1/disks/m/migrate", r#"{"to":"none"}"#, 404, "no datastore 'none'"),
                ("POST", "/v1/disks/x/migrate", r#"{"to":"default"}"#, 404, "no disk 'x'"),
                ("POST", "/v1/disks/m/migrate", r#"{"to":"default","shares":0}"#, 400, "shares"),
                ("POST", "/v1/disks/m/migrate", r#"{"too":"default"}"#, 400, "too"),
                ("PATCH", "/v1/moves/m", r#"{"state":"paused"}"#, 409, "is not being moved"),
                ("PATCH", "/v1/moves/m", r#"{"state":"gone"}"#, 400, "gone"),
                ("DELETE", "/v1/moves/m", "", 409, "is not being moved"),
                ("DELETE", "/v1/moves/x", "", 404, "no disk 'x'"),
                ("GET", "/v1/moves/m", "", 409, "is not being moved"),
            ] {
                let (found, answer) = api.send(method, path, body);
                assert_eq!(found, status, "{method} {path} {body}: {answer}");
                let answer: Value = serde_json::from_str(&answer).unwrap();
                assert!(answer["error"].as_str().unwrap().contains(words), "{answer}");
            }
            assert_eq!(api.send("GET", "/v1/moves", "").1, "[]");
        });
    }
}
