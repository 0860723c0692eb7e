//! The control side: listens, negotiates, and hands each connection to its disk's shard.
//!
//! One thread accepts; it never waits for a client. A client that has said something negotiates on
//! a thread of its own, which may block as long as the client's time lasts, and which ends when the
//! connection becomes a port or is dropped. Connections are counted and bounded in every state.

use super::budget::Budget;
use super::draining::ByDisk;
use super::entrances::{Desk, Entrance, Entrances, Outlook, Way};
pub use super::exports::{Attach, Exports, attach_to, opened};
use super::exports::{Door, Entry};
use super::handshake_limit::{self, HandshakeLimit};
use super::leases::Leases;
use super::lobby::{Guest, Lobby};
use super::places::{ConnectionLimits, Places};
use super::policies::Policies;
use super::port::{Drained, NbdPort};
use super::reclaim::{self, Register};
pub use super::rights::{Caller, Rule};
use super::rights::{Guard, Rights};
use super::secure::{Secure, Watch};
pub use super::socket::ListenError;
use super::socket::Listener;
use headgate_access::{Access, Peer};
use headgate_engine::{EngineError, PortGone};
use headgate_nbd::server::Writes;
use headgate_nbd::server::command::Session;
use headgate_nbd::server::negotiation::{
    Catalog, ExportName, Negotiation, NegotiationError, OpenError, Opened, Security, Step,
};
use headgate_nbd_io::Socket;
use headgate_tls::HandshakeError;
pub use headgate_tls::Right;
use headgate_units::Bytes;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::convert::Infallible;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use thiserror::Error;

/// How long no client is accepted after accepting has failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How many clients are accepted before those that wait are looked at.
const ACCEPTED_AT_ONCE: usize = 64;

/// How to serve.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// A unix socket to listen on. A dead server's socket at this path is replaced.
    pub unix: Option<PathBuf>,
    /// Who may connect to it.
    pub access: Access,
    /// A TCP address to listen on. Without `tls`, whoever reaches it can read and write all disks.
    pub tcp: Option<SocketAddr>,
    /// A directory with certificates and rules (see `headgate_tls`). With it, the TCP address
    /// serves over TLS only, and only whom the authority's certificates and the rules allow.
    pub tls: Option<PathBuf>,
    /// How long a client may take from connecting to its choice of an export.
    pub negotiation_time: Duration,
    /// The most clients in negotiation, each on a thread. When one more comes, the one that has
    /// been there longest is dropped.
    pub max_negotiating: usize,
    /// The most clients that have not said anything, each a file descriptor. When one more comes,
    /// the one that has been there longest is dropped.
    pub max_silent: usize,
    /// The most clients in transmission. More are refused.
    pub connections: ConnectionLimits,
    /// What connections hold in buffers at most, besides 64 KiB of each. Those that get none are
    /// slower.
    pub memory: Bytes,
    /// No client has a file descriptor from this number on: the rest is for the disks.
    pub descriptors: u64,
}

impl Default for ServerConfig {
    /// Listens nowhere; a unix socket would be for this process's user and group.
    fn default() -> ServerConfig {
        ServerConfig {
            unix: None,
            access: Access::of_groups([headgate_access::own_group()]),
            tcp: None,
            tls: None,
            negotiation_time: Duration::from_secs(30),
            max_negotiating: 128,
            max_silent: 512,
            connections: ConnectionLimits::default(),
            memory: Bytes(1 << 30),
            descriptors: u64::MAX,
        }
    }
}

/// What clients hold now, and may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NbdUsage {
    /// Clients in transmission.
    pub connections: usize,
    /// The most of them.
    pub limits: ConnectionLimits,
    /// Clients that were refused for these limits so far.
    pub refused: u64,
    /// What clients hold in buffers, besides 64 KiB each.
    pub memory: Bytes,
    /// The most of it.
    pub memory_limit: Bytes,
    /// How often a client got less memory than it would have used.
    pub memory_denied: u64,
}

/// A running server. Dropping it stops it: no more connections are accepted; those in transmission
/// belong to their disks.
#[derive(Debug)]
pub struct NbdServer {
    places: Arc<Places>,
    budget: Arc<Budget>,
    rights: Arc<Rights>,
    watch: Option<Watch>,
    tcp: Option<SocketAddr>,
    /// `None` tells the accepting thread to end.
    desk: Option<Desk>,
    thread: Option<JoinHandle<()>>,
}

impl NbdServer {
    /// Listens, and serves `exports` until dropped.
    ///
    /// # Errors
    /// An address cannot be listened on, the certificates cannot be used, or the system has no
    /// thread left.
    pub fn start(config: ServerConfig, exports: Arc<Exports>) -> Result<NbdServer, ListenError> {
        NbdServer::start_with(config, exports, None)
    }

