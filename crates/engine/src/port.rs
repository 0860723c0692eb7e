//! How a frontend hangs in a shard: one [`Port`] is one client's way into one disk.
//!
//! A port lives on its shard's thread and never blocks. It hears of its file descriptors through
//! the shard's ring ([`PortIo::poll_readable`], [`PortIo::recv`], [`PortIo::send`]), hands checked
//! requests down ([`PortIo::submit`]) and gets every one of them back exactly once
//! ([`Port::on_complete`]). Whatever may block (accepting, negotiating, answering a slow
//! peer's control messages) belongs to the frontend's own control thread, which talks to its port
//! by messages ([`Port::on_command`]).
//!
//! # Backpressure
//! A disk's queue is bounded. [`PortIo::room`] says how many requests the port may submit now; past
//! that it leaves them where they are (ring or socket) and waits for [`Port::on_room`]. That is how
//! a limit reaches the guest.
//!
//! # The life of a port
//! The shard builds the port with the closure given to `attach`, calls [`Port::on_start`], then
//! events in any order. [`PortIo::close`] (by the port) or detaching the disk (by the daemon,
//! announced by [`Port::on_detach`]) ends it: the shard cancels the port's ring operations, waits
//! for those and for the port's requests in flight, and drops it. Buffers that the kernel or a
//! backend still writes into therefore stay valid until the drop.
//!
//! A disk may move to a datastore of another shard. Its ports go along: each comes to rest
//! ([`Port::come_to_rest`]), is taken to the other thread, and goes on ([`Port::on_arrive`]).

use crate::request::{Completion, DiskInfo, Request};
use headgate_qos::ServedElsewhere;
use headgate_qos::window::Slots;
use headgate_units::Nanos;
use std::any::Any;
use std::io;
use std::os::fd::RawFd;

/// A message from a frontend's control thread to its port.
pub type PortCommand = Box<dyn Any + Send>;

/// The end, or one more result, of an operation that the port started in the shard's ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortEvent {
    /// The key that the port gave to the operation.
    pub key: u32,
    /// The kernel's result: for [`PortIo::recv`] and [`PortIo::send`] a byte count, for
    /// [`PortIo::poll_readable`] the ready events; a negated `errno` on failure (`-ECANCELED` after
    /// [`PortIo::cancel`]).
    pub result: i32,
    /// More results of the same operation will follow (multishot poll).
    pub more: bool,
}

/// How much a [`PortIo::recv`] waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Whatever has come.
    Some,
    /// All that was asked for. Less comes only when the connection ends.
    Full,
}

/// What polling a port found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollResult {
    /// There is something to do.
    Ready,
    /// There is nothing to do.
    Idle,
}

/// How a port learns of new work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollMode {
    /// The shard polls the port until it calls [`Port::disarm_poll`].
    Polled,
    /// The same, and some answers are to be held back from a client that is being woken.
    Held,
    /// By events of its file descriptors.
    Events,
}

/// Why the daemon ends a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detach {
    /// Finish what was taken, take nothing new, then [`PortIo::close`]. The shard closes the port
    /// itself when the daemon's patience ends.
    Drain,
    /// The port ends now; requests in flight at the backend are waited for, queued ones are dropped
    /// without completion.
    Now,
}

/// Whether a port moves data by its disk's pages, or has asked for it: by a
/// [splice](crate::request::Op::Splice) or a [placed write](crate::request::Op::PlacedWrite).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageUse {
    /// It does.
    Some,
    /// It does not.
    None,
}

/// Whether a port can go to another shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// Not yet: it has something to finish.
    Busy,
    /// It can, as soon as none of its ring operations and of its requests is left.
    Ready,
}

/// One client's way into one disk. All calls come from the thread of the port's shard, which may be
/// another one later: see [`come_to_rest`](Port::come_to_rest).
pub trait Port: Send {
    /// First call.
    fn on_start(&mut self, io: &mut dyn PortIo);

    /// A ring operation of this port has a result.
    fn on_event(&mut self, io: &mut dyn PortIo, event: PortEvent);

    /// A message from the frontend's control thread.
    fn on_command(&mut self, io: &mut dyn PortIo, command: PortCommand);

    /// The disk's queue has room again after [`PortIo::room`] had answered less than the port could
    /// use.
    fn on_room(&mut self, io: &mut dyn PortIo);

