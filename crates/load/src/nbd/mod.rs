//! The client side of NBD.

mod link;

use crate::target::{NbdTarget, Reach, resolve};
use headgate_nbd::uri::Address;
use headgate_nbd_io::{Endpoint, Socket};
use std::io;
use std::time::Instant;

pub use headgate_nbd::client::handshake::ReplyStyle;
pub(crate) use link::NbdLink;

/// Where the target's server is, if it is within `reach`.
fn endpoint(target: &NbdTarget, reach: Reach) -> io::Result<Endpoint> {
    Ok(match &target.address {
        Address::Unix(path) => Endpoint::Unix(path.clone()),
        address => Endpoint::Tcp(resolve(address, reach).map_err(io::Error::other)?),
    })
}

/// Connects to the target's server, without TLS, if it is within `reach`.
pub(crate) fn connect(target: &NbdTarget, reach: Reach, deadline: Instant) -> io::Result<Socket> {
    endpoint(target, reach)?.connect(deadline)
}
