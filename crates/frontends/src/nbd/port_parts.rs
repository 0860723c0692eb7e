//! Requests for which there is no memory: served part by part, through the one chunk that every
//! connection has for itself.
//!
//! Such a request is served alone: it begins when all before it are answered, and nothing is taken
//! until it is done. So it needs nothing that anybody else holds. Its disk sees as many requests as
//! it has parts. A read's head promises all of its data with the first part; should the disk fail a
//! later one, the connection ends, for half an answer cannot be taken back.

use super::super::budget::CHUNK;
use super::super::intake::{Assembling, PartBuffer, Parts, Piece, Taken, Target, Whole};
use super::super::memory::NoBuffer;
use super::super::translate::outcome;
use super::{Ended, NbdPort, RECEIVE, Receiving};
use headgate_engine::port::PortIo;
use headgate_engine::request::{IoError, Op};
use headgate_nbd::server::reply;

impl NbdPort {
    /// The request being taken gets no buffer for all of it.
    pub(super) fn begin_parts(&mut self, io: &mut dyn PortIo) -> bool {
        // What was taken comes back first, and may be enough then.
        if !self.taken.is_empty() || self.send_queue.replies() > 0 {
            return false;
        }
        // No part is shorter than a block.
        let longest = (CHUNK as u32).max(io.disk().block_size);
        if let Some(assembling) = &mut self.assembling {
            let parts = Parts { done: 0, longest, buffer: PartBuffer::Wanted };
            assembling.target = Target::Parts(parts);
        }
        self.finish_parts(io)
    }

    /// Brings a request that is served in parts as far as possible; `true` when it is done.
    pub(super) fn finish_parts(&mut self, io: &mut dyn PortIo) -> bool {
        let Some(Assembling { command, target: Target::Parts(parts) }) = &mut self.assembling
        else {
            return true;
        };
        let command = *command;
        if self.send_queue.replies() > 0 {
            return false;
        }
        if parts.done == command.len {
            if let PartBuffer::Filling(buffer) =
                std::mem::replace(&mut parts.buffer, PartBuffer::Wanted)
            {
                self.arena.give(buffer);
            }
            if command.op != Op::Read {
                self.send_queue.push(|out| reply::done(out, command.cookie));
            }
            self.assembling = None;
            return true;
        }
        let len = parts.next_len(command.len);
        if matches!(parts.buffer, PartBuffer::Wanted) {
            match self.arena.take(len) {
                Ok(buffer) => parts.buffer = PartBuffer::Filling(buffer),
                // The chunk is this connection's own, and nothing else is in it: only a disk with
                // longer blocks comes here.
                Err(NoBuffer::Denied | NoBuffer::Full) => return false,
            }
        }
        let PartBuffer::Filling(buffer) = &parts.buffer else { return false };
        if command.op != Op::Read {
            let filled = command.len - self.requests.payload_left() - parts.done;
            let target = self.arena.at(buffer).wrapping_add(filled as usize);
            // SAFETY: the buffer holds the part, of which `len - filled` bytes are behind `target`,
            // and only the receive under way may use it. If there is one into the buffer, the inbox
            // was empty before it and still is, and nothing is moved.
            let moved = unsafe { self.inbox.move_to(target, (len - filled) as usize) } as u32;
            self.requests.on_payload(moved);
            if filled + moved < len {
                return false;
            }
        }
        if io.room() == 0 {
            return false;
        }
        let piece = Piece { offset: command.offset + u64::from(parts.done), len };
        if let PartBuffer::Filling(buffer) =
            std::mem::replace(&mut parts.buffer, PartBuffer::AtDisk)
        {
            let buffer = Some(buffer);
            let key = self.taken.insert(Taken { command, buffer, whole: Whole::No, piece });
            self.submit(io, key);
        }
        false
    }

    /// The disk answered a part.
    pub(super) fn on_part(&mut self, io: &mut dyn PortIo, key: usize, result: Result<(), IoError>) {
        let Some(taken) = self.taken.try_remove(key) else { return };
        if self.assembling.as_ref().is_some_and(|a| matches!(a.target, Target::Unaligned(_))) {
            return self.on_unaligned_part(io, taken, result);
        }
        let Taken { command, buffer: Some(buffer), piece, .. } = taken else { return };
        let Some(Assembling { target: Target::Parts(parts), .. }) = &mut self.assembling else {
            // Given up meanwhile.
            return self.arena.give(buffer);
        };
        if let Err(error) = outcome(command.op, result) {
            let begun = parts.done > 0;
            self.arena.give(buffer);
            self.assembling = None;
            if command.op == Op::Read && begun {
                return self.end(io, Ended::HalfAnswer);
            }
            self.requests.skip_payload();
            self.refuse(command.cookie, error);
            return self.pump(io);
        }
        let first = parts.done == 0;
        parts.done += piece.len;
        if command.op == Op::Read {
            parts.buffer = PartBuffer::Wanted;
            let replies = self.session.replies;
            let head = |out: &mut Vec<u8>| {
                if first {
                    reply::data(out, replies, command.cookie, command.offset, command.len);
                }
            };
            self.send_queue.push_data(head, buffer, piece.len);
        } else {
            parts.buffer = PartBuffer::Filling(buffer);
        }
        self.pump(io);
    }

    /// Gives back what is not used. A receive into a long inbox is cancelled: its memory goes back
    /// when the kernel writes into it no more.
    pub(super) fn reclaim(&mut self, io: &mut dyn PortIo) {
        self.arena.give_back_unused();
        self.send_queue.shrink();
        if !self.inbox.is_long() {
            return;
        }
        match self.receiving {
            Receiving::Inbox => io.cancel(RECEIVE),
            Receiving::Nothing => self.inbox.shrink(),
            Receiving::Payload | Receiving::Placed => {}
        }
    }
}

#[cfg(test)]
#[path = "port_memory_tests.rs"]
mod tests;
