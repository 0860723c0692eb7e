use super::app::{Answer, App, Edited};
use super::edit::{Edit, VmSettings};
use super::error::{ApiError, Body, Flags, Param};
use super::window::{SinceFlags, WindowFlags};
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use headgate_api::calibration::{Calibration, CalibrationCreate};
use headgate_api::constants::ConstantsFit;
use headgate_api::health::{Confinement, Health, HealthStatus};
use headgate_api::history::DatastoreHour;
use headgate_api::leases::DiskTakeover;
use headgate_api::placement::{AdviceReport, Created, ModelPoint};
use headgate_api::priorities::{Export, ExportCreate, ExportPatch, VmPatch};
use headgate_api::top::{DatastoreStats, Top};
use headgate_api::trace::TracePart;
#[cfg(test)]
use headgate_api::types::ErrorBody;
use headgate_api::types::{
    Attachment, Changed, Datastore, DatastoreCreate, DatastorePatch, Disk, DiskCreate, DiskPatch,
    Force, ImageFate, Vm,
};
use headgate_model::Name;
use headgate_placement::Rules;
use serde::Deserialize;
use serde_json::{Value, json};

/// Flags of a disk's removal.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub(super) struct RemoveFlags {
    /// `yes` disconnects clients.
    #[serde(default)]
    force: Force,
    /// `remove` keeps the content for a while, `purge` does not, `keep` leaves the image for
    /// another host.
    #[serde(default)]
    image: ImageFate,
}

/// All datastores.
#[cfg_attr(test, utoipa::path(get, path = "/v1/datastores", tag = "datastores", responses((status = 200, body = [Datastore]))))]
pub(super) async fn list_datastores(State(app): State<App>) -> Json<Vec<Datastore>> {
    Json(app.control.datastores())
}

/// Adds a datastore.
#[cfg_attr(test, utoipa::path(post, path = "/v1/datastores", tag = "datastores", request_body = DatastoreCreate, responses(
    (status = 201, body = Changed<Datastore>),
    (status = 409, body = ErrorBody, description = "the name or the storage is taken"),
    (status = 422, body = ErrorBody, description = "a value makes no sense"))))]
pub(super) async fn add_datastore(
    State(app): State<App>,
    Body(request): Body<DatastoreCreate>,
) -> Result<(StatusCode, Extension<Edit>, Json<Changed<Datastore>>), ApiError> {
    let added = app.blocking(move |control| control.add_datastore(request)).await?;
    Ok((StatusCode::CREATED, Extension(Edit::made(&settings(&added.now))), Json(added)))
}

/// One datastore.
#[cfg_attr(test, utoipa::path(get, path = "/v1/datastores/{name}", tag = "datastores", params(("name" = String, Path)), responses(
    (status = 200, body = Datastore), (status = 404, body = ErrorBody))))]
pub(super) async fn show_datastore(
    State(app): State<App>,
    Param(name): Param<Name>,
) -> Answer<Datastore> {
    let datastore = app.blocking(move |control| {
        let datastore = control.datastore(&name)?;
        let (model, flash) = (Some(control.model_of(&name)?), control.flash_of(&name)?);
        Ok(Datastore { model, flash, costs: control.costs_of(&name)?, ..datastore })
    });
    Ok(Json(datastore.await?))
}

/// The intervals that a datastore's model is learnt from: of the last 24 hours, or a few points of
/// each hour of the last 30 days.
#[cfg_attr(test, utoipa::path(get, path = "/v1/datastores/{name}/points", tag = "placement", params(("name" = String, Path)), responses(
    (status = 200, body = [ModelPoint]), (status = 404, body = ErrorBody))))]
pub(super) async fn model_points(
    State(app): State<App>,
    Param(name): Param<Name>,
) -> Answer<Vec<ModelPoint>> {
    Ok(Json(app.blocking(move |control| control.model_points(&name)).await?))
}

/// What a datastore did, by the hour, the oldest first. The hour in which the window begins is
/// there whole; hours of which nothing was seen are not.
#[cfg_attr(test, utoipa::path(get, path = "/v1/datastores/{name}/history", tag = "datastores", params(("name" = String, Path), WindowFlags),
    responses((status = 200, body = [DatastoreHour]), (status = 404, body = ErrorBody), (status = 422, body = ErrorBody))))]
