//! A stream socket of either family.

use crate::target::{NbdAddress, Reach, resolve};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// A connected socket.
#[derive(Debug)]
pub(crate) enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Socket {
    /// Connects; reads and writes give up after `patience`.
    pub(crate) fn connect(address: &NbdAddress, reach: Reach, patience: Duration) -> io::Result<Socket> {
        let socket = match address {
            NbdAddress::Unix(path) => Socket::Unix(UnixStream::connect(path)?),
            NbdAddress::Tcp { .. } => {
                let addresses = resolve(address, reach).map_err(io::Error::other)?;
                let mut last = io::Error::new(io::ErrorKind::AddrNotAvailable, "the name has no address");
                let mut found = None;
                for address in addresses {
                    match TcpStream::connect_timeout(&address, patience) {
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
        socket.set_patience(patience)?;
        Ok(socket)
    }

    /// How long reads and writes wait before they fail.
    pub(crate) fn set_patience(&self, patience: Duration) -> io::Result<()> {
        match self {
            Socket::Unix(s) => s.set_read_timeout(Some(patience)).and(s.set_write_timeout(Some(patience))),
            Socket::Tcp(s) => s.set_read_timeout(Some(patience)).and(s.set_write_timeout(Some(patience))),
        }
    }
}

impl Read for Socket {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Unix(s) => s.read(buf),
            Socket::Tcp(s) => s.read(buf),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Unix(s) => s.write(buf),
            Socket::Tcp(s) => s.write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Unix(s) => s.as_fd(),
            Socket::Tcp(s) => s.as_fd(),
        }
    }
}
