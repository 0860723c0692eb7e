//! Connecting to a server and negotiating with it. Everything here may block, up to a deadline.

use super::offer::{Offer, Unusable};
use headgate_nbd::negotiate::{NegotiationError, ReplyStyle, negotiate};
use headgate_nbd::uri::{Address, Uri};
use headgate_nbd::wire::{Request, command};
use headgate_units::Bytes;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};
use thiserror::Error;

/// After so long without an answer from its host a TCP connection counts as cut, in milliseconds.
const SILENCE_MS: libc::c_int = 30_000;
/// What the kernel holds for a unix socket, in bytes: a batch of long writes leaves without waiting for the server in between.
const SEND_BUFFER: libc::c_int = 1 << 20;

/// Why an export cannot be used.
#[derive(Debug, Error)]
pub enum RemoteError {
    /// Nobody answers.
    #[error("cannot connect to {server}: {source}")]
    Connect {
        /// The server.
        server: String,
        /// The system's answer.
        source: io::Error,
    },
    /// The handshake failed; mostly, there is no such export.
    #[error("{server}: {source}")]
    Handshake {
        /// The server.
        server: String,
        /// What went wrong.
        source: NegotiationError,
    },
    /// The export is not one that a disk can be.
    #[error("export '{export}' of {server}: {why}")]
    Unusable {
        /// The server.
        server: String,
        /// The export.
        export: String,
        /// What is in the way.
        why: Unusable,
    },
    /// It is not the export that the disk was made on.
    #[error(
        "export '{export}' of {server} has {found} bytes in blocks of {found_block}, and the disk {expected} in blocks of \
         {expected_block}"
    )]
    Changed {
        /// The server.
        server: String,
        /// The export.
        export: String,
        /// Its size in bytes.
        found: u64,
        /// Its block size in bytes.
        found_block: u32,
        /// The disk's size in bytes.
        expected: u64,
        /// The disk's block size in bytes.
        expected_block: u32,
    },
}

/// A negotiated connection to one export. Dropping it says goodbye to the server and never blocks.
#[derive(Debug)]
pub struct Connection {
    socket: OwnedFd,
    offer: Offer,
}

impl Connection {
    /// Connects and negotiates, within `patience` (and the time that resolving a host's name takes).
    ///
    /// # Errors
    /// See [`RemoteError`].
    pub fn open(uri: &Uri, patience: Duration) -> Result<Connection, RemoteError> {
        let deadline = Instant::now() + patience;
        let server = || Uri { export: String::new(), ..uri.clone() }.to_string();
        let connect = |source| RemoteError::Connect { server: server(), source };
        let mut stream = Stream::connect(&uri.address, deadline).map_err(connect)?;
        let info = negotiate(&mut stream, &uri.export, ReplyStyle::Simple)
            .map_err(|source| RemoteError::Handshake { server: server(), source })?;
        let offer = Offer::check(info).map_err(|why| RemoteError::Unusable {
            server: server(),
            export: uri.export.clone(),
            why,
        })?;
        Ok(Connection { socket: stream.into_transmission().map_err(connect)?, offer })
    }

    /// The export's size.
    pub fn size(&self) -> Bytes {
        Bytes(self.offer.size)
    }

    /// Smallest unit of a request, in bytes: 512 to 4096.
    pub fn block_size(&self) -> u32 {
        self.offer.block_size
    }

    /// Is the export still the one that a disk of this size and block size was made on.
    pub(crate) fn check(&self, uri: &Uri, size: Bytes, block_size: u32) -> Result<(), RemoteError> {
        if self.size() == size && self.block_size() <= block_size {
            return Ok(());
        }
        Err(RemoteError::Changed {
            server: Uri { export: String::new(), ..uri.clone() }.to_string(),
            export: uri.export.clone(),
            found: self.offer.size,
            found_block: self.offer.block_size,
            expected: size.0,
            expected_block: block_size,
        })
    }

