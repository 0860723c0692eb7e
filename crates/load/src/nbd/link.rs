//! A connection in the transmission phase: requests leave in one message per batch, replies arrive
//! by one large receive.

use super::endpoint;
use crate::link::{
    Completion, DataUse, Durability, Kind, Link, LinkError, Op, Outcome, Readiness, Recovered,
    Shape, TICK, Wait,
};
use crate::target::{NbdTarget, Reach};
use crate::workload::Rng;
use headgate_nbd::client::handshake::{ExportInfo, HandshakeError, ReplyStyle};
use headgate_nbd::client::structured::{Event, ReplyBuffer};
use headgate_nbd::wire::{Request, command, command_flag};
use headgate_nbd_io::{ClientTls, Dial, DialError, Opened, Socket, say_goodbye};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send, sendmsg};
use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// How long connecting and the handshake may take.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(10);
/// Most pieces in one message: far below the kernel's `IOV_MAX` of 1,024.
const MAX_PIECES: usize = 256;

/// All connections over TLS share its threads.
static TLS: LazyLock<ClientTls> = LazyLock::new(ClientTls::by_uri);

#[derive(Default)]
struct Slot {
    /// The cookie of the request in flight.
    cookie: Option<u64>,
    kind: Option<Kind>,
    offset: u64,
    len: u32,
    /// The first error of a structured reply.
    error: u32,
    /// Bytes of the data that a structured reply has brought.
    arrived: u64,
    buffer: Vec<u8>,
}

/// A piece of the message being sent.
enum Piece {
    /// Heads of requests: a range of `heads`.
    Heads(usize, usize),
    /// What the request in this slot writes.
    Payload(usize),
}

/// See the module.
pub(crate) struct NbdLink {
    target: NbdTarget,
    reach: Reach,
    style: ReplyStyle,
    shape: Shape,
    info: ExportInfo,
    socket: Socket,
    slots: Vec<Slot>,
    replies: ReplyBuffer,
    heads: Vec<u8>,
    pieces: Vec<Piece>,
    /// Bytes of the first piece that are sent already, and which piece that is.
    first: usize,
    sent_of_first: usize,
    issued: u64,
}

impl NbdLink {
    pub(crate) fn connect(
        target: &NbdTarget,
        reach: Reach,
        style: ReplyStyle,
        shape: Shape,
    ) -> Result<NbdLink, LinkError> {
        let (socket, info) = open(target, reach, style)?;
        if info.max_block.is_some_and(|max| max < shape.max_len) {
            return Err(LinkError::Unsupported(format!(
                "the server takes requests of up to {} bytes, --block-size asks for {}",
                info.max_block.unwrap_or(0),
                shape.max_len
            )));
        }
        let slots = (0..shape.depth).map(|_| Slot::default()).collect();
        Ok(NbdLink {
            target: target.clone(),
            reach,
            style,
            shape,
            info,
            socket,
            slots,
            replies: ReplyBuffer::new(shape.max_len),
            heads: Vec::new(),
            pieces: Vec::new(),
            first: 0,
            sent_of_first: 0,
            issued: 0,
        })
    }

    pub(crate) fn info(&self) -> ExportInfo {
        self.info
    }

    fn nothing_to_send(&self) -> bool {
        self.pieces.is_empty()
    }

    /// The random bytes that unverified writes of a slot carry.
    fn fill(slot: &mut Slot, len: usize, seed: u64) {
        if slot.buffer.len() < len {
            let mut rng = Rng::new(seed);
            slot.buffer.resize(len.next_multiple_of(8), 0);
            for word in slot.buffer.chunks_exact_mut(8) {
                word.copy_from_slice(&rng.next_u64().to_ne_bytes());
            }
        }
    }

    fn advance(&mut self, mut sent: usize) {
        while let Some(piece) = self.pieces.get(self.first) {
            let left = piece_len(piece, &self.slots) - self.sent_of_first;
            if sent < left {
                self.sent_of_first += sent;
                return;
            }
            sent -= left;
            self.first += 1;
            self.sent_of_first = 0;
        }
        self.pieces.clear();
        self.heads.clear();
        self.first = 0;
    }

