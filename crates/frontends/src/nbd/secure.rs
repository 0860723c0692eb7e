//! TLS at an entrance: what is shown to clients there, what their certificates allow, and the
//! thread that sees when the files change.

use super::rights::{Caller, Rights, Rule};
use headgate_nbd_io::Socket;
use headgate_tls::{
    Bounds, CredentialsError, HandshakeError, Look, Peer, Right, ServerCredentials,
    ServerDirectory, Tunnels, accept,
};
use std::io;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How often the files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The TLS of an entrance.
pub(super) struct Secure {
    directory: Mutex<ServerDirectory>,
    tunnels: Tunnels,
}

impl Secure {
    /// With the certificates and rules of this directory.
    pub(super) fn open(dir: &Path) -> Result<Arc<Secure>, CredentialsError> {
        let directory = Mutex::new(ServerDirectory::open(dir)?);
        let no_thread = |source| CredentialsError::Threads { source };
        Ok(Arc::new(Secure { directory, tunnels: Tunnels::start().map_err(no_thread)? }))
    }

    fn directory(&self) -> MutexGuard<'_, ServerDirectory> {
        self.directory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Arc<ServerCredentials> {
        self.directory().now()
    }

    /// What a client's certificate allows, by the rules of that moment.
    pub(super) fn rule(self: &Arc<Secure>) -> Arc<Rule> {
        let secure = self.clone();
        Arc::new(move |disk, caller| match caller {
            Caller::Certificate(peer) => secure.now().right(peer, disk),
            Caller::Process(_) => Right::None,
        })
    }

    /// What a client's certificate lets it have a disk promised, by the rules of that moment.
    pub(super) fn bounds(&self, peer: &Peer, disk: &str) -> Option<Bounds> {
        self.now().bounds(peer, disk)
    }

    /// Shakes hands. What is read from the socket that it returns was inside TLS. No descriptor has
    /// the number `descriptors` or a higher one.
    pub(super) fn accept(
        &self,
        socket: Socket,
        deadline: Instant,
        descriptors: u64,
    ) -> Result<(Socket, Peer), HandshakeError> {
        let Socket::Tcp(stream) = socket else {
            let why = "TLS is for TCP connections";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why).into());
        };
        let (secured, peer) = accept(&self.now(), stream, deadline)?;
        Ok((Socket::Unix(self.tunnels.carry(secured, descriptors)?), peer))
    }

    fn look(&self) -> Look {
        self.directory().look()
    }
}

/// A thread that reads the files again when they have changed, and ends the connections that they
/// do not allow any more. Dropping it ends the thread.
#[derive(Debug)]
pub(super) struct Watch {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    pub(super) fn start(secure: Arc<Secure>, rights: Arc<Rights>) -> io::Result<Watch> {
        let (end, ended) = channel();
        let watch = move || {
            while ended.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
                match secure.look() {
                    Look::Same => {}
                    Look::Changed => {
                        tracing::info!("the certificates and rules of TLS have changed");
                        rights.review();
                    }
                    Look::Unusable(error) => {
                        tracing::error!(%error, "the certificates and rules of before still hold");
                    }
                }
            }
        };
        let thread = thread::Builder::new().name("tls-files".into()).spawn(watch)?;
        Ok(Watch { end: Some(end), thread: Some(thread) })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that watches the files of TLS panicked");
        }
    }
}