pub(super) async fn datastore_history(
    State(app): State<App>,
    Param(name): Param<Name>,
    Flags(flags): Flags<WindowFlags>,
) -> Answer<Vec<DatastoreHour>> {
    let window = flags.lookback()?;
    Ok(Json(app.blocking(move |control| control.datastore_history(&name, window)).await?))
}

/// Requests that the datastore's first trace layer has kept, some at a time.
#[cfg_attr(test, utoipa::path(get, path = "/v1/datastores/{name}/trace", tag = "datastores", params(("name" = String, Path), TraceFlags),
    responses((status = 200, body = TracePart), (status = 404, body = ErrorBody),
    (status = 409, body = ErrorBody, description = "it has no trace layer"))))]
pub(super) async fn datastore_trace(
    State(app): State<App>,
    Param(name): Param<Name>,
    Flags(flags): Flags<TraceFlags>,
) -> Answer<TracePart> {
    Ok(Json(app.blocking(move |control| control.trace(&name, flags.from)).await?))
}

/// Which part of a trace.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub(super) struct TraceFlags {
    /// The first serial number; 0, the oldest that is kept, when absent.
    #[serde(default)]
    from: u64,
}

/// Which disks to move where, what that changes, and why the others stay.
#[cfg_attr(test, utoipa::path(get, path = "/v1/advice", tag = "placement", params(WindowFlags), responses(
    (status = 200, body = AdviceReport), (status = 422, body = ErrorBody))))]
pub(super) async fn advice(
    State(app): State<App>,
    Flags(flags): Flags<WindowFlags>,
) -> Answer<AdviceReport> {
    let window = flags.lookback()?;
    Ok(Json(app.blocking(move |control| control.advice(window)).await?))
}

/// The rules of placement.
#[cfg_attr(test, utoipa::path(get, path = "/v1/rules", tag = "placement", responses((status = 200, body = Object))))]
pub(super) async fn rules(State(app): State<App>) -> Json<Rules> {
    Json(app.control.rules())
}

/// The constants of the load formula that fit best what disks did that were alone on their
/// datastores, beside those of the rules. Changes nothing: `PUT /v1/rules` does.
#[cfg_attr(test, utoipa::path(get, path = "/v1/rules/fit", tag = "placement", params(SinceFlags), responses(
    (status = 200, body = ConstantsFit), (status = 422, body = ErrorBody))))]
pub(super) async fn fit_constants(
    State(app): State<App>,
    Flags(flags): Flags<SinceFlags>,
) -> Answer<ConstantsFit> {
    let since = flags.lookback()?;
    Ok(Json(app.blocking(move |control| control.fit_constants(since)).await?))
}

/// Replaces the rules of placement.
#[cfg_attr(test, utoipa::path(put, path = "/v1/rules", tag = "placement", request_body = Object, responses(
    (status = 200, body = Changed<Object>), (status = 422, body = ErrorBody))))]
pub(super) async fn set_rules(
    State(app): State<App>,
    Body(rules): Body<Rules>,
) -> Edited<Changed<Rules>> {
    let (before, now) = (app.control.rules(), rules.clone());
    let warnings = app.blocking(move |control| control.set_rules(rules)).await?;
    Ok((Extension(Edit::between(&before, &now)), Json(Changed { now, warnings })))
}

/// What can be set of a datastore.
fn settings(store: &Datastore) -> Value {
    json!({
        "queue_depth": store.queue_depth,
        "capacity": store.capacity,
        "plug_ns": store.plug_ns,
        "batch": store.batch,
        "persistent_reservations": store.persistent_reservations.as_ref().map(|kept| kept.mode),
        "add_servers": store.backend.stripe,
        "connections": store.backend.connections,
        "window": store.window,
        "placement": store.placement,
        "layers": store.layers,
    })
}

/// Changes a datastore.
#[cfg_attr(test, utoipa::path(patch, path = "/v1/datastores/{name}", tag = "datastores", params(("name" = String, Path)),
    request_body = DatastorePatch, responses(
    (status = 200, body = Changed<Datastore>), (status = 404, body = ErrorBody), (status = 422, body = ErrorBody))))]
pub(super) async fn set_datastore(
    State(app): State<App>,
    Param(name): Param<Name>,
    Body(patch): Body<DatastorePatch>,
) -> Edited<Changed<Datastore>> {
    app.edit(move |control| {
        let before = control.datastore(&name)?;
        let changed = control.set_datastore(&name, patch)?;
        Ok((Edit::between(&settings(&before), &settings(&changed.now)), changed))
    })
    .await
}

