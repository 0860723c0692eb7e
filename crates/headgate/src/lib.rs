//! The Headgate daemon: catalog, control, HTTP API, metrics and command line over the engine and the frontends.
//!
//! Nothing here is on the data path.

pub mod catalog;
pub mod name;
