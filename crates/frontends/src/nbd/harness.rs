//! A shard in memory around one [`NbdPort`]: the caller decides what the client sends and reads,
//! and when and how the disk answers. Time does not pass.

use super::Tag;
use super::bitmaps::Bitmap;
use super::budget::{Account, Budget};
use super::draining::Draining;
use super::port::{Drained, NbdPort, Reclaim};
use headgate_engine::port::{Detach, PageUse, Port, PortEvent, PortIo, Rest, Until};
use headgate_engine::request::{
    Charge, Completion, DiskInfo, Extent, ExtentKind, IoError, Op, Request,
};
use headgate_nbd::server::command::Session;
use headgate_qos::ServedElsewhere;
use headgate_qos::window::Slots;
use headgate_units::Nanos;
use std::io::{self, Read as _};
use std::os::fd::RawFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

mod words;

pub use words::{Outcome, Space, Splicing};

/// Longer ranges without data go to the disk in pieces of this length, so that small disks show it.
pub const PIECE: u32 = 64 << 10;

/// A request that the disk has not answered.
#[derive(Debug)]
pub struct Queued {
    /// The request.
    pub request: Request,
    buffers: Vec<libc::iovec>,
}

/// What the shard does for the port.
#[derive(Debug)]
pub struct Shard {
    disk: DiskInfo,
    /// The disk's bytes.
    pub content: Vec<u8>,
    /// Requests at the disk.
    pub queue: Vec<Queued>,
    /// The window of the disk's storage, if that is known.
    pub window: Option<Slots>,
    /// How many requests the disk's queue holds.
    depth: usize,
    asked_for_room: bool,
    receive: Option<(*mut u8, usize, u32)>,
    /// Key of the socket's watch.
    watched: Option<u32>,
    cancelled: Option<u32>,
    cancelled_receive: bool,
    send: Option<(*const libc::msghdr, u32)>,
    /// Key of the wait for room in the socket.
    blocked: Option<u32>,
    splicing: Splicing,
    /// Where the image ends when it is asked to lend.
    pub end: usize,
    /// Whether the image has space for what is written to its place.
    pub space: Space,
    /// Whether the disk holds its requests, and what the port gave up of them.
    pub holds: bool,
    given_up: Vec<u64>,
    /// Has the port closed.
    pub closed: bool,
    /// The longest receive that the port asked for since this was set.
    pub longest_receive: usize,
    /// Where the block begins that the port asked for.
    asked_block: Option<u64>,
    /// Where the block begins that is the port's.
    pub block: Option<u64>,
    /// What the port said that the disk received at other servers.
    pub elsewhere: Vec<ServedElsewhere>,
    /// What the disk is charged for each request.
    pub charge: Charge,
}

impl PortIo for Shard {
    fn window(&self) -> Option<Slots> {
        self.window
    }

    fn now(&self) -> Nanos {
        Nanos::ZERO
    }

    fn disk(&self) -> &DiskInfo {
        &self.disk
    }

    fn room(&mut self) -> usize {
        let room = self.depth.saturating_sub(self.queue.len());
        self.asked_for_room |= room == 0;
        room
    }

    unsafe fn submit(&mut self, request: Request, buffers: &[libc::iovec]) {
        assert!(self.queue.len() < self.depth, "submitted without room");
        assert!(!self.closed, "submitted after close");
        let mask = u64::from(self.disk.block_size) - 1;
        assert_eq!((request.offset | request.len) & mask, 0, "misaligned: {request:?}");
        assert!(request.offset + request.len <= self.disk.size, "out of range: {request:?}");
        if request.op.moves_data() {
            assert_eq!(buffers.iter().map(|b| b.iov_len as u64).sum::<u64>(), request.len);
            assert!(
                buffers.iter().all(|b| (b.iov_base as usize).is_multiple_of(4096)),
                "buffer not aligned"
            );
        }
        self.queue.push(Queued { request, buffers: buffers.to_vec() });
    }

