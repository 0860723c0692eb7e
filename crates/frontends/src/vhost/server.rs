//! One unix socket per disk.

use super::control::Device;
use super::memory_rules::GuestMemorySource;
use super::port::{BlkPort, Recall, Trust};
use super::view::View;
use super::{Refused, hung_up};
use headgate_access::{Access, Kind, Peer};
use headgate_engine::port::Detach;
use headgate_engine::request::DiskInfo;
use headgate_engine::{DiskId, Engine, EngineError, PortRef};
use std::io;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use thiserror::Error;
use vhost::vhost_user::{BackendReqHandler, Error as ProtocolError};

/// How long a new front-end waits for its predecessor's last requests.
const HANDOVER: Duration = Duration::from_secs(10);

/// Why a socket cannot be served.
#[derive(Debug, Error)]
pub enum ServerError {
    /// Somebody answers at that path.
    #[error("another process serves {0}: stop it first")]
    InUse(PathBuf),
    /// The socket could not be made.
    #[error("cannot listen at {path}: {source}")]
    Listen {
        /// Where.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The disk is not there.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// Who is connected.
enum Client {
    Nobody,
    /// This front-end, over this socket, through this port.
    Connected(UnixStream, Option<PortRef>),
    /// The front-end went; its port still waits for the backend.
    Leaving,
}

struct Shared {
    /// It is another one once it has moved.
    disk: Mutex<DiskId>,
    name: String,
    engine: Engine,
    memory: GuestMemorySource,
    trust: Arc<Trust>,
    access: Mutex<Access>,
    client: Mutex<Client>,
    changed: Condvar,
}

impl Shared {
    fn disk(&self) -> DiskId {
        *self.disk.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn client(&self) -> MutexGuard<'_, Client> {
        self.client.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn set_client(&self, client: Client) {
        *self.client() = client;
        self.changed.notify_all();
    }

    fn access(&self) -> Access {
        self.access.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }

    /// Whether who connected here may use the disk now. Nobody may of whom the kernel says nothing.
    fn admits(&self, stream: &UnixStream) -> bool {
        Peer::of(stream).is_ok_and(|peer| self.access().admits(&peer))
    }

    /// Ends the connection of a front-end that may not use the disk any more.
    fn review(&self) {
        if let Client::Connected(stream, _) = &*self.client()
            && !self.admits(stream)
        {
            tracing::info!(
                disk = self.name,
                "the front-end may not use this disk any more: it is disconnected"
            );
            // An error is a front-end that has gone.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Waits for the predecessor to go, if it is going. Answers whether the place is free.
    fn wait_free(&self) -> bool {
        let leaving = |client: &mut Client| match client {
            Client::Nobody => false,
            Client::Leaving => true,
            // Its thread may not have noticed yet.
            Client::Connected(stream, _) => hung_up(stream),
        };
        let (client, _) = self
            .changed
            .wait_timeout_while(self.client(), HANDOVER, leaving)
            .unwrap_or_else(|e| e.into_inner());
        matches!(*client, Client::Nobody)
    }
}

/// Serves one disk at one unix socket until it is stopped or dropped.
///
/// One front-end at a time. Another that connects meanwhile is disconnected at once; the first does
/// not notice.
pub struct VhostServer {
    shared: Arc<Shared>,
    path: PathBuf,
    listener: UnixStream,
    acceptor: Option<JoinHandle<()>>,
}

impl VhostServer {
    /// Listens at `path` for those that `access` names, replacing a socket that nobody serves any
    /// more. Front-ends may bring `memory`.
    ///
    /// # Errors
    /// No such disk, or no such socket to be had.
    pub fn start(
        path: &Path,
        access: &Access,
        engine: Engine,
        disk: DiskId,
        memory: GuestMemorySource,
    ) -> Result<VhostServer, ServerError> {
        let name = engine.disk_info(disk)?.name;
        let failed = |source| ServerError::Listen { path: path.to_owned(), source };
        let listener = match headgate_access::listen(path, access) {
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => {
                if UnixStream::connect(path).is_ok() {
                    return Err(ServerError::InUse(path.to_owned()));
                }
                std::fs::remove_file(path).map_err(failed)?;
                headgate_access::listen(path, access).map_err(failed)?
            }
            bound => bound.map_err(failed)?,
        };
        // Only to be shut down, which ends the acceptor's wait.
        let handle = UnixStream::from(OwnedFd::from(listener.try_clone().map_err(failed)?));
        let shared = Arc::new(Shared {
            disk: Mutex::new(disk),
            trust: Arc::new(Trust::new(&name)),
            name,
            engine,
            memory,
            access: Mutex::new(access.clone()),
            client: Mutex::new(Client::Nobody),
            changed: Condvar::new(),
        });
        let acceptor = {
            let shared = Arc::clone(&shared);
            thread("vhost-accept", move || accept(&listener, &shared)).map_err(failed)?
        };
        Ok(VhostServer {
            shared,
            path: path.to_owned(),
            listener: handle,
            acceptor: Some(acceptor),
        })
    }

    /// The socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Who may connect.
    pub fn access(&self) -> Access {
        self.shared.access()
    }

    /// Lets in those that `access` names from now on, and nobody else. A front-end that is
    /// connected and not among them is disconnected.
    ///
    /// # Errors
    /// See [`headgate_access::grant`].
    pub fn grant(&self, access: &Access) -> io::Result<()> {
        headgate_access::grant(&self.path, access, Kind::Socket)?;
        *self.shared.access.lock().unwrap_or_else(|e| e.into_inner()) = access.clone();
        self.shared.review();
        Ok(())
    }

    /// The disk has moved: front-ends that come from now on are attached to this one.
    pub fn set_disk(&self, disk: DiskId) {
        *self.shared.disk.lock().unwrap_or_else(|e| e.into_inner()) = disk;
    }

    /// Is a front-end connected.
    pub fn is_connected(&self) -> bool {
        matches!(*self.shared.client(), Client::Connected(..))
    }

    /// Takes no new front-end and removes the socket. The connected one stays until
    /// [`stop`](Self::stop).
    pub fn stop_listening(&mut self) {
        let Some(acceptor) = self.acceptor.take() else { return };
        // Both fail only when there is nothing left to do.
        let _ = self.listener.shutdown(Shutdown::Both);
        let _ = std::fs::remove_file(&self.path);
        if acceptor.join().is_err() {
            tracing::error!(disk = self.shared.name, "the acceptor panicked");
        }
    }

    /// Takes no new front-end, ends the connected one as `how` says, and waits for the end of its
    /// port. Answers whether that came in time; afterwards the port is told to end at once, and it
    /// does when the backend returns its requests.
    pub fn stop(mut self, how: Detach, patience: Duration) -> bool {
        self.stop_listening();
        let port = match &*self.shared.client() {
            Client::Connected(_, port) => port.clone(),
            Client::Nobody | Client::Leaving => None,
        };
        let deadline = Instant::now() + patience;
        let mut in_time = true;
        if let Some(port) = port {
            port.detach(how);
            in_time = port.wait_gone(patience);
        }
        self.disconnect();
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_secs(1));
        let busy = |client: &mut Client| !matches!(client, Client::Nobody);
        let (_client, timeout) = self
            .shared
            .changed
            .wait_timeout_while(self.shared.client(), left, busy)
            .unwrap_or_else(|e| e.into_inner());
        in_time && !timeout.timed_out()
    }

    fn disconnect(&self) {
        if let Client::Connected(stream, _) = &*self.shared.client() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for VhostServer {
    fn drop(&mut self) {
        self.stop_listening();
        self.disconnect();
    }
}

fn thread(name: &str, f: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.to_owned()).stack_size(256 << 10).spawn(f)
}

/// The acceptor's thread.
fn accept(listener: &UnixListener, shared: &Arc<Shared>) {
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(e) if matches!(e.raw_os_error(), Some(libc::ECONNABORTED | libc::EINTR)) => {
                continue;
            }
            // Shut down.
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => return,
            Err(error) => {
                // Out of descriptors, most likely: they come back.
                tracing::warn!(disk = shared.name, %error, "cannot accept a front-end");
                std::thread::sleep(Duration::from_millis(100));
                continue;
            }
        };
        if !shared.wait_free() {
            tracing::warn!(
                disk = shared.name,
                "a second front-end was refused: the disk has one already"
            );
            continue;
        }
        if let Err(error) = welcome(shared, stream) {
            shared.set_client(Client::Nobody);
            tracing::warn!(disk = shared.name, %error, "cannot serve a front-end");
        }
    }
}

fn welcome(shared: &Arc<Shared>, stream: UnixStream) -> io::Result<()> {
    shared.set_client(Client::Connected(stream.try_clone()?, None));
    // It may have connected before its right was taken away. Whoever takes it away from here on
    // finds it connected.
    shared.review();
    let shared = Arc::clone(shared);
    thread("vhost-user", move || {
        match serve(&shared, stream) {
            Ok(()) => tracing::info!(disk = shared.name, "the front-end disconnected"),
            Err(error) => {
                tracing::warn!(disk = shared.name, %error, "the front-end was disconnected")
            }
        }
        shared.set_client(Client::Nobody);
    })?;
    Ok(())
}

/// Why a connection ended.
#[derive(Debug, Error)]
enum Ended {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error("vhost-user: {0}")]
    Protocol(ProtocolError),
}

/// A connection's thread: answers messages until its peer, or the disk, goes away.
fn serve(shared: &Shared, stream: UnixStream) -> Result<(), Ended> {
    let view = Arc::new(View::new(shared.engine.disk_info(shared.disk())?));
    let port = {
        let (view, peer, recall) = (Arc::clone(&view), stream.try_clone()?, Recall::new()?);
        let new = move |disk: &DiskInfo| Box::new(BlkPort::new(disk, view, recall, peer)) as Box<_>;
        shared.engine.attach(shared.disk(), new)?
    };
    shared.set_client(Client::Connected(stream.try_clone()?, Some(port.clone())));
    tracing::info!(disk = shared.name, "a front-end connected");
    let result = answer(&port, &view, stream, shared);
    shared.set_client(Client::Leaving);
    port.detach(Detach::Now);
    // The port's requests write into guest memory; a successor must not start before the last has
    // ended.
    while !port.wait_gone(Duration::from_secs(60)) {
        tracing::warn!(
            disk = shared.name,
            "the backend still holds requests of a front-end that went away"
        );
    }
    result
}

fn answer(
    port: &PortRef,
    view: &Arc<View>,
    stream: UnixStream,
    shared: &Shared,
) -> Result<(), Ended> {
    let (peer, trust) = (stream.try_clone()?, shared.trust.clone());
    let messages = stream.try_clone()?;
    let device = Device::new(port.clone(), peer, Arc::clone(view), trust, shared.memory)?;
    let mut handler = BackendReqHandler::from_stream(stream, Arc::new(Mutex::new(device)));
    loop {
        view.look_at_next(&messages);
        match handler.handle_request() {
            Ok(()) => {}
            Err(ProtocolError::Disconnected) => return Ok(()),
            Err(error) => return Err(Ended::Protocol(error)),
        }
    }
}
