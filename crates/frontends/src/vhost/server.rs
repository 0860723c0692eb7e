//! One unix socket per disk.

use super::control::Device;
use super::memory_rules::GuestMemorySource;
use super::port::{BlkPort, Recall, Trust};
use super::reactor::{Forgotten, Reactor, Ticket};
use super::view::View;
use super::{Refused, hung_up, is_readable};
use headgate_access::{Access, Kind, Peer};
use headgate_engine::port::Detach;
use headgate_engine::request::DiskInfo;
use headgate_engine::{DiskId, Engine, EngineError, PortRef};
use std::io;
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
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
    door: Mutex<Door>,
    closed: Condvar,
    reactor: Reactor,
}

/// Where front-ends come in.
enum Door {
    /// The next one is waited for.
    Open(Ticket),
    /// Somebody is being let in.
    Busy,
    /// The same, and nobody after.
    Closing,
    /// Nobody is let in any more.
    Closed,
}

impl Shared {
    fn disk(&self) -> DiskId {
        *self.disk.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn client(&self) -> MutexGuard<'_, Client> {
        self.client.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn door(&self) -> MutexGuard<'_, Door> {
        self.door.lock().unwrap_or_else(|e| e.into_inner())
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
    /// Until it takes nobody more.
    listener: Option<Arc<UnixListener>>,
}

impl VhostServer {
    /// Listens at `path` for those that `access` names, replacing a socket that nobody serves any
    /// more. Front-ends may bring `memory`; `reactor` waits for them.
    ///
    /// # Errors
    /// No such disk, or no such socket to be had.
    pub fn start(
        path: &Path,
        access: &Access,
        engine: Engine,
        disk: DiskId,
        memory: GuestMemorySource,
        reactor: &Reactor,
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
        listener.set_nonblocking(true).map_err(failed)?;
        let listener = Arc::new(listener);
        let shared = Arc::new(Shared {
            disk: Mutex::new(disk),
            trust: Arc::new(Trust::new(&name)),
            name,
            engine,
            memory,
            access: Mutex::new(access.clone()),
            client: Mutex::new(Client::Nobody),
            changed: Condvar::new(),
            door: Mutex::new(Door::Busy),
            closed: Condvar::new(),
            reactor: reactor.clone(),
        });
        open(&listener, &shared).map_err(failed)?;
        Ok(VhostServer { shared, path: path.to_owned(), listener: Some(listener) })
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
        let Some(listener) = self.listener.take() else { return };
        let mut door = self.shared.door();
        *door = match *door {
            Door::Closed => Door::Closed,
            Door::Open(ticket) if self.shared.reactor.forget(ticket) == Forgotten::InTime => {
                Door::Closed
            }
            Door::Open(_) | Door::Busy | Door::Closing => Door::Closing,
        };
        // Who connects from here on is refused by the kernel.
        let _ = rustix::net::shutdown(&listener, rustix::net::Shutdown::Both);
        let is_closing = |door: &mut Door| !matches!(door, Door::Closed);
        drop(self.shared.closed.wait_while(door, is_closing).unwrap_or_else(|e| e.into_inner()));
        let _ = std::fs::remove_file(&self.path);
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

/// Waits for the next front-end, unless there is to be none.
fn open(listener: &Arc<UnixListener>, shared: &Arc<Shared>) -> io::Result<()> {
    let mut door = shared.door();
    if let Door::Closing = *door {
        *door = Door::Closed;
        shared.closed.notify_all();
        return Ok(());
    }
    let task = {
        let (listener, shared) = (Arc::clone(listener), Arc::clone(shared));
        move || let_in(&listener, &shared)
    };
    match shared.reactor.when_readable(listener.clone(), task) {
        Ok(ticket) => *door = Door::Open(ticket),
        Err(error) => {
            *door = Door::Closed;
            shared.closed.notify_all();
            return Err(error);
        }
    }
    Ok(())
}

/// A worker lets in who has come, and then has the next one waited for.
fn let_in(listener: &Arc<UnixListener>, shared: &Arc<Shared>) {
    {
        let mut door = shared.door();
        if let Door::Open(_) = *door {
            *door = Door::Busy;
        }
    }
    while let Some(stream) = accept(listener, shared) {
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
    if let Err(error) = open(listener, shared) {
        tracing::error!(disk = shared.name, %error, "no front-end can connect any more");
    }
}

/// The next front-end that waits, if one does. `None` too when none can be let in now.
fn accept(listener: &UnixListener, shared: &Shared) -> Option<UnixStream> {
    loop {
        match listener.accept() {
            Ok((stream, _)) => return Some(stream),
            // Shut down, or nobody is there.
            Err(e) if matches!(e.raw_os_error(), Some(libc::EINVAL | libc::EAGAIN)) => return None,
            Err(e) if matches!(e.raw_os_error(), Some(libc::ECONNABORTED | libc::EINTR)) => {}
            Err(error) => {
                // Out of descriptors, most likely: they come back.
                tracing::warn!(disk = shared.name, %error, "cannot accept a front-end");
                std::thread::sleep(Duration::from_millis(100));
                return None;
            }
        }
    }
}

fn welcome(shared: &Arc<Shared>, stream: UnixStream) -> io::Result<()> {
    shared.set_client(Client::Connected(stream.try_clone()?, None));
    // It may have connected before its right was taken away. Whoever takes it away from here on
    // finds it connected.
    shared.review();
    match Connection::begin(shared, stream) {
        Ok(connection) => connection.wait(),
        Err(error) => {
            shared.set_client(Client::Nobody);
            tracing::warn!(disk = shared.name, %error, "the front-end was disconnected");
        }
    }
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

/// A front-end that is connected, between two of its messages.
struct Connection {
    shared: Arc<Shared>,
    view: Arc<View>,
    port: PortRef,
    messages: Arc<UnixStream>,
    handler: BackendReqHandler<Mutex<Device>>,
}

impl Connection {
    fn begin(shared: &Arc<Shared>, stream: UnixStream) -> Result<Connection, Ended> {
        let view = Arc::new(View::new(shared.engine.disk_info(shared.disk())?));
        // Clones before the port, which has to be detached again once it is there.
        let (peer, messages, kept) =
            (stream.try_clone()?, Arc::new(stream.try_clone()?), stream.try_clone()?);
        let port = {
            let (view, peer, recall) = (Arc::clone(&view), stream.try_clone()?, Recall::new()?);
            let new =
                move |disk: &DiskInfo| Box::new(BlkPort::new(disk, view, recall, peer)) as Box<_>;
            shared.engine.attach(shared.disk(), new)?
        };
        let trust = shared.trust.clone();
        let device = Device::new(port.clone(), peer, Arc::clone(&view), trust, shared.memory)
            .inspect_err(|_| port.detach(Detach::Now))?;
        shared.set_client(Client::Connected(kept, Some(port.clone())));
        tracing::info!(disk = shared.name, "a front-end connected");
        let handler = BackendReqHandler::from_stream(stream, Arc::new(Mutex::new(device)));
        Ok(Connection { shared: Arc::clone(shared), view, port, messages, handler })
    }

    /// Waits for the next message.
    fn wait(self) {
        let (reactor, messages) = (self.shared.reactor.clone(), self.messages.clone());
        let (shared, port) = (self.shared.clone(), self.port.clone());
        if let Err(error) = reactor.when_readable(messages, move || self.answer()) {
            end(&shared, &port, Err(error.into()));
        }
    }

    /// A worker answers the messages that have come. It may block on a peer that sends half of one.
    fn answer(mut self) {
        let result = loop {
            self.view.look_at_next(&self.messages);
            match self.handler.handle_request() {
                Ok(()) if is_readable(&self.messages) => {}
                Ok(()) => return self.wait(),
                Err(ProtocolError::Disconnected) => break Ok(()),
                Err(error) => break Err(Ended::Protocol(error)),
            }
        };
        end(&self.shared, &self.port, result);
    }
}

/// The front-end is gone, or is told to go.
fn end(shared: &Shared, port: &PortRef, result: Result<(), Ended>) {
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
    match result {
        Ok(()) => tracing::info!(disk = shared.name, "the front-end disconnected"),
        Err(error) => tracing::warn!(disk = shared.name, %error, "the front-end was disconnected"),
    }
    shared.set_client(Client::Nobody);
}
