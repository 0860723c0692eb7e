//! Targets of a load: exports of NBD servers, and vhost-user-blk sockets.

use headgate_nbd::uri::{FORMS, UriError, is_nbd};
use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;
use thiserror::Error;

/// A disk to load.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// An export of an NBD server.
    Nbd(NbdTarget),
    /// The socket of a vhost-user-blk device.
    VhostUserBlk(PathBuf),
}

pub use headgate_nbd::uri::{Address as NbdAddress, Uri as NbdTarget};

/// A text that names no disk.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TargetError {
    /// A URI of another scheme, or one that lacks its parts.
    #[error("'{0}' is no disk: give {FORMS}, or the path of a vhost-user-blk socket")]
    Form(String),
    /// A part of the URI cannot be used.
    #[error(transparent)]
    Uri(UriError),
    /// Not this machine.
    #[error("'{0}' is not this machine; to load a server elsewhere, add --allow-remote")]
    Remote(String),
    /// The name has no address.
    #[error("'{host}' cannot be resolved: {why}")]
    Resolve {
        /// The host.
        host: String,
        /// What the resolver said.
        why: String,
    },
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Target, TargetError> {
        let form = || TargetError::Form(text.to_owned());
        if is_nbd(text) {
            return text.parse().map(Target::Nbd).map_err(|e| match e {
                UriError::Form(_) => form(),
                other => TargetError::Uri(other),
            });
        }
        if text.is_empty() || text.contains("://") {
            return Err(form());
        }
        Ok(Target::VhostUserBlk(text.into()))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Nbd(uri) => uri.fmt(f),
            Target::VhostUserBlk(path) => write!(f, "{}", path.display()),
        }
    }
}

/// Whether servers on other machines may be loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Loopback addresses only.
    ThisMachine,
    /// Any address.
    Anywhere,
}

/// The socket addresses to try, for TCP.
///
/// # Errors
/// [`TargetError::Resolve`], and [`TargetError::Remote`] when one of the addresses is beyond
/// `reach`.
pub fn resolve(address: &NbdAddress, reach: Reach) -> Result<Vec<SocketAddr>, TargetError> {
    let NbdAddress::Tcp { host, port, .. } = address else { return Ok(Vec::new()) };
    let found = (host.as_str(), *port)
        .to_socket_addrs()
        .map_err(|e| TargetError::Resolve { host: host.clone(), why: e.to_string() })?;
    let found: Vec<SocketAddr> = found.collect();
    if reach == Reach::ThisMachine && !found.iter().all(|a| a.ip().to_canonical().is_loopback()) {
        return Err(TargetError::Remote(host.clone()));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use headgate_nbd::uri::Security;

    fn unix(socket: &str, export: &str) -> Target {
        Target::Nbd(NbdTarget { address: NbdAddress::Unix(socket.into()), export: export.into() })
    }

    fn address(host: &str, port: u16) -> NbdAddress {
        NbdAddress::Tcp { host: host.into(), port, security: Security::Plain }
    }

    fn tcp(host: &str, port: u16, export: &str) -> Target {
        let address = address(host, port);
        Target::Nbd(NbdTarget { address, export: export.into() })
    }

    /// What URIs are is tested with them.
    #[test]
    fn a_target_is_a_uri_or_a_socket() {
        for (text, target) in [
            ("nbd+unix:///a%20b?socket=/run/nbd.sock", unix("/run/nbd.sock", "a b")),
            ("nbd://localhost/db", tcp("localhost", 10809, "db")),
            ("/run/vhost/db.sock", Target::VhostUserBlk("/run/vhost/db.sock".into())),
        ] {
            assert_eq!(text.parse(), Ok(target), "{text}");
        }
    }

    #[test]
    fn anything_else_is_refused_with_the_expected_form() {
        for text in ["", "http://x/y", "nbd+unix:///db", "nbd://:1/x"] {
            let error = text.parse::<Target>().unwrap_err();
            assert_eq!(error, TargetError::Form(text.into()));
            assert!(error.to_string().contains("nbd+unix:///NAME?socket=PATH"));
        }
        for text in
            ["nbd://localhost/%4", "nbd://localhost/%ff", "nbds://localhost/x?tls-username=me"]
        {
            assert!(matches!(text.parse::<Target>(), Err(TargetError::Uri(_))));
        }
    }

    #[test]
    fn other_machines_are_loaded_only_when_allowed() {
        let far = address("192.0.2.1", 1);
        assert!(matches!(resolve(&far, Reach::ThisMachine), Err(TargetError::Remote(_))));
        assert_eq!(resolve(&far, Reach::Anywhere).map(|a| a.len()), Ok(1));
        for host in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] {
            let near = address(host, 1);
            assert!(resolve(&near, Reach::ThisMachine).is_ok(), "{host}");
        }
    }
}
