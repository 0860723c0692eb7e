//! The daemon as a process: it wires control, engine and frontends together and serves the API.

mod announced;
pub mod calibrate;
pub mod demo;
mod engine_copies;
mod engine_groups;
mod engine_images;
mod engine_moves;
mod engine_parts;
pub mod engine_plane;
mod engine_samples;
mod exports;
pub mod fleet;
pub mod http;
pub mod inproc;
mod machines;
pub mod metrics;
pub mod observe;
pub mod serve;
mod shares;
mod told;
mod translate;
mod trouble_log;
