//! From a URI to an export that is ready for requests.

use crate::Socket;
use crate::client_tls::ClientTls;
use crate::dial::Endpoint;
use crate::handshake::{DialError, Reached, drive};
use headgate_nbd::client::form::Form;
use headgate_nbd::client::handshake::{
    ExportInfo, Handshake, HandshakeError, PolicyAnswer, ReplyStyle,
};
use headgate_nbd::uri::{Address, Security, Tls, Uri};
use std::io;
use std::time::{Duration, Instant};

/// How exports are opened.
#[derive(Clone, Copy, Debug)]
pub struct Dial<'a> {
    /// The form of replies.
    pub style: ReplyStyle,
    /// By when connecting and the handshake have to be over, but for the resolving of a name.
    pub deadline: Instant,
    /// A TCP connection counts as cut when the server's host says nothing for so long; `None`: the
    /// system's rule.
    pub silence: Option<Duration>,
    /// What `nbds://` needs.
    pub tls: &'a ClientTls,
    /// What is to be said of the export's policy: the data of [`headgate_nbd::policy::OPTION`].
    pub policy: Option<&'a [u8]>,
}

/// An export that is ready for requests.
#[derive(Debug)]
pub struct Opened {
    /// The connection. Its time limits are the caller's to set.
    pub socket: Socket,
    /// What the server says of the export.
    pub info: ExportInfo,
    /// The form of the server's replies.
    pub form: Form,
    /// What the server says to the policy, if one was announced.
    pub policy: Option<PolicyAnswer>,
}

impl Dial<'_> {
    /// Connects and opens an export. It reads not a byte beyond the handshake.
    ///
    /// # Errors
    /// See [`DialError`].
    pub fn open(&self, uri: &Uri) -> Result<Opened, DialError> {
        self.open_at(&Endpoint::resolve(&uri.address).map_err(DialError::Connect)?, uri)
    }

    /// The same at an address that has been resolved.
    ///
    /// # Errors
    /// See [`DialError`].
    pub fn open_at(&self, endpoint: &Endpoint, uri: &Uri) -> Result<Opened, DialError> {
        let mut socket = endpoint.connect(self.deadline).map_err(DialError::Connect)?;
        if let Some(silence) = self.silence {
            // The first probe comes after a third of the silence, and four of them take the rest.
            socket.set_keepalive(silence / 3, silence / 6, 4)?;
            socket.set_user_timeout(silence)?;
        }
        let mut handshake = Handshake::new(&uri.export, self.style);
        if let Some(said) = self.policy {
            handshake = handshake.announcing(said.to_owned());
        }
        if let Address::Tcp { host, security: Security::Tls(tls), .. } = &uri.address {
            return self.open_secured(socket, handshake.over_tls(), host, tls);
        }
        let info = transmission(drive(&mut socket, &mut handshake, self.deadline)?)?;
        Ok(opened(socket, info, &handshake))
    }

    fn open_secured(
        &self,
        mut socket: Socket,
        mut handshake: Handshake,
        host: &str,
        tls: &Tls,
    ) -> Result<Opened, DialError> {
        let credentials = self.tls.credentials(tls)?;
        match drive(&mut socket, &mut handshake, self.deadline)? {
            Reached::Tls => {}
            Reached::Transmission(_) => {
                return Err(HandshakeError::Malformed("it does not start TLS").into());
            }
        }
        let Socket::Tcp(stream) = socket else {
            return Err(io::Error::other("TLS goes over TCP").into());
        };
        let name = tls.hostname.as_deref().unwrap_or(host);
        let mut secured = headgate_tls::connect(&credentials, name, stream, self.deadline)?;
        let reached = drive(&mut secured, &mut handshake, self.deadline).map_err(inside)?;
        let info = transmission(reached)?;
        let socket = Socket::Unix(self.tls.carry(secured)?);
        Ok(opened(socket, info, &handshake))
    }
}

fn opened(socket: Socket, info: ExportInfo, handshake: &Handshake) -> Opened {
    Opened { socket, info, form: handshake.form(), policy: handshake.policy().cloned() }
}

fn transmission(reached: Reached) -> Result<ExportInfo, DialError> {
    match reached {
        Reached::Transmission(info) => Ok(info),
        Reached::Tls => Err(HandshakeError::Malformed("it starts TLS unasked").into()),
    }
}

/// A server that does not accept a certificate says so, or only hangs up, after the handshake.
fn inside(error: DialError) -> DialError {
    match error {
        DialError::Io(source) if source.kind() != io::ErrorKind::TimedOut => {
            DialError::Secured(source)
        }
        other => other,
    }
}

#[cfg(test)]
#[path = "open_tests.rs"]
mod tests;