/// Forgets a datastore without disks; its storage stays as it is.
#[cfg_attr(test, utoipa::path(delete, path = "/v1/datastores/{name}", tag = "datastores", params(("name" = String, Path)), responses(
    (status = 204), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody, description = "it has disks"))))]
pub(super) async fn remove_datastore(
    State(app): State<App>,
    Param(name): Param<Name>,
) -> Result<(StatusCode, Extension<Edit>), ApiError> {
    let removed = app.blocking(move |control| {
        let before = control.datastore(&name)?;
        control.remove_datastore(&name)?;
        Ok(Edit::removed(&settings(&before)))
    });
    Ok((StatusCode::NO_CONTENT, Extension(removed.await?)))
}

/// Starts to measure what a datastore can promise.
#[cfg_attr(test, utoipa::path(post, path = "/v1/datastores/{name}/calibration", tag = "datastores", params(("name" = String, Path)),
    request_body = CalibrationCreate, responses((status = 202, body = Calibration), (status = 404, body = ErrorBody),
    (status = 409, body = ErrorBody, description = "it is in use, or cannot be measured"))))]
pub(super) async fn start_calibration(
    State(app): State<App>,
    Param(name): Param<Name>,
    Body(request): Body<CalibrationCreate>,
) -> Result<(StatusCode, Json<Calibration>), ApiError> {
    let calibrator = app.calibrator.clone();
    let begun = app.on_thread(move || calibrator.start(&name, request)).await?;
    Ok((StatusCode::ACCEPTED, Json(begun)))
}

/// How far a calibration is, or how the last one ended.
#[cfg_attr(test, utoipa::path(get, path = "/v1/datastores/{name}/calibration", tag = "datastores", params(("name" = String, Path)),
    responses((status = 200, body = Calibration), (status = 404, body = ErrorBody))))]
pub(super) async fn show_calibration(
    State(app): State<App>,
    Param(name): Param<Name>,
) -> Answer<Calibration> {
    Ok(Json(app.calibrator.get(&name)?))
}

/// Stops a calibration; the capacity stays as it was.
#[cfg_attr(test, utoipa::path(delete, path = "/v1/datastores/{name}/calibration", tag = "datastores", params(("name" = String, Path)),
    responses((status = 204), (status = 404, body = ErrorBody))))]
pub(super) async fn cancel_calibration(
    State(app): State<App>,
    Param(name): Param<Name>,
) -> Result<StatusCode, ApiError> {
    app.calibrator.cancel(&name)?;
    Ok(StatusCode::NO_CONTENT)
}

/// All disks, with the policies in force.
#[cfg_attr(test, utoipa::path(get, path = "/v1/disks", tag = "disks", responses((status = 200, body = [Disk]))))]
pub(super) async fn list_disks(State(app): State<App>) -> Answer<Vec<Disk>> {
    Ok(Json(app.blocking(|control| control.disks()).await?))
}

/// Creates a disk and brings it into service.
#[cfg_attr(test, utoipa::path(post, path = "/v1/disks", tag = "disks", request_body = DiskCreate, responses(
    (status = 201, body = Created<Disk>),
    (status = 404, body = ErrorBody, description = "no such datastore"),
    (status = 409, body = ErrorBody, description = "the name is taken, or the reservation does not fit"),
    (status = 422, body = ErrorBody, description = "a value makes no sense"))))]
pub(super) async fn create_disk(
    State(app): State<App>,
    Body(request): Body<DiskCreate>,
) -> Result<(StatusCode, Extension<Edit>, Json<Created<Disk>>), ApiError> {
    let created = app.blocking(move |control| control.create_disk(request)).await?;
    let edit = Edit::made(&whole_disk(&created.now));
    Ok((StatusCode::CREATED, Extension(edit), Json(created)))
}

/// One disk, with the policy in force.
#[cfg_attr(test, utoipa::path(get, path = "/v1/disks/{name}", tag = "disks", params(("name" = String, Path)), responses(
    (status = 200, body = Disk), (status = 404, body = ErrorBody))))]
