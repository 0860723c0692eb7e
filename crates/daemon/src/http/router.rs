//! The router: a handler for each operation of [`operations`], and what is answered elsewhere.

use super::app::App;
use super::error::ApiError;
use super::operations::{self, Operation};
use super::{
    balance, blame, classes, copies, events, fleet, imports, moves, nodes, owners, removed,
    reports, routes, scrape, tenants, terms, what_if,
};
use axum::http::{StatusCode, Uri};
use axum::routing::{MethodRouter, delete, get, patch, post, put};
use axum::{Router, middleware};

/// All routes. Whoever asks is thought to be one who may do everything.
pub fn router(app: App) -> Router {
    let add = |router: Router<App>, one: &Operation| router.route(one.path, handler(one));
    operations::ALL
        .iter()
        .fold(Router::new(), add)
        .fallback(no_such_path)
        .method_not_allowed_fallback(no_such_method)
        .layer(middleware::from_fn_with_state(app.clone(), terms::keep))
        .layer(middleware::from_fn_with_state(app.clone(), tenants::check))
        .with_state(app)
}

/// What answers an operation. One that is forgotten here takes no method, which a test sees.
fn handler(operation: &Operation) -> MethodRouter<App> {
    match (operation.method, operation.path) {
        ("GET", "/v1/datastores") => get(routes::list_datastores),
        ("POST", "/v1/datastores") => post(routes::add_datastore),
        ("GET", "/v1/datastores/{name}") => get(routes::show_datastore),
        ("PATCH", "/v1/datastores/{name}") => patch(routes::set_datastore),
        ("DELETE", "/v1/datastores/{name}") => delete(routes::remove_datastore),
        ("GET", "/v1/datastores/{name}/calibration") => get(routes::show_calibration),
        ("POST", "/v1/datastores/{name}/calibration") => post(routes::start_calibration),
        ("DELETE", "/v1/datastores/{name}/calibration") => delete(routes::cancel_calibration),
        ("GET", "/v1/datastores/{name}/points") => get(routes::model_points),
        ("GET", "/v1/datastores/{name}/history") => get(routes::datastore_history),
        ("GET", "/v1/datastores/{name}/trace") => get(routes::datastore_trace),
        ("GET", "/v1/datastores/{name}/maintenance") => get(balance::show_maintenance),
        ("PUT", "/v1/datastores/{name}/maintenance") => put(balance::set_maintenance),
        ("GET", "/v1/advice") => get(routes::advice),
        ("GET", "/v1/balance") => get(balance::show_balance),
        ("POST", "/v1/balance") => post(balance::begin_balance),
        ("DELETE", "/v1/balance") => delete(balance::stop_balance),
        ("GET", "/v1/disks") => get(routes::list_disks),
        ("POST", "/v1/disks") => post(routes::create_disk),
        ("GET", "/v1/disks/{name}") => get(routes::show_disk),
        ("PATCH", "/v1/disks/{name}") => patch(routes::set_disk),
        ("DELETE", "/v1/disks/{name}") => delete(routes::remove_disk),
        ("GET", "/v1/disks/{name}/attachment") => get(routes::show_attachment),
        ("GET", "/v1/disks/{name}/history") => get(reports::disk_history),
        ("GET", "/v1/report") => get(reports::report),
        ("GET", "/v1/report/samples") => get(reports::report_samples),
        ("GET", "/v1/disks/{name}/blame") => get(blame::disk_blame),
        ("POST", "/v1/disks/{name}/takeover") => post(routes::take_over),
        ("POST", "/v1/disks/{name}/resume") => post(routes::resume_disk),
        ("POST", "/v1/disks/{name}/resize") => post(moves::resize),
        ("POST", "/v1/disks/{name}/migrate") => post(moves::migrate),
        ("POST", "/v1/disks/{name}/copy") => post(copies::copy),
        ("GET", "/v1/nodes") => get(nodes::list_nodes),
        ("GET", "/v1/copies") => get(copies::list_copies),
        ("GET", "/v1/copies/{name}") => get(copies::show_copy),
        ("PATCH", "/v1/copies/{name}") => patch(copies::set_copy),
        ("DELETE", "/v1/copies/{name}") => delete(copies::cancel_copy),
        ("GET", "/v1/moves") => get(moves::list_moves),
        ("GET", "/v1/moves/{name}") => get(moves::show_move),
        ("PATCH", "/v1/moves/{name}") => patch(moves::set_move),
        ("DELETE", "/v1/moves/{name}") => delete(moves::cancel_move),
        ("GET", "/v1/removed") => get(removed::list_removed),
        ("DELETE", "/v1/removed/{name}") => delete(removed::purge_removed),
        ("POST", "/v1/removed/{name}/restore") => post(removed::restore_disk),
        ("GET", "/v1/classes") => get(classes::list_classes),
        ("GET", "/v1/classes/{name}") => get(classes::show_class),
        ("PUT", "/v1/classes/{name}") => put(classes::set_class),
        ("DELETE", "/v1/classes/{name}") => delete(classes::remove_class),
        ("POST", "/v1/apply") => post(classes::apply),
        ("GET", "/v1/vms") => get(routes::list_vms),
        ("GET", "/v1/vms/{name}") => get(routes::show_vm),
        ("PATCH", "/v1/vms/{name}") => patch(routes::set_vm),
        ("DELETE", "/v1/vms/{name}") => delete(routes::reset_vm),
        ("GET", "/v1/tenants") => get(owners::list_tenants),
        ("GET", "/v1/tenants/{name}") => get(owners::show_tenant),
        ("PATCH", "/v1/tenants/{name}") => patch(owners::set_tenant),
        ("DELETE", "/v1/tenants/{name}") => delete(owners::remove_tenant),
        ("GET", "/v1/exports") => get(routes::list_exports),
        ("POST", "/v1/exports") => post(routes::add_export),
        ("GET", "/v1/exports/{name}") => get(routes::show_export),
        ("PATCH", "/v1/exports/{name}") => patch(routes::set_export),
        ("DELETE", "/v1/exports/{name}") => delete(routes::remove_export),
        ("GET", "/v1/hosts") => get(fleet::list_hosts),
        ("GET", "/v1/fleet/disks") => get(fleet::fleet_disks),
        ("GET", "/v1/fleet/datastores") => get(fleet::fleet_datastores),
        ("GET", "/v1/fleet/advice") => get(fleet::fleet_advice),
        ("GET", "/v1/events") => get(events::events),
        ("GET", "/v1/stats") => get(routes::stats),
        ("GET", "/v1/top") => get(routes::top),
        ("GET", "/metrics") => get(scrape::metrics),
        ("GET", "/v1/openapi.json") => get(routes::openapi),
        ("GET", "/healthz") => get(routes::healthz),
        _ => handler_of_rules(operation),
    }
}

