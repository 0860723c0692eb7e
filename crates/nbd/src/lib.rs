//! The NBD protocol, both sides of it, without sockets and without a clock.
//!
//! It follows the specification of the NetworkBlockDevice project (`doc/proto.md` and `doc/uri.md`
//! in its repository, text of May 2026): the fixed newstyle handshake, and transmission with simple
//! or structured replies.
//!
//! | module | what |
//! |---|---|
//! | [`wire`] | numbers and layouts, shared by both sides |
//! | [`server`] | the server side: negotiation, requests cut from the stream and checked, replies |
//! | [`client`] | the client side: handshake and replies |
//! | [`counters`] | an extension of Headgate's for disks over several servers, shared by both sides |
//! | [`policy`] | another one: what a gateway says that such a disk is promised |
//! | [`uri`] | `nbd://` and `nbd+unix://` URIs |
//!
//! Every state machine here works alike. The caller owns the socket and the received bytes. It
//! shows the machine the bytes that are not yet used, drops as many as the answer says, and sends
//! what the machine wrote. How the stream is cut into pieces changes nothing. Time limits are the
//! caller's.
//!
//! # Example
//! A client and a server agree on an export, in memory:
//! ```
//! use headgate_nbd::client::handshake::{Handshake, ReplyStyle, Step as ClientStep};
//! use headgate_nbd::server::{Writes, Export};
//! use headgate_nbd::server::negotiation::{
//!     Catalog, ExportName, Negotiation, OpenError, Opened, Step, greeting,
//! };
//!
//! struct OneDisk;
//!
//! impl Catalog for OneDisk {
//!     type Handle = ();
//!
//!     fn list(&self) -> Vec<ExportName> {
//!         vec![ExportName { name: "db".into(), description: String::new() }]
//!     }
//!
//!     fn open(&self, name: &str) -> Result<Opened<()>, OpenError> {
//!         let writes = Writes::Allowed;
//!         let export = Export { size: 1 << 30, block_size: 512, preferred: 4096, writes };
//!         let opened = Opened { name: name.into(), export, description: String::new(), handle: () };
//!         if name == "db" { Ok(opened) } else { Err(OpenError::Unknown) }
//!     }
//! }
//!
//! let (mut to_client, mut to_server) = (Vec::new(), Vec::new());
//! let mut server = Negotiation::default();
//! let mut client = Handshake::new("db", ReplyStyle::Structured);
//! greeting(&mut to_client);
//! let info = loop {
//!     let (used, step) = client.poll(&to_client, &mut to_server)?;
//!     to_client.drain(..used);
//!     if let ClientStep::Transmission(info) = step {
//!         break info;
//!     }
//!     let (used, step) = server.poll(&to_server, &OneDisk, &mut to_client)?;
//!     to_server.drain(..used);
//!     if let Step::Transmission(opened, session) = step {
//!         println!("the client opened {} with {session:?}", opened.name);
//!     }
//! };
//! assert_eq!((info.size, info.min_block), (1 << 30, Some(512)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![cfg_attr(not(test), no_std)]

extern crate alloc;

pub mod client;
pub mod counters;
pub mod policy;
pub mod server;
pub mod uri;
pub mod wire;
