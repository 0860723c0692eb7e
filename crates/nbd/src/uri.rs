//! URIs of exports, as the NBD project defines them (`doc/uri.md` in its repository).
//!
//! ```
//! use headgate_nbd::uri::{Address, Uri};
//!
//! let uri: Uri = "nbd://[::1]/db".parse()?;
//! assert_eq!(uri.address, Address::Tcp { host: "::1".into(), port: 10809 });
//! assert_eq!(uri.to_string(), "nbd://[::1]:10809/db");
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
    },
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
}

/// The forms of a URI, for messages.
pub const FORMS: &str = "nbd+unix:///NAME?socket=PATH or nbd://HOST[:PORT]/NAME";

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
        if let Some(rest) = text.strip_prefix("nbd+unix://") {
            let (path, query) = rest.split_once('?').ok_or_else(form)?;
            let export = path.strip_prefix('/').ok_or_else(form)?;
            let socket =
                query.split('&').find_map(|pair| pair.strip_prefix("socket=")).ok_or_else(form)?;
            let socket = unescape(socket)?;
            if socket.is_empty() {
                return Err(form());
            }
            return Ok(Uri { address: Address::Unix(socket), export: unescape(export)? });
        }
        let rest = text.strip_prefix("nbd://").ok_or_else(form)?;
        let (authority, export) = rest.split_once('/').unwrap_or((rest, ""));
        let (host, port) = split_port(authority).ok_or_else(form)?;
        Ok(Uri { address: Address::Tcp { host, port }, export: unescape(export)? })
    }
}

impl fmt::Display for Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let export = Escaped(&self.export);
        match &self.address {
            Address::Unix(socket) => {
                write!(f, "nbd+unix:///{export}?socket={}", Escaped(socket))
            }
            Address::Tcp { host, port } if host.contains(':') => {
                write!(f, "nbd://[{host}]:{port}/{export}")
            }
            Address::Tcp { host, port } => write!(f, "nbd://{host}:{port}/{export}"),
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
        Uri { address: Address::Tcp { host: host.into(), port }, export: export.into() }
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
        ] {
            assert_eq!(text.parse::<Uri>(), Err(UriError::Form(text.into())));
        }
        assert!(matches!("nbd://localhost/%4".parse::<Uri>(), Err(UriError::Escape(_))));
        assert!(matches!("nbd://localhost/%ff".parse::<Uri>(), Err(UriError::Escape(_))));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(export in ".*", socket in "/.+", port: u16, host in "[a-z0-9.-]+|[0-9a-f:]*:[0-9a-f:]*") {
            for uri in [unix(&socket, &export), tcp(&host, port, &export)] {
                prop_assert_eq!(uri.to_string().parse(), Ok(uri));
            }
        }
    }
}
