//! Where the load goes: an export of an NBD server, or a vhost-user-blk socket.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;
use thiserror::Error;

/// The port that IANA gave to NBD.
const NBD_PORT: u16 = 10809;

/// A disk to load.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// An export of an NBD server.
    Nbd(NbdTarget),
    /// The socket of a vhost-user-blk device.
    VhostUserBlk(PathBuf),
}

/// An NBD server and the export's name there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NbdTarget {
    /// How to reach the server.
    pub address: NbdAddress,
    /// The export's name; empty is the server's default export.
    pub export: String,
}

/// How to reach an NBD server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NbdAddress {
    /// A unix socket.
    Unix(PathBuf),
    /// TCP.
    Tcp {
        /// Host name or address, without brackets.
        host: String,
        /// Port.
        port: u16,
    },
}

/// A text that names no disk.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TargetError {
    /// A URI of another scheme, or one that lacks its parts.
    #[error(
        "'{0}' is no disk: give nbd+unix:///NAME?socket=PATH, nbd://HOST[:PORT]/NAME or the path of a vhost-user-blk socket"
    )]
    Form(String),
    /// `%` without two hexadecimal digits, or bytes that are not UTF-8.
    #[error("'{0}' has a bad %-escape: two hexadecimal digits were expected, UTF-8 in the end")]
    Escape(String),
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
        if let Some(rest) = text.strip_prefix("nbd+unix://") {
            let (path, query) = rest.split_once('?').ok_or_else(form)?;
            let export = path.strip_prefix('/').ok_or_else(form)?;
            let socket = query.split('&').find_map(|pair| pair.strip_prefix("socket=")).ok_or_else(form)?;
            let socket = unescape(socket)?;
            if socket.is_empty() {
                return Err(form());
            }
            return Ok(Target::Nbd(NbdTarget {
                address: NbdAddress::Unix(socket.into()),
                export: unescape(export)?,
            }));
        }
        if let Some(rest) = text.strip_prefix("nbd://") {
            let (authority, export) = rest.split_once('/').unwrap_or((rest, ""));
            let (host, port) = split_port(authority).ok_or_else(form)?;
            return Ok(Target::Nbd(NbdTarget {
                address: NbdAddress::Tcp { host, port },
                export: unescape(export)?,
            }));
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
            Target::Nbd(NbdTarget { address: NbdAddress::Unix(socket), export }) => {
                write!(f, "nbd+unix:///{export}?socket={}", socket.display())
            }
            Target::Nbd(NbdTarget { address: NbdAddress::Tcp { host, port }, export }) => {
                write!(f, "nbd://{host}:{port}/{export}")
            }
            Target::VhostUserBlk(path) => write!(f, "{}", path.display()),
        }
    }
}

/// May servers on other machines be loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Loopback addresses only.
    ThisMachine,
    /// Any address.
    Anywhere,
}

impl NbdAddress {
    /// The socket addresses to try, for TCP.
    ///
    /// # Errors
    /// [`TargetError::Resolve`], and [`TargetError::Remote`] when one of the addresses is beyond `reach`.
    pub fn resolve(&self, reach: Reach) -> Result<Vec<SocketAddr>, TargetError> {
        let NbdAddress::Tcp { host, port } = self else { return Ok(Vec::new()) };
        let found = (host.as_str(), *port)
            .to_socket_addrs()
            .map_err(|e| TargetError::Resolve { host: host.clone(), why: e.to_string() })?;
        let found: Vec<SocketAddr> = found.collect();
        if reach == Reach::ThisMachine && !found.iter().all(|a| a.ip().to_canonical().is_loopback()) {
            return Err(TargetError::Remote(host.clone()));
        }
        Ok(found)
    }
}

fn split_port(authority: &str) -> Option<(String, u16)> {
    let (host, port) = if let Some(rest) = authority.strip_prefix('[') {
        let (host, rest) = rest.split_once(']')?;
        (host, if rest.is_empty() { None } else { Some(rest.strip_prefix(':')?) })
    } else {
        match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        }
    };
    let port = port.map_or(Some(NBD_PORT), |p| p.parse().ok())?;
    (!host.is_empty()).then(|| (host.to_owned(), port))
}

fn unescape(text: &str) -> Result<String, TargetError> {
    let bad = || TargetError::Escape(text.to_owned());
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let [high, low, tail @ ..] = rest else { return Err(bad()) };
        let digit = |b: u8| char::from(b).to_digit(16).ok_or_else(bad);
        bytes.push((digit(*high)? * 16 + digit(*low)?) as u8);
        rest = tail;
    }
    String::from_utf8(bytes).map_err(|_| bad())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unix(socket: &str, export: &str) -> Target {
        Target::Nbd(NbdTarget { address: NbdAddress::Unix(socket.into()), export: export.into() })
    }

    fn tcp(host: &str, port: u16, export: &str) -> Target {
        let address = NbdAddress::Tcp { host: host.into(), port };
        Target::Nbd(NbdTarget { address, export: export.into() })
    }

    #[test]
    fn all_documented_forms_are_understood() {
        for (text, target) in [
            ("nbd+unix:///db?socket=/run/nbd.sock", unix("/run/nbd.sock", "db")),
            ("nbd+unix:///?socket=/run/nbd.sock", unix("/run/nbd.sock", "")),
            ("nbd+unix:///a%20b?x=1&socket=/run/a%2Fb", unix("/run/a/b", "a b")),
            ("nbd://127.0.0.1:10810/db", tcp("127.0.0.1", 10810, "db")),
            ("nbd://localhost", tcp("localhost", 10809, "")),
            ("nbd://[::1]:99/x/y", tcp("::1", 99, "x/y")),
            ("/run/vhost/db.sock", Target::VhostUserBlk("/run/vhost/db.sock".into())),
        ] {
            assert_eq!(text.parse(), Ok(target), "{text}");
        }
    }

    #[test]
    fn anything_else_is_refused_with_the_expected_form() {
        for text in [
            "",
            "http://x/y",
            "nbd+unix:///db",
            "nbd+unix://db",
            "nbd://:1/x",
            "nbd://h:99999/",
            "nbd://[::1",
        ] {
            let error = text.parse::<Target>().unwrap_err();
            assert_eq!(error, TargetError::Form(text.into()));
            assert!(error.to_string().contains("nbd+unix:///NAME?socket=PATH"));
        }
        assert!(matches!("nbd://localhost/%4".parse::<Target>(), Err(TargetError::Escape(_))));
        assert!(matches!("nbd://localhost/%ff".parse::<Target>(), Err(TargetError::Escape(_))));
    }

    #[test]
    fn other_machines_are_loaded_only_when_allowed() {
        let far = NbdAddress::Tcp { host: "192.0.2.1".into(), port: 1 };
        assert!(matches!(far.resolve(Reach::ThisMachine), Err(TargetError::Remote(_))));
        assert_eq!(far.resolve(Reach::Anywhere).map(|a| a.len()), Ok(1));
        for host in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] {
            let near = NbdAddress::Tcp { host: host.into(), port: 1 };
            assert!(near.resolve(Reach::ThisMachine).is_ok(), "{host}");
        }
    }
}
