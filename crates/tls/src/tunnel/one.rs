//! One tunnel: bytes go both ways as far as both sides take them.
//!
//! It holds little: of the plain side it reads only when all that it encrypted has been sent, and
//! of the peer only when all that it decrypted has been taken. So either side's slowness is the
//! other's.

use crate::handshake::Secured;
use rustix::event::epoll;
use rustix::net::sockopt::set_tcp_user_timeout;
use rustls::Connection;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;

/// How much is read at a time.
pub(super) const CHUNK: usize = 64 << 10;
/// How often one tunnel moves something before others have their turn.
const MOVES: u32 = 16;
/// How long a peer may leave the last bytes unacknowledged.
const LAST_BYTES_MILLIS: u32 = 30_000;

/// How a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Nothing can be moved before one of the sockets says so.
    Done,
    /// There is more to move.
    Unfinished,
    /// The tunnel has ended.
    Over,
}

/// Whether a side may still send something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Open,
    Ended,
}

#[derive(Debug)]
pub(super) struct Tunnel {
    stream: TcpStream,
    tls: Connection,
    plain: UnixStream,
    /// What was decrypted and not taken yet, from `taken` on.
    inbound: Vec<u8>,
    taken: usize,
    peer: Side,
    ours: Side,
    /// Whether the plain side was told of the peer's end.
    told: Side,
}

impl Tunnel {
    /// The tunnel, and the plain socket that leads into it, which blocks.
    pub(super) fn new(secured: Secured) -> io::Result<(Tunnel, UnixStream)> {
        let Secured { stream, mut tls } = secured;
        let (plain, other) = UnixStream::pair()?;
        stream.set_read_timeout(None)?;
        stream.set_write_timeout(None)?;
        stream.set_nonblocking(true)?;
        plain.set_nonblocking(true)?;
        // A chunk is encrypted as a whole; see the module's documentation for what bounds it.
        tls.set_buffer_limit(None);
        let mut tunnel = Tunnel {
            stream,
            tls,
            plain,
            inbound: Vec::new(),
            taken: 0,
            peer: Side::Open,
            ours: Side::Open,
            told: Side::Open,
        };
        // What came together with the end of the handshake.
        tunnel.take_decrypted()?;
        Ok((tunnel, other))
    }

    /// Whether both of its descriptors, and this one, are below a number.
    pub(super) fn is_below(&self, most: u64, other: &UnixStream) -> bool {
        [self.stream.as_raw_fd(), self.plain.as_raw_fd(), other.as_raw_fd()]
            .into_iter()
            .all(|number| u64::try_from(number).is_ok_and(|number| number < most))
    }

    /// Has both sockets watched for changes.
    pub(super) fn watch(&self, epoll: impl AsFd, key: u64) -> io::Result<()> {
        let flags = epoll::EventFlags::IN
            | epoll::EventFlags::OUT
            | epoll::EventFlags::RDHUP
            | epoll::EventFlags::ET;
        epoll::add(&epoll, &self.stream, epoll::EventData::new_u64(key), flags)?;
        Ok(epoll::add(&epoll, &self.plain, epoll::EventData::new_u64(key), flags)?)
    }

    /// Moves what can be moved, for a while, by way of `bytes`.
    pub(super) fn turn(&mut self, bytes: &mut [u8; CHUNK]) -> Turn {
        for _ in 0..MOVES {
            match self.step(bytes) {
                Ok(Moved::Something) => {}
                Ok(Moved::Nothing) => {
                    // An idle connection holds no memory that it does not need.
                    if self.inbound.is_empty() {
                        self.inbound = Vec::new();
                    }
                    return Turn::Done;
                }
                Ok(Moved::Last) => return Turn::Over,
                Err(e) => {
                    tracing::debug!("a TLS connection ends: {e}");
                    return Turn::Over;
                }
            }
        }
        Turn::Unfinished
    }

