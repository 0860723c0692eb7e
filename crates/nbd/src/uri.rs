//! URIs of exports, as the NBD project defines them (`doc/uri.md` in its repository).
//!
//! ```
//! use headgate_nbd::uri::{Address, Security, Tls, Uri};
//!
//! let uri: Uri = "nbd://[::1]/db".parse()?;
//! let security = Security::Plain;
//! assert_eq!(uri.address, Address::Tcp { host: "::1".into(), port: 10809, security });
//! assert_eq!(uri.to_string(), "nbd://[::1]:10809/db");
//!
//! let uri: Uri = "nbds://10.0.0.7/db?tls-hostname=node7.example".parse()?;
//! let named = Security::Tls(Tls { hostname: Some("node7.example".into()), certificates: None });
//! assert!(matches!(uri.address, Address::Tcp { security, .. } if security == named));
//!
//! let uri: Uri = "nbd+unix:///db?socket=/run/nbd.sock".parse()?;
//! assert_eq!(uri.address, Address::Unix("/run/nbd.sock".into()));
//! assert_eq!(uri.server().to_string(), "nbd+unix:///?socket=/run/nbd.sock");
//! # Ok::<(), headgate_nbd::uri::UriError>(())
//! ```

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;
use thiserror::Error;

/// The port that IANA assigned to NBD.
pub const NBD_PORT: u16 = 10809;

/// An export of an NBD server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Uri {
    /// The server.
    pub address: Address,
    /// The export's name; the empty name is the server's default export.
    pub export: String,
}

/// The address of an NBD server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// The path of a unix socket.
    Unix(String),
    /// TCP.
    Tcp {
        /// Host name or address, without brackets.
        host: String,
        /// Port.
        port: u16,
        /// What protects the connection.
        security: Security,
    },
}

/// What protects a connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Security {
    /// Nothing (`nbd://`).
    Plain,
    /// TLS, and nothing else (`nbds://`).
    Tls(Tls),
}

/// What a URI says of TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tls {
    /// The name that the server's certificate has to have (`tls-hostname`); `None`: the host.
    pub hostname: Option<String>,
    /// The directory of the certificates (`tls-certificates`); `None`: whoever connects has one.
    pub certificates: Option<String>,
}

/// Why a text is no NBD URI.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum UriError {
    /// A URI of another scheme, or one that lacks its parts.
    #[error("'{0}' is no NBD URI")]
    Form(String),
    /// `%` without two hexadecimal digits, or bytes that are not UTF-8.
    #[error("'{0}' has a bad %-escape: two hexadecimal digits were expected, UTF-8 in the end")]
    Escape(String),
    /// A parameter that asks for what is not done: to ignore it could leave a connection open to
    /// whom it was to be closed to.
    #[error(
        "'{uri}': the parameter '{parameter}' is not taken: tls-certificates=DIR and \
         tls-hostname=NAME are, of nbds:// only"
    )]
    Parameter {
        /// The whole text.
        uri: String,
        /// The parameter's name.
        parameter: String,
    },
}

/// The forms of a URI, for messages.
pub const FORMS: &str =
    "nbd+unix:///NAME?socket=PATH, nbd://HOST[:PORT]/NAME or nbds://HOST[:PORT]/NAME (TLS)";

/// Whether a text is one of the schemes that [`Uri`] knows.
pub fn is_nbd(text: &str) -> bool {
    ["nbd+unix://", "nbd://", "nbds://"].iter().any(|scheme| text.starts_with(scheme))
}

impl Uri {
    /// The server alone: the URI of its default export.
    pub fn server(&self) -> Uri {
        Uri { address: self.address.clone(), export: String::new() }
    }
}

impl FromStr for Uri {
    type Err = UriError;

