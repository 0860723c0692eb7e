//! The HTTP API on the daemon's unix socket: routes, errors and the server's thread.

mod app;
mod balance;
mod changes;
mod connections;
mod copies;
mod error;
mod moves;
mod nodes;
mod openapi;
mod removed;
mod rights;
mod routes;
mod scrape;
mod server;
mod tenants;
#[cfg(test)]
mod testing;
mod window;

pub use app::App;
pub use error::ApiError;
pub use openapi::DOCUMENT;
pub use rights::ApiGroups;
pub use routes::router;
pub use scrape::{MetricsServer, MetricsServerError};
pub use server::{ApiServer, ServeError};
