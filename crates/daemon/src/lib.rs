//! The daemon as a process: it wires control, engine and frontends together and serves the API.

pub mod calibrate;
pub mod demo;
pub mod engine_plane;
pub mod http;
pub mod inproc;
pub mod metrics;
pub mod observe;
pub mod serve;
mod translate;
