//! Routes of copies of disks as of one instant.

use super::app::{Answer, App, Edited};
use super::edit::Edit;
use super::error::{ApiError, Body, Param};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use headgate_api::copies::{Copy, DiskCopy};
use headgate_api::pace::PacePatch;
use headgate_api::types::Changed;
#[cfg(test)]
use headgate_api::types::ErrorBody;
use headgate_model::Name;
use serde_json::json;

/// Begins to copy a disk as of one instant while it is used; answered when the instant has passed.
/// The copy has all that clients had an answer for before the request, and nothing that they ask
/// for after the answer. It serves when all is copied.
#[cfg_attr(test, utoipa::path(post, path = "/v1/disks/{name}/copy", tag = "copies", params(("name" = String, Path)),
    request_body = DiskCopy, responses(
    (status = 202, body = Changed<Copy>),
    (status = 404, body = ErrorBody, description = "no such disk or datastore"),
    (status = 409, body = ErrorBody, description = "it is moved or copied already, the name is taken, or it does not fit there"),
    (status = 422, body = ErrorBody, description = "a value makes no sense"))))]
pub(super) async fn copy(
    State(app): State<App>,
    Param(name): Param<Name>,
    Body(request): Body<DiskCopy>,
) -> Result<(StatusCode, Json<Changed<Copy>>), ApiError> {
    let begun = app.blocking(move |control| control.copy_disk(&name, request)).await?;
    Ok((StatusCode::ACCEPTED, Json(begun)))
}

/// Copies under way, and the last hundred that are over since the daemon began.
#[cfg_attr(test, utoipa::path(get, path = "/v1/copies", tag = "copies", responses((status = 200, body = [Copy]))))]
pub(super) async fn list_copies(State(app): State<App>) -> Answer<Vec<Copy>> {
    Ok(Json(app.blocking(|control| Ok(control.copies())).await?))
}

/// A copy, by the disk that it becomes: the one under way, or else the last one of that name.
#[cfg_attr(test, utoipa::path(get, path = "/v1/copies/{name}", tag = "copies", params(("name" = String, Path)), responses(
    (status = 200, body = Copy), (status = 404, body = ErrorBody),
    (status = 409, body = ErrorBody, description = "the disk is no copy of these"))))]
pub(super) async fn show_copy(State(app): State<App>, Param(name): Param<Name>) -> Answer<Copy> {
    Ok(Json(app.blocking(move |control| control.view_of_copy(&name)).await?))
}

/// Changes what a copy under way may take.
#[cfg_attr(test, utoipa::path(patch, path = "/v1/copies/{name}", tag = "copies",
    params(("name" = String, Path)), request_body = PacePatch, responses(
    (status = 200, body = Copy), (status = 404, body = ErrorBody),
    (status = 409, body = ErrorBody, description = "no copy under way"),
    (status = 422, body = ErrorBody, description = "a value makes no sense"))))]
pub(super) async fn set_copy(
    State(app): State<App>,
    Param(name): Param<Name>,
    Body(patch): Body<PacePatch>,
) -> Edited<Copy> {
    app.edit(move |control| {
        let before = control.view_of_copy(&name)?;
        let now = control.change_copy(&name, &patch)?;
        let set = |one: &Copy| {
            json!({
                "shares": one.shares,
                "limit": one.limit,
                "limit_bandwidth": one.limit_bandwidth,
            })
        };
        Ok((Edit::between(&set(&before), &set(&now)), now))
    })
    .await
}

/// Ends a copy under way: nothing of it is left.
#[cfg_attr(test, utoipa::path(delete, path = "/v1/copies/{name}", tag = "copies", params(("name" = String, Path)), responses(
    (status = 204), (status = 404, body = ErrorBody),
    (status = 409, body = ErrorBody, description = "no copy under way, or all is copied"))))]
pub(super) async fn cancel_copy(
    State(app): State<App>,
    Param(name): Param<Name>,
) -> Result<StatusCode, ApiError> {
    app.blocking(move |control| control.cancel_copy(&name)).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[cfg(test)]
mod tests {
    use super::super::testing::Bench;
    use serde_json::Value;

    #[test]
    fn what_stands_in_the_way_of_a_copy_is_told_in_the_form_of_all_errors() {
        Bench::new().serve(|api| {
            let disk = r#"{"name":"m","size":1048576,"datastore":"default"}"#;
            assert_eq!(api.send("POST", "/v1/disks", disk).0, 201);
            for (method, path, body, status, words) in [
                ("POST", "/v1/disks/m/copy", r#"{"name":"m"}"#, 409, "'m'"),
                ("POST", "/v1/disks/m/copy", r#"{"name":"c","datastore":"no"}"#, 404, "'no'"),
                ("POST", "/v1/disks/x/copy", r#"{"name":"c"}"#, 404, "no disk 'x'"),
                ("POST", "/v1/disks/m/copy", r#"{"name":"c","shares":0}"#, 400, "shares"),
                ("POST", "/v1/disks/m/copy", r#"{"names":"c"}"#, 400, "names"),
                ("GET", "/v1/copies/m", "", 409, "is not a copy under way"),
                ("PATCH", "/v1/copies/m", r#"{"limit":5}"#, 409, "is not a copy under way"),
                ("PATCH", "/v1/copies/m", r#"{"state":"paused"}"#, 400, "state"),
                ("DELETE", "/v1/copies/m", "", 409, "is not a copy under way"),
                ("DELETE", "/v1/copies/x", "", 404, "no disk 'x'"),
            ] {
                let (got, answer) = api.send(method, path, body);
                assert_eq!(got, status, "{method} {path}: {answer}");
                let answer: Value = serde_json::from_str(&answer).unwrap();
                let error = answer["error"].as_str().unwrap();
                assert!(error.contains(words), "{method} {path}: {error}");
            }
            assert_eq!(api.send("GET", "/v1/copies", ""), (200, "[]".into()));
        });
    }
}
