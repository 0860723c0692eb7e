//! TLS between real sockets.

mod handshakes;
mod reloads;
mod support;
mod tunnels;
