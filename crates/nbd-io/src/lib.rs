//! Sockets that carry NBD.
//!
//! The protocol itself is in `headgate-nbd`, which knows no sockets. This crate is the thin shell
//! around it that servers and clients share:
//!
//! - [`Socket`]: a connected unix or TCP socket, with its time limits and tuning.
//! - [`Dial`]: from a URI to an export that is ready for requests, over TLS where the URI says so.
//! - [`Endpoint`], [`handshake`]: its steps, for who does something in between.
//! - [`ClientTls`]: which certificates servers are shown.
//!
//! ```no_run
//! use headgate_nbd::client::handshake::ReplyStyle;
//! use headgate_nbd::uri::Uri;
//! use headgate_nbd_io::{ClientTls, Dial};
//! use std::time::{Duration, Instant};
//!
//! let uri: Uri = "nbds://localhost/db".parse()?;
//! let tls = ClientTls::new("/etc/headgate/tls".into());
//! let deadline = Instant::now() + Duration::from_secs(10);
//! let dial = Dial { style: ReplyStyle::Simple, deadline, silence: None, tls: &tls, policy: None };
//! println!("{} bytes", dial.open(&uri)?.info.size);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod client_tls;
mod dial;
mod direct;
mod handshake;
mod open;
mod socket;

pub use client_tls::ClientTls;
pub use dial::Endpoint;
pub use direct::Direct;
pub use handshake::{DialError, handshake, say_goodbye};
pub use open::{Dial, Opened};
pub use socket::Socket;
