//! The API over TCP: from the command line, or the configuration.

use crate::http::{Shown, TcpApiError, entrance};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The arguments of `headgate serve` for it.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct ApiTcpArgs {
    /// Serve the API over TCP, too; needs --api-tls, or on a loopback address --api-tokens
    #[arg(long, value_name = "ADDRESS:PORT")]
    api_listen: Option<SocketAddr>,
    /// Certificates for the API over TLS: ca-cert.pem, server-cert.pem, server-key.pem, ca-crl.pem
    /// if there is one, and allow.toml, whose [[api]] says which client has which role. It may be
    /// that of --nbd-tls
    #[arg(long, value_name = "DIR")]
    api_tls: Option<PathBuf>,
    /// File with tokens for the API on a loopback address, and the role of each; nobody else may
    /// read it
    #[arg(long, value_name = "FILE")]
    api_tokens: Option<PathBuf>,
}

/// The same in the configuration.
#[derive(Clone, Copy, Debug)]
pub(super) struct Configured<'a> {
    pub(super) listen: Option<SocketAddr>,
    pub(super) tls: Option<&'a Path>,
    pub(super) tokens: Option<&'a Path>,
}

impl ApiTcpArgs {
    /// Where it is served, and what clients have to show.
    pub(super) fn entrance(
        &self,
        configured: Configured<'_>,
    ) -> Result<Option<(SocketAddr, Shown)>, TcpApiError> {
        // What is given in one place is not mixed with what is given in the other.
        if self.api_tls.is_some() || self.api_tokens.is_some() {
            let listen = self.api_listen.or(configured.listen);
            return entrance(listen, self.api_tls.as_deref(), self.api_tokens.as_deref());
        }
        entrance(self.api_listen.or(configured.listen), configured.tls, configured.tokens)
    }
}

/// Where its files are.
pub(super) fn directory(shown: &Shown) -> PathBuf {
    match shown {
        Shown::Certificate(dir) => dir.clone(),
        Shown::Token(file) => match file.parent() {
            Some(dir) if dir.as_os_str().is_empty() => PathBuf::from("."),
            Some(dir) => dir.to_owned(),
            None => file.clone(),
        },
    }
}
