//! The API of a daemon at an address: over TLS with a certificate, or on this host with a token.

use super::client::ClientError;
use headgate_tls::{ClientCredentials, server_name};
use hyper::header;
use hyper::http::request::Builder;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// How long connecting and the handshake may take, each.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is shown to the daemon.
#[derive(Clone)]
pub enum Shown {
    /// A certificate, over TLS.
    Certificate(ClientCredentials),
    /// A token.
    Token(String),
}

/// A daemon elsewhere.
#[derive(Clone)]
pub struct Remote {
    host: String,
    port: u16,
    shown: Shown,
}

/// Prints the address, and no secret.
impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if matches!(self.shown, Shown::Certificate(_)) { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.authority())
    }
}

const EXPECTED: &str = "https://HOST:PORT with --tls-dir DIR, or http://127.0.0.1:PORT with \
                        --token-file FILE";

impl Remote {
    /// By its address, such as `https://node1.example:8743`. A token is shown to this host only:
    /// it would go over the network in the clear.
    ///
    /// # Errors
    /// When the address is none, or does not fit what is shown.
    pub fn new(address: &str, shown: Shown) -> Result<Remote, ClientError> {
        let wrong = |error: String| ClientError::Way { error, expected: EXPECTED };
        let none = || wrong(format!("'{address}' is no address of an API"));
        let (scheme, rest) = address.split_once("://").ok_or_else(none)?;
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = authority.rsplit_once(':').ok_or_else(none)?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let port = port.parse().map_err(|_| none())?;
        if server_name(host).is_none() {
            return Err(none());
        }
        match (scheme, &shown) {
            ("https", Shown::Certificate(_)) => {}
            ("http", Shown::Token(_)) if is_this_host(host) => {}
            ("http", Shown::Token(_)) => {
                return Err(wrong(format!("a token would go to {host} in the clear")));
            }
            ("https" | "http", _) => {
                return Err(wrong(format!("{scheme}:// does not fit what is to be shown there")));
            }
            _ => return Err(none()),
        }
        Ok(Remote { host: host.to_owned(), port, shown })
    }

    fn authority(&self) -> String {
        let Remote { host, port, .. } = self;
        match host.contains(':') {
            true => format!("[{host}]:{port}"),
            false => format!("{host}:{port}"),
        }
    }

    /// Adds what shows who asks.
    pub(crate) fn mark(&self, request: Builder) -> Builder {
        let request = request.header(header::HOST, self.authority());
        match &self.shown {
            Shown::Certificate(_) => request,
            Shown::Token(token) => request.header(header::AUTHORIZATION, format!("Bearer {token}")),
        }
    }

    pub(crate) async fn connect(&self) -> io::Result<Stream> {
        let late = |_| io::Error::from(io::ErrorKind::TimedOut);
        let connect = TcpStream::connect((self.host.as_str(), self.port));
        let stream = timeout(PATIENCE, connect).await.map_err(late)??;
        stream.set_nodelay(true)?;
        let Shown::Certificate(credentials) = &self.shown else { return Ok(Stream::Plain(stream)) };
        let name = server_name(&self.host).ok_or(io::ErrorKind::InvalidInput)?;
        let shake = TlsConnector::from(credentials.config()).connect(name, stream);
        Ok(Stream::Tls(Box::new(timeout(PATIENCE, shake).await.map_err(late)??)))
    }
}

fn is_this_host(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// A connection.
pub(crate) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Stream::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(context),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_token(address: &str) -> Result<String, String> {
        let made = Remote::new(address, Shown::Token("secret".into()));
        made.map(|remote| format!("{remote:?}")).map_err(|e| e.to_string())
    }

    #[test]
    fn a_token_goes_to_this_host_only_and_is_not_printed() {
        for address in ["http://127.0.0.1:80", "http://[::1]:80/", "http://localhost:80"] {
            assert_eq!(with_token(address).unwrap(), address.trim_end_matches('/'));
        }
        for (address, word) in [
            ("http://10.0.0.1:80", "in the clear"),
            ("http://node1:80", "in the clear"),
            ("https://127.0.0.1:80", "does not fit"),
            ("127.0.0.1:80", "no address"),
            ("http://127.0.0.1", "no address"),
            ("http://127.0.0.1:99999", "no address"),
            ("ftp://127.0.0.1:80", "no address"),
            ("http://a b:80", "no address"),
        ] {
            let error = with_token(address).unwrap_err();
            assert!(error.contains(word) && !error.contains("secret"), "{address}: {error}");
        }
    }
}
