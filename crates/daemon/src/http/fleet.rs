//! The routes of the view of all hosts. None of them waits for another host, or for etcd.

use super::app::App;
use super::error::Flags;
use crate::fleet::DiskFilter;
use axum::Json;
use axum::extract::State;
use headgate_api::fleet::{FleetAdvices, FleetDatastores, FleetDisks, Hosts};
#[cfg(test)]
use headgate_api::types::ErrorBody;
use serde::Deserialize;

/// Which disks of all hosts.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub(super) struct DiskFlags {
    /// Of this host: its label, its name, or the beginning of its identity, four digits at least.
    #[serde(default)]
    host: Option<String>,
    /// Of this virtual machine.
    #[serde(default)]
    vm: Option<String>,
    /// So many at most; all when absent.
    #[serde(default)]
    limit: Option<usize>,
}

impl DiskFlags {
    /// What is asked for.
    pub(super) fn filter(self) -> DiskFilter {
        let DiskFlags { host, vm, limit } = self;
        DiskFilter { host, vm, limit, ..DiskFilter::default() }
    }
}

/// All hosts that meet in this daemon's etcd, also those that are down.
#[cfg_attr(test, utoipa::path(get, path = "/v1/hosts", tag = "fleet", responses((status = 200, body = Hosts))))]
pub(super) async fn hosts(State(app): State<App>) -> Json<Hosts> {
    Json(app.fleet.hosts())
}

/// Disks of all hosts: those first whose reservation is missed, then those that are not in service,
/// then those that receive the most. An operator of machines sees the disks of these.
#[cfg_attr(test, utoipa::path(get, path = "/v1/fleet/disks", tag = "fleet", params(DiskFlags), responses(
    (status = 200, body = FleetDisks), (status = 400, body = ErrorBody))))]
pub(super) async fn disks(
    State(app): State<App>,
    Flags(flags): Flags<DiskFlags>,
) -> Json<FleetDisks> {
    Json(app.fleet.disks(&flags.filter()))
}

/// Datastores of all hosts; one that several hosts have is one.
#[cfg_attr(test, utoipa::path(get, path = "/v1/fleet/datastores", tag = "fleet", responses((status = 200, body = FleetDatastores))))]
pub(super) async fn datastores(State(app): State<App>) -> Json<FleetDatastores> {
    Json(app.fleet.datastores())
}

/// What all hosts advise.
#[cfg_attr(test, utoipa::path(get, path = "/v1/fleet/advice", tag = "fleet", responses((status = 200, body = FleetAdvices))))]
pub(super) async fn advice(State(app): State<App>) -> Json<FleetAdvices> {
    Json(app.fleet.advice())
}
