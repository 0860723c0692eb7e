//! Unix and TCP sockets under one name.

use super::server::ListenError;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, ptr};

/// Answers that the kernel holds for a client that is about to read them, in bytes: eight reads of 64 KiB and more go out
/// without waiting for the client in between.
const SEND_BUFFER: libc::c_int = 1 << 20;

/// Where clients connect.
pub(super) enum Listener {
    Unix(UnixListener, PathBuf),
    Tcp(TcpListener),
}

impl Listener {
    /// Listens on a unix socket that its owner and group may use. Replaces a socket nobody listens on.
    pub(super) fn unix(path: &Path) -> Result<Listener, ListenError> {
        let failed = |source| ListenError::Unix { path: path.into(), source };
        if fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket()) {
            match UnixStream::connect(path) {
                Ok(_) => return Err(ListenError::InUse { path: path.into() }),
                Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
                    fs::remove_file(path).map_err(failed)?
                }
                Err(e) => return Err(failed(e)),
            }
        }
        let listener = UnixListener::bind(path).map_err(failed)?;
        let listener = Listener::Unix(listener, path.into());
        fs::set_permissions(path, fs::Permissions::from_mode(0o660)).map_err(failed)?;
        listener.set_nonblocking().map_err(failed)?;
        Ok(listener)
    }

    pub(super) fn tcp(address: SocketAddr) -> Result<Listener, ListenError> {
        let failed = |source| ListenError::Tcp { address, source };
        let listener = Listener::Tcp(TcpListener::bind(address).map_err(failed)?);
        listener.set_nonblocking().map_err(failed)?;
        Ok(listener)
    }

    /// The TCP address.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        match self {
            Listener::Unix(..) => None,
            Listener::Tcp(listener) => listener.local_addr().ok(),
        }
    }

    /// Clients may go away between the poll and the accept.
    fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Listener::Unix(listener, _) => listener.set_nonblocking(true),
            Listener::Tcp(listener) => listener.set_nonblocking(true),
        }
    }

    pub(super) fn accept(&self) -> io::Result<Socket> {
        match self {
            Listener::Unix(listener, _) => Ok(Socket::Unix(listener.accept()?.0)),
            Listener::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                // A client whose host is gone is found after two minutes.
                set_option(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1)?;
                for (name, value) in
                    [(libc::TCP_KEEPIDLE, 60), (libc::TCP_KEEPINTVL, 10), (libc::TCP_KEEPCNT, 6)]
                {
                    set_option(stream.as_raw_fd(), libc::IPPROTO_TCP, name, value)?;
                }
                Ok(Socket::Tcp(stream))
            }
        }
    }
}

impl AsRawFd for Listener {
    fn as_raw_fd(&self) -> RawFd {
        match self {
            Listener::Unix(listener, _) => listener.as_raw_fd(),
            Listener::Tcp(listener) => listener.as_raw_fd(),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Listener::Unix(_, path) = self
            && let Err(e) = fs::remove_file(&*path)
        {
            tracing::debug!("the NBD socket {} is left behind: {e}", path.display());
        }
    }
}

/// A connected client.
pub(super) enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Socket {
    pub(super) fn try_clone(&self) -> io::Result<Socket> {
        match self {
            Socket::Unix(stream) => stream.try_clone().map(Socket::Unix),
            Socket::Tcp(stream) => stream.try_clone().map(Socket::Tcp),
        }
    }

    /// Ends the connection, for all clones.
    pub(super) fn shutdown(&self) {
        let ended = match self {
            Socket::Unix(stream) => stream.shutdown(Shutdown::Both),
            Socket::Tcp(stream) => stream.shutdown(Shutdown::Both),
        };
        if let Err(e) = ended {
            // The client was faster.
            tracing::trace!("shutdown: {e}");
        }
    }

    /// The next read or write takes at most so long.
    pub(super) fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.set_timeouts(Some(timeout))
    }

    fn set_timeouts(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Socket::Unix(s) => s.set_read_timeout(timeout).and_then(|()| s.set_write_timeout(timeout)),
            Socket::Tcp(s) => s.set_read_timeout(timeout).and_then(|()| s.set_write_timeout(timeout)),
        }
    }

    /// The socket as a port wants it: blocking, for the ring waits for it, and without time limits.
    pub(super) fn into_transmission(self) -> io::Result<OwnedFd> {
        self.set_timeouts(None)?;
        let (fd, is_unix): (OwnedFd, _) = match self {
            Socket::Unix(stream) => (stream.into(), true),
            Socket::Tcp(stream) => (stream.into(), false),
        };
        // TCP finds its own size. The limit of the system may be lower, which only costs speed.
        if is_unix && set_option(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, SEND_BUFFER).is_err()
        {
            set_option(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_SNDBUF, SEND_BUFFER)?;
        }
        Ok(fd)
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

fn set_option(fd: RawFd, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let len = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the pointer and length name a local integer.
    if unsafe { libc::setsockopt(fd, level, name, ptr::from_ref(&value).cast(), len) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
