//! The route of storage nodes.

use super::app::{Answer, App};
use axum::Json;
use axum::extract::State;
use headgate_api::nodes::Node;

/// The NBD servers that datastores are, or stripe disks over, with the disks that lie on each.
#[cfg_attr(test, utoipa::path(get, path = "/v1/nodes", tag = "nodes", responses((status = 200, body = [Node]))))]
pub(super) async fn list_nodes(State(app): State<App>) -> Answer<Vec<Node>> {
    Ok(Json(app.blocking(|control| control.nodes()).await?))
}
