//! An NBD server in the test's own process that keeps to the rules or breaks them as it is told.
//! Its disk has a cache: a crash takes back what was not flushed.

use super::PATIENCE;
use headgate_nbd::counters;
use headgate_nbd::uri::{Address, Uri};
use headgate_nbd::wire::{
    self, GREETING_MAGIC, OPTION_MAGIC, OPTION_REPLY_MAGIC, REQUEST_LEN, SIMPLE_REPLY_MAGIC, be16,
    be32, be64, command, command_flag, export, info, option, option_reply,
};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

pub const EVERYTHING: u16 = export::HAS_FLAGS
    | export::SEND_FLUSH
    | export::SEND_FUA
    | export::SEND_TRIM
    | export::SEND_WRITE_ZEROES
    | export::SEND_FAST_ZERO;

/// How replies leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// As the requests came.
    InOrder,
    /// Up to eight at a time, the last first.
    Reversed,
    /// The first reply has a wrong magic number.
    WrongMagic,
    /// The first reply names a request that was never sent.
    WrongCookie,
    /// The connection ends in the middle of the payload of every n-th read.
    CutReads(u32),
    /// Never.
    Silent,
    /// After so many requests the server neither does nor answers any.
    DeafAfter(u32),
    /// Writes are answered before their payload is read.
    Early,
    /// The first reply comes twice.
    Twice,
    /// The first request fails because the server is about to go.
    ShuttingDown,
    /// Connections end after the handshake.
    HangUp,
    /// Every request fails with this error.
    Error(u32),
}

/// The option of `docs/nbd-counters.md`.
const OPT_COUNTERS: u32 = 0x4847_0001;

/// What a request said of the service elsewhere, in millionths of an IO and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Said {
    pub delta: u64,
    pub rho: u64,
    pub bytes: u64,
    pub ioprio: u16,
}

#[derive(Debug)]
pub struct State {
    /// What it says that each request was charged, all and by reservation, in millionths of an IO;
    /// `None`: it does not know of counters.
    pub counts: Option<[u64; 2]>,
    /// Another than the client holds the export.
    pub held: bool,
    /// The lease that the last client has shown.
    pub shown: Option<counters::Lease>,
    /// What requests have said.
    pub said: Vec<Said>,
    pub flags: u16,
    /// Smallest, preferred, largest.
    pub block_sizes: Option<[u32; 3]>,
    pub manner: Manner,
    /// What reads see.
    pub content: Vec<u8>,
    /// What a crash leaves.
    pub durable: Vec<u8>,
    /// Commands and their flags, as they came.
    pub log: Vec<(u16, u16, u64, u32)>,
    /// Connections that ended with a goodbye.
    pub goodbyes: u32,
    connections: Vec<UnixStream>,
    reads: u32,
}

pub struct Server {
    _dir: tempfile::TempDir,
    socket: PathBuf,
    state: Arc<Mutex<State>>,
    listener: Option<UnixListener>,
}

impl Server {
    pub fn start(size: usize) -> Server {
        let mut server = Server::stopped(size);
        server.listen();
        server
    }

    /// One that nobody answers for yet.
    pub fn stopped(size: usize) -> Server {
        let dir = tempfile::tempdir().unwrap();
        let state = State {
            counts: None,
            shown: None,
            held: false,
            said: Vec::new(),
            flags: EVERYTHING,
            block_sizes: None,
            manner: Manner::InOrder,
            content: vec![0; size],
            durable: vec![0; size],
            log: Vec::new(),
            goodbyes: 0,
            connections: Vec::new(),
            reads: 0,
        };
        let socket = dir.path().join("s");
        Server { _dir: dir, socket, state: Arc::new(Mutex::new(state)), listener: None }
    }

