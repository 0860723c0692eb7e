//! Connecting to a server, up to a deadline.

use crate::Socket;
use headgate_nbd::uri::Address;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, sockopt,
};
use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Where a server listens, with names resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// The path of a unix socket.
    Unix(String),
    /// The addresses of a TCP server, tried in this order.
    Tcp(Vec<SocketAddr>),
}

impl Endpoint {
    /// Resolves a host's name, which takes as long as the system's resolver.
    ///
    /// # Errors
    /// The resolver's.
    pub fn resolve(address: &Address) -> io::Result<Endpoint> {
        Ok(match address {
            Address::Unix(path) => Endpoint::Unix(path.clone()),
            Address::Tcp { host, port, .. } => {
                Endpoint::Tcp((host.as_str(), *port).to_socket_addrs()?.collect())
            }
        })
    }

    /// Connects before `deadline`. Of a TCP server's addresses, the first that answers is taken.
    ///
    /// # Errors
    /// The last address's error, or [`io::ErrorKind::TimedOut`].
    pub fn connect(&self, deadline: Instant) -> io::Result<Socket> {
        let addresses = match self {
            Endpoint::Unix(path) => return connect_unix(path, deadline).map(Socket::Unix),
            Endpoint::Tcp(addresses) => addresses,
        };
        let mut last = io::Error::new(io::ErrorKind::AddrNotAvailable, "the name has no address");
        for address in addresses {
            match TcpStream::connect_timeout(address, time_left(deadline)?) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    return Ok(Socket::Tcp(stream));
                }
                Err(e) => last = e,
            }
        }
        Err(last)
    }
}

/// Connects as `UnixStream::connect` does, but within the deadline also where the server's queue of
/// clients is full.
fn connect_unix(path: &str, deadline: Instant) -> io::Result<UnixStream> {
    let address = SocketAddrUnix::new(path).map_err(|_| {
        let why = "a socket's path has at most 108 bytes and no NUL";
        io::Error::new(io::ErrorKind::InvalidInput, why)
    })?;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // On Linux the send timeout limits connecting, too.
    let timeout = Some(time_left(deadline)?);
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, timeout)?;
    connect(&socket, &address).map_err(|e| timed(e.into()))?;
    Ok(socket.into())
}

pub(crate) fn time_left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(too_slow()) } else { Ok(left) }
}

fn too_slow() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the server did not finish the handshake in time")
}

/// A socket whose time is up answers `EAGAIN`.
pub(crate) fn timed(e: io::Error) -> io::Error {
    if e.kind() == io::ErrorKind::WouldBlock { too_slow() } else { e }
}
