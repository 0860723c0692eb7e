//! The wire types of the HTTP API on the daemon's unix socket, in JSON, and a client for it.
//!
//! A tool that uses the API needs this crate only. The server is in `headgate-daemon`, the
//! operations are in `headgate-control`.

pub mod apply;
pub mod backend;
pub mod balance;
pub mod blame;
pub mod calibration;
pub mod change;
pub mod classes;
pub mod client;
pub mod constants;
pub mod copies;
pub mod costs;
mod disk_patch;
pub mod events;
pub mod flash;
pub mod fleet;
pub mod health;
pub mod history;
pub mod imports;
pub mod latency;
pub mod leases;
pub mod maintenance;
pub mod moves;
pub mod nodes;
pub mod pace;
pub mod placement;
pub mod priorities;
pub mod remote;
pub mod removed;
pub mod report;
pub mod resize;
pub mod space;
pub mod state;
pub mod tenants;
pub mod terms;
pub mod top;
pub mod trace;
pub mod trouble;
pub mod types;
pub mod what_if;
pub mod windows;
