//! The HTTP API on the daemon's unix socket and over TCP: routes, errors and the servers' threads.

mod app;
mod asked;
mod balance;
mod blame;
mod caller;
mod changes;
mod classes;
mod connections;
mod copies;
mod edit;
mod error;
mod events;
mod fleet;
mod gate;
mod moves;
mod nodes;
mod openapi;
mod operations;
mod own_events;
mod owners;
mod page;
mod removed;
mod reports;
mod rights;
mod router;
mod routes;
mod scrape;
mod server;
mod tcp;
mod tenants;
mod terms;
#[cfg(test)]
mod testing;
mod tokens;
mod what_if;
mod window;

pub use app::App;
pub use error::ApiError;
pub use openapi::DOCUMENT;
pub use rights::ApiGroups;
pub use router::router;
pub use scrape::{MetricsServer, MetricsServerError};
pub use server::{ApiServer, ServeError};
pub use tcp::{Shown, TcpApiError, TcpApiServer, entrance};
pub use tokens::TokensError;
pub use what_if::WhatIfs;
