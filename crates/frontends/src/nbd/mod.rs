//! NBD, fixed newstyle: an export per disk, over unix sockets and TCP.
//!
//! The protocol itself is in `headgate_nbd::server`; `translate` stands between it and the engine.
//!
//! - [`port`]: the data path, a port in the disk's shard; `memory` and `buddy` are its buffers,
//!   `send_queue` its answers.
//! - [`server`]: the control side: listening and negotiating, on threads of its own.

mod buddy;
mod draining;
mod handshake_limit;
#[cfg(any(test, feature = "harness"))]
pub mod harness;
mod intake;
mod memory;
mod phase;
pub mod port;
mod send_queue;
pub mod server;
mod socket;
mod splice;
mod tag;
mod translate;

pub use tag::Tag;
