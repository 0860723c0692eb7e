//! The server side.
//!
//! - [`negotiation`]: the handshake, from the greeting to the choice of an export.
//! - [`stream`]: transmission, the byte stream cut into requests.
//! - [`contexts`]: metadata contexts, which both phases speak of.
//! - [`command`]: a request's head, checked against the session and the export.
//! - [`reply`]: transmission, the replies.
//!
//! The server starts TLS and leaves it to the caller. It has no extended headers, no resizing, and
//! no metadata contexts other than `base:allocation` and `qemu:dirty-bitmap:`. A client that asks
//! for one of these gets the answer that the specification provides for it. An extension of
//! Headgate's, [`counters`](crate::counters), is there for clients that ask for it.

mod answers;
pub mod command;
pub mod contexts;
pub mod negotiation;
mod options;
pub mod reply;
mod selection;
pub mod stream;

/// The longest payload of a request, in bytes: the specification's customary limit, and what QEMU
/// sends at most.
pub const MAX_PAYLOAD: u32 = 32 << 20;

/// Whether an export takes what changes its data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Writes {
    /// It does.
    #[default]
    Allowed,
    /// It does not: it is read-only.
    Refused,
}

/// What requests are checked against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Export {
    /// Size in bytes, a multiple of `block_size`.
    pub size: u64,
    /// Smallest unit of a request in bytes: a power of two, at most 32 MiB.
    pub block_size: u32,
    /// The unit of requests that costs least, in bytes: a power of two, at least 512 and
    /// `block_size`.
    pub preferred: u32,
    /// Whether it takes what changes its data.
    pub writes: Writes,
}
