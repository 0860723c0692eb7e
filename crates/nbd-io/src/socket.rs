//! A connected stream socket of either family.

use rustix::net::sockopt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Send buffer of a unix socket, in bytes: 8 answers or writes of 64 KiB, and more, leave without
/// waiting for the peer in between.
const SEND_BUFFER: usize = 1 << 20;

/// A connected socket.
#[derive(Debug)]
pub enum Socket {
    /// A unix socket.
    Unix(UnixStream),
    /// A TCP socket.
    Tcp(TcpStream),
}

impl Socket {
    /// A second handle to the same socket.
    ///
    /// # Errors
    /// There are no more file descriptors.
    pub fn try_clone(&self) -> io::Result<Socket> {
        match self {
            Socket::Unix(stream) => stream.try_clone().map(Socket::Unix),
            Socket::Tcp(stream) => stream.try_clone().map(Socket::Tcp),
        }
    }

    /// Where the peer of a TCP connection is.
    pub fn peer_address(&self) -> Option<SocketAddr> {
        match self {
            Socket::Unix(_) => None,
            Socket::Tcp(stream) => stream.peer_addr().ok(),
        }
    }

    /// Ends the connection, for all handles.
    ///
    /// # Errors
    /// The peer has ended it already.
    pub fn shutdown(&self) -> io::Result<()> {
        match self {
            Socket::Unix(stream) => stream.shutdown(Shutdown::Both),
            Socket::Tcp(stream) => stream.shutdown(Shutdown::Both),
        }
    }

    /// Limits how long each read and each write waits; `None` waits for ever.
    ///
    /// # Errors
    /// A limit of zero.
    pub fn set_timeouts(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Socket::Unix(stream) => {
                stream.set_read_timeout(timeout).and_then(|()| stream.set_write_timeout(timeout))
            }
            Socket::Tcp(stream) => {
                stream.set_read_timeout(timeout).and_then(|()| stream.set_write_timeout(timeout))
            }
        }
    }

    /// Detects a peer whose host is gone: after `idle` without traffic the kernel probes every
    /// `interval`, and after `probes` without an answer the connection fails. Does nothing on a
    /// unix socket.
    ///
    /// # Errors
    /// The system refuses a value. Durations count in whole seconds.
    pub fn set_keepalive(&self, idle: Duration, interval: Duration, probes: u32) -> io::Result<()> {
        if let Socket::Tcp(stream) = self {
            sockopt::set_socket_keepalive(stream, true)?;
            sockopt::set_tcp_keepidle(stream, idle)?;
            sockopt::set_tcp_keepintvl(stream, interval)?;
            sockopt::set_tcp_keepcnt(stream, probes)?;
        }
        Ok(())
    }

    /// Fails the connection when sent data stays unacknowledged for so long. Does nothing on a unix
    /// socket.
    ///
    /// # Errors
    /// The system refuses the value.
    pub fn set_user_timeout(&self, timeout: Duration) -> io::Result<()> {
        if let Socket::Tcp(stream) = self {
            let millis = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX);
            sockopt::set_tcp_user_timeout(stream, millis)?;
        }
        Ok(())
    }

    /// The descriptor as io_uring wants it: blocking, without time limits, and on a unix socket
    /// with a large send buffer.
    ///
    /// # Errors
    /// The system refuses a setting.
    pub fn into_transmission(self) -> io::Result<OwnedFd> {
        self.set_timeouts(None)?;
        match self {
            Socket::Unix(stream) => {
                // Without privilege the system's limit may be lower, which only costs speed.
                sockopt::set_socket_send_buffer_size_force(&stream, SEND_BUFFER)
                    .or_else(|_| sockopt::set_socket_send_buffer_size(&stream, SEND_BUFFER))?;
                Ok(stream.into())
            }
            // TCP sizes its buffer itself.
            Socket::Tcp(stream) => Ok(stream.into()),
        }
    }
}

impl Read for Socket {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Unix(stream) => stream.read(bytes),
            Socket::Tcp(stream) => stream.read(bytes),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Unix(stream) => stream.write(bytes),
            Socket::Tcp(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Unix(stream) => stream.as_fd(),
            Socket::Tcp(stream) => stream.as_fd(),
        }
    }
}
