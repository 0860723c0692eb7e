//! The shard's side of ports: their bookkeeping and what they may ask for.

use super::Core;
use super::disk::Disk;
use super::inline;
use super::ring::Owner;
use super::watch::{POLL_FIRST, Receive, Rest, Sent, send_now};
use crate::image::Medium;
use crate::port::{PortIo, Until, Watch};
use crate::remote::loss::Told;
use crate::request::{DiskInfo, IoError, Request};
use headgate_qos::Scheduler as _;
use headgate_units::Nanos;
use io_uring::{opcode, types};
use std::io;
use std::os::fd::RawFd;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// Tells other threads that a port has ended.
#[derive(Debug, Default)]
pub(crate) struct Gone {
    gone: Mutex<bool>,
    changed: Condvar,
}

impl Gone {
    pub(crate) fn set(&self) {
        *self.gone.lock().unwrap_or_else(|e| e.into_inner()) = true;
        self.changed.notify_all();
    }

    pub(crate) fn is_set(&self) -> bool {
        *self.gone.lock().unwrap_or_else(|e| e.into_inner())
    }

    pub(crate) fn wait(&self, patience: Duration) -> bool {
        let gone = self.gone.lock().unwrap_or_else(|e| e.into_inner());
        let (gone, _) =
            self.changed.wait_timeout_while(gone, patience, |gone| !*gone).unwrap_or_else(|e| e.into_inner());
        *gone
    }
}

/// What the shard keeps of a port beside the port itself.
pub(super) struct PortState {
    pub disk: u32,
    pub generation: u32,
    /// Keys of ring operations under way.
    pub active: Vec<u32>,
    /// Requests queued or at the backend.
    pub requests: u32,
    /// Those of them that are queued.
    pub queued: u32,
    /// In the list of ports whose turn must be ended.
    pub touched: bool,
    /// Found the disk's queue full and waits for room.
    pub starved: bool,
    pub closing: bool,
    /// What is left of a message that the socket took a part of.
    pub unsent: Option<Box<Rest>>,
    pub gone: Arc<Gone>,
    /// What it knows of writes that a remote server may have lost.
    pub told: Told,
}

/// A [`PortIo`] for one call into one port.
pub(super) struct Io<'a> {
    pub core: &'a mut Core,
    pub port: u32,
    pub disk: u32,
}

impl Io<'_> {
    fn begin(&mut self, key: u32) {
        let state = &mut self.core.port_states[self.port as usize];
        debug_assert!(!state.active.contains(&key), "one operation per key");
        state.active.push(key);
    }

    fn start(&mut self, entry: io_uring::squeue::Entry, key: u32) {
        self.begin(key);
        // SAFETY: the callers of `recv` and `send` promise that their memory outlives the operation, and the shard
        // keeps the port until every active key has ended.
        unsafe { self.core.ring.push(entry, Owner::Port { port: self.port, key }) };
    }
}

