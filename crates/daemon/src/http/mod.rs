//! The HTTP API on the daemon's unix socket: routes, errors and the server's thread.

mod connections;
mod error;
mod openapi;
mod routes;
mod server;

pub use error::ApiError;
pub use openapi::DOCUMENT;
pub use routes::{App, router};
pub use server::{ApiServer, ServeError};