    fn served_elsewhere(&mut self, elsewhere: ServedElsewhere) {
        self.elsewhere.push(elsewhere);
    }

    fn poll_readable(&mut self, _fd: RawFd, key: u32) {
        assert!(self.watched.is_none(), "two watches at once");
        assert!(self.receive.is_none(), "a receive tells as much as a watch");
        self.watched = Some(key);
    }

    unsafe fn recv(&mut self, _fd: RawFd, buf: *mut u8, len: usize, _until: Until, key: u32) {
        assert!(self.receive.is_none(), "two receives at once");
        assert!(len > 0, "a receive of nothing");
        self.longest_receive = self.longest_receive.max(len);
        self.receive = Some((buf, len, key));
    }

    unsafe fn send(&mut self, _fd: RawFd, msg: *const libc::msghdr, key: u32) {
        assert!(self.send.is_none(), "two sends at once");
        self.send = Some((msg, key));
    }

    fn poll_writable(&mut self, _fd: RawFd, key: u32) {
        assert!(self.send.is_none() && self.blocked.is_none(), "two sends at once");
        self.blocked = Some(key);
    }

    fn can_splice(&self) -> bool {
        self.splicing == Splicing::On
    }

    fn can_place(&self) -> bool {
        self.splicing == Splicing::On
    }

    fn map_for_recv(&mut self, offset: u64, len: u32) -> Option<*mut u8> {
        let end = offset as usize + len as usize;
        (end <= self.end).then(|| self.content[offset as usize..end].as_mut_ptr())
    }

