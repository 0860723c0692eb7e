//! The Headgate daemon: catalog, control, HTTP API, metrics and command line over the engine and the frontends.
//!
//! ```text
//! command line --HTTP/JSON--> api --> control --> catalog (what is remembered)
//!                                        |------> images  (files, crash-safe)
//!                                        '------> plane   (engine, NBD, vhost-user-blk)
//! ```
//!
//! Nothing here is on the data path.

pub mod api;
pub mod attach;
pub mod calibrate;
pub mod catalog;
pub mod cli;
pub mod control;
pub mod demo;
pub mod inproc;
pub mod leases;
pub mod metrics;
pub mod name;
pub mod observe;
pub mod plane;
mod plot;
mod recorded;
pub mod samples;
pub mod serve;
mod sim;
pub mod top;
pub mod windows;
