//! Routes of classes, and of documents that say what there is to be.

use super::app::{Answer, App, Edited};
use super::edit::Edit;
use super::error::{ApiError, Body, Flags, Param};
use super::request_terms::{self as terms, DryRan};
use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use headgate_api::apply::{Act, Applied, Apply};
use headgate_api::classes::{Class, ClassPut};
#[cfg(test)]
use headgate_api::types::ErrorBody;
use headgate_api::types::{Changed, Force};
use headgate_model::Name;
use serde::Deserialize;
use serde_json::{Value, json};

/// The most changes that an event of documents names.
const NAMED: usize = 40;

/// Flags of a class's removal.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub(super) struct RemoveClassFlags {
    /// `yes` removes one that disks have: they keep what they have as their own.
    #[serde(default)]
    force: Force,
}

/// What a class is, and how many disks have it.
fn told(class: &Class) -> Value {
    let ClassPut { policy, reservation_per_gb, limit_per_gb, datastore_class, force: _ } =
        class.settings();
    json!({
        "policy": policy,
        "reservation_per_gb": reservation_per_gb,
        "limit_per_gb": limit_per_gb,
        "datastore_class": datastore_class,
        "disks": class.disks,
    })
}

/// All classes.
#[cfg_attr(test, utoipa::path(get, path = "/v1/classes", tag = "classes", responses((status = 200, body = [Class]))))]
pub(super) async fn list_classes(State(app): State<App>) -> Json<Vec<Class>> {
    Json(app.control.classes())
}

/// One class.
#[cfg_attr(test, utoipa::path(get, path = "/v1/classes/{name}", tag = "classes", params(("name" = String, Path)), responses(
    (status = 200, body = Class), (status = 404, body = ErrorBody))))]
pub(super) async fn show_class(State(app): State<App>, Param(name): Param<Name>) -> Answer<Class> {
    Ok(Json(app.control.class(&name)?))
}

/// Makes a class what is said, or a new one; answered when all its disks have what that makes of
/// their policies. All of them change, or none.
#[cfg_attr(test, utoipa::path(put, path = "/v1/classes/{name}", tag = "classes", params(("name" = String, Path)),
    request_body = ClassPut, responses(
    (status = 200, body = Changed<Class>),
    (status = 409, body = ErrorBody, description = "the reservations of its disks do not fit"),
    (status = 422, body = ErrorBody, description = "a value makes no sense, or contradicts what a disk has of its own"))))]
pub(super) async fn set_class(
    State(app): State<App>,
    Param(name): Param<Name>,
    Body(put): Body<ClassPut>,
) -> Edited<Changed<Class>> {
    app.edit(move |control| {
        let before = control.class(&name).ok();
        let changed = control.set_class(&name, put)?;
        let edit = match before {
            Some(before) => Edit::between(&told(&before), &told(&changed.now)),
            None => Edit::made(&told(&changed.now)),
        };
        Ok((edit, changed))
    })
    .await
}

/// Forgets a class.
#[cfg_attr(test, utoipa::path(delete, path = "/v1/classes/{name}", tag = "classes", params(("name" = String, Path), RemoveClassFlags), responses(
    (status = 204), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody, description = "disks have it"))))]
pub(super) async fn remove_class(
    State(app): State<App>,
    Param(name): Param<Name>,
    Flags(flags): Flags<RemoveClassFlags>,
) -> Result<(StatusCode, Extension<Edit>), ApiError> {
    let removed = app.blocking(move |control| {
        let before = control.class(&name)?;
        control.remove_class(&name, flags.force)?;
        Ok(Edit::removed(&told(&before)))
    });
    Ok((StatusCode::NO_CONTENT, Extension(removed.await?)))
}

/// What came of documents, for a line about them.
fn summary(applied: &Applied) -> Edit {
    let word = |act| match act {
        Act::Create => "create",
        Act::Change => "change",
        Act::Remove => "remove",
    };
    let named = applied.changes.iter().take(NAMED);
    let named: Vec<String> =
        named.map(|one| format!("{} {} {}", word(one.act), one.kind, one.name)).collect();
    let further = applied.changes.len() - named.len();
    Edit::made(&json!({"applied": applied.changed, "changes": named, "further": further}))
}

/// Makes classes, policies and datastores' capacities what documents say, all of it or nothing, and
/// records which disks are to be made: each by `POST /v1/disks` after that.
#[cfg_attr(test, utoipa::path(post, path = "/v1/apply", tag = "classes", request_body = Apply, responses(
    (status = 200, body = Applied),
    (status = 409, body = ErrorBody, description = "what is promised does not fit"),
    (status = 422, body = ErrorBody, description = "documents contradict each other, or what there is"))))]
pub(super) async fn apply(
    State(app): State<App>,
    Body(mut wanted): Body<Apply>,
) -> Result<(Option<Extension<DryRan>>, Extension<Edit>, Json<Applied>), ApiError> {
    wanted.dry_run |= terms::is_dry();
    let dry = wanted.dry_run.then_some(Extension(DryRan));
    let (edit, applied) = app
        .edit(move |control| {
            let applied = control.apply(&wanted)?;
            Ok((summary(&applied), applied))
        })
        .await?;
    Ok((dry, edit, applied))
}