    /// The same; policies that gateways announce go to `policies`.
    ///
    /// # Errors
    /// As [`NbdServer::start`].
    pub fn start_with(
        config: ServerConfig,
        exports: Arc<Exports>,
        policies: Option<Arc<dyn Policies>>,
    ) -> Result<NbdServer, ListenError> {
        let secure = config.tls.as_deref().map(Secure::open).transpose()?;
        let entrance = |listener, secure| {
            let exports = exports.clone();
            Entrance { listener, way: Way { exports, rule: None, secure } }
        };
        let mut all = Vec::new();
        if let Some(path) = &config.unix {
            all.push(entrance(Listener::unix(path, &config.access)?, None));
        }
        let mut tcp = None;
        if let Some(address) = config.tcp {
            let listener = Listener::tcp(address)?;
            tcp = listener.address();
            all.push(entrance(listener, secure.clone()));
        }
        let (desk, entrances) = Entrances::new(all)?;
        let places = Places::new(config.connections);
        let budget = Budget::new(usize::try_from(config.memory.0).unwrap_or(usize::MAX));
        let rights = Arc::new(Rights::default());
        let watch = secure.map(|secure| Watch::start(secure, rights.clone())).transpose()?;
        let shared = Arc::new(Shared {
            handshakes: HandshakeLimit::new(config.max_negotiating),
            places: places.clone(),
            budget: budget.clone(),
            reclaimer: reclaim::start()?,
            draining: ByDisk::default(),
            rights: rights.clone(),
            leases: Leases::default(),
            policies,
            turned_away: TurnedAway::default(),
            descriptors: config.descriptors,
        });
        let acceptor = Acceptor {
            entrances,
            lobby: Lobby::new(config.max_silent)?,
            negotiation_time: config.negotiation_time,
            shared,
        };
        let thread =
            thread::Builder::new().name("nbd-accept".into()).spawn(move || acceptor.run())?;
        let (desk, thread) = (Some(desk), Some(thread));
        Ok(NbdServer { places, budget, rights, watch, tcp, desk, thread })
    }

    /// Listens at one more unix socket, where those that `access` names find `exports`, as far as
    /// `rule` allows. What clients may hold counts together with that of all others.
    ///
    /// # Errors
    /// The socket cannot be made, or another server listens there.
    pub fn open(
        &self,
        path: &Path,
        access: &Access,
        exports: Arc<Exports>,
        rule: Arc<Rule>,
    ) -> Result<(), ListenError> {
        let listener = Listener::unix(path, access)?;
        if let Some(desk) = &self.desk {
            desk.add(Entrance { listener, way: Way { exports, rule: Some(rule), secure: None } });
        }
        Ok(())
    }

    /// What rules say has changed: disconnects the clients that they do not allow any more.
    pub fn review(&self) {
        self.rights.review();
    }

    /// Listens no more at a unix socket, which is removed. Clients that came by it stay.
    pub fn close(&self, path: &Path) {
        if let Some(desk) = &self.desk {
            desk.remove(path);
        }
    }

    /// The TCP address that the server listens on, with the port that the system chose if none was
    /// given.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        self.tcp
    }

    /// Whether it serves there over TLS only.
    pub fn has_tls(&self) -> bool {
        self.watch.is_some()
    }

    /// Clients in transmission.
    pub fn connections(&self) -> usize {
        self.places.taken()
    }

    /// What clients hold and may hold.
    pub fn usage(&self) -> NbdUsage {
        NbdUsage {
            connections: self.places.taken(),
            limits: self.places.limits(),
            refused: self.places.refused(),
            memory: Bytes(self.budget.used() as u64),
            memory_limit: Bytes(self.budget.most() as u64),
            memory_denied: self.budget.denied(),
        }
    }
}

impl Drop for NbdServer {
    fn drop(&mut self) {
        (self.desk, self.watch) = (None, None);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that accepts NBD clients panicked");
        }
    }
}

/// What the threads of one server share.
struct Shared {
    handshakes: Arc<HandshakeLimit>,
    places: Arc<Places>,
    budget: Arc<Budget>,
    reclaimer: Register,
    draining: ByDisk,
    rights: Arc<Rights>,
    leases: Leases,
    policies: Option<Arc<dyn Policies>>,
    turned_away: TurnedAway,
    descriptors: u64,
}

/// Clients that are turned away, and failures to accept one. There may be any number of them: the
/// log has a line for every doubling.
#[derive(Default)]
struct TurnedAway(AtomicU64);

impl TurnedAway {
    fn count(&self, why: &dyn fmt::Display) {
        let so_far = self.0.fetch_add(1, Ordering::Relaxed) + 1;
        if so_far.is_power_of_two() {
            tracing::warn!(so_far, "an NBD client is turned away: {why}");
        }
    }
}

