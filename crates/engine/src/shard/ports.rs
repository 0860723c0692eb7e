//! The shard's side of ports: their bookkeeping and what they may ask for.

use super::core::Core;
use super::polled::{POLL_FIRST, Receive};
use crate::backend::Backend;
use crate::backend::storage::Storage;
use crate::kernel::ring::Owner;
use crate::kernel::send::{Sent, send_now};
use crate::port::{PollMode, PortIo, Until};
use crate::request::{DiskInfo, Request};
use crate::tables::disk::ShardDisk;
use crate::tables::lane::Lane;
use headgate_polling::Mode;
use headgate_qos::ServedElsewhere;
use headgate_qos::window::Slots;
use headgate_units::Nanos;
use io_uring::{opcode, types};
use std::io;
use std::os::fd::RawFd;

/// A [`PortIo`] for one call into one port.
pub(crate) struct Io<'a> {
    pub core: &'a mut Core,
    pub port: u32,
    pub disk: u32,
}

impl Io<'_> {
    fn storage(&self) -> &Storage {
        &self.core.ctx.tables.disks[self.disk as usize].storage
    }

    fn note_change(&self, offset: u64, len: u64) {
        self.core.ctx.tables.disks[self.disk as usize].note_change(offset, len);
    }

    fn begin(&mut self, key: u32) {
        let state = &mut self.core.ctx.tables.ports[self.port as usize];
        debug_assert!(!state.active.contains(&key), "one operation per key");
        state.active.push(key);
    }

    fn start(&mut self, entry: io_uring::squeue::Entry, key: u32) {
        self.begin(key);
        // SAFETY: the callers of `recv` and `send` promise that their memory outlives the
        // operation, and the shard keeps the port until every active key has ended.
        unsafe { self.core.ctx.ring.push(entry, Owner::Port { port: self.port, key }) };
    }
}

impl PortIo for Io<'_> {
    fn now(&self) -> Nanos {
        self.core.ctx.now
    }

    fn disk(&self) -> &DiskInfo {
        &self.core.ctx.tables.disks[self.disk as usize].info
    }

    fn room(&mut self) -> usize {
        self.room_beside(0)
    }

    fn room_beside(&mut self, kept: usize) -> usize {
        let state = &mut self.core.ctx.tables.ports[self.port as usize];
        if state.closing {
            return 0;
        }
        let left = self.core.ctx.tables.disks[self.disk as usize].queue_slots.left(state.queued);
        let room = (left as usize).saturating_sub(kept);
        if room == 0 && !state.starved {
            state.starved = true;
            self.core.starved.push(self.port);
        }
        room
    }

    unsafe fn submit(&mut self, request: Request, buffers: &[libc::iovec]) {
        if request.op.is_change() {
            self.note_change(request.offset, request.len);
        }
        // SAFETY: the caller's promise.
        unsafe { self.core.submit(self.port, request, buffers, Lane::Client) };
    }

    fn served_elsewhere(&mut self, elsewhere: ServedElsewhere) {
        let Core { ctx, datastores, .. } = &mut *self.core;
        let store = &mut datastores[ctx.tables.disks[self.disk as usize].datastore];
        store.served_elsewhere(ctx.now, &ctx.tables, self.disk, elsewhere);
    }

    fn window(&self) -> Option<Slots> {
        let Core { ctx, datastores, .. } = &*self.core;
        let store = &datastores[ctx.tables.disks[self.disk as usize].datastore];
        (!matches!(store.backend, Backend::Moving(_))).then(|| store.gate.window())
    }

    fn poll_readable(&mut self, fd: RawFd, key: u32) {
        let entry = opcode::PollAdd::new(types::Fd(fd), libc::POLLIN as u32).multi(true).build();
        self.start(entry, key);
    }

    unsafe fn recv(&mut self, fd: RawFd, buf: *mut u8, len: usize, until: Until, key: u32) {
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        if until == Until::Some && self.core.is_polling() {
            self.begin(key);
            return self.core.polled.add_receive(Receive { port: self.port, key, fd, buf, len });
        }
        let flags = match until {
            Until::Some => 0,
            Until::Full => libc::MSG_WAITALL,
        };
        let entry = opcode::Recv::new(types::Fd(fd), buf, len).flags(flags);
        let first =
            if until == Until::Some && self.core.sole_client.is_sole() { POLL_FIRST } else { 0 };
        self.start(entry.ioprio(first).build(), key);
    }

    unsafe fn send(&mut self, fd: RawFd, msg: *const libc::msghdr, key: u32) {
        if self.core.sole_client.is_sole() {
            // SAFETY: the caller's promise.
            match unsafe { send_now(fd, msg, key) } {
                Sent::All(bytes) => {
                    self.begin(key);
                    return self.core.polled.end(self.port, key, bytes);
                }
                Sent::Part(rest) => {
                    self.begin(key);
                    self.core.ctx.tables.ports[self.port as usize].unsent = Some(rest);
                    return self.core.send_rest(self.port, key);
                }
                Sent::Nothing => {}
            }
        }
        self.start(opcode::SendMsg::new(types::Fd(fd), msg).flags(SEND_FLAGS).build(), key);
    }

    fn poll_writable(&mut self, fd: RawFd, key: u32) {
        self.start(opcode::PollAdd::new(types::Fd(fd), libc::POLLOUT as u32).build(), key);
    }

    fn can_splice(&self) -> bool {
        self.storage().pages().is_some()
    }

    fn can_place(&self) -> bool {
        self.storage().pages().is_some_and(|pages| pages.is_mapped())
    }

    fn map_for_recv(&mut self, offset: u64, len: u32) -> Option<*mut u8> {
        self.note_change(offset, u64::from(len));
        self.storage().pages()?.map_for_recv(offset, len)
    }

    fn write_placed(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.note_change(offset, bytes.len() as u64);
        let pages = self.storage().pages().ok_or(io::ErrorKind::Unsupported)?;
        pages.write_placed(offset, bytes)
    }

    fn read_placed(&mut self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let pages = self.storage().pages().ok_or(io::ErrorKind::Unsupported)?;
        pages.read_placed(offset, bytes)
    }

    fn splice_out(&mut self, offset: u64, len: u32, pipe: RawFd) -> io::Result<u32> {
        let pages = self.storage().pages().ok_or(io::ErrorKind::Unsupported)?;
        pages.splice_out(offset, len, pipe)
    }

    fn poll_mode(&mut self) -> PollMode {
        if !self.core.is_polling() {
            return PollMode::Events;
        }
        self.core.polled.add_port(self.port);
        match self.core.mode {
            Mode::HoldAnswers => PollMode::Held,
            Mode::Sleep | Mode::PollEvents | Mode::PollClient => PollMode::Polled,
        }
    }

    fn lock_block(&mut self, offset: u64, len: u32) {
        self.core.lock(self.port, offset, u64::from(len));
    }

    fn unlock_block(&mut self) {
        self.core.unlock(self.port);
    }

    fn cancel(&mut self, key: u32) {
        if self.core.ctx.tables.ports[self.port as usize].active.contains(&key) {
            self.core.cancel(self.port, key);
        }
    }

    fn close(&mut self) {
        self.core.close_port(self.port);
    }

    fn take_back(&mut self, newest_first: &[u64]) -> usize {
        let Core { ctx, datastores, .. } = &mut *self.core;
        let store = &mut datastores[ctx.tables.disks[self.disk as usize].datastore];
        store.take_back(ctx.now, &mut ctx.tables, self.port, newest_first)
    }

    fn held(&self) -> usize {
        self.core.held_of(self.port)
    }

    fn give_up(&mut self, cookies: &[u64]) {
        self.core.give_up(self.port, cookies);
    }
}