    fn from_str(text: &str) -> Result<Uri, UriError> {
        let form = || UriError::Form(text.to_owned());
        let (rest, query) = text.split_once('?').unwrap_or((text, ""));
        if let Some(path) = rest.strip_prefix("nbd+unix://") {
            let export = path.strip_prefix('/').ok_or_else(form)?;
            not_of_tls(text, query)?;
            let socket = parameter(query, "socket")?.ok_or_else(form)?;
            if socket.is_empty() {
                return Err(form());
            }
            return Ok(Uri { address: Address::Unix(socket), export: unescape(export)? });
        }
        let (rest, security) = if let Some(rest) = rest.strip_prefix("nbds://") {
            (rest, Security::Tls(tls(text, query)?))
        } else {
            not_of_tls(text, query)?;
            (rest.strip_prefix("nbd://").ok_or_else(form)?, Security::Plain)
        };
        let (authority, export) = rest.split_once('/').unwrap_or((rest, ""));
        let (host, port) = split_port(authority).ok_or_else(form)?;
        Ok(Uri { address: Address::Tcp { host, port, security }, export: unescape(export)? })
    }
}

const HOSTNAME: &str = "tls-hostname";
const CERTIFICATES: &str = "tls-certificates";

/// The first parameter of this name.
fn parameter(query: &str, name: &str) -> Result<Option<String>, UriError> {
    let mut named = query.split('&').filter_map(|pair| pair.split_once('='));
    named.find(|(key, _)| *key == name).map(|(_, value)| unescape(value)).transpose()
}

/// Refuses parameters of TLS other than those of this name.
fn only_of_tls(text: &str, query: &str, known: &[&str]) -> Result<(), UriError> {
    let names = query.split('&').map(|pair| pair.split_once('=').map_or(pair, |(name, _)| name));
    match names.filter(|name| name.starts_with("tls-")).find(|name| !known.contains(name)) {
        None => Ok(()),
        Some(name) => Err(UriError::Parameter { uri: text.to_owned(), parameter: name.to_owned() }),
    }
}

fn not_of_tls(text: &str, query: &str) -> Result<(), UriError> {
    only_of_tls(text, query, &[])
}

fn tls(text: &str, query: &str) -> Result<Tls, UriError> {
    only_of_tls(text, query, &[HOSTNAME, CERTIFICATES])?;
    let given = |name: &str| match parameter(query, name)? {
        Some(empty) if empty.is_empty() => Err(UriError::Form(text.to_owned())),
        given => Ok(given),
    };
    Ok(Tls { hostname: given(HOSTNAME)?, certificates: given(CERTIFICATES)? })
}

impl fmt::Display for Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let export = Escaped(&self.export);
        match &self.address {
            Address::Unix(socket) => {
                write!(f, "nbd+unix:///{export}?socket={}", Escaped(socket))
            }
            Address::Tcp { host, port, security } => {
                let tls = match security {
                    Security::Plain => None,
                    Security::Tls(tls) => Some(tls),
                };
                let scheme = if tls.is_some() { "nbds" } else { "nbd" };
                if host.contains(':') {
                    write!(f, "{scheme}://[{host}]:{port}/{export}")?;
                } else {
                    write!(f, "{scheme}://{host}:{port}/{export}")?;
                }
                let given =
                    tls.map(|tls| [(HOSTNAME, &tls.hostname), (CERTIFICATES, &tls.certificates)]);
                let given = given.into_iter().flatten();
                let given = given.filter_map(|(name, value)| Some((name, value.as_ref()?)));
                for (mark, (name, value)) in ['?', '&'].into_iter().zip(given) {
                    write!(f, "{mark}{name}={}", Escaped(value))?;
                }
                Ok(())
            }
        }
    }
}

/// A part of a URI, with everything escaped that could end it.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0.bytes() {
            match byte {
                b'A'..=b'Z'
                | b'a'..=b'z'
                | b'0'..=b'9'
                | b'-'
                | b'.'
                | b'_'
                | b'~'
                | b'/'
                | b':' => {
                    write!(f, "{}", char::from(byte))?;
                }
                _ => write!(f, "%{byte:02X}")?,
            }
        }
        Ok(())
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