pub(super) async fn show_disk(State(app): State<App>, Param(name): Param<Name>) -> Answer<Disk> {
    Ok(Json(app.blocking(move |control| control.disk(&name)).await?))
}

/// What can be set of a disk.
fn disk_settings(disk: &Disk) -> Value {
    let placement = &disk.placement;
    json!({
        "policy": disk.policy,
        "class": disk.class,
        "vm": disk.vm,
        "placement": placement,
        "read_only": disk.read_only,
    })
}

/// The same with what it is made with.
fn whole_disk(disk: &Disk) -> Value {
    json!({"size": disk.size, "datastore": disk.datastore, "set": disk_settings(disk)})
}

/// Changes a disk; answered when its policy is in force.
#[cfg_attr(test, utoipa::path(patch, path = "/v1/disks/{name}", tag = "disks", params(("name" = String, Path)),
    request_body = DiskPatch, responses(
    (status = 200, body = Changed<Disk>), (status = 404, body = ErrorBody),
    (status = 409, body = ErrorBody, description = "the reservation does not fit"),
    (status = 422, body = ErrorBody, description = "a value makes no sense"))))]
pub(super) async fn set_disk(
    State(app): State<App>,
    Param(name): Param<Name>,
    Body(patch): Body<DiskPatch>,
) -> Edited<Changed<Disk>> {
    app.edit(move |control| {
        let before = control.disk(&name)?;
        let changed = control.set_disk(&name, patch)?;
        Ok((Edit::between(&disk_settings(&before), &disk_settings(&changed.now)), changed))
    })
    .await
}

/// Serves a disk that another host made or served.
#[cfg_attr(test, utoipa::path(post, path = "/v1/disks/{name}/takeover", tag = "disks", params(("name" = String, Path)),
    request_body = DiskTakeover, responses(
    (status = 200, body = Changed<Disk>),
    (status = 404, body = ErrorBody, description = "no such datastore"),
    (status = 409, body = ErrorBody, description = "another host serves it, or the reservation does not fit"),
    (status = 422, body = ErrorBody, description = "a value makes no sense, or there is no such image"))))]
pub(super) async fn take_over(
    State(app): State<App>,
    Param(name): Param<Name>,
    Body(request): Body<DiskTakeover>,
) -> Answer<Changed<Disk>> {
    Ok(Json(app.blocking(move |control| control.take_over(&name, request)).await?))
}

/// Has a disk that holds requests try its storage now; answered when that has taken or failed one.
#[cfg_attr(test, utoipa::path(post, path = "/v1/disks/{name}/resume", tag = "disks", params(("name" = String, Path)), responses(
    (status = 200, body = Disk), (status = 404, body = ErrorBody),
    (status = 409, body = ErrorBody, description = "it holds none, or its storage is in trouble still"))))]
pub(super) async fn resume_disk(State(app): State<App>, Param(name): Param<Name>) -> Answer<Disk> {
    Ok(Json(app.blocking(move |control| control.resume_disk(&name)).await?))
}

/// Removes a disk: its content is kept for a while, deleted, or left for another host.
#[cfg_attr(test, utoipa::path(delete, path = "/v1/disks/{name}", tag = "disks", params(("name" = String, Path), RemoveFlags), responses(
    (status = 204), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody, description = "it is in use"))))]
pub(super) async fn remove_disk(
    State(app): State<App>,
    Param(name): Param<Name>,
    Flags(flags): Flags<RemoveFlags>,
) -> Result<(StatusCode, Extension<Edit>), ApiError> {
    let removed = app.blocking(move |control| {
        let before = control.disk(&name)?;
        control.remove_disk(&name, flags.force, flags.image)?;
        Ok(Edit::removed(&whole_disk(&before)))
    });
    Ok((StatusCode::NO_CONTENT, Extension(removed.await?)))
}

/// For whom a disk is to be attached.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub(super) struct AttachmentFlags {
    /// The user that the machine runs as, by name or number; the one that was set for the machine
    /// when absent.
    user: Option<String>,
}

/// How machines get at a disk.
#[cfg_attr(test, utoipa::path(get, path = "/v1/disks/{name}/attachment", tag = "disks", params(("name" = String, Path), AttachmentFlags), responses(
    (status = 200, body = Attachment), (status = 404, body = ErrorBody),
    (status = 422, body = ErrorBody, description = "this host does not know the user"))))]
