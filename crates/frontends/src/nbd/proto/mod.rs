//! The NBD protocol without sockets, after the specification that the NetworkBlockDevice project publishes
//! (`doc/proto.md` in its repository, text of May 2026).
//!
//! - [`negotiation`]: the handshake, from the greeting to the choice of an export.
//! - [`stream`]: transmission, the byte stream cut into checked commands.
//! - [`reply`]: transmission, the answers.
//!
//! What the server leaves out: TLS, extended headers, resize, and contexts other than `base:allocation`. A client that
//! asks for one of these gets the answer that the specification provides for it.

pub mod command;
pub mod negotiation;
mod options;
pub mod reply;
pub mod stream;

pub use headgate_nbd::wire;
