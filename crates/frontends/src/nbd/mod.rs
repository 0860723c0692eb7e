//! NBD, fixed newstyle: an export per disk, over unix sockets and TCP.
//!
//! - [`proto`]: the protocol, pure: bytes in, decisions and bytes out.
//! - [`port`]: the data path, a port in the disk's shard; `memory` and `buddy` are its buffers, `outbox` its answers.
//! - [`server`]: the control side: listening and negotiating, on threads of its own.

mod buddy;
mod departures;
#[cfg(any(test, feature = "harness"))]
pub mod harness;
mod lender;
mod memory;
mod outbox;
pub mod port;
pub mod proto;
pub mod server;
mod socket;
mod tag;
mod taking;
mod waiting_room;

pub use tag::Tag;
