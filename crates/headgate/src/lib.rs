//! The Headgate daemon: catalog, control, HTTP API, metrics and command line over the engine and the frontends.
//!
//! Nothing here is on the data path.

pub mod api;
pub mod attach;
pub mod catalog;
pub mod control;
pub mod name;