fn handler_of_rules(operation: &Operation) -> MethodRouter<App> {
    match (operation.method, operation.path) {
        ("GET", "/v1/rules") => get(routes::rules),
        ("GET", "/v1/rules/fit") => get(routes::fit_constants),
        ("PUT", "/v1/rules") => put(routes::set_rules),
        ("PATCH", "/v1/rules") => patch(balance::set_automatic),
        _ => handler_of_imports(operation),
    }
}

fn handler_of_imports(operation: &Operation) -> MethodRouter<App> {
    match (operation.method, operation.path) {
        ("GET", "/v1/imports") => get(imports::list_imports),
        ("GET", "/v1/imports/{name}") => get(imports::show_import),
        ("PUT", "/v1/imports/{name}") => put(imports::hear_of_import),
        ("DELETE", "/v1/imports/{name}") => delete(imports::cancel_import),
        _ => what_if::route(operation),
    }
}

async fn no_such_path(uri: Uri) -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, format!("there is nothing at {}", uri.path()))
        .expected("a path listed in /v1/openapi.json")
}

async fn no_such_method(uri: Uri) -> ApiError {
    ApiError::new(
        StatusCode::METHOD_NOT_ALLOWED,
        format!("{} does not take this method", uri.path()),
    )
    .expected("a method listed in /v1/openapi.json")
}
