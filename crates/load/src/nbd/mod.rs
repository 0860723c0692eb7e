//! The client side of NBD (the protocol document `doc/proto.md` of the NBD project), fixed newstyle.

mod link;
pub(crate) mod negotiate;
mod replies;
pub(crate) mod socket;
pub(crate) mod wire;

pub(crate) use link::NbdLink;
pub use negotiate::ReplyStyle;
