//! A client on the shard's own thread, which always keeps as many requests outstanding.

use headgate_engine::port::{Detach, Port, PortCommand, PortEvent, PortIo, Rest};
use headgate_engine::request::{Completion, DiskInfo, Op, Request};

pub const BLOCK: u64 = 4096;

/// Whether a client goes on after a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    GoOn,
    Stop,
}

pub struct Closed {
    missing: usize,
    seed: u64,
    blocks: u64,
    buffer: Vec<u8>,
    ending: bool,
    /// What is asked, by a random number.
    op: fn(u64) -> Op,
    /// Is called after each request.
    ended: Box<dyn FnMut() -> Then + Send>,
}

impl Closed {
    /// Requests of a block anywhere on a disk of this size.
    pub fn new(depth: usize, size: u64, seed: u64, op: fn(u64) -> Op) -> Closed {
        Closed::long(depth, size, seed, op, BLOCK)
    }

    /// Requests of this many bytes, from any block on that leaves room.
    pub fn long(depth: usize, size: u64, seed: u64, op: fn(u64) -> Op, len: u64) -> Closed {
        let (blocks, buffer) = ((size - len) / BLOCK + 1, vec![0; len as usize]);
        let ended = Box::new(|| Then::GoOn);
        Closed { missing: depth, seed, blocks, buffer, ending: false, op, ended }
    }

    pub fn after_each(mut self, ended: impl FnMut() -> Then + Send + 'static) -> Closed {
        self.ended = Box::new(ended);
        self
    }

    fn feed(&mut self, io: &mut dyn PortIo) {
        while !self.ending && self.missing > 0 && io.room() > 0 {
            self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let op = (self.op)(self.seed >> 57);
            let (offset, len) = match op.moves_data() {
                true => ((self.seed >> 33) % self.blocks * BLOCK, self.buffer.len() as u64),
                false => (0, 0),
            };
            let request = Request { op, offset, len, cookie: 0, ioprio: 0 };
            let start = self.buffer.as_mut_ptr().cast();
            let buffer = [libc::iovec { iov_base: start, iov_len: len as usize }];
            // SAFETY: the buffer lives as long as the port; that requests share it is intended.
            unsafe { io.submit(request, if len == 0 { &[] } else { &buffer }) };
            self.missing -= 1;
        }
    }
}

impl Port for Closed {
    fn on_start(&mut self, io: &mut dyn PortIo) {
        self.feed(io);
    }
    fn on_event(&mut self, _: &mut dyn PortIo, _: PortEvent) {}
    fn on_command(&mut self, _: &mut dyn PortIo, _: PortCommand) {}
    fn on_room(&mut self, io: &mut dyn PortIo) {
        self.feed(io);
    }
    fn on_complete(&mut self, io: &mut dyn PortIo, completion: Completion) {
        completion.result.unwrap();
        self.missing += 1;
        self.ending |= (self.ended)() == Then::Stop;
        self.feed(io);
    }
    fn on_turn_end(&mut self, _: &mut dyn PortIo) {}
    fn on_resize(&mut self, _: &mut dyn PortIo, _: &DiskInfo) {}
    fn come_to_rest(&mut self, _: &mut dyn PortIo) -> Rest {
        Rest::Busy
    }
    fn on_arrive(&mut self, _: &mut dyn PortIo) {}
    fn on_detach(&mut self, io: &mut dyn PortIo, _: Detach) {
        self.ending = true;
        io.close();
    }
}