    /// Whether something has come for which the port gets no event, because the shard polls it
    /// ([`PortIo::poll_mode`]). Called very often: reads memory, and makes no system call.
    fn poll(&self) -> PollResult {
        PollResult::Idle
    }

    /// [`poll`](Port::poll) or [`disarm_poll`](Port::disarm_poll) found the port ready.
    fn on_poll(&mut self, _io: &mut dyn PortIo) {}

    /// The shard stops polling: the port asks for events again, and then polls a last time.
    fn disarm_poll(&mut self) -> PollResult {
        PollResult::Idle
    }

    /// A request ended; its buffers are the port's again. Not called for requests dropped at the
    /// port's end.
    fn on_complete(&mut self, io: &mut dyn PortIo, completion: Completion);

    /// The disk holds a request that its storage failed, of this port or another one. It ends when
    /// the storage takes it, which nobody knows when: a port that waits for its requests' ends may
    /// [give them up](PortIo::give_up), [take them back](PortIo::take_back) or close.
    fn on_held(&mut self, _io: &mut dyn PortIo) {}

    /// The block that the port asked for with [`PortIo::lock_block`] is its own.
    fn on_block_locked(&mut self, _io: &mut dyn PortIo) {}

    /// The loop has handed out all events and completions of this turn: publish, notify, send.
    /// Called once per turn in which any other method was called.
    fn on_turn_end(&mut self, io: &mut dyn PortIo);

    /// The disk changed its size; `info` is its new description.
    fn on_resize(&mut self, io: &mut dyn PortIo, info: &DiskInfo);

    /// The disk is about to have other storage: the port begins nothing new by its pages, until
    /// [`on_new_storage`](Port::on_new_storage), and says whether something is under way. It is
    /// asked again until nothing is.
    fn leave_pages(&mut self) -> PageUse {
        PageUse::None
    }

    /// The disk has other storage: what [`PortIo::can_splice`] and [`PortIo::can_place`] say may
    /// have changed.
    fn on_new_storage(&mut self, _io: &mut dyn PortIo) {}

    /// The port is about to go to another shard, to which its disk has moved: it begins nothing
    /// new, finishes what it has begun, and cancels its ring operations. Says whether anything is
    /// left; it is asked again until nothing is. What its client sends meanwhile stays where it is,
    /// in a ring or a socket.
    ///
    /// A port that waits for its client need not wait here: what has come so far goes along.
    fn come_to_rest(&mut self, io: &mut dyn PortIo) -> Rest;

    /// The port is on another shard, and its disk has other storage there: it begins again.
    fn on_arrive(&mut self, io: &mut dyn PortIo);

    /// The daemon ends the port.
    fn on_detach(&mut self, io: &mut dyn PortIo, how: Detach);
}

/// What a shard does for a port. Implemented by the shard, and by fakes in frontends' tests.
pub trait PortIo {
    /// The time of this turn on `CLOCK_MONOTONIC`.
    fn now(&self) -> Nanos;

    /// The disk behind the port.
    fn disk(&self) -> &DiskInfo;

    /// How many requests the port may submit now. A few places of the disk's queue are kept for
    /// each of its ports. When the answer is less than the port could use, the shard calls
    /// [`Port::on_room`] once there is room.
    fn room(&mut self) -> usize;

    /// The same if so many of these places are to stay free for others that the port speaks for.
    fn room_beside(&mut self, kept: usize) -> usize {
        self.room().saturating_sub(kept)
    }

    /// The port's disk was served at other servers: in force from the next decision on
    /// ([`headgate_qos::dmclock`]).
    fn served_elsewhere(&mut self, elsewhere: ServedElsewhere);

    /// How many requests may be at the disk's storage at once, those of its other disks too; `None`
    /// while the disk's requests go elsewhere first, as they do while it is moved or copied.
    fn window(&self) -> Option<Slots> {
        None
    }

    /// Queues a request, after [`room`](PortIo::room) answered at least one. `buffers` is copied;
    /// it is empty unless the operation moves data.
    ///
    /// # Safety
    /// Every buffer is valid for reads and writes (guest memory may change at any time; nothing
    /// here relies on its content) until [`Port::on_complete`] returns the request's cookie or the
    /// port is dropped.
    unsafe fn submit(&mut self, request: Request, buffers: &[libc::iovec]);

    /// Reports every readiness of `fd` for reading, until cancelled (multishot). An eventfd needs
    /// no `read` in between.
    fn poll_readable(&mut self, fd: RawFd, key: u32);

