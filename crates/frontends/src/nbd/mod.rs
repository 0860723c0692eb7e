//! NBD, fixed newstyle: an export per disk, over unix sockets and TCP.
//!
//! - [`proto`]: the protocol, pure: bytes in, decisions and bytes out.

pub mod proto;
