//! The routes of the view of all hosts. None of them waits for another host, or for etcd. Ten
//! thousand disks take a while all the same, which nobody else's answer waits for.

use super::app::{Answer, App};
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
pub(super) async fn list_hosts(State(app): State<App>) -> Answer<Hosts> {
    let fleet = app.fleet.clone();
    Ok(Json(app.on_thread(move || Ok(fleet.hosts())).await?))
}

/// Disks of all hosts: those first whose reservation is missed, then those that are not in service,
/// then those that receive the most. An operator of machines sees the disks of these.
#[cfg_attr(test, utoipa::path(get, path = "/v1/fleet/disks", tag = "fleet", params(DiskFlags), responses(
    (status = 200, body = FleetDisks), (status = 400, body = ErrorBody))))]
pub(super) async fn fleet_disks(
    State(app): State<App>,
    Flags(flags): Flags<DiskFlags>,
) -> Answer<FleetDisks> {
    let (fleet, filter) = (app.fleet.clone(), flags.filter());
    Ok(Json(app.on_thread(move || Ok(fleet.disks(&filter))).await?))
}

/// Datastores of all hosts; one that several hosts have is one.
#[cfg_attr(test, utoipa::path(get, path = "/v1/fleet/datastores", tag = "fleet", responses((status = 200, body = FleetDatastores))))]
pub(super) async fn fleet_datastores(State(app): State<App>) -> Answer<FleetDatastores> {
    let fleet = app.fleet.clone();
    Ok(Json(app.on_thread(move || Ok(fleet.datastores())).await?))
}

/// What all hosts advise.
#[cfg_attr(test, utoipa::path(get, path = "/v1/fleet/advice", tag = "fleet", responses((status = 200, body = FleetAdvices))))]
pub(super) async fn fleet_advice(State(app): State<App>) -> Answer<FleetAdvices> {
    let fleet = app.fleet.clone();
    Ok(Json(app.on_thread(move || Ok(fleet.advice())).await?))
}
