//! The HTTP API on the daemon's unix socket: routes, errors and the server's thread.

mod changes;
mod connections;
mod error;
mod openapi;
mod rights;
mod routes;
mod scrape;
mod server;
#[cfg(test)]
mod testing;

pub use error::ApiError;
pub use openapi::DOCUMENT;
pub use rights::ApiGroups;
pub use routes::{App, router};
pub use scrape::{MetricsServer, MetricsServerError};
pub use server::{ApiServer, ServeError};
