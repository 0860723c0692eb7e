//! The data path: one connection in transmission, as a [`Port`] of its disk's shard.
//!
//! One receive picks up as many requests as the client has sent. A short write's payload is copied
//! from there into an aligned buffer; a long one's is received into its buffer directly, or into an
//! image in memory itself, once the disk has granted the write: its connection takes nothing else
//! until then. Reads go out from the buffers they were read into, long ones of an image in memory
//! from the image itself. All answers of a turn leave in one message, and those that come while it
//! is under way leave in the next.
//!
//! # Bounds
//! The port takes a request only when the disk's queue has room, a buffer is free (64 MiB in
//! all, and as much as its account allows) and less than [`MAX_OUTSTANDING`] answers are owed.
//! What it does not take stays in the socket. So a client that does not read its answers, or
//! asks for more than its disk gives, waits alone. A request for which there is no memory is
//! served in parts. In steady state nothing is allocated.
//!
//! # Ends
//! When the client hangs up or breaks the protocol the port closes at once, and requests that still
//! wait in the disk's queue are dropped: a client that connects again must not find old writes
//! landing on its new ones. Those at the storage already are waited for by the connections that
//! come after. After `NBD_CMD_DISC`, or when the daemon drains the disk, requests that were taken
//! are answered first.

use super::bitmaps::Bitmap;
use super::budget::Account;
use super::draining::Draining;
use super::intake::{Assembling, Piece, Taken, Target, Whole};
use super::memory::{Arena, Inbox, NoBuffer};
use super::phase::{HangUpWatch, Motion, Pages, Phase, PlacedWrites, Receiving};
use super::send_queue::{SendError, SendQueue};
use super::splice::Splicer;
use super::tag::Tag;
use super::translate::{Command, export};
use headgate_engine::port::{Detach, PageUse, Port, PortCommand, PortEvent, PortIo, Rest};
use headgate_engine::request::{Completion, DiskInfo, Durability, MAX_REQUEST, Op, Request};
use headgate_nbd::server::Writes;
use headgate_nbd::server::command::{Replies, Session};
use headgate_nbd::server::stream::{Event, Requests, StreamError};
use slab::Slab;
use std::any::Any;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use thiserror::Error;

/// The most requests of one connection that are taken and not answered.
pub const MAX_OUTSTANDING: usize = 1024;

/// Received and not yet used, in bytes: a deep queue of 4 KiB writes.
const INBOX_BYTES: usize = 256 << 10;

/// From this payload on, in bytes, a write is received into its buffer.
const LONG_WRITE: u32 = 32 << 10;

/// From this length on, in bytes, a read of an image in memory is spliced. Three system calls cost
/// as much as copying half of it.
const LONG_READ: u32 = 32 << 10;

/// The most bytes of answers without data that wait to be sent, before the port takes nothing more.
const MAX_UNSENT: usize = 64 << 10;

/// What is received at a time from a client that sends long writes, in bytes: the less of a payload
/// comes along with its head, the less is copied.
const SHORT_RECEIVE: usize = 4 << 10;

/// From this payload on, in bytes, a write is received to its place in an image in memory.
const LONG_PLACED: u32 = 32 << 10;

/// Keys of the port's ring operations.
const RECEIVE: u32 = 0;
const SEND: u32 = 1;
const WATCH: u32 = 2;

/// To a port from its control thread: the connections of its disk that had closed before it have
/// ended.
#[derive(Clone, Copy, Debug)]
pub struct Drained;

/// To a port that does nothing: it gives back the memory that it does not use.
#[derive(Clone, Copy, Debug)]
pub struct Reclaim;

