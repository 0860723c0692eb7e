//! The client side.
//!
//! - [`handshake`]: from the server's greeting to the chosen export.
//! - [`replies`]: replies, whose payloads are received where they are wanted; their [`form`], and
//!   the [`extents`] that some bring.
//! - [`connections`]: how many there are to one export.
//! - [`structured`]: replies of either form, buffered whole.

mod chunks;
pub mod connections;
mod coverage;
pub mod extents;
pub mod form;
pub mod handshake;
pub mod replies;
pub mod structured;
