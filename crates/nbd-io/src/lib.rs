//! Sockets that carry NBD.
//!
//! The protocol itself is in `headgate-nbd`, which knows no sockets. This crate is the thin shell
//! around it that servers and clients share:
//!
//! - [`Socket`]: a connected unix or TCP socket, with its time limits and tuning.
//! - [`Endpoint`]: a server's resolved address, and [`Endpoint::connect`].
//! - [`handshake`]: a client's handshake within a deadline; [`handshake_with_allocation`] asks for
//!   block status too.
//!
//! ```no_run
//! use headgate_nbd::client::handshake::ReplyStyle;
//! use headgate_nbd::uri::Uri;
//! use headgate_nbd_io::{Endpoint, handshake};
//! use std::time::{Duration, Instant};
//!
//! let uri: Uri = "nbd://localhost/db".parse()?;
//! let deadline = Instant::now() + Duration::from_secs(10);
//! let mut socket = Endpoint::resolve(&uri.address)?.connect(deadline)?;
//! let info = handshake(&mut socket, &uri.export, ReplyStyle::Simple, deadline)?;
//! println!("{} bytes", info.size);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod dial;
mod socket;

pub use dial::{DialError, Endpoint, handshake, handshake_with_allocation, say_goodbye};
pub use socket::Socket;
