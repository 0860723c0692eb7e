//! Tunnels: threads that carry bytes between TLS connections and plain sockets.
//!
//! The data path knows plain sockets only, which io_uring serves. A tunnel hands it one end of a
//! socket pair; a thread has the other end and the TLS connection. A few threads carry all tunnels:
//! a connection costs two file descriptors and its buffers, no thread.

mod one;

use crate::handshake::Secured;
use one::{CHUNK, Tunnel, Turn};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread;

/// More threads than this do not pay: the data path wants CPUs, too.
const THREADS_MAX: usize = 4;
/// How many events are taken at a time.
const EVENTS: usize = 64;
/// The bell's key. Tunnels have higher ones.
const BELL: u64 = 0;

/// The threads. When it is dropped, each ends with the last tunnel that it carries.
#[derive(Debug)]
pub struct Tunnels {
    threads: Vec<Desk>,
    next: AtomicUsize,
}

#[derive(Debug)]
struct Desk {
    orders: Sender<Tunnel>,
    bell: UnixStream,
}

impl Tunnels {
    /// Starts a thread for each CPU, at most four.
    ///
    /// # Errors
    /// The system has no thread or no descriptor left.
    pub fn start() -> io::Result<Tunnels> {
        let count = thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
        let threads = (0..count).map(|_| Carrier::start()).collect::<io::Result<_>>()?;
        Ok(Tunnels { threads, next: AtomicUsize::new(0) })
    }

    /// Carries a connection from now on, until either side ends it. What is written to the socket
    /// that it returns arrives at the peer, and the other way round. None of its three descriptors
    /// has the number `descriptors` or a higher one.
    ///
    /// # Errors
    /// There are no more descriptors, or not below that.
    pub fn carry(&self, secured: Secured, descriptors: u64) -> io::Result<UnixStream> {
        let (tunnel, plain) = Tunnel::new(secured)?;
        if !tunnel.is_below(descriptors, &plain) {
            return Err(rustix::io::Errno::MFILE.into());
        }
        let at = self.next.fetch_add(1, Ordering::Relaxed) % self.threads.len();
        let desk = &self.threads[at];
        let gone = || io::Error::other("the thread that carries TLS connections has ended");
        desk.orders.send(tunnel).map_err(|_| gone())?;
        ring(&desk.bell)?;
        Ok(plain)
    }
}

fn ring(mut bell: &UnixStream) -> io::Result<()> {
    match bell.write(&[1]) {
        // It is ringing.
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(()),
        other => other.map(drop),
    }
}

/// One thread's side.
struct Carrier {
    epoll: OwnedFd,
    bell: UnixStream,
    orders: Receiver<Tunnel>,
    tunnels: BTreeMap<u64, Tunnel>,
    /// Tunnels that have more to do than one turn.
    unfinished: Vec<u64>,
    next: u64,
    outlook: Outlook,
    /// What is moved passes through here.
    bytes: Box<[u8; CHUNK]>,
}

/// Whether tunnels may be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outlook {
    Open,
    Closed,
}

impl Carrier {
    fn start() -> io::Result<Desk> {
        let (rung, bell) = UnixStream::pair()?;
        rung.set_nonblocking(true)?;
        bell.set_nonblocking(true)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &bell, epoll::EventData::new_u64(BELL), epoll::EventFlags::IN)?;
        let (giver, orders) = channel();
        let carrier = Carrier {
            epoll,
            bell,
            orders,
            tunnels: BTreeMap::new(),
            unfinished: Vec::new(),
            next: BELL + 1,
            outlook: Outlook::Open,
            bytes: Box::new([0; CHUNK]),
        };
        thread::Builder::new().name("tls".into()).spawn(move || carrier.run())?;
        Ok(Desk { orders: giver, bell: rung })
    }

    fn run(mut self) {
        while self.outlook == Outlook::Open || !self.tunnels.is_empty() {
            match self.wait() {
                Ok(ready) => ready.into_iter().for_each(|key| self.turn(key)),
                Err(e) => {
                    tracing::error!("TLS connections cannot be waited for, they end: {e}");
                    return;
                }
            }
        }
    }

    /// The tunnels that something has happened to, or that are unfinished.
    fn wait(&mut self) -> io::Result<Vec<u64>> {
        let mut ready = std::mem::take(&mut self.unfinished);
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let timeout = (!ready.is_empty()).then_some(&at_once);
        let mut events = Vec::with_capacity(EVENTS);
        match epoll::wait(&self.epoll, spare_capacity(&mut events), timeout) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        for event in &events {
            match event.data.u64() {
                BELL => self.take_orders(&mut ready)?,
                key => ready.push(key),
            }
        }
        // A tunnel has two descriptors.
        ready.sort_unstable();
        ready.dedup();
        Ok(ready)
    }

    fn take_orders(&mut self, ready: &mut Vec<u64>) -> io::Result<()> {
        // Its end is found below.
        let _ = self.bell.read(&mut [0; 64]);
        loop {
            match self.orders.try_recv() {
                Ok(tunnel) => {
                    let key = self.next;
                    self.next += 1;
                    if let Err(e) = tunnel.watch(&self.epoll, key) {
                        tracing::warn!("a TLS connection is dropped: {e}");
                        continue;
                    }
                    self.tunnels.insert(key, tunnel);
                    ready.push(key);
                }
                Err(TryRecvError::Empty) => return Ok(()),
                Err(TryRecvError::Disconnected) => {
                    self.outlook = Outlook::Closed;
                    return epoll::delete(&self.epoll, &self.bell).map_err(Into::into);
                }
            }
        }
    }

    fn turn(&mut self, key: u64) {
        let Some(tunnel) = self.tunnels.get_mut(&key) else { return };
        match tunnel.turn(&mut self.bytes) {
            Turn::Done => {}
            Turn::Unfinished => self.unfinished.push(key),
            // Its descriptors leave the epoll as they are closed.
            Turn::Over => drop(self.tunnels.remove(&key)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authority::Authority;
    use crate::credentials::{ClientCredentials, Role, ServerCredentials, server_name};
    use crate::handshake::accept;
    use rustls::ClientConnection;
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    /// QEMU sends its first option in the segment that ends its handshake.
    #[test]
    fn what_comes_with_the_end_of_the_handshake_is_not_lost() {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::create(dir.path()).unwrap();
        let (names, day) = (["node1".to_owned()], Duration::from_secs(86_400));
        for role in [Role::Server, Role::Client] {
            authority.issue(role, &names, day, dir.path()).unwrap();
        }
        let server = ServerCredentials::read(dir.path()).unwrap();
        let client = ClientCredentials::read(dir.path()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let client = thread::spawn(move || {
            let name = server_name("node1").unwrap();
            let mut tls = ClientConnection::new(client.config.clone(), name).unwrap();
            // Kept until it may be sent, which is with the last message of the handshake.
            tls.writer().write_all(b"early").unwrap();
            while tls.is_handshaking() || tls.wants_write() {
                tls.complete_io(&mut stream).unwrap();
            }
            (tls, stream)
        });
        let deadline = Instant::now() + Duration::from_secs(20);
        let (secured, _) = accept(&server, listener.accept().unwrap().0, deadline).unwrap();
        // It says nothing more.
        let _client = client.join().unwrap();
        let mut plain = Tunnels::start().unwrap().carry(secured, u64::MAX).unwrap();
        plain.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut heard = [0; 5];
        plain.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"early");
    }
}
