//! Connecting to a server, and the client's handshake. Both block, up to a deadline.

use crate::Socket;
use headgate_nbd::client::handshake::{ExportInfo, Handshake, HandshakeError, ReplyStyle, Step};
use headgate_nbd::uri::Address;
use headgate_nbd::wire::{Request, command};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, send, socket_with,
    sockopt,
};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use thiserror::Error;

/// Why a handshake failed.
#[derive(Debug, Error)]
pub enum DialError {
    /// The connection broke, or the deadline passed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The server refused, or broke the protocol.
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
}

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
            Address::Tcp { host, port } => {
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

/// Opens an export over a fresh connection. It reads not a byte beyond the handshake. The socket's
/// time limits are the caller's to set afterwards.
///
/// # Errors
/// See [`DialError`].
pub fn handshake(
    socket: &mut Socket,
    export: &str,
    style: ReplyStyle,
    deadline: Instant,
) -> Result<ExportInfo, DialError> {
    drive(socket, &mut Handshake::new(export, style), deadline)
}

/// Opens an export like [`handshake`], with structured replies and block status where the server
/// has them. Returns the number of the context `base:allocation` beside; without one the server
/// answers no request for block status.
///
/// # Errors
/// See [`DialError`].
pub fn handshake_with_allocation(
    socket: &mut Socket,
    export: &str,
    deadline: Instant,
) -> Result<(ExportInfo, Option<u32>), DialError> {
    let mut handshake = Handshake::new(export, ReplyStyle::Allocation);
    let info = drive(socket, &mut handshake, deadline)?;
    Ok((info, handshake.allocation()))
}

fn drive(
    socket: &mut Socket,
    handshake: &mut Handshake,
    deadline: Instant,
) -> Result<ExportInfo, DialError> {
    let (mut input, mut out) = (Vec::new(), Vec::new());
    loop {
        let (used, step) = handshake.poll(&input, &mut out)?;
        input.drain(..used);
        while !out.is_empty() {
            socket.set_timeouts(Some(time_left(deadline)?))?;
            let sent = retry(socket.write(&out))?;
            out.drain(..sent);
        }
        match step {
            Step::Transmission(info) => return Ok(info),
            Step::Answered => {}
            Step::NeedBytes(least) => {
                let mut filled = input.len();
                input.resize(least, 0);
                while filled < least {
                    socket.set_timeouts(Some(time_left(deadline)?))?;
                    filled += retry(socket.read(&mut input[filled..]))?;
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

fn time_left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(too_slow()) } else { Ok(left) }
}

fn too_slow() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the server did not finish the handshake in time")
}

/// A socket whose time is up answers `EAGAIN`.
fn timed(e: io::Error) -> io::Error {
    if e.kind() == io::ErrorKind::WouldBlock { too_slow() } else { e }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headgate_nbd::server::negotiation::Negotiation;
    use headgate_nbd::server::negotiation::{self, Catalog, ExportName, OpenError, Opened};
    use headgate_nbd::server::{Export, Writes};
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;
    use std::thread;

    struct OneDisk;

    impl Catalog for OneDisk {
        type Handle = ();

        fn list(&self) -> Vec<ExportName> {
            Vec::new()
        }

        fn open(&self, name: &str) -> Result<Opened<()>, OpenError> {
            let export =
                Export { size: 1 << 20, block_size: 512, preferred: 4096, writes: Writes::Allowed };
            let description = String::new();
            match name {
                "db" => Ok(Opened { name: name.into(), export, description, handle: () }),
                _ => Err(OpenError::Unknown),
            }
        }
    }

    /// Serves one handshake, and returns what the client sent behind it.
    fn serve(mut stream: impl Read + Write) -> Vec<u8> {
        let (mut negotiation, mut input, mut out) = (Negotiation::default(), vec![], vec![]);
        negotiation::greeting(&mut out);
        loop {
            stream.write_all(&out).unwrap();
            out.clear();
            match negotiation.poll(&input, &OneDisk, &mut out).unwrap() {
                (_, negotiation::Step::Transmission(..)) => break,
                (used, negotiation::Step::NeedBytes) => {
                    input.drain(..used);
                    let mut bytes = [0; 64];
                    match stream.read(&mut bytes).unwrap() {
                        0 => return Vec::new(),
                        count => input.extend(&bytes[..count]),
                    }
                }
                (used, _) => drop(input.drain(..used)),
            }
        }
        // The client must leave this in the socket.
        stream.write_all(&[out, b"first reply".to_vec()].concat()).unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
        rest
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(30)
    }

    fn open(endpoint: &Endpoint, export: &str) -> Result<(Socket, ExportInfo), DialError> {
        let mut socket = endpoint.connect(soon())?;
        let info = handshake(&mut socket, export, ReplyStyle::Simple, soon())?;
        Ok((socket, info))
    }

    fn check(endpoint: &Endpoint, server: thread::JoinHandle<Vec<u8>>) {
        let (mut socket, info) = open(endpoint, "db").unwrap();
        assert_eq!((info.size, info.max_block), (1 << 20, Some(32 << 20)));
        let mut reply = [0; 11];
        socket.read_exact(&mut reply).unwrap();
        assert_eq!(&reply, b"first reply");
        say_goodbye(&socket);
        drop(socket);
        let goodbye = Request { flags: 0, command: command::DISC, cookie: 0, offset: 0, len: 0 };
        assert_eq!(server.join().unwrap(), goodbye.to_bytes());
    }

    #[test]
    fn a_unix_server_is_reached() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("nbd.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let server = thread::spawn(move || serve(listener.accept().unwrap().0));
        let address = Address::Unix(path.to_str().unwrap().into());
        check(&Endpoint::resolve(&address).unwrap(), server);
    }

    #[test]
    fn tcp_servers_are_reached_by_either_family_and_by_the_first_address_that_answers() {
        for host in ["127.0.0.1", "::1"] {
            let listener = TcpListener::bind((host, 0)).unwrap();
            let port = listener.local_addr().unwrap().port();
            let server = thread::spawn(move || serve(listener.accept().unwrap().0));
            let address = Address::Tcp { host: host.into(), port };
            let Endpoint::Tcp(mut addresses) = Endpoint::resolve(&address).unwrap() else {
                panic!("a TCP address");
            };
            // Nobody listens on a port that was just given back.
            let closed = TcpListener::bind((host, 0)).unwrap().local_addr().unwrap();
            addresses.insert(0, closed);
            check(&Endpoint::Tcp(addresses), server);
        }
    }

    #[test]
    fn a_refused_export_is_the_servers_word() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("nbd.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let server = thread::spawn(move || serve(listener.accept().unwrap().0));
        let endpoint = Endpoint::Unix(path.to_str().unwrap().into());
        let error = open(&endpoint, "none").unwrap_err();
        assert!(matches!(error, DialError::Handshake(HandshakeError::Refused { .. })), "{error}");
        assert!(server.join().unwrap().is_empty());
    }

    #[test]
    fn a_server_that_says_nothing_and_one_that_accepts_nobody_are_given_up() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("nbd.sock");
        let _listener = UnixListener::bind(&path).unwrap();
        let endpoint = Endpoint::Unix(path.to_str().unwrap().into());
        // A deadline that has passed fails without waiting.
        let past = Instant::now();
        assert_eq!(endpoint.connect(past).unwrap_err().kind(), io::ErrorKind::TimedOut);
        let mut socket = endpoint.connect(soon()).unwrap();
        let shortly = Instant::now() + Duration::from_millis(5);
        match handshake(&mut socket, "db", ReplyStyle::Simple, shortly).unwrap_err() {
            DialError::Io(e) => assert_eq!(e.kind(), io::ErrorKind::TimedOut),
            other => panic!("{other}"),
        }
        // The queue of clients is full at some time, and connecting would wait.
        let mut held = Vec::new();
        let full = loop {
            match endpoint.connect(Instant::now() + Duration::from_millis(20)) {
                Ok(socket) => held.push(socket),
                Err(e) => break e,
            }
        };
        assert_eq!(full.kind(), io::ErrorKind::TimedOut, "after {}: {full}", held.len());
    }

    #[test]
    fn an_impossible_path_is_named_as_such() {
        for path in ["x".repeat(109), "a\0b".into()] {
            let error = Endpoint::Unix(path).connect(soon()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
    }
}
