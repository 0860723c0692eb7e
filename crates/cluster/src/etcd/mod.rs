//! etcd, by the JSON gateway that every server of version 3.4 and later has.
//!
//! The gateway needs no protocol compiler to build and no gRPC stack to run: a call is one HTTP
//! request with the crates that the daemon's own API is made of.
//! TLS and etcd's users are in the way of that request, or not ([`Servers`]); nothing else knows of
//! them.

mod board;
mod client;
mod endpoint;
mod error;
mod exchange;
mod lease;
mod login;
mod servers;
mod wire;
mod words;

pub use board::EtcdBoard;
pub use client::Client;
pub use endpoint::{Endpoint, EndpointError};
pub use error::EtcdError;
pub use lease::EtcdLeases;
pub use login::LoginError;
pub use servers::{Servers, ServersError};
pub use words::{EtcdWords, KeyChange, Reading};
