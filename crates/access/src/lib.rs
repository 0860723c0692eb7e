//! Who may connect to a unix socket, and who did.
//!
//! - [`Access`]: the users and groups that may; [`listen`] makes a socket that never let anybody
//!   else in, and [`grant`] changes one that is there, or a directory.
//! - [`Peer`]: the process at the other end, as the kernel knows it.
//! - [`obstacle`]: what on the way to a socket keeps a user from it.
//! - [`user`], [`group`]: names to numbers.

mod acl;
mod grant;
mod names;
mod peer;
mod reach;

pub use grant::{Access, Kind, grant, listen};
pub use names::{Identity, NameError, group, own_group, user};
pub use peer::Peer;
pub use reach::{Obstacle, obstacle};
