use super::routes;
use utoipa::OpenApi;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Headgate",
        description = "Virtual disks under mClock. Served on the unix socket headgate.sock of the state directory. \
                       Rates are normalised IOs per second, sizes bytes, bandwidths bytes per second. Every error has \
                       the form of ErrorBody."
    ),
    paths(
        routes::list_datastores,
        routes::add_datastore,
        routes::show_datastore,
        routes::set_datastore,
        routes::remove_datastore,
        routes::model_points,
        routes::datastore_history,
        routes::advice,
        routes::rules,
        routes::set_rules,
        routes::start_calibration,
        routes::show_calibration,
        routes::cancel_calibration,
        routes::list_disks,
        routes::create_disk,
        routes::show_disk,
        routes::set_disk,
        routes::take_over,
        routes::remove_disk,
        routes::show_attachment,
        routes::list_vms,
        routes::show_vm,
        routes::set_vm,
        routes::reset_vm,
        routes::list_exports,
        routes::add_export,
        routes::show_export,
        routes::set_export,
        routes::remove_export,
        routes::stats,
        routes::top,
        routes::metrics,
        routes::healthz,
    ),
    components(schemas(super::types::ImageFate))
)]
struct Document;

/// The OpenAPI document of the API, as JSON.
pub fn document() -> String {
    let mut text = Document::openapi().to_pretty_json().expect("the document is plain data");
    text.push('\n');
    text
}