    fn step(&mut self, bytes: &mut [u8; CHUNK]) -> io::Result<Moved> {
        let moved = [self.encrypt(bytes)?, self.send()?, self.decrypt(bytes)?, self.hand_in()?];
        if self.ours == Side::Ended && !self.tls.wants_write() {
            // Nobody is there who would read what the peer sends.
            let _ = self.stream.shutdown(Shutdown::Both);
            return Ok(Moved::Last);
        }
        Ok(if moved.contains(&Moved::Something) { Moved::Something } else { Moved::Nothing })
    }

    /// From the plain side into TLS.
    fn encrypt(&mut self, bytes: &mut [u8; CHUNK]) -> io::Result<Moved> {
        if self.ours == Side::Ended || self.tls.wants_write() {
            return Ok(Moved::Nothing);
        }
        match unless_blocked(self.plain.read(bytes))? {
            None => return Ok(Moved::Nothing),
            Some(0) => {
                self.ours = Side::Ended;
                self.tls.send_close_notify();
                set_tcp_user_timeout(&self.stream, LAST_BYTES_MILLIS)?;
            }
            Some(len) => self.tls.writer().write_all(&bytes[..len])?,
        }
        Ok(Moved::Something)
    }

    /// From TLS to the peer.
    fn send(&mut self) -> io::Result<Moved> {
        let mut moved = Moved::Nothing;
        while self.tls.wants_write() {
            match unless_blocked(self.tls.write_tls(&mut self.stream))? {
                None => break,
                Some(_) => moved = Moved::Something,
            }
        }
        Ok(moved)
    }

    /// From the peer out of TLS.
    fn decrypt(&mut self, bytes: &mut [u8; CHUNK]) -> io::Result<Moved> {
        if self.peer == Side::Ended || !self.inbound.is_empty() {
            return Ok(Moved::Nothing);
        }
        let Some(len) = unless_blocked(self.stream.read(bytes))? else {
            return Ok(Moved::Nothing);
        };
        // Without a proper end it is the plain side that misses something: NBD has its own.
        if len == 0 {
            self.peer = Side::Ended;
        }
        let mut at = 0;
        while at < len && self.peer == Side::Open {
            at += self.tls.read_tls(&mut &bytes[at..len])?;
            self.take_decrypted()?;
        }
        Ok(Moved::Something)
    }

    fn take_decrypted(&mut self) -> io::Result<()> {
        let state = self.tls.process_new_packets().map_err(|e| {
            // The peer is told, as far as it listens.
            let _ = self.tls.write_tls(&mut self.stream);
            io::Error::other(e)
        })?;
        let (start, more) = (self.inbound.len(), state.plaintext_bytes_to_read());
        self.inbound.resize(start + more, 0);
        self.tls.reader().read_exact(&mut self.inbound[start..])?;
        if state.peer_has_closed() {
            self.peer = Side::Ended;
        }
        Ok(())
    }

    /// What was decrypted, to the plain side.
    fn hand_in(&mut self) -> io::Result<Moved> {
        let mut moved = Moved::Nothing;
        while self.taken < self.inbound.len() {
            match unless_blocked(self.plain.write(&self.inbound[self.taken..]))? {
                None => return Ok(moved),
                Some(len) => {
                    self.taken += len;
                    moved = Moved::Something;
                }
            }
        }
        self.inbound.clear();
        self.taken = 0;
        if self.peer == Side::Ended && self.told == Side::Open {
            self.told = Side::Ended;
            self.plain.shutdown(Shutdown::Write)?;
        }
        Ok(moved)
    }
}

/// What a step came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moved {
    Nothing,
    Something,
    /// There will be nothing any more.
    Last,
}

/// `None`: the socket cannot do it now.
fn unless_blocked(moved: io::Result<usize>) -> io::Result<Option<usize>> {
    match moved {
        Ok(len) => Ok(Some(len)),
        Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(e) => Err(e),
    }
}
