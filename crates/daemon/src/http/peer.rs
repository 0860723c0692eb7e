use std::fmt;
use tokio::net::UnixStream;

/// The process at the other end of a connection to the API, as the kernel knows it: the one that
/// connected, whoever uses the socket now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Peer {
    user: Option<u32>,
    process: Option<i32>,
}

impl Peer {
    pub(super) fn of(stream: &UnixStream) -> Peer {
        match stream.peer_cred() {
            Ok(who) => Peer { user: Some(who.uid()), process: who.pid() },
            Err(e) => {
                tracing::warn!(error = %e, "the kernel does not say who uses the API");
                Peer { user: None, process: None }
            }
        }
    }
}

/// Prints as `user 0, process 4711`.
impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.user {
            Some(user) => write!(f, "user {user}")?,
            None => write!(f, "user unknown")?,
        }
        match self.process {
            Some(process) => write!(f, ", process {process}"),
            None => write!(f, ", process unknown"),
        }
    }
}