impl PortIo for Io<'_> {
    fn now(&self) -> Nanos {
        self.core.now
    }

    fn disk(&self) -> &DiskInfo {
        &self.core.disks[self.disk as usize].info
    }

    fn room(&mut self) -> usize {
        self.room_beside(0)
    }

    fn room_beside(&mut self, kept: usize) -> usize {
        let state = &mut self.core.port_states[self.port as usize];
        if state.closing {
            return 0;
        }
        let left = self.core.disks[self.disk as usize].room.left(state.queued);
        let room = (left as usize).saturating_sub(kept);
        if room == 0 && !state.starved {
            state.starved = true;
            self.core.starved.push(self.port);
        }
        room
    }

    unsafe fn submit(&mut self, request: Request, buffers: &[libc::iovec]) {
        let core = &mut *self.core;
        let disk = &mut core.disks[self.disk as usize];
        let key = core.slots.take(request, self.disk, self.port, buffers, core.now);
        let state = &mut core.port_states[self.port as usize];
        state.requests += 1;
        disk.room.add(&mut state.queued);
        core.datastores[disk.datastore].dirty = true;
        core.arrive(key);
    }

    fn poll(&mut self, fd: RawFd, key: u32) {
        let entry = opcode::PollAdd::new(types::Fd(fd), libc::POLLIN as u32).multi(true).build();
        self.start(entry, key);
    }

    unsafe fn recv(&mut self, fd: RawFd, buf: *mut u8, len: usize, until: Until, key: u32) {
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        if until == Until::Some && self.core.is_looking() {
            self.begin(key);
            return self.core.watched.add_receive(Receive { port: self.port, key, fd, buf, len });
        }
        let flags = match until {
            Until::Some => 0,
            Until::Full => libc::MSG_WAITALL,
        };
        let entry = opcode::Recv::new(types::Fd(fd), buf, len).flags(flags);
        let first = if until == Until::Some && self.core.company.is_one() { POLL_FIRST } else { 0 };
        self.start(entry.ioprio(first).build(), key);
    }

    unsafe fn send(&mut self, fd: RawFd, msg: *const libc::msghdr, key: u32) {
        if self.core.company.is_one() {
            // SAFETY: the caller's promise.
            match unsafe { send_now(fd, msg, key) } {
                Sent::All(bytes) => {
                    self.begin(key);
                    return self.core.watched.end(self.port, key, bytes);
                }
                Sent::Part(rest) => {
                    self.begin(key);
                    self.core.port_states[self.port as usize].unsent = Some(rest);
                    return self.core.send_rest(self.port, key);
                }
                Sent::Nothing => {}
            }
        }
        self.start(opcode::SendMsg::new(types::Fd(fd), msg).flags(SEND_FLAGS).build(), key);
    }

    fn poll_room(&mut self, fd: RawFd, key: u32) {
        self.start(opcode::PollAdd::new(types::Fd(fd), libc::POLLOUT as u32).build(), key);
    }

    fn lends(&self) -> bool {
        let disk = &self.core.disks[self.disk as usize];
        disk.image.medium() == Medium::Memory && disk.image.fd().is_some()
    }

    fn places(&self) -> bool {
        self.core.disks[self.disk as usize].image.mapping().is_some()
    }

    fn place(&mut self, offset: u64, len: u32) -> Option<*mut u8> {
        self.core.disks[self.disk as usize].image.mapping()?.at(offset, u64::from(len))
    }

    fn put(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let image = self.core.disks[self.disk as usize].image.fd().ok_or(io::ErrorKind::Unsupported)?;
        inline::put(image, offset, bytes)
    }

    fn lend(&mut self, offset: u64, len: u32, pipe: RawFd) -> io::Result<u32> {
        let image = self.core.disks[self.disk as usize].image.fd().ok_or(io::ErrorKind::Unsupported)?;
        inline::lend(image, offset, len, pipe)
    }

    fn watches(&mut self) -> Watch {
        if !self.core.is_looking() {
            return Watch::No;
        }
        self.core.watched.add_port(self.port);
        Watch::Yes
    }

    fn cancel(&mut self, key: u32) {
        if self.core.port_states[self.port as usize].active.contains(&key) {
            self.core.cancel(self.port, key);
        }
    }

    fn close(&mut self) {
        self.core.close_port(self.port);
    }

    fn expedite(&mut self) {
        self.core.expedite(self.port);
    }
}

/// A send takes as long as it needs, and a client that went away is no signal.
const SEND_FLAGS: u32 = (libc::MSG_WAITALL | libc::MSG_NOSIGNAL) as u32;

impl Core {
    /// Goes on with a message of which a part is out.
    pub(super) fn send_rest(&mut self, port: u32, key: u32) {
        let Some(rest) = &self.port_states[port as usize].unsent else { return };
        let entry =
            opcode::SendMsg::new(types::Fd(rest.fd), &raw const rest.message).flags(SEND_FLAGS).build();
        // SAFETY: the message names what the caller of `PortIo::send` keeps valid until the port has its event, and `unsent` keeps the
        // message until then.
        unsafe { self.ring.push(entry, Owner::Port { port, key }) };
    }

