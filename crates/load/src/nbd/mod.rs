//! The client side of NBD (the protocol document `doc/proto.md` of the NBD project), fixed newstyle.

mod link;
mod replies;
pub(crate) mod socket;

pub use headgate_nbd::negotiate::ReplyStyle;
pub(crate) use link::NbdLink;