    pub fn uri(&self, export: &str) -> Uri {
        Uri {
            address: Address::Unix(self.socket.to_str().unwrap().to_owned()),
            export: export.into(),
        }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub fn listen(&mut self) {
        let listener = UnixListener::bind(&self.socket).unwrap();
        self.listener = Some(listener.try_clone().unwrap());
        let state = self.state.clone();
        thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                state.lock().unwrap().connections.push(stream.try_clone().unwrap());
                let state = state.clone();
                // What a client does that goes away is no business of the server's.
                thread::spawn(move || drop(serve(stream, &state)));
            }
        });
    }

    /// Ends all connections; new ones are taken.
    pub fn hang_up(&self) {
        for connection in self.state().connections.drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    /// Dies, and takes back what was not flushed.
    pub fn crash(&mut self) {
        std::fs::remove_file(&self.socket).unwrap();
        if let Some(listener) = self.listener.take() {
            // Wakes and ends the thread that accepts.
            // SAFETY: an open descriptor.
            unsafe { libc::shutdown(std::os::fd::AsRawFd::as_raw_fd(&listener), libc::SHUT_RDWR) };
        }
        let mut state = self.state();
        for connection in state.connections.drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
        state.content = state.durable.clone();
    }

    pub fn count(&self, command: u16) -> usize {
        self.state().log.iter().filter(|(c, ..)| *c == command).count()
    }

    /// Until so many of these commands have come.
    pub fn wait_for(&self, command: u16, count: usize) {
        let deadline = Instant::now() + PATIENCE;
        while self.count(command) < count {
            assert!(Instant::now() < deadline, "command {command} does not come");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.listener.is_some() {
            self.crash();
        }
    }
}

fn serve(mut stream: UnixStream, state: &Mutex<State>) -> io::Result<()> {
    let counted = handshake(&mut stream, state)?;
    if state.lock().unwrap().manner == Manner::HangUp {
        return stream.shutdown(Shutdown::Both);
    }
    let mut replies: Vec<Vec<u8>> = Vec::new();
    loop {
        let mut head = [0; REQUEST_LEN];
        if !replies.is_empty() {
            stream.set_read_timeout(Some(Duration::from_millis(20)))?;
            let more = stream.read_exact(&mut head[..1]);
            stream.set_read_timeout(None)?;
            if more.is_err() || replies.len() == 8 {
                for reply in replies.drain(..).rev() {
                    stream.write_all(&reply)?;
                }
            }
            match more {
                Ok(()) => stream.read_exact(&mut head[1..])?,
                Err(_) => stream.read_exact(&mut head)?,
            }
        } else {
            stream.read_exact(&mut head)?;
        }
        if counted == Counted::Yes && be16(&head, 6) != Some(command::DISC) {
            let mut report = [0; 32];
            stream.read_exact(&mut report)?;
            assert_eq!(report[26..], [0; 6]);
            state.lock().unwrap().said.push(Said {
                delta: be64(&report, 0).unwrap(),
                rho: be64(&report, 8).unwrap(),
                bytes: be64(&report, 16).unwrap(),
                ioprio: be16(&report, 24).unwrap(),
            });
        }
        let manner = state.lock().unwrap().manner;
        let early = manner == Manner::Early && be16(&head, 6) == Some(command::WRITE);
        if early {
            stream.write_all(&simple(SIMPLE_REPLY_MAGIC, 0, be64(&head, 8).unwrap()))?;
        }
        let Some(mut reply) = answer(&mut stream, &head, state)? else { return Ok(()) };
        if counted == Counted::Yes && reply.len() >= 16 {
            let counts = state.lock().unwrap().counts.unwrap_or_default();
            reply.splice(16..16, counts.map(u64::to_be_bytes).concat());
        }
        match manner {
            Manner::Reversed => replies.push(reply),
            _ if !replies.is_empty() => replies.push(reply),
            Manner::Silent => {}
            Manner::Early if early => {}
            Manner::Twice => {
                state.lock().unwrap().manner = Manner::InOrder;
                stream.write_all(&[&reply[..], &reply[..]].concat())?;
            }
            Manner::CutReads(every) if reply.len() > 16 && state.lock().unwrap().cut(every) => {
                stream.write_all(&reply[..16 + (reply.len() - 16) / 2])?;
                return stream.shutdown(Shutdown::Both);
            }
            _ => stream.write_all(&reply)?,
        }
    }
}

impl State {
    fn cut(&mut self, every: u32) -> bool {
        self.reads += 1;
        self.reads.is_multiple_of(every)
    }
}

/// Whether a client and the server have agreed on counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counted {
    Yes,
    No,
}

