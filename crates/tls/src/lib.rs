//! TLS for NBD and etcd: who is at the other end, what it may open, and how its bytes reach a data
//! path that knows plain sockets only.
//!
//! - [`ServerCredentials`], [`ClientCredentials`]: the certificates of a directory, in the layout
//!   that other NBD software has; [`ServerDirectory`] reads them again when they change.
//! - [`accept`], [`connect`]: the handshake within a deadline. Both sides show a certificate.
//! - [`Rules`]: which peer may open which disks.
//! - [`Tunnels`]: a connection after its handshake becomes a plain socket.
//! - [`Authority`]: makes certificates where no other authority is at hand.
//!
//! The kernel's own TLS would spare the copy that a tunnel costs. Not every kernel has it, and what
//! is negotiated decides whether it can be used; see `docs/decisions/0096-tls.md`.

mod allow;
mod authority;
mod credentials;
mod error;
mod handshake;
mod peer;
mod tunnel;

pub use allow::{ApiRights, ApiRole, Bounds, Right, Rules};
pub use authority::Authority;
pub use credentials::{
    ALLOW, CA_CERT, CA_CRL, ClientCredentials, Look, Role, ServerCredentials, ServerDirectory,
    server_name,
};
pub use error::{AuthorityError, CredentialsError, HandshakeError};
pub use handshake::{Secured, accept, connect};
pub use peer::Peer;
pub use tunnel::Tunnels;
