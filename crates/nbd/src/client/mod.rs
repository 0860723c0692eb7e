//! The client side.
//!
//! - [`handshake`]: from the server's greeting to the chosen export.
//! - [`replies`]: simple replies, whose payloads are received where they are wanted.
//! - [`structured`]: replies of either form, buffered whole.

pub mod handshake;
pub mod replies;
pub mod structured;
