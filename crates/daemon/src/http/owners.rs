//! Routes of tenants as the operator has them: what they are promised, and how much they may have.
//! What tenants themselves may ask for is in [`tenants`](super::tenants).

use super::app::{Answer, App, Edited};
use super::edit::Edit;
use super::error::{ApiError, Body, Param};
use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use headgate_api::tenants::{Tenant, TenantPatch};
use headgate_api::types::Changed;
#[cfg(test)]
use headgate_api::types::ErrorBody;
use headgate_model::Name;
use serde_json::{Value, json};

/// What is set for a tenant.
fn told(tenant: &Tenant) -> Value {
    json!({"policy": tenant.policy, "quota": tenant.quota})
}

/// All tenants.
#[cfg_attr(test, utoipa::path(get, path = "/v1/tenants", tag = "tenants", responses((status = 200, body = [Tenant]))))]
pub(super) async fn list_tenants(State(app): State<App>) -> Answer<Vec<Tenant>> {
    Ok(Json(app.blocking(|control| Ok(control.tenants())).await?))
}

/// One tenant.
#[cfg_attr(test, utoipa::path(get, path = "/v1/tenants/{name}", tag = "tenants", params(("name" = String, Path)), responses(
    (status = 200, body = Tenant), (status = 404, body = ErrorBody))))]
pub(super) async fn show_tenant(
    State(app): State<App>,
    Param(name): Param<Name>,
) -> Answer<Tenant> {
    Ok(Json(app.blocking(move |control| control.tenant(&name)).await?))
}

/// Changes a tenant, or makes one; answered when what its disks are promised together is in force.
#[cfg_attr(test, utoipa::path(patch, path = "/v1/tenants/{name}", tag = "tenants", params(("name" = String, Path)),
    request_body = TenantPatch, responses(
    (status = 200, body = Changed<Tenant>),
    (status = 409, body = ErrorBody, description = "what is promised does not fit"),
    (status = 422, body = ErrorBody, description = "a value makes no sense"))))]
pub(super) async fn set_tenant(
    State(app): State<App>,
    Param(name): Param<Name>,
    Body(patch): Body<TenantPatch>,
) -> Edited<Changed<Tenant>> {
    app.edit(move |control| {
        let before = control.tenant(&name).ok();
        let changed = control.set_tenant(&name, &patch)?;
        let edit = match before {
            Some(before) => Edit::between(&told(&before), &told(&changed.now)),
            None => Edit::made(&told(&changed.now)),
        };
        Ok((edit, changed))
    })
    .await
}

/// Forgets a tenant that no virtual machine belongs to.
#[cfg_attr(test, utoipa::path(delete, path = "/v1/tenants/{name}", tag = "tenants", params(("name" = String, Path)), responses(
    (status = 204), (status = 404, body = ErrorBody),
    (status = 409, body = ErrorBody, description = "virtual machines belong to it"))))]
pub(super) async fn remove_tenant(
    State(app): State<App>,
    Param(name): Param<Name>,
) -> Result<(StatusCode, Extension<Edit>), ApiError> {
    let removed = app.blocking(move |control| {
        let before = control.tenant(&name)?;
        control.remove_tenant(&name)?;
        Ok(Edit::removed(&told(&before)))
    });
    Ok((StatusCode::NO_CONTENT, Extension(removed.await?)))
}
