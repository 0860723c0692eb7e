//! An NBD server in the test's own process that keeps to the rules or breaks them as it is told.
//! Its disk has a cache: a crash takes back what was not flushed.

// Named, for this file is included by its own path, too.
#[path = "server/ends.rs"]
mod ends;

use super::PATIENCE;
use headgate_nbd::counters::{self, Version};
use headgate_nbd::uri::{Address, Uri};
use headgate_nbd::wire::{
    self, BASE_ALLOCATION, GREETING_MAGIC, OPTION_MAGIC, OPTION_REPLY_MAGIC, REQUEST_LEN,
    SIMPLE_REPLY_MAGIC, STATE_HOLE, STATE_ZERO, STRUCTURED_REPLY_MAGIC, be16, be32, be64, chunk,
    command, command_flag, export, info, option, option_reply,
};
use std::collections::BTreeSet;
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

/// What the server says of what ranges hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Says {
    /// Nothing: it knows no structured replies.
    Nothing,
    /// Which blocks of 4 KiB of its disk are zeroes.
    Zeroes,
    /// These bytes as the payload of the chunk.
    Bytes(Vec<u8>),
    /// It has extents of this length, and data and holes in turn, without end.
    Alternating(u32),
}

/// The number of `base:allocation` there.
pub const CONTEXT: u32 = 77;
const HOLE: u32 = STATE_HOLE | STATE_ZERO;

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
    /// The window that it says with each answer, if it knows version 3 of the counters.
    pub window: Option<u64>,
    /// Another than the client holds the export.
    pub held: bool,
    /// The lease that the last client has shown.
    pub shown: Option<counters::Lease>,
    /// What requests have said.
    pub said: Vec<Said>,
    pub says: Says,
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
    /// Which connection each command came over, in the order in which connections came.
    pub came: Vec<(usize, u16)>,
    /// Connections whose requests are neither done nor answered until they are taken out.
    pub stuck: BTreeSet<usize>,
    /// Who comes now waits for a greeting.
    pub closed: bool,
    /// Connections that came.
    accepted: usize,
    connections: Vec<(usize, UnixStream)>,
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
            window: None,
            shown: None,
            held: false,
            said: Vec::new(),
            says: Says::Nothing,
            flags: EVERYTHING,
            block_sizes: None,
            manner: Manner::InOrder,
            content: vec![0; size],
            durable: vec![0; size],
            log: Vec::new(),
            goodbyes: 0,
            came: Vec::new(),
            stuck: BTreeSet::new(),
            closed: false,
            accepted: 0,
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
                let number = {
                    let mut state = state.lock().unwrap();
                    let number = state.accepted;
                    state.accepted += 1;
                    state.connections.push((number, stream.try_clone().unwrap()));
                    number
                };
                let state = state.clone();
                // What a client does that goes away is no business of the server's.
                thread::spawn(move || drop(serve(stream, number, &state)));
            }
        });
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

    /// Until so many connections have come in all.
    pub fn wait_for_clients(&self, count: usize) {
        let deadline = Instant::now() + PATIENCE;
        while self.state().accepted < count {
            assert!(Instant::now() < deadline, "{} connections came", self.state().accepted);
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Until so many commands have come in all.
    pub fn wait_for_any(&self, count: usize) {
        let deadline = Instant::now() + PATIENCE;
        while self.state().came.len() < count {
            assert!(Instant::now() < deadline, "{:?}", self.state().came);
            thread::sleep(Duration::from_millis(2));
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

fn serve(mut stream: UnixStream, number: usize, state: &Mutex<State>) -> io::Result<()> {
    while state.lock().unwrap().closed {
        thread::sleep(Duration::from_millis(2));
    }
    let agreed = handshake(&mut stream, state)?;
    let counted = agreed.counted;
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
        if counted != Counted::No && be16(&head, 6) != Some(command::DISC) {
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
        let manner = {
            let mut state = state.lock().unwrap();
            state.came.push((number, be16(&head, 6).unwrap()));
            state.manner
        };
        while state.lock().unwrap().stuck.contains(&number) {
            thread::sleep(Duration::from_millis(2));
        }
        let early = manner == Manner::Early && be16(&head, 6) == Some(command::WRITE);
        if early {
            stream.write_all(&simple(SIMPLE_REPLY_MAGIC, 0, be64(&head, 8).unwrap()))?;
        }
        let Some(mut reply) = answer(&mut stream, &head, state, agreed)? else { return Ok(()) };
        if counted != Counted::No && reply.len() >= 16 {
            let (counts, window) = {
                let state = state.lock().unwrap();
                (state.counts.unwrap_or_default(), state.window.unwrap_or_default())
            };
            let mut counts = counts.map(u64::to_be_bytes).concat();
            if counted == Counted::WithWindow {
                counts.extend(window.to_be_bytes());
            }
            let simple = be32(&reply, 0) != Some(STRUCTURED_REPLY_MAGIC);
            let behind = if simple { 16 } else { reply.len() };
            reply.splice(behind..behind, counts);
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
    WithWindow,
    No,
}

/// What a client and the server have agreed on.
#[derive(Clone, Copy, Debug)]
struct Agreed {
    counted: Counted,
    structured: bool,
}

fn reply_to(stream: &mut UnixStream, option: u32, kind: u32, data: &[u8]) -> io::Result<()> {
    let mut bytes = OPTION_REPLY_MAGIC.to_be_bytes().to_vec();
    bytes.extend(option.to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
    stream.write_all(&bytes)
}

fn handshake(stream: &mut UnixStream, state: &Mutex<State>) -> io::Result<Agreed> {
    stream.write_all(&GREETING_MAGIC.to_be_bytes())?;
    stream.write_all(&OPTION_MAGIC.to_be_bytes())?;
    stream.write_all(&3u16.to_be_bytes())?;
    stream.read_exact(&mut [0; 4])?;
    let mut agreed = Agreed { counted: Counted::No, structured: false };
    let data = loop {
        let mut head = [0; 16];
        stream.read_exact(&mut head)?;
        let mut data = vec![0; be32(&head, 12).unwrap() as usize];
        stream.read_exact(&mut data)?;
        assert_eq!(be64(&head, 0), Some(OPTION_MAGIC));
        let option = be32(&head, 8).unwrap();
        let says = state.lock().unwrap().says != Says::Nothing;
        let mut kind = option_reply::ERR_UNSUP;
        match option {
            OPT_COUNTERS => {
                assert_eq!(data.len(), 42);
                let (version, shown) = counters::read_option(&data).unwrap();
                let mut state = state.lock().unwrap();
                state.shown = shown;
                agreed.counted = match (state.counts, state.window, version) {
                    (None, _, _) | (_, None, Version::Three) => Counted::No,
                    (_, _, Version::Two) => Counted::Yes,
                    (_, Some(_), Version::Three) => Counted::WithWindow,
                };
                if agreed.counted != Counted::No {
                    kind = option_reply::ACK;
                }
            }
            option::STRUCTURED_REPLY if says => {
                assert_eq!(agreed.counted, Counted::No);
                agreed.structured = true;
                kind = option_reply::ACK;
            }
            option::SET_META_CONTEXT if says => {
                assert!(agreed.structured || agreed.counted != Counted::No);
                let named = [&CONTEXT.to_be_bytes()[..], BASE_ALLOCATION.as_bytes()].concat();
                reply_to(stream, option, option_reply::META_CONTEXT, &named)?;
                kind = option_reply::ACK;
            }
            option::STRUCTURED_REPLY | option::SET_META_CONTEXT => {}
            option => {
                assert_eq!(option, option::GO);
                break data;
            }
        }
        reply_to(stream, option, kind, &[])?;
    };
    let mut reply = |kind: u32, data: &[u8]| reply_to(stream, option::GO, kind, data);
    let len = be32(&data, 0).unwrap() as usize;
    if state.lock().unwrap().held {
        reply(counters::ERR_HELD, b"the disk is held by host 09")?;
        return Ok(agreed);
    }
    if &data[4..4 + len] != b"disk" {
        reply(option_reply::ERR_UNKNOWN, b"no such export")?;
        return Ok(agreed);
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
    Ok(agreed)
}

/// Does a request; `None` ends the connection.
fn answer(
    stream: &mut UnixStream,
    head: &[u8],
    state: &Mutex<State>,
    agreed: Agreed,
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
        command::BLOCK_STATUS if state.says != Says::Nothing => {}
        other => panic!("command {other} was not offered"),
    }
    if flags & command_flag::FUA != 0 {
        let State { durable, content, .. } = &mut *state;
        durable[range.clone()].copy_from_slice(&content[range.clone()]);
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
    if magic == SIMPLE_REPLY_MAGIC && error == 0 {
        match kind {
            command::READ if agreed.structured => {
                return Ok(Some(in_pieces(cookie, offset, &data)));
            }
            command::BLOCK_STATUS => {
                let said = said_of(&state, range);
                return Ok(Some(chunk(chunk::BLOCK_STATUS, true, cookie, &said)));
            }
            _ => {}
        }
    }
    reply.extend(data);
    Ok(Some(reply))
}

fn chunk(kind: u16, last: bool, cookie: u64, body: &[u8]) -> Vec<u8> {
    let mut bytes = STRUCTURED_REPLY_MAGIC.to_be_bytes().to_vec();
    bytes.extend(u16::from(last).to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend((body.len() as u32).to_be_bytes());
    bytes.extend(body);
    bytes
}

/// The answer to a read: its second half first, and zeroes as holes.
fn in_pieces(cookie: u64, offset: u64, data: &[u8]) -> Vec<u8> {
    let (first, second) = data.split_at(data.len() / 2);
    let piece = |last, offset: u64, data: &[u8]| {
        let offset = offset.to_be_bytes();
        if data.iter().all(|byte| *byte == 0) {
            let body = [&offset[..], &(data.len() as u32).to_be_bytes()].concat();
            return chunk(chunk::OFFSET_HOLE, last, cookie, &body);
        }
        chunk(chunk::OFFSET_DATA, last, cookie, &[&offset[..], data].concat())
    };
    let behind = piece(false, offset + first.len() as u64, second);
    [behind, piece(true, offset, first)].concat()
}

/// What the server says of a range of its disk.
fn said_of(state: &State, range: std::ops::Range<usize>) -> Vec<u8> {
    let mut said = CONTEXT.to_be_bytes().to_vec();
    let mut extent = |len: u32, flags: u32| {
        said.extend(len.to_be_bytes());
        said.extend(flags.to_be_bytes());
    };
    match &state.says {
        Says::Bytes(bytes) => return bytes.clone(),
        Says::Alternating(len) => {
            let count = (range.len() / *len as usize).min(10_000);
            (0..count).for_each(|n| extent(*len, if n % 2 == 0 { 0 } else { HOLE }));
        }
        Says::Nothing | Says::Zeroes => {
            for block in state.content[range].chunks(4096) {
                let zeroes = block.iter().all(|byte| *byte == 0);
                extent(block.len() as u32, if zeroes { HOLE } else { 0 });
            }
        }
    }
    said
}

fn simple(magic: u32, error: u32, cookie: u64) -> Vec<u8> {
    let mut reply = magic.to_be_bytes().to_vec();
    reply.extend(error.to_be_bytes());
    reply.extend(cookie.to_be_bytes());
    reply
}
