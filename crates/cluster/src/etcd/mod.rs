//! etcd, by the JSON gateway that every server of version 3.4 and later has.
//!
//! The gateway needs no protocol compiler to build and no gRPC stack to run: a call is one HTTP
//! request with the crates that the daemon's own API is made of.

mod board;
mod client;
mod lease;
mod wire;

pub use board::EtcdBoard;
pub use client::{Client, Endpoint, EndpointError, EtcdError};
pub use lease::EtcdLeases;