    pub(super) fn cancel(&mut self, port: u32, key: u32) {
        if self.watched.cancel(port, key) {
            return;
        }
        let entry = opcode::AsyncCancel::new(Owner::Port { port, key }.encode()).build();
        // SAFETY: the entry names no memory.
        unsafe { self.ring.push(entry, Owner::Nobody) };
    }

    /// Ports of a disk came or went.
    pub(super) fn divide_room(&mut self, disk: u32) {
        let Disk { room, ports, .. } = &mut self.disks[disk as usize];
        room.divide_among(ports.iter().map(|port| self.port_states[*port as usize].queued));
    }

    /// Marks the port as ending, stops its ring operations and takes its requests out of the queue.
    pub(super) fn close_port(&mut self, port: u32) {
        let state = &mut self.port_states[port as usize];
        if std::mem::replace(&mut state.closing, true) {
            return;
        }
        for key in state.active.clone() {
            self.cancel(port, key);
        }
        for key in self.take_queued(port) {
            self.slots[key].result = Err(IoError::Cancelled);
            self.slots[key].stage = super::slots::Stage::Withdrawn;
            self.retire(key);
            self.slots.free(key);
            self.port_states[port as usize].requests -= 1;
        }
        self.ending.push(port);
    }

    /// See [`PortIo::expedite`].
    fn expedite(&mut self, port: u32) {
        for key in self.take_queued(port) {
            self.start(key, super::slots::Stage::Expedited);
        }
    }

    /// Takes a port's requests out of its disk's queue, in order.
    fn take_queued(&mut self, port: u32) -> Vec<u32> {
        let disk = &mut self.disks[self.port_states[port as usize].disk as usize];
        let datastore = &mut self.datastores[disk.datastore];
        let slots = &self.slots;
        let mut is_ours = |&key: &u32| slots[key].port == port;
        // The disk is registered as long as it is open, so there is nothing to take only if it is not.
        let taken = datastore.scheduler.extract(self.now, disk.queue, &mut is_ours).unwrap_or_default();
        let state = &mut self.port_states[port as usize];
        taken.iter().for_each(|_| disk.room.remove(&mut state.queued));
        datastore.dirty = true;
        taken
    }

    /// Ends a request that never got into the queue.
    fn refuse(&mut self, key: u32) {
        let slot = &mut self.slots[key];
        slot.stage = super::slots::Stage::Withdrawn;
        slot.dispatched = self.now;
        self.disks[slot.disk as usize].room.remove(&mut self.port_states[slot.port as usize].queued);
        self.completed.push(key);
    }

    /// Refuses a request that is not the disk's, else queues it.
    fn arrive(&mut self, key: u32) {
        let slot = &mut self.slots[key];
        let request = slot.request;
        let disk = &mut self.disks[slot.disk as usize];
        let datastore = &mut self.datastores[disk.datastore];
        let op = super::stats_op(request.op);
        disk.stats.on_arrival(self.now, op, request.offset, headgate_units::Bytes(request.len));
        if !fits(&request, &disk.info, &slot.buffers) {
            slot.result = Err(IoError::Invalid);
            self.refuse(key);
            return;
        }
        let io = disk.priorities.io(&request);
        slot.priority = disk.priorities.policy.resolve(io.priority);
        if datastore.scheduler.enqueue(self.now, disk.queue, io, key).is_err() {
            // The disk's queue exists as long as the disk does; were it gone, the request must still end.
            slot.result = Err(IoError::Invalid);
            self.refuse(key);
        }
    }
}

/// The last check before the kernel: range, alignment, and that the buffers hold what the request moves.
fn fits(request: &Request, disk: &DiskInfo, buffers: &[libc::iovec]) -> bool {
    let block = u64::from(disk.block_size);
    let in_range = request.offset.checked_add(request.len).is_some_and(|end| end <= disk.size);
    let aligned = request.offset.is_multiple_of(block) && request.len.is_multiple_of(block);
    let held = if request.op.is_transfer() && request.len == 0 {
        false
    } else if request.op.moves_data() {
        buffers.iter().try_fold(0u64, |sum, b| sum.checked_add(b.iov_len as u64)) == Some(request.len)
    } else {
        buffers.is_empty()
    };
    in_range && aligned && held
}
