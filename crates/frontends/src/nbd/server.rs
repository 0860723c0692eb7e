//! The control side: listens, negotiates, and hands each connection to its disk's shard.
//!
//! One thread accepts. Each client negotiates on a thread of its own, which may block as long as
//! the client's time lasts, and which ends when the connection becomes a port or is dropped. Both
//! kinds of connections are counted and bounded.

use super::draining::ByDisk;
use super::handshake_limit::{self, HandshakeLimit};
use super::port::{Drained, NbdPort};
use super::socket::Listener;
use super::tag::Tag;
use super::translate::export;
use headgate_engine::request::DiskInfo;
use headgate_engine::{DiskId, Engine, EngineError, PortGone, PortRef};
use headgate_nbd::server::command::Session;
use headgate_nbd::server::negotiation::{
    Catalog, Negotiation, NegotiationError, Opened, Step, greeting,
};
use headgate_nbd_io::Socket;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use thiserror::Error;

/// How long no client is accepted after accepting has failed.
const ACCEPT_PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Puts a port into the shard of the disk that it was made for.
pub type Attach = Box<dyn FnOnce(NbdPort) -> Result<PortRef, EngineError> + Send>;

/// The way into a disk of an engine; all that comes by it carries `tag`.
pub fn attach_to(engine: &Engine, disk: DiskId, tag: Tag) -> Attach {
    let engine = engine.clone();
    Box::new(move |mut port: NbdPort| {
        port.carry(tag);
        engine.attach(disk, move |_| Box::new(port))
    })
}

/// An answer to [`Catalog::open`]: `disk` as it is now, and the way into it.
pub fn opened(disk: DiskInfo, handle: Attach) -> Opened<Attach> {
    let export = export(&disk);
    Opened { name: disk.name, export, description: String::new(), handle }
}

/// The disks to serve. `open` is called for every question about an export, so the size is the one
/// of that moment, and may block.
pub type Exports = dyn Catalog<Handle = Attach> + Send + Sync;

/// How to serve.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// A unix socket to listen on. A dead server's socket at this path is replaced.
    pub unix: Option<PathBuf>,
    /// A TCP address to listen on. NBD has no authentication: whoever reaches it can read and write
    /// all disks.
    pub tcp: Option<SocketAddr>,
    /// How long a client may take from connecting to its choice of an export.
    pub negotiation_time: Duration,
    /// The most clients in negotiation, each on a thread. When one more comes, the one that has
    /// been there longest is dropped.
    pub max_negotiating: usize,
    /// The most clients in transmission. One costs up to 64 MiB of buffers; more are turned away.
    pub max_connections: usize,
}

impl Default for ServerConfig {
    /// Listens nowhere.
    fn default() -> ServerConfig {
        ServerConfig {
            unix: None,
            tcp: None,
            negotiation_time: Duration::from_secs(30),
            max_negotiating: 128,
            max_connections: 256,
        }
    }
}

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
    /// A thread or a pipe cannot be made.
    #[error("cannot start the NBD server: {0}")]
    Start(#[from] io::Error),
}

/// A running server. Dropping it stops it: no more connections are accepted; those in transmission
/// belong to their disks.
#[derive(Debug)]
pub struct NbdServer {
    connections: Arc<AtomicUsize>,
    tcp: Option<SocketAddr>,
    /// Closing it tells the accepting thread to end.
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl NbdServer {
    /// Listens, and serves `exports` until dropped.
    ///
    /// # Errors
    /// An address cannot be listened on, or the system has no thread left.
    pub fn start(config: ServerConfig, exports: Arc<Exports>) -> Result<NbdServer, ListenError> {
        let mut listeners = Vec::new();
        if let Some(path) = &config.unix {
            listeners.push(Listener::unix(path)?);
        }
        let mut tcp = None;
        if let Some(address) = config.tcp {
            let listener = Listener::tcp(address)?;
            tcp = listener.address();
            listeners.push(listener);
        }
        let (stop, stopped) = UnixStream::pair()?;
        let connections = Arc::new(AtomicUsize::new(0));
        let shared = Arc::new(Shared {
            exports,
            negotiation_time: config.negotiation_time,
            handshakes: HandshakeLimit::new(config.max_negotiating),
            connections: connections.clone(),
            max_connections: config.max_connections,
            draining: ByDisk::default(),
        });
        let acceptor = Acceptor { listeners, stopped, shared };
        let thread =
            thread::Builder::new().name("nbd-accept".into()).spawn(move || acceptor.run())?;
        Ok(NbdServer { connections, tcp, stop: Some(stop), thread: Some(thread) })
    }

    /// The TCP address that the server listens on, with the port that the system chose if none was
    /// given.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        self.tcp
    }

    /// Clients in transmission.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

impl Drop for NbdServer {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that accepts NBD clients panicked");
        }
    }
}

/// One of the connections in transmission, as long as it lives.
struct ConnectionPermit(Arc<AtomicUsize>);

