//! Where an etcd server is.

use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// The port of an endpoint that names none.
const PORT: &str = "2379";

/// Whether what is said is protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    Http,
    Https,
}

impl Scheme {
    fn prefix(self) -> &'static str {
        match self {
            Scheme::Http => "http://",
            Scheme::Https => "https://",
        }
    }
}

/// Where an etcd server listens: `http://HOST:PORT` or `https://HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub(super) scheme: Scheme,
    pub(super) host: String,
    pub(super) port: u16,
}

/// The text is no [`Endpoint`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "'{given}' is not an etcd server that can be used; write http://HOST:PORT or \
     https://HOST:PORT, port 2379 unless said otherwise"
)]
pub struct EndpointError {
    given: String,
}

impl Endpoint {
    /// Whether only this machine can hear what is said to it.
    pub(super) fn is_loopback(&self) -> bool {
        let is_address = |address: std::net::IpAddr| address.to_canonical().is_loopback();
        self.host.eq_ignore_ascii_case("localhost") || self.host.parse().is_ok_and(is_address)
    }

    /// As a request names it.
    pub(super) fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;
    fn from_str(text: &str) -> Result<Endpoint, EndpointError> {
        let wrong = || EndpointError { given: text.to_owned() };
        let schemes = [Scheme::Http, Scheme::Https].into_iter();
        let (scheme, rest) = schemes
            .filter_map(|scheme| Some((scheme, text.strip_prefix(scheme.prefix())?)))
            .next()
            .ok_or_else(wrong)?;
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        // An IPv6 address stands in brackets.
        let (host, port) = match rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, "")) => (host, PORT),
            Some((host, port)) => (host, port.strip_prefix(':').ok_or_else(wrong)?),
            None => rest.split_once(':').unwrap_or((rest, PORT)),
        };
        let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
        if host.is_empty() || !host.chars().all(good) {
            return Err(wrong());
        }
        // No certificate could be for it.
        if scheme == Scheme::Https && headgate_tls::server_name(host).is_none() {
            return Err(wrong());
        }
        let port = port.parse().map_err(|_| wrong())?;
        Ok(Endpoint { scheme, host: host.to_owned(), port })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.scheme.prefix(), self.authority())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_read_and_what_is_none_is_named() {
        for (text, printed) in [
            ("http://127.0.0.1:2379", "http://127.0.0.1:2379"),
            ("http://etcd-1.example/", "http://etcd-1.example:2379"),
            ("http://[::1]:4001", "http://[::1]:4001"),
            ("http://[fd00::2]", "http://[fd00::2]:2379"),
            ("https://etcd-1.example", "https://etcd-1.example:2379"),
            ("https://[::1]:4001/", "https://[::1]:4001"),
        ] {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), printed);
        }
        for text in [
            "",
            "127.0.0.1:2379",
            "https:/a:1",
            "HTTPS://a:1",
            "http://",
            "https://",
            "http://a:b",
            "http://a b:1",
            "http://[::1]2379",
            "https://a..b:1",
            "https://user:password@a:1",
        ] {
            let error = text.parse::<Endpoint>().unwrap_err().to_string();
            assert!(error.contains("write http://HOST:PORT or https://HOST:PORT"), "{error}");
        }
    }

    #[test]
    fn this_machine_is_known_by_name_and_address() {
        for (text, is_loopback) in [
            ("http://localhost", true),
            ("http://127.3.2.1:1", true),
            ("http://[::1]", true),
            ("http://[::ffff:127.0.0.1]", true),
            ("http://10.0.0.1", false),
            ("http://localhost.example", false),
        ] {
            assert_eq!(text.parse::<Endpoint>().unwrap().is_loopback(), is_loopback, "{text}");
        }
    }
}