/// Why a connection ended, but for the client's own wish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
enum Ended {
    #[error("the client hung up")]
    HungUp,
    #[error("receiving failed: {}", io::Error::from_raw_os_error(*.0))]
    Receive(i32),
    #[error(transparent)]
    Send(#[from] SendError),
    #[error(transparent)]
    Protocol(#[from] StreamError),
    #[error("the disk failed in the middle of an answer")]
    HalfAnswer,
}

/// One connection in transmission.
pub struct NbdPort {
    /// What counts connections. Goes before the socket: a client that sees the end finds the place
    /// free.
    _guard: Box<dyn Any + Send>,
    socket: OwnedFd,
    session: Session,
    requests: Requests,
    inbox: Inbox,
    arena: Arena,
    send_queue: SendQueue,
    splicer: Option<Splicer>,
    placed_writes: PlacedWrites,
    pages: Pages,
    taken: Slab<Taken>,
    assembling: Option<Assembling>,
    longest_piece: u32,
    /// Requests whose next piece waits for room at the disk.
    continuing: Vec<usize>,
    receiving: Receiving,
    watch: HangUpWatch,
    /// The most that the next receive into the inbox takes.
    receive_at_most: usize,
    phase: Phase,
    motion: Motion,
    draining: Arc<Draining>,
    tag: Tag,
    writes: Writes,
    bitmaps: Arc<[Bitmap]>,
    account: Arc<Account>,
}

impl NbdPort {
    /// A port for a client that agreed on `session` over `socket`. `early` are bytes that came with
    /// the last option. `draining` counts the disk's earlier connections: the port takes nothing
    /// before they have drained and [`Drained`] says so. `account` allows memory. `guard` is
    /// dropped with the port.
    ///
    /// # Errors
    /// There is no memory for the buffers.
    pub fn new(
        socket: OwnedFd,
        session: Session,
        early: &[u8],
        draining: Arc<Draining>,
        account: Arc<Account>,
        guard: Box<dyn Any + Send>,
    ) -> io::Result<NbdPort> {
        let mut send_queue = SendQueue::default();
        if let Replies::Counted(version) = session.replies {
            send_queue.tell_charges(version);
        }
        Ok(NbdPort {
            _guard: guard,
            socket,
            session,
            requests: Requests::new(session),
            inbox: Inbox::map(INBOX_BYTES, early, account.clone())?,
            arena: Arena::map(account.clone())?,
            send_queue,
            splicer: None,
            placed_writes: PlacedWrites::Off,
            pages: Pages::InUse,
            taken: Slab::with_capacity(64),
            assembling: None,
            longest_piece: MAX_REQUEST as u32,
            continuing: Vec::new(),
            receiving: Receiving::Nothing,
            watch: HangUpWatch::Off,
            receive_at_most: INBOX_BYTES,
            phase: Phase::Waiting,
            motion: Motion::Going,
            draining,
            tag: Tag::none(),
            writes: Writes::Allowed,
            bitmaps: Arc::default(),
            account,
        })
    }

    /// Every request shall carry this priority.
    pub(super) fn carry(&mut self, tag: Tag) {
        self.tag = tag;
    }

    /// Whether the client may write.
    pub(super) fn take_writes(&mut self, writes: Writes) {
        self.writes = writes;
    }

    /// The bitmaps behind the contexts that the client selected.
    pub(super) fn know_bitmaps(&mut self, bitmaps: Arc<[Bitmap]>) {
        self.bitmaps = bitmaps;
    }

    /// Longer ranges without data than `longest`, which is [`MAX_REQUEST`] unless set, go to the
    /// disk in pieces.
    #[cfg(any(test, feature = "harness"))]
    pub(super) fn set_longest_piece(&mut self, longest: u32) {
        self.longest_piece = longest;
    }

    /// Takes what can be taken.
    fn pump(&mut self, io: &mut dyn PortIo) {
        if let Err(ended) = self.take_requests(io) {
            self.end(io, ended);
        }
    }

    fn take_requests(&mut self, io: &mut dyn PortIo) -> Result<(), Ended> {
        while !self.continuing.is_empty() && io.room() > 0 {
            if let Some(key) = self.continuing.pop() {
                self.submit(io, key);
            }
        }
        while self.phase == Phase::Open && !self.leaves_intake() {
            if self.assembling.is_some() {
                if !self.finish_intake(io) {
                    break;
                }
                continue;
            }
            if self.taken.len() + self.send_queue.replies() >= MAX_OUTSTANDING
                || self.send_queue.unsent_bytes() >= MAX_UNSENT
            {
                break;
            }
            let (used, event) =
                self.requests.poll(self.inbox.bytes(), export(io.disk(), self.writes))?;
            self.inbox.consume(used);
            if self.session.replies.are_counted() {
                self.report(io, &event);
            }
            match event {
                Event::NeedBytes => break,
                Event::Command(command) => {
                    let mut command = Command::from(command);
                    command.ioprio = self.requests.report().ioprio;
                    if !command.is_aligned(io.disk().block_size) {
                        self.begin_unaligned(io, command);
                        continue;
                    }
                    match command.op {
                        _ if self.pages == Pages::Leaving => {}
                        Op::Read if command.len >= LONG_READ && self.splicer.is_some() => {
                            command.op = Op::Splice;
                        }
                        Op::Write(Durability::Cached)
                            if command.len >= LONG_PLACED
                                && self.placed_writes == PlacedWrites::On =>
                        {
                            command.op = Op::PlacedWrite;
                        }
                        _ => {}
                    }
                    self.receive_at_most = match command.op {
                        Op::PlacedWrite => self.requests.head_len(),
                        Op::Write(_) if command.len >= LONG_WRITE => SHORT_RECEIVE,
                        Op::Write(_) => INBOX_BYTES,
                        _ => self.receive_at_most.max(SHORT_RECEIVE),
                    };
                    self.assembling = Some(Assembling { command, target: Target::None });
                }
                Event::Refused { cookie, error } => self.refuse(cookie, error),
                Event::Disconnect => self.phase = Phase::Draining,
            }
        }
        Ok(())
    }

    /// Brings the request being taken as far as possible; `true` when it is at the disk.
    fn finish_intake(&mut self, io: &mut dyn PortIo) -> bool {
        let Some(assembling) = &mut self.assembling else { return true };
        if assembling.command.op == Op::PlacedWrite {
            return self.finish_placed(io);
        }
        if matches!(assembling.target, Target::Parts(_)) {
            return self.finish_parts(io);
        }
        if matches!(assembling.target, Target::Unaligned(_)) {
            return self.finish_unaligned(io);
        }
        if assembling.command.op.moves_data() && matches!(assembling.target, Target::None) {
            match self.arena.take(assembling.command.len) {
                Ok(buffer) => assembling.target = Target::Buffer(buffer),
                // What this connection holds comes back first.
                Err(NoBuffer::Full) => return false,
                Err(NoBuffer::Denied) => return self.begin_parts(io),
            }
        }
        let left = self.requests.payload_left();
        if left > 0
            && let Target::Buffer(buffer) = &assembling.target
        {
            let filled = assembling.command.len - left;
            let target = self.arena.at(buffer).wrapping_add(filled as usize);
            // SAFETY: the buffer holds the command's length, of which `left` bytes are behind
            // `target`, and only the receive under way may use it. If there is one into the buffer,
            // the inbox was empty before it and still is, and nothing is moved.
            let moved = unsafe { self.inbox.move_to(target, left as usize) } as u32;
            self.requests.on_payload(moved);
            if moved < left {
                return false;
            }
        }
        if io.room() == 0 {
            return false;
        }
        if let Some(Assembling { command, target }) = self.assembling.take() {
            let buffer = if let Target::Buffer(buffer) = target { Some(buffer) } else { None };
            let key = self.taken.insert(Taken {
                command,
                buffer,
                whole: Whole::Yes,
                piece: Piece::first(&command, self.longest_piece),
            });
            self.submit(io, key);
        }
        true
    }

    /// Sends a request's current piece to the disk, which has room.
    fn submit(&mut self, io: &mut dyn PortIo, key: usize) {
        let Some(taken) = self.taken.get(key) else { return };
        let Piece { offset, len } = taken.piece;
        let ioprio = match taken.command.ioprio {
            0 => self.tag.ioprio(),
            own => own,
        };
        let request = Request {
            op: taken.command.op,
            offset,
            len: u64::from(len),
            cookie: key as u64,
            ioprio,
        };
        match &taken.buffer {
            Some(block) => {
                let buffer =
                    libc::iovec { iov_base: self.arena.at(block).cast(), iov_len: len as usize };
                // SAFETY: the block holds the whole request and goes back to the arena when the
                // answer is out, at the earliest; the arena lives as long as the port.
                unsafe { io.submit(request, &[buffer]) }
            }
            // SAFETY: no buffers.
            None => unsafe { io.submit(request, &[]) },
        }
    }

    /// Nothing is taken any more. What is half received is not a request.
    fn drain(&mut self) {
        if matches!(self.phase, Phase::Waiting | Phase::Open) {
            self.phase = Phase::Draining;
            self.abandon_placed();
        }
    }

    fn end(&mut self, io: &mut dyn PortIo, why: Ended) {
        let disk = io.disk().name.as_str();
        match why {
            Ended::Protocol(error) => {
                tracing::warn!(disk, %error, "the NBD client was disconnected");
            }
            why => {
                let outstanding = self.taken.len();
                tracing::debug!(disk, outstanding, "NBD connection ended: {why}");
            }
        }
        self.close(io);
    }

    fn close(&mut self, io: &mut dyn PortIo) {
        if self.phase != Phase::Closed {
            self.phase = Phase::Closed;
            self.draining.begin();
            io.close();
        }
    }
}

impl Drop for NbdPort {
    fn drop(&mut self) {
        if self.phase == Phase::Closed {
            self.draining.end();
        }
    }
}

impl Port for NbdPort {
    fn on_start(&mut self, io: &mut dyn PortIo) {
        self.use_pages(io);
        if self.draining.is_none() {
            self.phase = Phase::Open;
        }
        self.pump(io);
    }

    fn on_event(&mut self, io: &mut dyn PortIo, event: PortEvent) {
        match event.key {
            _ if self.phase == Phase::Closed => {}
            RECEIVE => {
                if self.phase == Phase::Open {
                    self.on_received(io, event.result);
                } else {
                    self.receiving = Receiving::Nothing;
                }
            }
            SEND => self.on_send_event(io, event.result),
            WATCH => self.on_watched(io, event.more),
            _ => {}
        }
    }

    fn on_command(&mut self, io: &mut dyn PortIo, command: PortCommand) {
        if command.is::<Drained>() && self.phase == Phase::Waiting {
            self.phase = Phase::Open;
            self.pump(io);
        } else if command.is::<Reclaim>() && self.phase != Phase::Closed {
            self.reclaim(io);
            self.pump(io);
        }
    }

    fn leave_pages(&mut self) -> PageUse {
        self.begin_to_leave()
    }

    fn on_new_storage(&mut self, io: &mut dyn PortIo) {
        self.use_pages(io);
        self.pump(io);
    }

    fn come_to_rest(&mut self, io: &mut dyn PortIo) -> Rest {
        self.rest(io)
    }

    fn on_arrive(&mut self, io: &mut dyn PortIo) {
        self.arrive(io);
    }

    fn on_room(&mut self, io: &mut dyn PortIo) {
        self.pump(io);
    }

    fn on_block_locked(&mut self, io: &mut dyn PortIo) {
        if self.phase != Phase::Closed {
            self.on_locked(io);
        }
    }

    fn on_complete(&mut self, io: &mut dyn PortIo, completion: Completion) {
        let Ok(key) = usize::try_from(completion.cookie) else { return };
        if self.phase == Phase::Closed {
            return;
        }
        self.send_queue.charge(completion.charge);
        self.send_queue.know_window(|| io.window());
        if completion.result.is_ok()
            && let Some(taken) = self.taken.get_mut(key)
            && let Some(next) = taken.piece.next(&taken.command, self.longest_piece)
        {
            taken.piece = next;
            self.continuing.push(key);
            return self.pump(io);
        }
        if self.taken.get(key).is_some_and(|taken| taken.whole == Whole::No) {
            return self.on_part(io, key, completion.result);
        }
        if self.taken.get(key).is_some_and(|taken| taken.command.op == Op::PlacedWrite) {
            return self.on_granted(io, key, completion.result);
        }
        if let Some(taken) = self.taken.try_remove(key) {
            self.answer(taken, &completion);
        }
        if self.assembling.as_ref().is_some_and(|a| matches!(a.target, Target::None)) {
            self.pump(io);
        }
    }

    fn on_turn_end(&mut self, io: &mut dyn PortIo) {
        if self.phase == Phase::Closed {
            return;
        }
        if let Err(ended) = self.send(io) {
            return self.end(io, ended);
        }
        // Behind the answers: the client has them while the kernel looks for more requests.
        self.receive(io);
        self.account.on_turn();
        if self.account.is_tight() {
            self.arena.give_back_unused();
        }
        if self.phase == Phase::Draining && io.held() > 0 {
            // Nobody knows for how long, and a client that has gone does not ask again.
            let cookies: Vec<u64> = self.taken.iter().map(|(key, _)| key as u64).collect();
            io.give_up(&cookies);
        }
        if self.phase == Phase::Draining && self.taken.is_empty() && self.send_queue.replies() == 0
        {
            self.close(io);
        }
    }

    /// The size is read from the disk with every request. NBD has no word for telling the client.
    fn on_resize(&mut self, _io: &mut dyn PortIo, _info: &DiskInfo) {}

    fn on_detach(&mut self, io: &mut dyn PortIo, how: Detach) {
        match how {
            Detach::Drain => self.drain(),
            Detach::Now => self.close(io),
        }
    }
}

#[path = "port_answers.rs"]
mod answers;
#[path = "port_counters.rs"]
mod counters;
#[path = "port_pages.rs"]
mod pages;
#[path = "port_parts.rs"]
mod parts;
#[path = "port_placed.rs"]
mod placed;
#[path = "port_receive.rs"]
mod receive;
#[path = "port_rest.rs"]
mod rest;
#[path = "port_unaligned.rs"]
mod unaligned;

#[cfg(test)]
#[path = "port_tests.rs"]
mod tests;