    pub(crate) fn offer(&self) -> Offer {
        self.offer
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Ends the connection without a word: operations under way on it end at once.
    pub(crate) fn cut(&self) {
        // SAFETY: an open descriptor. A connection that is gone already is as good.
        unsafe { libc::shutdown(self.socket.as_raw_fd(), libc::SHUT_RDWR) };
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let goodbye = Request { flags: 0, command: command::DISC, cookie: 0, offset: 0, len: 0 }.to_bytes();
        // SAFETY: an open descriptor and a local buffer. Whether the server hears it does not matter.
        unsafe {
            let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
            libc::send(self.socket.as_raw_fd(), goodbye.as_ptr().cast(), goodbye.len(), flags);
        }
        // A receive under way holds the socket open.
        self.cut();
    }
}

/// A socket while it is negotiated: each read and write waits for what is left until the deadline.
struct Stream {
    socket: Socket,
    deadline: Instant,
}

enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Stream {
    fn connect(address: &Address, deadline: Instant) -> io::Result<Stream> {
        let socket = match address {
            Address::Unix(path) => Socket::Unix(connect_unix(path, left(deadline)?)?),
            Address::Tcp { host, port } => {
                let mut last = io::Error::new(io::ErrorKind::AddrNotAvailable, "the name has no address");
                let mut found = None;
                for address in (host.as_str(), *port).to_socket_addrs()? {
                    match TcpStream::connect_timeout(&address, left(deadline)?) {
                        Ok(stream) => {
                            found = Some(stream);
                            break;
                        }
                        Err(e) => last = e,
                    }
                }
                let stream = found.ok_or(last)?;
                stream.set_nodelay(true)?;
                Socket::Tcp(stream)
            }
        };
        Ok(Stream { socket, deadline })
    }

    /// The socket as the ring wants it: blocking, and without time limits.
    fn into_transmission(self) -> io::Result<OwnedFd> {
        self.set_timeouts(None)?;
        match self.socket {
            Socket::Unix(stream) => {
                let fd = OwnedFd::from(stream);
                let forced = set_option(&fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, SEND_BUFFER);
                // The system's limit may be lower, which only costs speed.
                forced.or_else(|_| set_option(&fd, libc::SOL_SOCKET, libc::SO_SNDBUF, SEND_BUFFER))?;
                Ok(fd)
            }
            Socket::Tcp(stream) => {
                let fd = OwnedFd::from(stream);
                set_option(&fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1)?;
                let seconds = SILENCE_MS / 1000;
                for (name, value) in [
                    (libc::TCP_KEEPIDLE, seconds / 3),
                    (libc::TCP_KEEPINTVL, seconds / 6),
                    (libc::TCP_KEEPCNT, 4),
                    (libc::TCP_USER_TIMEOUT, SILENCE_MS),
                ] {
                    set_option(&fd, libc::IPPROTO_TCP, name, value)?;
                }
                Ok(fd)
            }
        }
    }

    fn set_timeouts(&self, patience: Option<Duration>) -> io::Result<()> {
        match &self.socket {
            Socket::Unix(s) => s.set_read_timeout(patience).and_then(|()| s.set_write_timeout(patience)),
            Socket::Tcp(s) => s.set_read_timeout(patience).and_then(|()| s.set_write_timeout(patience)),
        }
    }
}

/// Connects as `UnixStream::connect` does, but does not wait for ever for a server whose queue of clients is full.
fn connect_unix(path: &Path, patience: Duration) -> io::Result<UnixStream> {
    // SAFETY: all-zero is a valid address buffer.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() >= address.sun_path.len() || bytes.contains(&0) {
        let error = format!("a socket's path has at most {} bytes and no NUL", address.sun_path.len() - 1);
        return Err(io::Error::new(io::ErrorKind::InvalidInput, error));
    }
    for (to, &from) in address.sun_path.iter_mut().zip(bytes) {
        *to = from as libc::c_char;
    }
    // SAFETY: a plain system call; a non-negative result is a descriptor that we own.
    let stream = unsafe {
        let fd = libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        UnixStream::from_raw_fd(fd)
    };
    stream.set_write_timeout(Some(patience))?;
    let len = size_of_val(&address) as libc::socklen_t;
    // SAFETY: an open descriptor and a local address of this length.
    if unsafe { libc::connect(stream.as_raw_fd(), (&raw const address).cast(), len) } == 0 {
        return Ok(stream);
    }
    Err(named(io::Error::last_os_error()))
}

fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(too_slow()) } else { Ok(left) }
}

fn too_slow() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the server did not finish the handshake in time")
}

/// What a socket answers whose time is up.
fn named(e: io::Error) -> io::Error {
    if e.kind() == io::ErrorKind::WouldBlock { too_slow() } else { e }
}

impl Read for Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.set_timeouts(Some(left(self.deadline)?))?;
        match &mut self.socket {
            Socket::Unix(stream) => stream.read(bytes),
            Socket::Tcp(stream) => stream.read(bytes),
        }
        .map_err(named)
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.set_timeouts(Some(left(self.deadline)?))?;
        match &mut self.socket {
            Socket::Unix(stream) => stream.write(bytes),
            Socket::Tcp(stream) => stream.write(bytes),
        }
        .map_err(named)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn set_option(
    fd: &impl AsRawFd,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    let len = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the pointer and length name a local integer.
    if unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), len) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