impl ConnectionPermit {
    fn take(connections: &Arc<AtomicUsize>, most: usize) -> Option<ConnectionPermit> {
        let more = |count| (count < most).then_some(count + 1);
        connections.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(ConnectionPermit(connections.clone()))
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What the threads of one server share.
struct Shared {
    exports: Arc<Exports>,
    negotiation_time: Duration,
    handshakes: Arc<HandshakeLimit>,
    connections: Arc<AtomicUsize>,
    max_connections: usize,
    draining: ByDisk,
}

struct Acceptor {
    listeners: Vec<Listener>,
    stopped: UnixStream,
    shared: Arc<Shared>,
}

impl Acceptor {
    fn run(self) {
        let mut watched = vec![PollFd::new(&self.stopped, PollFlags::IN)];
        watched.extend(self.listeners.iter().map(|l| PollFd::new(l, PollFlags::IN)));
        // After a failure to accept (no file descriptors left, say) only the end is watched for,
        // for this time.
        let mut pause = false;
        loop {
            let count = if pause { 1 } else { watched.len() };
            let timeout = pause.then_some(&ACCEPT_PAUSE);
            pause = false;
            match poll(&mut watched[..count], timeout) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(e) => {
                    tracing::error!("poll failed, no more NBD clients: {e}");
                    return;
                }
            }
            if !watched[0].revents().is_empty() {
                return;
            }
            for (listener, watched) in self.listeners.iter().zip(&watched[1..count]) {
                if !watched.revents().is_empty() {
                    match listener.accept() {
                        Ok(socket) => self.on_client(socket),
                        Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                        Err(e) => {
                            tracing::warn!("cannot accept an NBD client: {e}");
                            pause = true;
                        }
                    }
                }
            }
        }
    }

    fn on_client(&self, socket: Socket) {
        let handshake = match self.shared.handshakes.enter(&socket) {
            Ok(Some(handshake)) => handshake,
            Ok(None) => {
                return tracing::warn!("an NBD client is turned away: too many are in negotiation");
            }
            Err(e) => return tracing::warn!("an NBD client is turned away: {e}"),
        };
        let shared = self.shared.clone();
        let client = move || {
            if let Err(e) = serve(socket, &shared, handshake) {
                tracing::debug!("NBD negotiation ended: {e}");
            }
        };
        let thread = thread::Builder::new().name("nbd-client".into()).stack_size(256 << 10);
        if let Err(e) = thread.spawn(client) {
            tracing::warn!("no thread for an NBD client: {e}");
        }
    }
}

/// Why a connection did not get into transmission.
#[derive(Debug, Error)]
enum Refused {
    #[error(transparent)]
    Protocol(#[from] NegotiationError),
    #[error("the client took longer than it may")]
    TooSlow,
    #[error("the client hung up")]
    HungUp,
    #[error("{0}")]
    Socket(#[from] io::Error),
    #[error("there are {0} connections already")]
    TooMany(usize),
    #[error("the disk cannot be attached: {0}")]
    Attach(#[from] EngineError),
}

/// Leads one client from its connection to its port. Its handshake ends before its socket is
/// closed.
fn serve(
    mut socket: Socket,
    shared: &Shared,
    negotiating: handshake_limit::Handshake,
) -> Result<(), Refused> {
    let deadline = Instant::now() + shared.negotiation_time;
    let mut received = Vec::new();
    let Some((opened, session)) =
        negotiate(&mut socket, deadline, &*shared.exports, &mut received)?
    else {
        return Ok(());
    };
    let most = shared.max_connections;
    let permit = ConnectionPermit::take(&shared.connections, most).ok_or(Refused::TooMany(most))?;
    drop(negotiating);
    let Opened { name: disk, handle: attach, .. } = opened;
    let socket = socket.into_transmission()?;
    let draining = shared.draining.of(&disk);
    let port = NbdPort::new(socket, session, &received, draining.clone(), Box::new(permit))?;
    let port = attach(port)?;
    tracing::debug!(%disk, ?session, "NBD client attached");
    draining.wait();
    // A client that is gone already needs no start.
    let (Ok(()) | Err(PortGone)) = port.command(Box::new(Drained));
    Ok(())
}

/// Negotiates until the client chose an export (`None`: it gave up). What it sent behind its choice
/// is left in `received`.
fn negotiate(
    socket: &mut Socket,
    deadline: Instant,
    exports: &Exports,
    received: &mut Vec<u8>,
) -> Result<Option<(Opened<Attach>, Session)>, Refused> {
    let mut negotiation = Negotiation::default();
    let mut out = Vec::new();
    greeting(&mut out);
    loop {
        send(socket, deadline, &mut out)?;
        let (used, step) = negotiation.poll(received, exports, &mut out)?;
        received.drain(..used);
        match step {
            Step::Answered => {}
            Step::NeedBytes => receive(socket, deadline, received)?,
            Step::Transmission(opened, session) => {
                send(socket, deadline, &mut out)?;
                return Ok(Some((opened, session)));
            }
            Step::Aborted => {
                send(socket, deadline, &mut out)?;
                return Ok(None);
            }
        }
    }
}

fn time_left(deadline: Instant) -> Result<Duration, Refused> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(Refused::TooSlow) } else { Ok(left) }
}

fn send(socket: &mut Socket, deadline: Instant, out: &mut Vec<u8>) -> Result<(), Refused> {
    let mut sent = 0;
    while sent < out.len() {
        socket.set_timeouts(Some(time_left(deadline)?))?;
        match socket.write(&out[sent..]) {
            Ok(0) => return Err(Refused::HungUp),
            Ok(len) => sent += len,
            Err(e) => retry(e)?,
        }
    }
    out.clear();
    Ok(())
}

fn receive(socket: &mut Socket, deadline: Instant, received: &mut Vec<u8>) -> Result<(), Refused> {
    let mut bytes = [0; 4096];
    loop {
        socket.set_timeouts(Some(time_left(deadline)?))?;
        match socket.read(&mut bytes) {
            Ok(0) => return Err(Refused::HungUp),
            Ok(len) => {
                received.extend_from_slice(&bytes[..len]);
                return Ok(());
            }
            Err(e) => retry(e)?,
        }
    }
}

/// A timeout is found by the next look at the clock.
fn retry(error: io::Error) -> Result<(), Refused> {
    match error.kind() {
        io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Ok(()),
        _ => Err(error.into()),
    }
}
