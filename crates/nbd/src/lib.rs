//! The NBD protocol without sockets, after the specification that the NetworkBlockDevice project publishes
//! (`doc/proto.md` in its repository, text of May 2026): what both sides of Headgate and its load generator share.
//!
//! - [`wire`]: the numbers and the layout of requests.
//! - [`negotiate`]: a client's side of the fixed newstyle handshake.
//! - [`replies`]: a client's side of transmission: the heads of simple replies.
//! - [`uri`]: how operators name servers and exports.

pub mod negotiate;
pub mod replies;
pub mod uri;
pub mod wire;
