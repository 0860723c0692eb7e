//! A shard in memory around one [`NbdPort`]: the caller decides what the client sends and reads, and when and how the disk
//! answers. Time does not pass.

use super::port::NbdPort;
use super::proto::command::Session;
use headgate_engine::port::{Detach, Port, PortEvent, PortIo};
use headgate_engine::request::{Completion, DiskInfo, Extent, ExtentKind, IoError, Op, Request};
use headgate_units::Nanos;
use std::fs::File;
use std::os::fd::RawFd;

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
    /// How many requests the disk's queue holds.
    pub depth: usize,
    asked_for_room: bool,
    receive: Option<(*mut u8, usize, u32)>,
    send: Option<(*const libc::msghdr, u32)>,
    /// Has the port closed.
    pub closed: bool,
    /// The longest receive that the port asked for since this was set.
    pub longest_receive: usize,
}

impl PortIo for Shard {
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
            assert!(buffers.iter().all(|b| (b.iov_base as usize).is_multiple_of(4096)), "buffer not aligned");
        }
        self.queue.push(Queued { request, buffers: buffers.to_vec() });
    }

    fn poll(&mut self, _fd: RawFd, _key: u32) {}

    unsafe fn recv(&mut self, _fd: RawFd, buf: *mut u8, len: usize, key: u32) {
        assert!(self.receive.is_none(), "two receives at once");
        assert!(len > 0, "a receive of nothing");
        self.longest_receive = self.longest_receive.max(len);
        self.receive = Some((buf, len, key));
    }

    unsafe fn send(&mut self, _fd: RawFd, msg: *const libc::msghdr, key: u32) {
        assert!(self.send.is_none(), "two sends at once");
        self.send = Some((msg, key));
    }

    fn cancel(&mut self, _key: u32) {}

    fn close(&mut self) {
        self.closed = true;
    }

    fn expedite(&mut self) {}
}

/// How the disk answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// As asked.
    Served,
    /// With an error, and nothing done.
    Failed(IoError),
}

/// The port, its shard, and what its client has received.
pub struct Harness {
    port: NbdPort,
    /// The shard.
    pub shard: Shard,
    /// All bytes that the client has received.
    pub output: Vec<u8>,
}

impl Harness {
    /// A started port before a disk of zeroes whose queue holds `depth` requests.
    ///
    /// # Panics
    /// When the system has no memory or no `/dev/null`: this is for tests.
    pub fn new(session: Session, size: usize, depth: usize, early: &[u8]) -> Harness {
        let socket = File::open("/dev/null").expect("/dev/null exists").into();
        let port = NbdPort::new(socket, session, early, Box::new(())).expect("there is memory");
        let shard = Shard {
            disk: DiskInfo { name: "disk".into(), size: size as u64, block_size: 512 },
            content: vec![0; size],
            queue: Vec::new(),
            depth,
            asked_for_room: false,
            receive: None,
            send: None,
            closed: false,
            longest_receive: 0,
        };
        let mut harness = Harness { port, shard, output: Vec::new() };
        harness.port.on_start(&mut harness.shard);
        harness.end_turn();
        harness
    }

    /// The client sends `bytes`; answers how many of them the port received before it stopped receiving.
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
        let Some((target, len, key)) = self.shard.receive.take() else { return 0 };
        let len = len.min(bytes.len());
        // SAFETY: the port promised `len` writable bytes until the event.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), target, len) };
        self.event(key, len as i32);
        len
    }

    /// The client's end of the connection closes.
    pub fn hang_up(&mut self) {
        if let Some((_, _, key)) = self.shard.receive.take() {
            self.event(key, 0);
        }
    }

    /// The client reads the message that the port is sending; `false` when there is none.
    pub fn read(&mut self) -> bool {
        if self.shard.closed {
            return false;
        }
        let Some((message, key)) = self.shard.send.take() else { return false };
        let before = self.output.len();
        // SAFETY: the port promised that the message stays until the event.
        unsafe {
            let vectors = std::slice::from_raw_parts((*message).msg_iov, (*message).msg_iovlen);
            for v in vectors {
                self.output.extend_from_slice(std::slice::from_raw_parts(v.iov_base.cast(), v.iov_len));
            }
        }
        self.event(key, (self.output.len() - before) as i32);
        true
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
        self.port.on_complete(&mut self.shard, Completion { cookie: request.cookie, result, extents });
        if self.shard.asked_for_room && self.shard.queue.len() < self.shard.depth {
            self.shard.asked_for_room = false;
            self.port.on_room(&mut self.shard);
        }
        self.end_turn();
        request
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
            } else if !self.read() {
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
            Op::Flush | Op::Cache => {}
            Op::BlockStatus => {
                let kind = |block: &[u8]| {
                    if block.iter().all(|&byte| byte == 0) { ExtentKind::Hole } else { ExtentKind::Data }
                };
                return range.chunks(512).map(|b| Extent { len: b.len() as u64, kind: kind(b) }).collect();
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