struct Acceptor {
    entrances: Entrances,
    lobby: Lobby<Way>,
    negotiation_time: Duration,
    shared: Arc<Shared>,
}

impl Acceptor {
    fn run(mut self) {
        // After a failure to accept (no file descriptors left, say) nobody is accepted before then.
        let mut pause_until: Option<Instant> = None;
        loop {
            let woken = self.wait(pause_until).map_err(io::Error::from);
            match woken.and_then(|()| self.entrances.take_orders()) {
                Ok(Outlook::Open) => {}
                Ok(Outlook::Closed) => return,
                Err(e) => {
                    tracing::error!("poll failed, no more NBD clients: {e}");
                    return;
                }
            }
            let now = Instant::now();
            pause_until = pause_until.filter(|until| now < *until);
            if pause_until.is_none() && !self.accept(now) {
                pause_until = Some(now + ACCEPT_PAUSE);
            }
            match self.lobby.take_ready(now) {
                Ok(ready) => ready.into_iter().for_each(|guest| self.negotiate(guest)),
                Err(e) => tracing::error!("NBD clients cannot be waited for: {e}"),
            }
        }
    }

    /// Waits until a client connects (unless there is a pause), speaks, or has run out of time, or
    /// there are orders.
    fn wait(&self, pause_until: Option<Instant>) -> Result<(), Errno> {
        let mut watched = vec![
            PollFd::new(&self.entrances, PollFlags::IN),
            PollFd::new(&self.lobby, PollFlags::IN),
        ];
        if pause_until.is_none() {
            let listeners = self.entrances.all().iter().map(|one| &one.listener);
            watched.extend(listeners.map(|one| PollFd::new(one, PollFlags::IN)));
        }
        let end = [pause_until, self.lobby.next_end()].into_iter().flatten().min();
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut watched, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(e) => Err(e),
        }
    }

    /// Accepts those that have connected, but not for long; `false` when that failed and is to be
    /// tried later.
    fn accept(&mut self, now: Instant) -> bool {
        for at in 0..self.entrances.all().len() {
            for _ in 0..ACCEPTED_AT_ONCE {
                let entrance = &self.entrances.all()[at];
                match entrance.listener.accept() {
                    Ok(socket) => {
                        let way = entrance.way.clone();
                        self.on_client(socket, way, now);
                    }
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                    Err(e) => {
                        self.shared.turned_away.count(&e);
                        // Their descriptors are the next clients'.
                        let left =
                            (0..ACCEPTED_AT_ONCE).map_while(|_| self.lobby.send_oldest_away());
                        return left.count() > 0;
                    }
                }
            }
        }
        true
    }

    fn on_client(&mut self, socket: Socket, way: Way, now: Instant) {
        let Some(socket) = self.within_descriptors(socket) else {
            return self.shared.turned_away.count(
                &"the daemon is about to run out of file descriptors; raise its limit \
                  (LimitNOFILE= in the unit, ulimit -n in a shell)",
            );
        };
        let guest = Guest { socket, until: now + self.negotiation_time, way };
        if let Err(e) = self.lobby.admit(guest) {
            tracing::debug!("an NBD client is turned away: {e}");
        }
    }

    /// A client with one of the descriptors that clients may have, if need be that of the longest
    /// silent one. The kernel gives out the lowest number that is free: a client that kept a higher
    /// one would leave the freed number to the next.
    fn within_descriptors(&mut self, socket: Socket) -> Option<Socket> {
        let is_within = |socket: &Socket, most: u64| {
            u64::try_from(socket.as_fd().as_raw_fd()).is_ok_and(|number| number < most)
        };
        if is_within(&socket, self.shared.descriptors) {
            return Some(socket);
        }
        self.lobby.send_oldest_away()?;
        socket.try_clone().ok().filter(|socket| is_within(socket, self.shared.descriptors))
    }

    fn negotiate(&self, guest: Guest<Way>) {
        let handshake = match self.shared.handshakes.enter(&guest.socket) {
            Ok(Some(handshake)) => handshake,
            Ok(None) => {
                return self.shared.turned_away.count(&"too many are in negotiation");
            }
            Err(e) => return self.shared.turned_away.count(&e),
        };
        let shared = self.shared.clone();
        let client = move || {
            if let Err(e) = serve(guest, &shared, handshake) {
                tracing::debug!("NBD negotiation ended: {e}");
            }
        };
        let thread = thread::Builder::new().name("nbd-client".into()).stack_size(256 << 10);
        if let Err(e) = thread.spawn(client) {
            self.shared.turned_away.count(&format!("there is no thread: {e}"));
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
    #[error("the disk cannot be attached: {0}")]
    Attach(#[from] EngineError),
    #[error("{0}")]
    Tls(#[from] HandshakeError),
    /// Somebody between the client and us could have put it there.
    #[error("something was sent between the start of TLS and its handshake")]
    Unprotected,
}

/// Leads one client from its first word to its port. Its handshake ends before its socket is
/// closed.
fn serve(
    Guest { mut socket, until: deadline, way }: Guest<Way>,
    shared: &Shared,
    negotiating: handshake_limit::Handshake,
) -> Result<(), Refused> {
    let mut talk = Talk { negotiation: Negotiation::default(), received: Vec::new(), deadline };
    let caller = |socket: &Socket| Peer::of(socket).ok().map(Caller::Process);
    let mut guard = way.rule.map(|rule| Guard::new(rule, caller(&socket)));
    if let Some(secure) = &way.secure {
        talk.negotiation = Negotiation::new(Security::TlsRequired);
        match talk.lead(&mut socket, &Nothing)? {
            Come::Gone => return Ok(()),
            Come::Chosen(opened, _) => match opened.handle {},
            Come::StartTls => {}
        }
        if !talk.received.is_empty() {
            return Err(Refused::Unprotected);
        }
        let from = socket.peer_address().map_or_else(String::new, |from| format!("{from}: "));
        let (inside, peer) = secure
            .accept(socket, deadline, shared.descriptors)
            .inspect_err(|error| shared.turned_away.count(&format!("{from}{error}")))?;
        tracing::debug!(%peer, "an NBD client is inside TLS");
        socket = inside;
        talk.negotiation.secure();
        guard = Some(Guard::new(secure.rule(), Some(Caller::Certificate(peer))));
    }
    let Shared { leases, places, .. } = shared;
    let (exports, guard_now) = (way.exports.as_ref(), guard.as_ref());
    let (secure, policies) = (way.secure.as_deref(), shared.policies.as_deref());
    let door = Door { exports, guard: guard_now, leases, places, secure, policies };
    let Come::Chosen(opened, session) = talk.lead(&mut socket, &door)? else { return Ok(()) };
    drop(negotiating);
    let Opened { name: disk, handle: Entry { attach, place, lease }, .. } = opened;
    let has = match attach.writes() {
        Writes::Allowed => Right::Write,
        Writes::Refused => Right::Read,
    };
    let socket = socket.into_transmission()?;
    let draining = shared.draining.of(&disk);
    let account = shared.budget.account(&disk);
    let (watched, received) = (Arc::downgrade(&account), &talk.received);
    let port = NbdPort::new(socket, session, received, draining.clone(), account, Box::new(place))?;
    // It serves nothing before it is known by its lease: then it ends if that is passed.
    let unknown = lease.is_some().then(|| draining.hold());
    let port = attach.enter(port)?;
    tracing::debug!(%disk, ?session, "NBD client attached");
    shared.reclaimer.add(watched, port.clone());
    if let Some(guard) = guard {
        shared.rights.add(&disk, guard, has, port.clone());
    }
    if let Some(lease) = lease {
        leases.add(&disk, lease, Box::new(port.clone()));
    }
    drop(unknown);
    draining.wait();
    // A client that is gone already needs no start.
    let (Ok(()) | Err(PortGone)) = port.command(Box::new(Drained));
    Ok(())
}

/// What there is before TLS where it is required.
struct Nothing;

impl Catalog for Nothing {
    type Handle = Infallible;

    fn list(&self) -> Vec<ExportName> {
        Vec::new()
    }

    fn open(&self, _name: &str) -> Result<Opened<Infallible>, OpenError> {
        Err(OpenError::Unknown)
    }
}

/// What a negotiation has come to.
enum Come<T> {
    /// The client chose an export.
    Chosen(Opened<T>, Session),
    /// It gave up.
    Gone,
    /// It waits for the handshake of TLS.
    StartTls,
}

/// A negotiation with a client: what it has sent and is not used yet, and until when it may take.
struct Talk {
    negotiation: Negotiation,
    received: Vec<u8>,
    deadline: Instant,
}

impl Talk {
    fn lead<C: Catalog>(
        &mut self,
        socket: &mut Socket,
        exports: &C,
    ) -> Result<Come<C::Handle>, Refused> {
        let mut out = Vec::new();
        loop {
            let (used, step) = self.negotiation.poll(&self.received, exports, &mut out)?;
            self.received.drain(..used);
            send(socket, self.deadline, &mut out)?;
            match step {
                Step::Answered => {}
                Step::NeedBytes => receive(socket, self.deadline, &mut self.received)?,
                Step::Transmission(opened, session) => return Ok(Come::Chosen(opened, session)),
                Step::Aborted => return Ok(Come::Gone),
                Step::StartTls => return Ok(Come::StartTls),
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
