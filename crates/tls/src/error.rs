//! What goes wrong.

use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// A directory of certificates cannot be used.
#[derive(Debug, Error)]
pub enum CredentialsError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}; expected {expected}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        expected: &'static str,
        /// Why.
        source: io::Error,
    },
    /// A file holds something else.
    #[error("{} holds no {expected} in PEM: {why}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        expected: &'static str,
        /// What is wrong.
        why: String,
    },
    /// The parts do not fit each other.
    #[error("the certificates in {} cannot be used: {source}", dir.display())]
    Unusable {
        /// The directory.
        dir: PathBuf,
        /// Why.
        source: rustls::Error,
    },
    /// The authority's certificate, or the list of what it revoked, is of no use.
    #[error("{} cannot be used to check who connects: {why}", path.display())]
    Authority {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// There is no thread to carry connections.
    #[error("cannot start the threads that carry TLS connections: {source}")]
    Threads {
        /// Why.
        source: io::Error,
    },
    /// The rules are malformed.
    #[error("{}: {why}", path.display())]
    Rules {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
}

/// A handshake failed.
#[derive(Debug, Error)]
pub enum HandshakeError {
    /// The peer took longer than it may.
    #[error("the TLS handshake took longer than it may")]
    TooSlow,
    /// The peer ended the connection.
    #[error("the peer hung up in the TLS handshake")]
    HungUp,
    /// The connection broke.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The peer's certificate is not accepted, ours is not, or the peer breaks the protocol.
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// The server's name is neither a DNS name nor an address.
    #[error("'{0}' is no name that a certificate can have")]
    Name(String),
}

impl HandshakeError {
    /// Whether the server has a certificate that is good, and of another name.
    pub fn is_other_name(&self) -> bool {
        use rustls::CertificateError::{NotValidForName, NotValidForNameContext};
        matches!(
            self,
            HandshakeError::Tls(rustls::Error::InvalidCertificate(
                NotValidForName | NotValidForNameContext { .. }
            ))
        )
    }
}

/// Certificates cannot be made.
#[derive(Debug, Error)]
pub enum AuthorityError {
    /// A file is there already.
    #[error("{} exists: remove it, or choose another directory", .0.display())]
    Exists(PathBuf),
    /// A file or directory cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There is nothing that can be signed with.
    #[error("{} is no authority's: {source}", path.display())]
    Authority {
        /// The file.
        path: PathBuf,
        /// Why.
        source: rcgen::Error,
    },
    /// A certificate cannot have this name.
    #[error("'{0}' is no name of a host: expected one of DNS, as node1.example, or an address")]
    Name(String),
    /// A certificate cannot be made of what was given.
    #[error("cannot make a certificate for {names}: {source}")]
    Certificate {
        /// The names.
        names: String,
        /// Why.
        source: rcgen::Error,
    },
}

impl CredentialsError {
    /// What the user can do.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            CredentialsError::Read { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                Some("'headgate tls issue' makes what belongs there; see 'headgate tls --help'")
            }
            _ => None,
        }
    }
}

impl AuthorityError {
    /// What the user can do.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            AuthorityError::File { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                Some("'headgate tls init DIR' makes an authority in DIR")
            }
            _ => None,
        }
    }
}