fn unescape(text: &str) -> Result<String, UriError> {
    let bad = || UriError::Escape(text.to_owned());
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
    use proptest::prelude::*;

    fn unix(socket: &str, export: &str) -> Uri {
        Uri { address: Address::Unix(socket.into()), export: export.into() }
    }

    fn tcp(host: &str, port: u16, export: &str) -> Uri {
        let address = Address::Tcp { host: host.into(), port, security: Security::Plain };
        Uri { address, export: export.into() }
    }

    fn over_tls(host: &str, port: u16, export: &str, tls: [Option<&str>; 2]) -> Uri {
        let [hostname, certificates] = tls.map(|given| given.map(ToOwned::to_owned));
        let security = Security::Tls(Tls { hostname, certificates });
        Uri { address: Address::Tcp { host: host.into(), port, security }, export: export.into() }
    }

    #[test]
    fn all_documented_forms_are_understood() {
        for (text, uri) in [
            ("nbd+unix:///db?socket=/run/nbd.sock", unix("/run/nbd.sock", "db")),
            ("nbd+unix:///?socket=/run/nbd.sock", unix("/run/nbd.sock", "")),
            ("nbd+unix:///a%20b?x=1&socket=/run/a%2Fb", unix("/run/a/b", "a b")),
            ("nbd://127.0.0.1:10810/db", tcp("127.0.0.1", 10810, "db")),
            ("nbd://localhost", tcp("localhost", 10809, "")),
            ("nbd://[::1]:99/x/y", tcp("::1", 99, "x/y")),
            ("nbd://localhost/db?x=1", tcp("localhost", 10809, "db")),
            ("nbds://localhost/db", over_tls("localhost", 10809, "db", [None; 2])),
            ("nbds://[::1]:99", over_tls("::1", 99, "", [None; 2])),
            (
                "nbds://h/db?x=1&tls-certificates=/etc/a%26b&tls-hostname=node1",
                over_tls("h", 10809, "db", [Some("node1"), Some("/etc/a&b")]),
            ),
        ] {
            assert_eq!(text.parse(), Ok(uri), "{text}");
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "",
            "http://x/y",
            "nbd+unix:///db",
            "nbd+unix://db",
            "nbd://:1/x",
            "nbd://h:99999/",
            "nbd://[::1",
            "/run/x",
            "nbds+unix:///db?socket=/run/nbd.sock",
            "nbds://h/db?tls-hostname=",
        ] {
            assert_eq!(text.parse::<Uri>(), Err(UriError::Form(text.into())));
        }
        assert!(matches!("nbd://localhost/%4".parse::<Uri>(), Err(UriError::Escape(_))));
        assert!(matches!("nbd://localhost/%ff".parse::<Uri>(), Err(UriError::Escape(_))));
    }

    /// Who writes them believes that they hold.
    #[test]
    fn what_is_said_of_tls_and_cannot_be_done_is_refused() {
        for (text, parameter) in [
            ("nbd://h/db?tls-certificates=/etc/tls", "tls-certificates"),
            ("nbd+unix:///db?socket=/run/nbd.sock&tls-hostname=h", "tls-hostname"),
            ("nbds://h/db?tls-psk-file=/etc/psk", "tls-psk-file"),
            ("nbds://h/db?tls-hostname=h&tls-verify-peer=0", "tls-verify-peer"),
            ("nbds://h/db?tls-username", "tls-username"),
        ] {
            let (uri, parameter) = (text.to_owned(), parameter.to_owned());
            assert_eq!(text.parse::<Uri>(), Err(UriError::Parameter { uri, parameter }));
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(export in ".*", socket in "/.+", port: u16, host in "[a-z0-9.-]+|[0-9a-f:]*:[0-9a-f:]*") {
            let [hostname, certificates] = [&host, &socket].map(|given| Some(given.as_str()));
            for uri in [
                unix(&socket, &export),
                tcp(&host, port, &export),
                over_tls(&host, port, &export, [None; 2]),
                over_tls(&host, port, &export, [None, certificates]),
                over_tls(&host, port, &export, [hostname, certificates]),
            ] {
                prop_assert_eq!(uri.to_string().parse(), Ok(uri));
            }
        }
    }
}
