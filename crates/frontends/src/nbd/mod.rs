//! NBD, fixed newstyle: an export per disk, over unix sockets and TCP.
//!
//! The protocol itself is in `headgate_nbd::server`; `translate` stands between it and the engine.
//!
//! - [`port`]: the data path, a port in the disk's shard; `memory` and `buddy` are its buffers,
//!   `send_queue` its answers.
//! - [`server`]: the control side: listening and negotiating, on threads of its own; `entrances`
//!   are the sockets of a running server, `exports` what is behind them.
//! - `bitmaps`: what changed of an export's disk, for clients that copy it again.
//! - `leases`: connections that end when another host takes over a disk that is striped over
//!   several servers.
//! - `rights`: connections that end when who may use a disk changes; `secure`: TLS, where it is the
//!   certificate that says who that is.
//! - `policies`: what gateways say that their disks are promised.
//! - What clients may hold: `places` of connections, `budget` of memory, `handshake_limit` and
//!   `lobby` of those that negotiate.

mod bitmaps;
mod buddy;
pub mod budget;
mod draining;
mod entrances;
mod exports;
mod handshake_limit;
#[cfg(any(test, feature = "harness"))]
pub mod harness;
mod intake;
mod leases;
mod lobby;
mod memory;
mod phase;
mod places;
pub mod policies;
pub mod port;
mod reclaim;
mod rights;
mod secure;
mod send_queue;
pub mod server;
mod socket;
mod splice;
mod tag;
mod translate;
mod unaligned;

pub use bitmaps::{Bitmap, Bitmaps};
pub use places::ConnectionLimits;
pub use tag::Tag;