fn handshake(stream: &mut UnixStream, state: &Mutex<State>) -> io::Result<Counted> {
    stream.write_all(&GREETING_MAGIC.to_be_bytes())?;
    stream.write_all(&OPTION_MAGIC.to_be_bytes())?;
    stream.write_all(&3u16.to_be_bytes())?;
    stream.read_exact(&mut [0; 4])?;
    let mut counted = Counted::No;
    let mut head = [0; 16];
    stream.read_exact(&mut head)?;
    if be32(&head, 8) == Some(OPT_COUNTERS) {
        assert_eq!((be64(&head, 0), be32(&head, 12)), (Some(OPTION_MAGIC), Some(42)));
        let mut data = [0; 42];
        stream.read_exact(&mut data)?;
        assert_eq!(data[..2], [0, 2]);
        state.lock().unwrap().shown = counters::read_option(&data).unwrap();
        let mut bytes = OPTION_REPLY_MAGIC.to_be_bytes().to_vec();
        bytes.extend(OPT_COUNTERS.to_be_bytes());
        if state.lock().unwrap().counts.is_some() {
            counted = Counted::Yes;
            bytes.extend(option_reply::ACK.to_be_bytes());
        } else {
            bytes.extend(option_reply::ERR_UNSUP.to_be_bytes());
        }
        bytes.extend([0; 4]);
        stream.write_all(&bytes)?;
        stream.read_exact(&mut head)?;
    }
    assert_eq!((be64(&head, 0), be32(&head, 8)), (Some(OPTION_MAGIC), Some(option::GO)));
    let mut data = vec![0; be32(&head, 12).unwrap() as usize];
    stream.read_exact(&mut data)?;
    let mut reply = |kind: u32, data: &[u8]| {
        let mut bytes = OPTION_REPLY_MAGIC.to_be_bytes().to_vec();
        bytes.extend(option::GO.to_be_bytes());
        bytes.extend(kind.to_be_bytes());
        bytes.extend((data.len() as u32).to_be_bytes());
        bytes.extend(data);
        stream.write_all(&bytes)
    };
    let len = be32(&data, 0).unwrap() as usize;
    if state.lock().unwrap().held {
        reply(counters::ERR_HELD, b"the disk is held by host 09")?;
        return Ok(counted);
    }
    if &data[4..4 + len] != b"disk" {
        reply(option_reply::ERR_UNKNOWN, b"no such export")?;
        return Ok(counted);
    }
    let (size, flags, sizes) = {
        let state = state.lock().unwrap();
        (state.content.len() as u64, state.flags, state.block_sizes)
    };
    let mut export = info::EXPORT.to_be_bytes().to_vec();
    export.extend(size.to_be_bytes());
    export.extend(flags.to_be_bytes());
    reply(option_reply::INFO, &export)?;
    if let Some(sizes) = sizes {
        let sizes = sizes.map(u32::to_be_bytes).concat();
        reply(option_reply::INFO, &[&info::BLOCK_SIZE.to_be_bytes()[..], &sizes].concat())?;
    }
    reply(option_reply::ACK, &[])?;
    Ok(counted)
}

/// Does a request; `None` ends the connection.
fn answer(
    stream: &mut UnixStream,
    head: &[u8],
    state: &Mutex<State>,
) -> io::Result<Option<Vec<u8>>> {
    assert_eq!(be32(head, 0), Some(wire::REQUEST_MAGIC));
    let (flags, kind) = (be16(head, 4).unwrap(), be16(head, 6).unwrap());
    let cookie = be64(head, 8).unwrap();
    let (offset, len) = (be64(head, 16).unwrap(), be32(head, 24).unwrap());
    let range = offset as usize..offset as usize + len as usize;
    let mut payload = Vec::new();
    if kind == command::WRITE {
        payload.resize(len as usize, 0);
        stream.read_exact(&mut payload)?;
    }
    let mut state = state.lock().unwrap();
    state.log.push((kind, flags, offset, len));
    match state.manner {
        Manner::DeafAfter(0) => return Ok(Some(Vec::new())),
        Manner::DeafAfter(more) => state.manner = Manner::DeafAfter(more - 1),
        _ => {}
    }
    let mut error = 0u32;
    let mut data = Vec::new();
    match kind {
        command::READ => data.extend_from_slice(&state.content[range.clone()]),
        command::WRITE => state.content[range.clone()].copy_from_slice(&payload),
        command::WRITE_ZEROES | command::TRIM => state.content[range.clone()].fill(0),
        command::FLUSH => state.durable = state.content.clone(),
        command::DISC => {
            state.goodbyes += 1;
            return Ok(None);
        }
        other => panic!("command {other} was not offered"),
    }
    if flags & command_flag::FUA != 0 {
        let State { durable, content, .. } = &mut *state;
        durable[range.clone()].copy_from_slice(&content[range]);
    }
    let (mut magic, mut cookie) = (SIMPLE_REPLY_MAGIC, cookie);
    match state.manner {
        Manner::WrongMagic => {
            magic ^= 1;
            state.manner = Manner::InOrder;
        }
        Manner::WrongCookie => {
            cookie ^= 1 << 40;
            state.manner = Manner::InOrder;
        }
        Manner::ShuttingDown => {
            error = 108;
            data.clear();
            state.manner = Manner::InOrder;
        }
        Manner::Error(number) => {
            error = number;
            data.clear();
        }
        _ => {}
    }
    let mut reply = simple(magic, error, cookie);
    reply.extend(data);
    Ok(Some(reply))
}

fn simple(magic: u32, error: u32, cookie: u64) -> Vec<u8> {
    let mut reply = magic.to_be_bytes().to_vec();
    reply.extend(error.to_be_bytes());
    reply.extend(cookie.to_be_bytes());
    reply
}
