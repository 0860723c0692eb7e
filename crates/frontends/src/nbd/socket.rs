//! Listening sockets of either family.

use headgate_access::Access;
use headgate_nbd_io::Socket;
use headgate_tls::CredentialsError;
use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;
use thiserror::Error;

/// The server cannot start.
#[derive(Debug, Error)]
pub enum ListenError {
    /// The socket cannot be made.
    #[error("cannot listen for NBD clients on {}: {source}", path.display())]
    Unix {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another server answers there.
    #[error("another server listens on {}: stop it, or choose another path", path.display())]
    InUse {
        /// Where.
        path: PathBuf,
    },
    /// The address cannot be bound.
    #[error("cannot listen for NBD clients on {address}: {source}")]
    Tcp {
        /// Where.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// What is to be shown to clients over TLS cannot be used.
    #[error("cannot serve NBD over TLS: {0}")]
    Tls(#[from] CredentialsError),
    /// A thread or a pipe cannot be made.
    #[error("cannot start the NBD server: {0}")]
    Start(#[from] io::Error),
}

/// A listening socket.
pub(super) enum Listener {
    Unix(UnixListener, PathBuf),
    Tcp(TcpListener),
}

impl Listener {
    /// Listens on a unix socket for those that `access` names. Replaces a socket on which nobody
    /// listens any more.
    pub(super) fn unix(path: &Path, access: &Access) -> Result<Listener, ListenError> {
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
        let listener = headgate_access::listen(path, access).map_err(failed)?;
        let listener = Listener::Unix(listener, path.into());
        listener.set_nonblocking().map_err(failed)?;
        Ok(listener)
    }

    pub(super) fn tcp(address: SocketAddr) -> Result<Listener, ListenError> {
        let failed = |source| ListenError::Tcp { address, source };
        let listener = Listener::Tcp(TcpListener::bind(address).map_err(failed)?);
        listener.set_nonblocking().map_err(failed)?;
        Ok(listener)
    }

    /// The unix socket.
    pub(super) fn path(&self) -> Option<&Path> {
        match self {
            Listener::Unix(_, path) => Some(path),
            Listener::Tcp(_) => None,
        }
    }

    /// The TCP address.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        match self {
            Listener::Unix(..) => None,
            Listener::Tcp(listener) => listener.local_addr().ok(),
        }
    }

    /// A client may go away between the poll and the accept, which must then not wait.
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
                let socket = Socket::Tcp(stream);
                // A client whose host is gone is detected after two minutes.
                socket.set_keepalive(Duration::from_secs(60), Duration::from_secs(10), 6)?;
                Ok(socket)
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Unix(listener, _) => listener.as_fd(),
            Listener::Tcp(listener) => listener.as_fd(),
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
