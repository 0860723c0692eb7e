//! Routes of images that are imported.

use super::app::{Answer, App};
use super::error::{ApiError, Body, Flags, Param};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use headgate_api::imports::{Import, ImportProgress};
#[cfg(test)]
use headgate_api::types::ErrorBody;
use headgate_model::Name;
use serde::Deserialize;

/// Whose import is ended.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub(super) struct Cancel {
    /// That of this command, and no other.
    #[serde(default)]
    id: Option<String>,
}

/// Disks that images are imported into and that are not whole, by name.
#[cfg_attr(test, utoipa::path(get, path = "/v1/imports", tag = "imports", responses((status = 200, body = [Import]))))]
pub(super) async fn list_imports(State(app): State<App>) -> Answer<Vec<Import>> {
    Ok(Json(app.blocking(|control| Ok(control.imports())).await?))
}

/// One of them.
#[cfg_attr(test, utoipa::path(get, path = "/v1/imports/{name}", tag = "imports", params(("name" = String, Path)), responses(
    (status = 200, body = Import), (status = 404, body = ErrorBody),
    (status = 409, body = ErrorBody, description = "the disk is whole"))))]
pub(super) async fn show_import(
    State(app): State<App>,
    Param(name): Param<Name>,
) -> Answer<Import> {
    Ok(Json(app.blocking(move |control| control.import(&name)).await?))
}

/// The command that imports a disk says how far it is, each second. No event tells of it.
#[cfg_attr(test, utoipa::path(put, path = "/v1/imports/{name}", tag = "imports",
    params(("name" = String, Path)), request_body = ImportProgress, responses(
    (status = 200, body = Import), (status = 404, body = ErrorBody),
    (status = 409, body = ErrorBody, description = "the import is cancelled, or the disk is whole"),
    (status = 422, body = ErrorBody, description = "a value makes no sense"))))]
pub(super) async fn hear_of_import(
    State(app): State<App>,
    Param(name): Param<Name>,
    Body(told): Body<ImportProgress>,
) -> Answer<Import> {
    Ok(Json(app.blocking(move |control| control.hear_of_import(&name, told)).await?))
}

/// Ends an import: its disk is removed with what it holds.
#[cfg_attr(test, utoipa::path(delete, path = "/v1/imports/{name}", tag = "imports",
    params(("name" = String, Path), Cancel), responses(
    (status = 204), (status = 404, body = ErrorBody),
    (status = 409, body = ErrorBody, description = "the disk is whole, or another command's"))))]
pub(super) async fn cancel_import(
    State(app): State<App>,
    Param(name): Param<Name>,
    Flags(cancel): Flags<Cancel>,
) -> Result<StatusCode, ApiError> {
    app.blocking(move |control| control.cancel_import(&name, cancel.id.as_deref())).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[cfg(test)]
mod tests {
    use super::super::testing::Bench;
    use serde_json::Value;

    #[test]
    fn an_import_is_told_of_shown_and_ended_over_the_api() {
        let bench = Bench::new();
        bench.serve(|api| {
            let disk =
                r#"{"name":"m","size":1048576,"datastore":"default","vm":"incomplete-import"}"#;
            assert_eq!(api.send("POST", "/v1/disks", disk).0, 201);
            let before = bench.app().control.events().last();
            let told = r#"{"id":"1","source":"a.raw","copied":524288,"size":1048576}"#;
            let (status, answer) = api.send("PUT", "/v1/imports/m", told);
            assert_eq!(status, 200, "{answer}");
            assert_eq!(bench.app().control.events().last(), before, "progress is no event");
            let listed: Value =
                serde_json::from_str(&api.send("GET", "/v1/imports", "").1).unwrap();
            assert_eq!(listed[0]["state"], "copying");
            assert_eq!(listed[0]["source"], "a.raw");
            let disk: Value = serde_json::from_str(&api.send("GET", "/v1/disks/m", "").1).unwrap();
            assert_eq!(disk["filling"]["by"], "import");
            assert_eq!(disk["filling"]["copied"], 524_288);
            assert_eq!(api.send("DELETE", "/v1/imports/m?id=2", "").0, 409);
            assert_eq!(api.send("DELETE", "/v1/imports/m?what=2", "").0, 400);
            assert_eq!(api.send("DELETE", "/v1/imports/m", "").0, 204);
            assert_eq!(bench.app().control.events().last(), before + 3);
            assert_eq!(api.send("PUT", "/v1/imports/m", told).0, 404);
            assert_eq!(api.send("GET", "/v1/imports/m", "").0, 404);
        });
    }
}
