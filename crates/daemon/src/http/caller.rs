//! Who is at the other end of a connection, and what that lets them do.

use headgate_access::Peer;
use headgate_events::Who;
use headgate_tls::ApiRights;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

/// Who connected.
#[derive(Clone, Debug)]
pub(super) enum Caller {
    /// A process of this host.
    Process(Peer),
    /// Somebody with a certificate that was verified.
    Certificate { peer: Arc<headgate_tls::Peer>, address: SocketAddr },
    /// Somebody who has to show a token with each request.
    Stranger(SocketAddr),
    /// The kernel does not say who.
    Unknown,
}

/// Somebody who may only what a tenant may.
#[derive(Clone, Debug)]
pub(super) enum Tenant {
    /// Of the machines whose sockets are for their user or one of their groups.
    Process(Peer),
    /// Of these machines.
    Machines { who: Who, rights: ApiRights },
}

impl Tenant {
    /// The user, if it is one of this host.
    pub(super) fn user(&self) -> Option<u32> {
        match self {
            Tenant::Process(peer) => Some(peer.user),
            Tenant::Machines { .. } => None,
        }
    }
}

impl fmt::Display for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Tenant::Process(peer) => peer.fmt(f),
            Tenant::Machines { who, .. } => who.fmt(f),
        }
    }
}

/// What somebody may.
#[derive(Clone, Debug)]
pub(super) enum Right {
    /// Everything.
    Change,
    /// To read, and of what is theirs what a tenant may, if there is something.
    Read(Option<Tenant>),
    /// Of what is theirs what a tenant may.
    Own(Tenant),
    /// They are known, and nothing is for them.
    Nothing,
    /// They have shown no token that is known.
    NoToken,
}

/// Who asks and what they may, found before anything else is done with a request.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) who: Who,
    pub(super) right: Right,
}

/// What somebody may now, for an answer that goes on and on.
#[derive(Clone)]
pub(super) struct Recheck(pub(super) Arc<dyn Fn() -> Right + Send + Sync>);