    /// Reads from a socket, up to `len` bytes. One operation at a time per key.
    ///
    /// # Safety
    /// `buf` is valid for writes of `len` bytes until the event comes or the port is dropped.
    unsafe fn recv(&mut self, fd: RawFd, buf: *mut u8, len: usize, until: Until, key: u32);

    /// Writes to a socket all that `msg` names (waits for the whole, as `MSG_WAITALL`), never
    /// raising `SIGPIPE`. A short result means that the peer is gone.
    ///
    /// # Safety
    /// `msg` and all it points to are valid until the event comes or the port is dropped.
    unsafe fn send(&mut self, fd: RawFd, msg: *const libc::msghdr, key: u32);

    /// Reports once that a socket can be written to.
    fn poll_writable(&mut self, fd: RawFd, key: u32);

    /// Whether this disk's data can be read by [`splice_out`](PortIo::splice_out). Does not change
    /// while the port lives.
    fn can_splice(&self) -> bool;

    /// Whether payloads can be received straight into this disk's image
    /// ([`map_for_recv`](PortIo::map_for_recv)). Does not change while the port lives.
    fn can_place(&self) -> bool;

    /// The address of a range of the image, for the port to receive into and for nothing else: an
    /// access of the port's own could raise `SIGBUS`. Only for a range that an
    /// [`Op::PlacedWrite`](crate::request::Op::PlacedWrite) was granted, until the port has
    /// answered. The pointer is valid as long as the port lives. `None`: the range has no address.
    fn map_for_recv(&mut self, offset: u64, len: u32) -> Option<*mut u8>;

    /// Writes bytes that the port has received already into a range that an
    /// [`Op::PlacedWrite`](crate::request::Op::PlacedWrite) was granted.
    ///
    /// # Errors
    /// The system's.
    fn write_placed(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Reads bytes that the port has placed. As [`write_placed`](PortIo::write_placed).
    ///
    /// # Errors
    /// The system's.
    fn read_placed(&mut self, _offset: u64, _bytes: &mut [u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Moves up to `len` bytes of the image's pages at `offset` into a pipe, without copying and
    /// without waiting. Returns how many; 0 where the image ends. Only for a range that an
    /// [`Op::Splice`](crate::request::Op::Splice) was granted, until the port has answered.
    ///
    /// # Errors
    /// The system's: `WouldBlock` when the pipe is full.
    fn splice_out(&mut self, offset: u64, len: u32, pipe: RawFd) -> io::Result<u32>;

    /// Offers the port for polling ([`Port::poll`]), and returns whether it is polled or has to ask
    /// for events. The shard polls where it is busy-polling and has no other port to serve.
    fn poll_mode(&mut self) -> PollMode {
        PollMode::Events
    }

    /// Asks for a block of the disk, to read it, change a part of it and write it back: while the
    /// port has it, requests that write to it from elsewhere wait. [`Port::on_block_locked`] tells
    /// when it does: all writes to it that came before are done then. One at a time. Goes with the
    /// port at the latest.
    fn lock_block(&mut self, offset: u64, len: u32);

    /// Gives the block back, or the wish for it up.
    fn unlock_block(&mut self);

    /// Cancels the operation with this key, if it is under way; its last event tells that it ended.
    fn cancel(&mut self, key: u32);

    /// Ends this port: see the module documentation. Requests still in the disk's queue are dropped
    /// without completion.
    fn close(&mut self);

    /// Takes requests back that nobody has begun to serve. `newest_first` names some of this port's
    /// by their cookies; those at its front that are still in the disk's queue, up to the first
    /// that is not, leave it uncharged and never complete. Their buffers are the port's again.
    /// Returns how many they are. O(n log n) in the disk's queue.
    ///
    /// This is for a client that stops and can take them again later. There is no call that sends
    /// them ahead of others: what reaches the storage was charged and passed the window.
    ///
    /// Requests that the disk [holds](PortIo::held) count as not served: nobody was told of them.
    fn take_back(&mut self, newest_first: &[u64]) -> usize;

    /// How many of this port's requests the disk holds because its storage is in trouble. O(n) in
    /// the requests that the disk holds; at once where it holds none.
    fn held(&self) -> usize {
        0
    }

    /// Has those of the named requests that the disk holds end with their errors, as if it held
    /// none. The others are left alone. O(n log n) in the requests that the disk holds.
    fn give_up(&mut self, _cookies: &[u64]) {}
}