    fn handle_event(
        slots: &mut [Slot],
        shape: Shape,
        event: Event<'_>,
        deliver: &mut dyn FnMut(Completion<'_>),
    ) -> Result<(), LinkError> {
        match event {
            Event::Simple { cookie, error, data } => {
                let index = slot_of(cookie);
                slots[index].cookie = None;
                deliver(Completion { slot: index, outcome: outcome(error), data });
            }
            Event::Data { cookie, offset, data } => {
                let slot = &mut slots[slot_of(cookie)];
                let at = slot.place(offset, data.len() as u64)?;
                if shape.data == DataUse::Checked {
                    slot.buffer[at..at + data.len()].copy_from_slice(data);
                }
            }
            Event::Hole { cookie, offset, len } => {
                let slot = &mut slots[slot_of(cookie)];
                let at = slot.place(offset, len.into())?;
                if shape.data == DataUse::Checked {
                    slot.buffer[at..at + len as usize].fill(0);
                }
            }
            Event::Status { cookie, .. } => {
                let why = format!("request {cookie:#x} is answered with a block status unasked");
                return Err(LinkError::Protocol(why));
            }
            Event::Error { cookie, error } => {
                let slot = &mut slots[slot_of(cookie)];
                if slot.error == 0 {
                    // Zero is no error number, yet this is an error.
                    slot.error = error.max(1);
                }
            }
            Event::Done { cookie } => {
                let index = slot_of(cookie);
                let slot = &mut slots[index];
                slot.cookie = None;
                let expected = if slot.kind == Some(Kind::Read) { u64::from(slot.len) } else { 0 };
                if slot.error == 0 && slot.arrived != expected {
                    return Err(LinkError::Protocol(format!(
                        "a read of {expected} bytes was answered with {} bytes",
                        slot.arrived
                    )));
                }
                let data = match (shape.data, slot.error) {
                    (DataUse::Checked, 0) => &slot.buffer[..expected as usize],
                    _ => &[],
                };
                deliver(Completion { slot: index, outcome: outcome(slot.error), data });
            }
        }
        Ok(())
    }
}

impl Slot {
    /// Where a piece of a structured reply belongs in the slot's buffer.
    fn place(&mut self, offset: u64, len: u64) -> Result<usize, LinkError> {
        let at = offset.wrapping_sub(self.offset);
        if self.kind != Some(Kind::Read)
            || at.checked_add(len).is_none_or(|end| end > u64::from(self.len))
        {
            return Err(LinkError::Protocol(format!(
                "a reply brings {len} bytes of offset {offset} unasked"
            )));
        }
        self.arrived += len;
        Ok(at as usize)
    }
}

fn broken(e: Errno) -> LinkError {
    LinkError::Down(match e {
        Errno::CONNRESET | Errno::PIPE => "the server hung up".into(),
        e => format!("the connection broke: {e}"),
    })
}

fn outcome(error: u32) -> Outcome {
    if error == 0 { Outcome::Done } else { Outcome::Failed(error) }
}

/// The low half of a cookie is the slot, the high half counts.
fn slot_of(cookie: u64) -> usize {
    (cookie & 0xffff_ffff) as usize
}

fn piece_len(piece: &Piece, slots: &[Slot]) -> usize {
    match piece {
        Piece::Heads(from, to) => to - from,
        Piece::Payload(slot) => slots[*slot].len as usize,
    }
}

fn open(
    target: &NbdTarget,
    reach: Reach,
    style: ReplyStyle,
) -> Result<(Socket, ExportInfo), LinkError> {
    let deadline = Instant::now() + HANDSHAKE_PATIENCE;
    let down = |e: io::Error| LinkError::Down(format!("cannot connect: {e}"));
    let dial = Dial { style, deadline, silence: None, tls: &TLS, policy: None };
    let endpoint = endpoint(target, reach).map_err(down)?;
    let Opened { socket, info, .. } =
        dial.open_at(&endpoint, target).map_err(|error| match error {
            DialError::Connect(e) => down(e),
            DialError::Io(e) | DialError::Secured(e) => {
                LinkError::Down(format!("the handshake failed: {e}"))
            }
            DialError::Handshake(e) => match e {
                HandshakeError::NotNbd(_) | HandshakeError::Malformed(_) => {
                    LinkError::Protocol(e.to_string())
                }
                e => LinkError::Unsupported(e.to_string()),
            },
            e => LinkError::Unsupported(e.to_string()),
        })?;
    socket.set_timeouts(Some(TICK)).map_err(|e| LinkError::Down(e.to_string()))?;
    Ok((socket, info))
}

impl Link for NbdLink {
    fn submit(&mut self, index: usize, op: &Op, payload: &[u8]) -> Result<(), LinkError> {
        let command = match op.kind {
            Kind::Read => command::READ,
            Kind::Write => command::WRITE,
            Kind::WriteZeroes => command::WRITE_ZEROES,
            Kind::Flush => command::FLUSH,
        };
        let flags = if op.durability == Durability::Fua { command_flag::FUA } else { 0 };
        let cookie = (self.issued & 0xffff_ffff) << 32 | index as u64;
        self.issued += 1;
        let slot = &mut self.slots[index];
        let buffer = &mut slot.buffer;
        match op.kind {
            Kind::Write if payload.is_empty() => {
                Self::fill(slot, op.len as usize, self.shape.seed ^ index as u64)
            }
            Kind::Write => {
                buffer.clear();
                buffer.extend_from_slice(payload);
            }
            Kind::Read
                if self.shape.data == DataUse::Checked && self.style == ReplyStyle::Structured =>
            {
                buffer.resize(buffer.len().max(op.len as usize), 0);
            }
            _ => {}
        }
        slot.cookie = Some(cookie);
        slot.kind = Some(op.kind);
        (slot.offset, slot.len, slot.error, slot.arrived) = (op.offset, op.len, 0, 0);
        let from = self.heads.len();
        let head = Request { flags, command, cookie, offset: op.offset, len: op.len };
        self.heads.extend_from_slice(&head.to_bytes());
        match self.pieces.last_mut() {
            Some(Piece::Heads(_, to)) => *to = self.heads.len(),
            _ => self.pieces.push(Piece::Heads(from, self.heads.len())),
        }
        if op.kind == Kind::Write {
            self.pieces.push(Piece::Payload(index));
        }
        Ok(())
    }

