//! The handshake, on a blocking socket and within a deadline.

use crate::credentials::{ClientCredentials, ServerCredentials, server_name};
use crate::error::HandshakeError;
use crate::peer::Peer;
use rustls::{ClientConnection, Connection, ServerConnection};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// A connection after its handshake. What is written and read goes through TLS.
#[derive(Debug)]
pub struct Secured {
    pub(crate) stream: TcpStream,
    pub(crate) tls: Connection,
}

/// Shakes hands with a client, of which a certificate is demanded.
///
/// # Errors
/// See [`HandshakeError`].
pub fn accept(
    credentials: &ServerCredentials,
    stream: TcpStream,
    deadline: Instant,
) -> Result<(Secured, Peer), HandshakeError> {
    let mut tls = Connection::Server(ServerConnection::new(credentials.config.clone())?);
    let stream = shake(&mut tls, stream, deadline)?;
    let peer = Peer::of(tls.peer_certificates().unwrap_or_default());
    Ok((Secured { stream, tls }, peer))
}

/// Shakes hands with the server of this name, which its certificate has to have.
///
/// A server that does not accept our certificate may say so in answer to what is sent first.
///
/// # Errors
/// See [`HandshakeError`].
pub fn connect(
    credentials: &ClientCredentials,
    host: &str,
    stream: TcpStream,
    deadline: Instant,
) -> Result<Secured, HandshakeError> {
    let name = server_name(host).ok_or_else(|| HandshakeError::Name(host.to_owned()))?;
    let mut tls = Connection::Client(ClientConnection::new(credentials.config.clone(), name)?);
    let stream = shake(&mut tls, stream, deadline)?;
    Ok(Secured { stream, tls })
}

fn shake(
    tls: &mut Connection,
    mut stream: TcpStream,
    deadline: Instant,
) -> Result<TcpStream, HandshakeError> {
    loop {
        while tls.wants_write() {
            stream.set_write_timeout(Some(time_left(deadline)?))?;
            retry(tls.write_tls(&mut stream))?;
        }
        if !tls.is_handshaking() {
            return Ok(stream);
        }
        stream.set_read_timeout(Some(time_left(deadline)?))?;
        if retry(tls.read_tls(&mut stream))? == Some(0) {
            return Err(HandshakeError::HungUp);
        }
        if let Err(error) = tls.process_new_packets() {
            // The peer is told, as far as it listens.
            let _ = tls.write_tls(&mut stream);
            return Err(error.into());
        }
    }
}

fn time_left(deadline: Instant) -> Result<Duration, HandshakeError> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(HandshakeError::TooSlow) } else { Ok(left) }
}

/// `None`: interrupted, or the time is up, which the next look at the clock finds.
fn retry(moved: io::Result<usize>) -> Result<Option<usize>, HandshakeError> {
    match moved {
        Ok(len) => Ok(Some(len)),
        Err(e) => match e.kind() {
            io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                Ok(None)
            }
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
                Err(HandshakeError::HungUp)
            }
            _ => Err(e.into()),
        },
    }
}

impl Secured {
    /// Limits how long each read and each write waits; `None` waits for ever.
    ///
    /// # Errors
    /// A limit of zero.
    pub fn set_timeouts(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.stream.set_read_timeout(timeout)?;
        self.stream.set_write_timeout(timeout)
    }
}

impl Secured {
    fn send(&mut self) -> io::Result<()> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut self.stream) {
                // What was to be sent is kept here: the caller must not begin again.
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                other => drop(other?),
            }
        }
        Ok(())
    }
}

impl Read for Secured {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.tls.reader().read(bytes) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                other => return other,
            }
            self.tls.read_tls(&mut self.stream)?;
            let processed = self.tls.process_new_packets();
            // An answer of the protocol, or why it ends.
            let sent = self.send();
            processed.map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
            sent?;
        }
    }
}

/// A write that fails may be sent in part, and is not to be repeated.
impl Write for Secured {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = self.tls.writer().write(bytes)?;
        self.send()?;
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send()
    }
}
