//! The client's handshake. It blocks, up to a deadline.

use crate::Socket;
use crate::dial::{time_left, timed};
use headgate_nbd::client::handshake::{ExportInfo, Handshake, HandshakeError, ReplyStyle, Step};
use headgate_nbd::wire::{Request, command};
use headgate_tls::Secured;
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use thiserror::Error;

/// Why a handshake failed.
#[derive(Debug, Error)]
pub enum DialError {
    /// There is no connection.
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    /// The connection broke, or the deadline passed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The server refused, or broke the protocol.
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    /// TLS is asked for, and nobody has said which certificates are to be used.
    #[error(
        "there are no certificates for TLS: a directory of them was expected, of the URI's \
         tls-certificates=DIR or of the daemon's --nbd-tls DIR"
    )]
    NoCertificates,
    /// The certificates cannot be used.
    #[error(transparent)]
    Credentials(#[from] headgate_tls::CredentialsError),
    /// The server is not whom it should be, or we are not whom it knows.
    #[error("{source}{}", name_of_the_server(.source))]
    Tls {
        /// What went wrong.
        #[from]
        source: headgate_tls::HandshakeError,
    },
    /// The connection broke inside of TLS: mostly, the server does not accept our certificate.
    #[error("TLS: {0}")]
    Secured(io::Error),
}

fn name_of_the_server(error: &headgate_tls::HandshakeError) -> &'static str {
    if error.is_other_name() { "; the URI's tls-hostname=NAME says another name" } else { "" }
}

/// Opens an export over a fresh connection. It reads not a byte beyond the handshake. The socket's
/// time limits are the caller's to set afterwards. Whether the server has contexts or counters,
/// [`Dial`](crate::Dial) tells.
///
/// # Errors
/// See [`DialError`].
pub fn handshake(
    socket: &mut Socket,
    export: &str,
    style: ReplyStyle,
    deadline: Instant,
) -> Result<ExportInfo, DialError> {
    match drive(socket, &mut Handshake::new(export, style), deadline)? {
        Reached::Transmission(info) => Ok(info),
        Reached::Tls => Err(HandshakeError::Malformed("it starts TLS unasked").into()),
    }
}

/// Where a handshake has come to.
#[derive(Debug)]
pub(crate) enum Reached {
    /// TLS begins.
    Tls,
    /// Its end.
    Transmission(ExportInfo),
}

/// What a handshake goes over.
pub(crate) trait Carrier: Read + Write {
    fn limit(&self, time: Duration) -> io::Result<()>;
}

impl Carrier for Socket {
    fn limit(&self, time: Duration) -> io::Result<()> {
        self.set_timeouts(Some(time))
    }
}

impl Carrier for Secured {
    fn limit(&self, time: Duration) -> io::Result<()> {
        self.set_timeouts(Some(time))
    }
}

pub(crate) fn drive(
    carrier: &mut impl Carrier,
    handshake: &mut Handshake,
    deadline: Instant,
) -> Result<Reached, DialError> {
    let (mut input, mut out) = (Vec::new(), Vec::new());
    loop {
        let (used, step) = handshake.poll(&input, &mut out)?;
        input.drain(..used);
        while !out.is_empty() {
            carrier.limit(time_left(deadline)?)?;
            let sent = retry(carrier.write(&out))?;
            out.drain(..sent);
        }
        match step {
            Step::Transmission(info) => return Ok(Reached::Transmission(info)),
            Step::StartTls => return Ok(Reached::Tls),
            Step::Answered => {}
            Step::NeedBytes(least) => {
                let mut filled = input.len();
                input.resize(least, 0);
                while filled < least {
                    carrier.limit(time_left(deadline)?)?;
                    filled += retry(carrier.read(&mut input[filled..]))?;
                }
            }
        }
    }
}

/// The bytes moved by one call: 0 if a signal interrupted it.
fn retry(result: io::Result<usize>) -> io::Result<usize> {
    match result {
        Ok(0) => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server hung up")),
        Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(0),
        other => other.map_err(timed),
    }
}

/// Tells the server that no more requests follow (`NBD_CMD_DISC`). Never waits. Whether the server
/// receives it does not matter.
pub fn say_goodbye(socket: impl AsFd) {
    let request = Request { flags: 0, command: command::DISC, cookie: 0, offset: 0, len: 0 };
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let _: Result<usize, Errno> = send(socket, &request.to_bytes(), flags);
}