pub(super) async fn show_attachment(
    State(app): State<App>,
    Param(name): Param<Name>,
    Flags(flags): Flags<AttachmentFlags>,
) -> Answer<Attachment> {
    let nbd_tcp = app.nbd_tcp;
    let attachment = app
        .blocking(move |control| control.attachment(&name, nbd_tcp, flags.user.as_deref()))
        .await?;
    Ok(Json(attachment))
}

/// All virtual machines that disks name or that something was set for.
#[cfg_attr(test, utoipa::path(get, path = "/v1/vms", tag = "vms", responses((status = 200, body = [Vm]))))]
pub(super) async fn list_vms(State(app): State<App>) -> Answer<Vec<Vm>> {
    Ok(Json(app.blocking(|control| control.vms()).await?))
}

/// One virtual machine.
#[cfg_attr(test, utoipa::path(get, path = "/v1/vms/{name}", tag = "vms", params(("name" = String, Path)), responses(
    (status = 200, body = Vm), (status = 404, body = ErrorBody))))]
pub(super) async fn show_vm(State(app): State<App>, Param(name): Param<Name>) -> Answer<Vm> {
    Ok(Json(app.blocking(move |control| control.vm(&name)).await?))
}

/// Changes what a virtual machine's applications may ask for, and who may connect to its disks;
/// answered when it is in force. It need not have disks yet.
#[cfg_attr(test, utoipa::path(patch, path = "/v1/vms/{name}", tag = "vms", params(("name" = String, Path)), request_body = VmPatch,
    responses((status = 200, body = Changed<Vm>),
    (status = 422, body = ErrorBody, description = "a value makes no sense"))))]
pub(super) async fn set_vm(
    State(app): State<App>,
    Param(name): Param<Name>,
    Body(patch): Body<VmPatch>,
) -> Result<Response, ApiError> {
    let set = app.blocking(move |control| {
        // Nothing is known of a machine that no disk names and nothing was set for.
        let before = control.vms()?.into_iter().find(|vm| vm.name == name);
        let changed = control.set_vm(&name, &patch)?;
        let now = VmSettings::of(&changed.now);
        let edit = before.map(|vm| Edit::between(&VmSettings::of(&vm), &now));
        Ok((edit, changed))
    });
    let (edit, changed) = set.await?;
    Ok(match edit {
        Some(edit) => (Extension(edit), Json(changed)).into_response(),
        None => Json(changed).into_response(),
    })
}

/// Forgets what was set for a virtual machine; its disks stay.
#[cfg_attr(test, utoipa::path(delete, path = "/v1/vms/{name}", tag = "vms", params(("name" = String, Path)), responses(
    (status = 204), (status = 404, body = ErrorBody))))]
pub(super) async fn reset_vm(
    State(app): State<App>,
    Param(name): Param<Name>,
) -> Result<(StatusCode, Extension<Edit>), ApiError> {
    let reset = app.blocking(move |control| {
        let before = control.vm(&name)?;
        control.reset_vm(&name)?;
        Ok(Edit::removed(&VmSettings::of(&before)))
    });
    Ok((StatusCode::NO_CONTENT, Extension(reset.await?)))
}

/// All further NBD exports of disks.
#[cfg_attr(test, utoipa::path(get, path = "/v1/exports", tag = "exports", responses((status = 200, body = [Export]))))]
pub(super) async fn list_exports(State(app): State<App>) -> Json<Vec<Export>> {
    Json(app.control.exports())
}

/// Exports a disk under one more name, with a priority.
#[cfg_attr(test, utoipa::path(post, path = "/v1/exports", tag = "exports", request_body = ExportCreate, responses(
    (status = 201, body = Export),
    (status = 404, body = ErrorBody, description = "no such disk"),
    (status = 409, body = ErrorBody, description = "the name is taken"))))]
pub(super) async fn add_export(
    State(app): State<App>,
    Body(request): Body<ExportCreate>,
) -> Result<(StatusCode, Extension<Edit>, Json<Export>), ApiError> {
    let added = app.blocking(move |control| control.add_export(request)).await?;
    Ok((StatusCode::CREATED, Extension(Edit::made(&added)), Json(added)))
}

/// One further export.
#[cfg_attr(test, utoipa::path(get, path = "/v1/exports/{name}", tag = "exports", params(("name" = String, Path)), responses(
    (status = 200, body = Export), (status = 404, body = ErrorBody))))]
