//! Disks that are exports of NBD servers: what may block of them, and what can be decided without a socket.
//!
//! - [`connection`]: connecting and negotiating, with a deadline; on the control side's threads.
//! - [`dialer`]: a thread per disk that gets it a new connection when the old one is lost.
//! - [`offer`]: what an export can do, checked.
//! - [`command`]: what to send for the next step of a request.
//! - [`loss`]: what a lost server may have lost, and which flushes must say so.
//!
//! The transmission itself is the shard's (`shard/link`). Why it is as it is: `docs/decisions/0023-remote-disks.md`.

pub(crate) mod command;
pub(crate) mod connection;
pub(crate) mod dialer;
pub(crate) mod loss;
pub(crate) mod offer;

pub use connection::{Connection, RemoteError};
pub use dialer::PATIENCE;