    fn write_placed(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if self.space == Space::Full {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        let start = offset as usize;
        self.content[start..start + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn read_placed(&mut self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let start = offset as usize;
        bytes.copy_from_slice(&self.content[start..start + bytes.len()]);
        Ok(())
    }

    fn splice_out(&mut self, offset: u64, len: u32, pipe: RawFd) -> io::Result<u32> {
        let range = &self.content
            [(offset as usize).min(self.end)..self.end.min(offset as usize + len as usize)];
        // SAFETY: reads from a live slice.
        let put = unsafe { libc::write(pipe, range.as_ptr().cast(), range.len()) };
        u32::try_from(put).map_err(|_| io::Error::last_os_error())
    }

    fn lock_block(&mut self, offset: u64, len: u32) {
        assert!(self.asked_block.is_none() && self.block.is_none(), "one block at a time");
        assert_eq!((offset % 512, len), (0, self.disk.block_size));
        self.asked_block = Some(offset);
    }

    fn unlock_block(&mut self) {
        (self.asked_block, self.block) = (None, None);
    }

    fn cancel(&mut self, key: u32) {
        if self.watched == Some(key) {
            self.cancelled = Some(key);
        } else {
            let under_way = self.receive.map(|(_, _, key)| key);
            assert_eq!(under_way, Some(key), "only a watch or a receive is ever cancelled");
            self.cancelled_receive = true;
        }
    }

    fn close(&mut self) {
        self.closed = true;
    }

    fn take_back(&mut self, _: &[u64]) -> usize {
        panic!("an NBD client takes nothing back")
    }

    fn held(&self) -> usize {
        if self.holds { self.queue.len() } else { 0 }
    }

    fn give_up(&mut self, cookies: &[u64]) {
        self.given_up.extend(cookies);
    }
}

/// As much memory as any connection asks for.
fn plenty() -> Arc<Account> {
    Budget::new(1 << 30).account("disk")
}

/// The port, its shard, and what its client has received.
pub struct Harness {
    port: NbdPort,
    /// The client's end of the port's socket. Only its closing is seen; what is sent goes through
    /// [`Harness::send`].
    client: Option<UnixStream>,
    /// The shard.
    pub shard: Shard,
    /// All bytes that the client has received.
    pub output: Vec<u8>,
}

impl Harness {
    /// A started port before a disk of zeroes whose queue holds `depth` requests.
    ///
    /// # Panics
    /// When the system has no memory or no sockets: this is for tests.
    pub fn new(session: Session, size: usize, depth: usize, early: &[u8]) -> Harness {
        Harness::after(Arc::default(), session, size, depth, early)
    }

    /// The same, before a disk that lends.
    ///
    /// # Panics
    /// As [`Harness::new`].
    pub fn splicing(session: Session, size: usize, depth: usize) -> Harness {
        Harness::build(Arc::default(), plenty(), session, size, depth, &[], Splicing::On)
    }

    /// The same, with memory as this account allows.
    ///
    /// # Panics
    /// As [`Harness::new`].
    pub fn within(account: Arc<Account>, session: Session, size: usize, depth: usize) -> Harness {
        Harness::build(Arc::default(), account, session, size, depth, &[], Splicing::Off)
    }

    /// The same, on a disk with departing connections.
    ///
    /// # Panics
    /// As [`Harness::new`].
    pub fn after(
        draining: Arc<Draining>,
        session: Session,
        size: usize,
        depth: usize,
        early: &[u8],
    ) -> Harness {
        Harness::build(draining, plenty(), session, size, depth, early, Splicing::Off)
    }

    fn build(
        draining: Arc<Draining>,
        account: Arc<Account>,
        session: Session,
        size: usize,
        depth: usize,
        early: &[u8],
        splicing: Splicing,
    ) -> Harness {
        let (socket, client) = UnixStream::pair().expect("there are sockets");
        let port = NbdPort::new(socket.into(), session, early, draining, account, Box::new(()));
        let mut port = port.expect("there is memory");
        port.set_longest_piece(PIECE);
        let shard = Shard {
            disk: DiskInfo::plain("disk", size as u64, 512),
            content: vec![0; size],
            queue: Vec::new(),
            window: None,
            depth,
            asked_for_room: false,
            receive: None,
            watched: None,
            cancelled: None,
            cancelled_receive: false,
            send: None,
            blocked: None,
            splicing,
            end: size,
            space: Space::Left,
            holds: false,
            given_up: Vec::new(),
            closed: false,
            longest_receive: 0,
            asked_block: None,
            block: None,
            elsewhere: Vec::new(),
            charge: Charge::NONE,
        };
        let mut harness = Harness { port, client: Some(client), shard, output: Vec::new() };
        harness.port.on_start(&mut harness.shard);
        harness.end_turn();
        harness
    }

    /// The disk is about to have other storage.
    pub fn leave_pages(&mut self) -> PageUse {
        self.port.leave_pages()
    }

    /// The disk has other storage.
    pub fn new_storage(&mut self) {
        self.port.on_new_storage(&mut self.shard);
        self.end_turn();
    }

    /// The disk is on another shard soon: what the port says, when what it cancelled has ended. A
    /// receive that it cancels ends with `late`, or with nothing.
    pub fn come_to_rest(&mut self, late: &[u8]) -> Rest {
        let rest = self.port.come_to_rest(&mut self.shard);
        self.end_turn();
        if let Some(key) = self.shard.cancelled.take() {
            self.shard.watched = None;
            self.watch_event(key, -libc::ECANCELED, false);
        }
        if std::mem::take(&mut self.shard.cancelled_receive) {
            match late {
                [] => self.fail_receive(libc::ECANCELED),
                late => assert_eq!(self.receive(late), late.len(), "it fits"),
            }
        }
        rest
    }

    /// Whether the port has an operation under way.
    pub fn is_still(&self) -> bool {
        let Shard { receive, watched, send, blocked, .. } = &self.shard;
        receive.is_none() && watched.is_none() && send.is_none() && blocked.is_none()
    }

    /// The port is on another shard.
    pub fn arrive(&mut self) {
        self.port.on_arrive(&mut self.shard);
        self.end_turn();
    }

    /// Every request shall carry this tag.
    pub fn carry(&mut self, tag: Tag) {
        self.port.carry(tag);
    }

    /// The disk's bitmaps, for the contexts that the session has.
    pub fn know_bitmaps(&mut self, bitmaps: Vec<Bitmap>) {
        self.port.know_bitmaps(bitmaps.into());
    }

    /// The client sends `bytes`; answers how many of them the port received before it stopped
    /// receiving.
    pub fn send(&mut self, bytes: &[u8]) -> usize {
        let mut sent = 0;
        while sent < bytes.len() {
            let taken = self.send_once(&bytes[sent..]);
            if taken == 0 {
                break;
            }
            sent += taken;
        }
        sent
    }

    /// One receive gets as many of `bytes` as it asked for.
    pub fn send_once(&mut self, bytes: &[u8]) -> usize {
        if self.shard.closed || bytes.is_empty() {
            return 0;
        }
        self.settle_watch();
        self.receive(bytes)
    }

    fn receive(&mut self, bytes: &[u8]) -> usize {
        let Some((target, len, key)) = self.shard.receive.take() else { return 0 };
        let len = len.min(bytes.len());
        // SAFETY: the port promised `len` writable bytes until the event.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), target, len) };
        self.event(key, len as i32);
        len
    }

    /// The receive under way fails.
    pub fn fail_receive(&mut self, errno: i32) {
        let (_, _, key) = self.shard.receive.take().expect("no receive is under way");
        self.event(key, -errno);
    }

    /// The client's end of the connection closes.
    pub fn hang_up(&mut self) {
        self.client = None;
        if let Some((_, _, key)) = self.shard.receive.take() {
            self.event(key, 0);
        } else if let Some(key) = self.shard.watched {
            self.watch_event(key, libc::POLLIN.into(), true);
        }
    }

    /// The control thread says that earlier connections have drained.
    pub fn start(&mut self) {
        self.port.on_command(&mut self.shard, Box::new(Drained));
        self.end_turn();
    }

    /// The block that the port asked for is its own. Returns whether it had asked.
    pub fn grant_block(&mut self) -> bool {
        let Some(offset) = self.shard.asked_block.take() else { return false };
        self.shard.block = Some(offset);
        self.port.on_block_locked(&mut self.shard);
        self.end_turn();
        true
    }

    /// The daemon wants back what the port does not use.
    pub fn reclaim(&mut self) {
        self.port.on_command(&mut self.shard, Box::new(Reclaim));
        self.end_turn();
        if self.shard.cancelled_receive
            && let Some((_, _, key)) = self.shard.receive.take()
        {
            self.shard.cancelled_receive = false;
            self.event(key, -libc::ECANCELED);
        }
    }

    /// A cancelled watch ends; one that is not reports what it sees.
    fn settle_watch(&mut self) {
        if let Some(key) = self.shard.cancelled.take() {
            self.shard.watched = None;
            self.watch_event(key, -libc::ECANCELED, false);
        } else if let Some(key) = self.shard.watched {
            self.watch_event(key, libc::POLLIN.into(), true);
        }
    }

    fn watch_event(&mut self, key: u32, result: i32, more: bool) {
        self.port.on_event(&mut self.shard, PortEvent { key, result, more });
        self.end_turn();
    }

    /// The client reads the message that the port is sending; `false` when there is none.
    pub fn read(&mut self) -> bool {
        if self.shard.closed {
            return false;
        }
        if self.take_lent() {
            return true;
        }
        let Some((message, key)) = self.shard.send.take() else { return false };
        let before = self.output.len();
        // SAFETY: the port promised that the message stays until the event.
        unsafe {
            let vectors = std::slice::from_raw_parts((*message).msg_iov, (*message).msg_iovlen);
            for v in vectors {
                self.output
                    .extend_from_slice(std::slice::from_raw_parts(v.iov_base.cast(), v.iov_len));
            }
        }
        self.event(key, (self.output.len() - before) as i32);
        true
    }

    /// The client reads what was spliced to it, as much as its socket holds.
    fn take_lent(&mut self) -> bool {
        let Some(client) = &mut self.client else { return false };
        let before = self.output.len();
        client.set_nonblocking(true).expect("a socket");
        // It ends with an error when the socket is empty; what came before counts.
        let _ = client.read_to_end(&mut self.output);
        let took = self.output.len() > before;
        if let Some(key) = self.shard.blocked.take() {
            self.event(key, libc::POLLOUT.into());
            return true;
        }
        took
    }

    /// The disk answers the request at `index` of its queue.
    pub fn complete(&mut self, index: usize, outcome: Outcome) -> Request {
        let Queued { request, buffers } = self.shard.queue.remove(index);
        let mut extents = Vec::new();
        let result = match outcome {
            Outcome::Failed(error) => Err(error),
            Outcome::Served => {
                extents = self.serve(request, &buffers);
                Ok(())
            }
        };
        let charge = self.shard.charge;
        let completion = Completion { cookie: request.cookie, result, extents, charge };
        self.port.on_complete(&mut self.shard, completion);
        self.tell_room();
        request
    }

    /// The disk fails what the port gave up of what it holds.
    pub fn fail_given_up(&mut self) {
        for cookie in std::mem::take(&mut self.shard.given_up) {
            let at = self.shard.queue.iter().position(|queued| queued.request.cookie == cookie);
            at.into_iter().for_each(|at| _ = self.complete(at, Outcome::Failed(IoError::NoSpace)));
        }
    }

    /// The disk's other clients leave room for `depth` requests of this one, at least one.
    pub fn set_depth(&mut self, depth: usize) {
        self.shard.depth = depth.max(1);
        self.tell_room();
    }

    /// Offers room to the port. As in a shard, a port that has closed hears nothing of it.
    fn tell_room(&mut self) {
        let has_room = self.shard.queue.len() < self.shard.depth;
        if !self.shard.closed && self.shard.asked_for_room && has_room {
            self.shard.asked_for_room = false;
            self.port.on_room(&mut self.shard);
        }
        self.end_turn();
    }

    /// The daemon ends the port.
    pub fn detach(&mut self, how: Detach) {
        self.port.on_detach(&mut self.shard, how);
        self.end_turn();
    }

    /// Answers everything and reads all answers, until nothing moves.
    pub fn settle(&mut self) {
        while !self.shard.closed {
            if !self.shard.queue.is_empty() {
                self.complete(0, Outcome::Served);
            } else if !self.grant_block() && !self.read() {
                break;
            }
        }
    }

    fn serve(&mut self, request: Request, buffers: &[libc::iovec]) -> Vec<Extent> {
        let start = request.offset as usize;
        let range = &mut self.shard.content[start..start + request.len as usize];
        match request.op {
            Op::Read | Op::Write(_) => {
                let mut at = 0;
                for buffer in buffers {
                    // SAFETY: the port promised that its buffers are valid until the completion.
                    let bytes = unsafe {
                        std::slice::from_raw_parts_mut(buffer.iov_base.cast::<u8>(), buffer.iov_len)
                    };
                    let part = &mut range[at..at + bytes.len()];
                    if request.op == Op::Read {
                        bytes.copy_from_slice(part)
                    } else {
                        part.copy_from_slice(bytes)
                    }
                    at += bytes.len();
                }
            }
            Op::Discard | Op::WriteZeroes { .. } => range.fill(0),
            Op::Flush | Op::Cache | Op::Splice | Op::PlacedWrite | Op::Share => {}
            Op::BlockStatus => {
                let kind = |block: &[u8]| {
                    if block.iter().all(|&byte| byte == 0) {
                        ExtentKind::Hole
                    } else {
                        ExtentKind::Data
                    }
                };
                return range
                    .chunks(512)
                    .map(|b| Extent { len: b.len() as u64, kind: kind(b) })
                    .collect();
            }
        }
        Vec::new()
    }

    fn event(&mut self, key: u32, result: i32) {
        self.port.on_event(&mut self.shard, PortEvent { key, result, more: false });
        self.end_turn();
    }

    fn end_turn(&mut self) {
        self.port.on_turn_end(&mut self.shard);
    }
}