    fn send(&mut self) -> Result<(), LinkError> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        while !self.nothing_to_send() {
            let sent = match self.pieces.as_slice() {
                [Piece::Heads(from, to)] => {
                    send(&self.socket, &self.heads[from + self.sent_of_first..*to], flags)
                }
                pieces => {
                    let pieces = &pieces[self.first..];
                    let mut parts = Vec::with_capacity(pieces.len().min(MAX_PIECES));
                    for (i, piece) in pieces.iter().take(MAX_PIECES).enumerate() {
                        let bytes = match piece {
                            Piece::Heads(from, to) => &self.heads[*from..*to],
                            Piece::Payload(slot) => {
                                let slot = &self.slots[*slot];
                                &slot.buffer[..slot.len as usize]
                            }
                        };
                        let skip = if i == 0 { self.sent_of_first } else { 0 };
                        parts.push(IoSlice::new(&bytes[skip..]));
                    }
                    sendmsg(&self.socket, &parts, &mut Default::default(), flags)
                }
            };
            match sent {
                Ok(sent) => self.advance(sent),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(e) => return Err(broken(e)),
            }
        }
        Ok(())
    }

    fn receive(
        &mut self,
        wait: Wait,
        deliver: &mut dyn FnMut(Completion<'_>),
    ) -> Result<(), LinkError> {
        let flags = match wait {
            // With something left to send, a blocking receive might wait for an answer to what
            // never leaves.
            Wait::Tick if self.nothing_to_send() => RecvFlags::empty(),
            _ => RecvFlags::DONTWAIT,
        };
        match recv(&self.socket, self.replies.spare(), flags) {
            Ok((_, 0)) => return Err(LinkError::Down("the server hung up".into())),
            Ok((_, n)) => self.replies.filled(n),
            Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
            Err(e) => return Err(broken(e)),
        }
        loop {
            let slots = &self.slots;
            let expected = |cookie: u64| {
                let slot = slots.get(slot_of(cookie)).filter(|s| s.cookie == Some(cookie))?;
                Some(if slot.kind == Some(Kind::Read) { slot.len } else { 0 })
            };
            match self.replies.next(expected).map_err(|e| LinkError::Protocol(e.to_string()))? {
                None => return Ok(()),
                Some(event) => Self::handle_event(&mut self.slots, self.shape, event, deliver)?,
            }
        }
    }

    fn readiness(&self) -> Readiness<'_> {
        let writable = (!self.nothing_to_send()).then(|| self.socket.as_fd());
        Readiness { readable: self.socket.as_fd(), writable, hang_up: None }
    }

    fn recover(&mut self) -> Result<Recovered, LinkError> {
        let (socket, info) = open(&self.target, self.reach, self.style).map_err(|e| match e {
            // A server that is just starting may not know its exports yet.
            LinkError::Unsupported(why) => LinkError::Down(why),
            e => e,
        })?;
        if info.size != self.info.size {
            return Err(LinkError::Unsupported(format!(
                "the export came back with {} bytes, it had {}",
                info.size, self.info.size
            )));
        }
        self.socket = socket;
        for slot in &mut self.slots {
            slot.cookie = None;
        }
        self.replies.clear();
        self.pieces.clear();
        self.heads.clear();
        (self.first, self.sent_of_first) = (0, 0);
        Ok(Recovered::Lost)
    }
}

impl Drop for NbdLink {
    /// Ends the session as the protocol asks, unless half a request has been sent.
    fn drop(&mut self) {
        if self.nothing_to_send() {
            say_goodbye(&self.socket);
        }
    }
}