/// A send takes as long as it needs, and a client that went away is no signal.
const SEND_FLAGS: u32 = (libc::MSG_WAITALL | libc::MSG_NOSIGNAL) as u32;

impl Core {
    /// Queues a request of a port, and returns its slot.
    ///
    /// # Safety
    /// As [`PortIo::submit`].
    pub(crate) unsafe fn submit(
        &mut self,
        port: u32,
        request: Request,
        buffers: &[libc::iovec],
        lane: Lane,
    ) -> u32 {
        let Core { ctx, datastores, .. } = self;
        let state = &mut ctx.tables.ports[port as usize];
        let key = ctx.tables.slots.take(request, state.disk, port, buffers, ctx.now);
        ctx.tables.slots[key].lane = lane;
        state.requests += 1;
        let disk = &mut ctx.tables.disks[state.disk as usize];
        disk.queue_slots.add(&mut state.queued);
        datastores[disk.datastore].enqueue(ctx.now, &mut ctx.tables, key);
        key
    }

    /// Goes on with a message of which a part is out.
    pub(crate) fn send_rest(&mut self, port: u32, key: u32) {
        let Some(rest) = &self.ctx.tables.ports[port as usize].unsent else { return };
        let entry = opcode::SendMsg::new(types::Fd(rest.fd), &raw const rest.message)
            .flags(SEND_FLAGS)
            .build();
        // SAFETY: the message names what the caller of `PortIo::send` keeps valid until the port
        // has its event, and `unsent` keeps the message until then.
        unsafe { self.ctx.ring.push(entry, Owner::Port { port, key }) };
    }

    pub(crate) fn cancel(&mut self, port: u32, key: u32) {
        if self.polled.cancel(port, key) {
            return;
        }
        let entry = opcode::AsyncCancel::new(Owner::Port { port, key }.encode()).build();
        // SAFETY: the entry names no memory.
        unsafe { self.ctx.ring.push(entry, Owner::Nobody) };
    }

    /// Ports of a disk came or went.
    pub(crate) fn divide_slots(&mut self, disk: u32) {
        let tables = &mut self.ctx.tables;
        let ShardDisk { queue_slots, ports, .. } = &mut tables.disks[disk as usize];
        queue_slots.divide_among(ports.iter().map(|port| tables.ports[*port as usize].queued));
    }

    /// Marks the port as ending, stops its ring operations and takes its requests out of the queue.
    pub(crate) fn close_port(&mut self, port: u32) {
        let state = &mut self.ctx.tables.ports[port as usize];
        if std::mem::replace(&mut state.closing, true) {
            return;
        }
        for key in state.active.clone() {
            self.cancel(port, key);
        }
        let Core { ctx, datastores, .. } = self;
        let disk = ctx.tables.ports[port as usize].disk;
        let store = &mut datastores[ctx.tables.disks[disk as usize].datastore];
        // Nobody waits for their answers.
        store.withdraw(ctx.now, &mut ctx.tables, port, &mut |_| true);
        self.give_up_closing(port);
        self.ending.push(port);
    }
}