pub(super) async fn show_export(
    State(app): State<App>,
    Param(name): Param<Name>,
) -> Answer<Export> {
    Ok(Json(app.control.export(&name)?))
}

/// Changes an export's priority, for clients that are connected too.
#[cfg_attr(test, utoipa::path(patch, path = "/v1/exports/{name}", tag = "exports", params(("name" = String, Path)),
    request_body = ExportPatch, responses((status = 200, body = Export), (status = 404, body = ErrorBody))))]
pub(super) async fn set_export(
    State(app): State<App>,
    Param(name): Param<Name>,
    Body(patch): Body<ExportPatch>,
) -> Edited<Export> {
    app.edit(move |control| {
        let before = control.export(&name)?;
        let now = control.set_export(&name, patch)?;
        Ok((Edit::between(&before, &now), now))
    })
    .await
}

/// Forgets an export; clients that came by it stay connected.
#[cfg_attr(test, utoipa::path(delete, path = "/v1/exports/{name}", tag = "exports", params(("name" = String, Path)), responses(
    (status = 204), (status = 404, body = ErrorBody))))]
pub(super) async fn remove_export(
    State(app): State<App>,
    Param(name): Param<Name>,
) -> Result<(StatusCode, Extension<Edit>), ApiError> {
    let removed = app.blocking(move |control| {
        let before = control.export(&name)?;
        control.remove_export(&name)?;
        Ok(Edit::removed(&before))
    });
    Ok((StatusCode::NO_CONTENT, Extension(removed.await?)))
}

/// All counters and histograms since each disk was opened, as the shards have them.
#[cfg_attr(test, utoipa::path(get, path = "/v1/stats", tag = "statistics", responses((status = 200, body = [DatastoreStats]))))]
pub(super) async fn stats(State(app): State<App>) -> Answer<Vec<DatastoreStats>> {
    let samples = app.blocking(|control| control.sample()).await?;
    Ok(Json(samples.into_iter().map(DatastoreStats::from).collect()))
}

/// The live view: rates of all datastores and disks, and how far their promises are kept.
#[cfg_attr(test, utoipa::path(get, path = "/v1/top", tag = "statistics", responses((status = 200, body = Top))))]
pub(super) async fn top(State(app): State<App>) -> Answer<Top> {
    let observer = app.observer.clone();
    Ok(Json(app.on_thread(move || Ok(observer.top())).await?))
}

/// This document.
pub(super) async fn openapi() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], super::openapi::DOCUMENT).into_response()
}

/// Health: whether the daemon and all datastores and disks are in service.
#[cfg_attr(test, utoipa::path(get, path = "/healthz", tag = "daemon", responses(
    (status = 200, body = Health, description = "it serves, if not everything"),
    (status = 503, body = Health, description = "a shard does not answer"))))]
pub(super) async fn healthz(
    State(app): State<App>,
) -> Result<(StatusCode, Json<Health>), ApiError> {
    let mut health = app.blocking(|control| Ok(control.health())).await?;
    health.confinement = Some(Confinement::clone(&app.confinement));
    let status = match health.status {
        HealthStatus::Ok | HealthStatus::Degraded => StatusCode::OK,
        HealthStatus::Failed => StatusCode::SERVICE_UNAVAILABLE,
    };
    Ok((status, Json(health)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_whatever_can_be_changed_of_a_datastore_is_told() {
        let store: Datastore = serde_json::from_value(json!({
            "name": "array", "state": "serving", "reason": null, "backend": {"emulated": "null"},
            "scheduler": "mclock", "queue_depth": 32, "cost_model": "unit", "plug_ns": 0,
            "window": {"latency_threshold": "none", "found": null, "min": 4, "max": 32,
                "period_ns": null, "board": "auto", "now": null},
            "capacity": null, "reservable_iops": null, "reserved_iops": 0, "overbooked_iops": 0,
            "disks": 0
        }))
        .unwrap();
        let told = settings(&store);
        let document: Value = serde_json::from_str(include_str!("openapi.json")).unwrap();
        let patch = &document["components"]["schemas"]["DatastorePatch"]["properties"];
        let untold: Vec<&String> =
            patch.as_object().unwrap().keys().filter(|key| told.get(key).is_none()).collect();
        assert!(untold.is_empty(), "{untold:?}");
    }
}
