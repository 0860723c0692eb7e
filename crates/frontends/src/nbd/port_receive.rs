//! What comes from the client's socket: requests into the inbox, long payloads to where they go.

use super::super::intake::{Assembling, PartBuffer, Target};
use super::super::phase::{HangUpWatch, Motion, Phase, Receiving};
use super::{Ended, LONG_WRITE, NbdPort, RECEIVE, WATCH};
use headgate_engine::port::{PortIo, Until};
use headgate_engine::request::IoError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::{AsRawFd, OwnedFd};

impl NbdPort {
    /// Receives more, unless a receive is under way or there is nothing to do with the bytes.
    pub(super) fn receive(&mut self, io: &mut dyn PortIo) {
        if self.receiving != Receiving::Nothing
            || self.phase != Phase::Open
            || self.motion == Motion::Resting
        {
            return;
        }
        let left = self.requests.payload_left();
        let (target, len, until, receiving) = match &self.assembling {
            // Bytes in the inbox come before those in the socket.
            Some(Assembling { target: Target::Asked, .. }) => return self.watch(io),
            Some(Assembling { command, target: Target::Placed(_, place) })
                if left > 0 && self.inbox.bytes().is_empty() =>
            {
                let filled = (command.len - left) as usize;
                (place.wrapping_add(filled), left as usize, Until::Full, Receiving::Placed)
            }
            Some(Assembling { command, target: Target::Buffer(buffer) })
                if left > 0 && command.len >= LONG_WRITE && self.inbox.bytes().is_empty() =>
            {
                let filled = (command.len - left) as usize;
                (
                    self.arena.at(buffer).wrapping_add(filled),
                    left as usize,
                    Until::Full,
                    Receiving::Payload,
                )
            }
            Some(Assembling { command, target: Target::Parts(parts) })
                if left > 0 && self.inbox.bytes().is_empty() =>
            {
                let PartBuffer::Filling(buffer) = &parts.buffer else { return self.watch(io) };
                let filled = command.len - left - parts.done;
                let len = (parts.next_len(command.len) - filled) as usize;
                let target = self.arena.at(buffer).wrapping_add(filled as usize);
                (target, len, Until::Full, Receiving::Payload)
            }
            Some(Assembling { target: Target::Unaligned(_), .. })
                if left > 0 && self.inbox.bytes().is_empty() =>
            {
                match self.filling(io.disk().block_size) {
                    Some((target, len)) => (target, len, Until::Full, Receiving::Payload),
                    None => return self.watch(io),
                }
            }
            _ => {
                let (target, space) = self.inbox.space();
                (target, space.min(self.receive_at_most), Until::Some, Receiving::Inbox)
            }
        };
        if len == 0 {
            return self.watch(io);
        }
        if self.watch == HangUpWatch::On {
            self.watch = HangUpWatch::Ending;
            io.cancel(WATCH);
        }
        self.receiving = receiving;
        // SAFETY: the target is `len` bytes of the inbox's free end, or of the buffer or the place
        // of the request being taken behind what is filled. None is touched while `receiving` says
        // so, and all live as long as the port.
        unsafe { io.recv(self.socket.as_raw_fd(), target, len, until, RECEIVE) }
    }

    /// There is no room to receive into. Were the client to hang up now, what it sent before must
    /// not be served for long.
    pub(super) fn watch(&mut self, io: &mut dyn PortIo) {
        if self.watch == HangUpWatch::Off {
            self.watch = HangUpWatch::On;
            io.poll_readable(self.socket.as_raw_fd(), WATCH);
        }
    }

    pub(super) fn on_watched(&mut self, io: &mut dyn PortIo, more: bool) {
        if self.phase == Phase::Open && has_hung_up(&self.socket) {
            return self.end(io, Ended::HungUp);
        }
        if !more {
            self.watch = HangUpWatch::Off;
        }
    }

    pub(super) fn on_received(&mut self, io: &mut dyn PortIo, result: i32) {
        let into = std::mem::replace(&mut self.receiving, Receiving::Nothing);
        let received = match usize::try_from(result) {
            Ok(0) => return self.end(io, Ended::HungUp),
            Ok(received) => received,
            Err(_) if matches!(-result, libc::EINTR | libc::EAGAIN) => 0,
            // By `rest`. What had come is not an error.
            Err(_) if self.motion == Motion::Resting && -result == libc::ECANCELED => 0,
            // By `reclaim`.
            Err(_) if into == Receiving::Inbox && -result == libc::ECANCELED => {
                return self.inbox.shrink();
            }
            // Not the socket's failure but the image's.
            Err(_) if into == Receiving::Placed && -result == libc::EFAULT => {
                if let Some(Assembling { target: Target::Placed(key, _), .. }) = self.assembling {
                    self.displace(io, key, IoError::NoSpace);
                }
                return self.pump(io);
            }
            Err(_) => return self.end(io, Ended::Receive(-result)),
        };
        match into {
            Receiving::Payload | Receiving::Placed => self.requests.on_payload(received as u32),
            Receiving::Inbox | Receiving::Nothing => self.inbox.on_received(received),
        }
        self.pump(io);
    }
}

/// Whether the client has closed its end, whatever it sent before. Does not wait.
fn has_hung_up(socket: &OwnedFd) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(socket, PollFlags::RDHUP)], Some(&now)).is_ok_and(|ready| ready > 0)
}
