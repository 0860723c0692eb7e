//! What connections over TLS share.

use crate::DialError;
use headgate_nbd::uri::Tls;
use headgate_tls::{ClientCredentials, Secured, Tunnels};
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The certificates that servers are shown, and the threads that carry connections over TLS.
#[derive(Debug)]
pub struct ClientTls {
    dir: Option<PathBuf>,
    /// Started with the first connection.
    tunnels: Mutex<Option<Tunnels>>,
}

impl ClientTls {
    /// Takes certificates from this directory (see [`headgate_tls::ClientCredentials`]), unless a
    /// URI names another. It is read again for every connection, so that a certificate can be
    /// renewed.
    pub fn new(dir: PathBuf) -> ClientTls {
        ClientTls { dir: Some(dir), tunnels: Mutex::new(None) }
    }

    /// Takes the certificates that each URI names.
    pub fn by_uri() -> ClientTls {
        ClientTls { dir: None, tunnels: Mutex::new(None) }
    }

    /// Carries a connection from now on, until either side ends it.
    pub(crate) fn carry(&self, secured: Secured) -> io::Result<UnixStream> {
        let mut tunnels = self.tunnels.lock().unwrap_or_else(PoisonError::into_inner);
        let tunnels = match &mut *tunnels {
            Some(tunnels) => tunnels,
            none => none.insert(Tunnels::start()?),
        };
        tunnels.carry(secured, u64::MAX)
    }

    /// The certificates for a connection: those that its URI names, or else those of all.
    pub(crate) fn credentials(&self, tls: &Tls) -> Result<ClientCredentials, DialError> {
        let named = tls.certificates.as_deref().map(Path::new);
        let dir = named.or(self.dir.as_deref()).ok_or(DialError::NoCertificates)?;
        Ok(ClientCredentials::read(dir)?)
    }
}
