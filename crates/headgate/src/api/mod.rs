//! The HTTP API on the daemon's unix socket.

pub mod calibration;
pub mod client;
mod error;
pub mod flash;
pub mod history;
pub mod leases;
mod openapi;
pub mod placement;
pub mod priorities;
mod routes;
mod server;
pub mod top;
pub mod types;
pub mod windows;

pub use error::ApiError;
pub use openapi::document;
pub use routes::{App, router};
pub use server::{ApiServer, ServeError};
