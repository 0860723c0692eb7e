//! Requests whose range is not one of whole blocks, from clients that count in bytes.
//!
//! Such a request is served alone and part by part, as one for which there is no memory: it begins
//! when all before it are answered, and nothing is taken until it is done. An edge that is written
//! has its block locked, read, changed and written back; an image in memory takes the bytes as they
//! are. Each of these requests is the disk's like any other, and is charged to it.

use super::super::buddy::Block;
use super::super::budget::CHUNK;
use super::super::intake::{Assembling, Piece, Taken, Target, Whole};
use super::super::phase::Pages;
use super::super::translate::{Command, outcome};
use super::super::unaligned::{Doing, Part, Step, Unaligned, inward, outward};
use super::{Ended, NbdPort};
use headgate_engine::port::PortIo;
use headgate_engine::request::{Durability, IoError, Op, ZeroSpeed};
use headgate_nbd::server::reply;
use headgate_nbd::wire::NbdError;

impl NbdPort {
    /// Begins a request whose range is not one of whole blocks.
    pub(super) fn begin_unaligned(&mut self, io: &mut dyn PortIo, command: Command) {
        let Command { cookie, offset, len, .. } = command;
        let block = io.disk().block_size;
        let mut target = Target::None;
        let command = match command.op {
            // What is not a whole block keeps its content, which it may.
            Op::Discard => match inward(offset, len, block) {
                Some((offset, len)) => Command { offset, len, ..command },
                None => return self.send_queue.push(|out| reply::done(out, cookie)),
            },
            Op::Cache | Op::BlockStatus => {
                let skip = (offset % u64::from(block)) as u32;
                let (offset, len) = outward(offset, len, block);
                Command { offset, len, skip, ..command }
            }
            // Its edges are written.
            Op::WriteZeroes { speed: ZeroSpeed::FastOnly, .. } => {
                return self.refuse(cookie, NbdError::NotSupported);
            }
            _ => {
                target = Target::Unaligned(Unaligned::default());
                command
            }
        };
        self.assembling = Some(Assembling { command, target });
    }

    /// The part that comes next of a request in parts.
    fn part(&self, command: &Command, done: u32, block: u32) -> Part {
        let longest = match command.op {
            Op::WriteZeroes { .. } => self.longest_piece,
            _ => (CHUNK as u32).max(block),
        };
        Part::first(command.offset + u64::from(done), command.len - done, block, longest)
    }

    /// Brings such a request as far as possible; `true` when it is done.
    pub(super) fn finish_unaligned(&mut self, io: &mut dyn PortIo) -> bool {
        loop {
            let Some(Assembling { command, target: Target::Unaligned(work) }) =
                &mut self.assembling
            else {
                return true;
            };
            let (command, done) = (*command, work.done);
            let begins = matches!(work.step, Step::Next);
            if self.send_queue.replies() > 0 || (begins && !self.taken.is_empty()) {
                return false;
            }
            if done == command.len {
                if command.op != Op::Read {
                    self.send_queue.push(|out| reply::done(out, command.cookie));
                }
                self.assembling = None;
                return true;
            }
            let step = std::mem::replace(&mut work.step, Step::Next);
            let part = self.part(&command, done, io.disk().block_size);
            let (step, moves) = self.advance(io, &command, done, part, step);
            if let Some(Assembling { target: Target::Unaligned(work), .. }) = &mut self.assembling {
                work.step = step;
            }
            if moves == Moves::Waits {
                return false;
            }
        }
    }

    /// One step of a part.
    fn advance(
        &mut self,
        io: &mut dyn PortIo,
        command: &Command,
        done: u32,
        part: Part,
        step: Step,
    ) -> (Step, Moves) {
        let durability = match command.op {
            Op::Write(durability) | Op::WriteZeroes { durability, .. } => durability,
            _ => Durability::Cached,
        };
        match step {
            Step::Next => match part.buffer(command.op) {
                (0, _) if io.room() == 0 => (Step::Next, Moves::Waits),
                (0, _) => {
                    self.submit_part(io, command, part, command.op, None);
                    (Step::AtDisk(Doing::All), Moves::Waits)
                }
                (len, _) => match self.arena.take(len) {
                    Ok(buffer) => (Step::Filling(buffer), Moves::GoesOn),
                    // A chunk is this connection's own, and nothing else is in it.
                    Err(_) => (Step::Next, Moves::Waits),
                },
            },
            Step::Filling(buffer) => {
                if matches!(command.op, Op::Write(_)) && !self.fill(command, done, part, &buffer) {
                    return (Step::Filling(buffer), Moves::Waits);
                }
                let changes = part.is_edge() && command.op != Op::Read;
                let places = io.can_place() && self.pages == Pages::InUse;
                if changes && !places {
                    io.lock_block(part.start, part.span);
                    return (Step::Locking(buffer), Moves::Waits);
                }
                if io.room() == 0 {
                    return (Step::Filling(buffer), Moves::Waits);
                }
                if changes {
                    self.submit_part(io, command, part, Op::PlacedWrite, None);
                    return (Step::Placing(buffer), Moves::Waits);
                }
                self.submit_part(io, command, part, command.op, Some(buffer));
                (Step::AtDisk(Doing::All), Moves::Waits)
            }
            Step::Locked(buffer) if io.room() > 0 => {
                self.submit_part(io, command, part, Op::Read, Some(buffer));
                (Step::AtDisk(Doing::ReadToChange), Moves::Waits)
            }
            Step::Changed(buffer) if io.room() > 0 => {
                self.submit_part(io, command, part, Op::Write(durability), Some(buffer));
                (Step::AtDisk(Doing::WriteBack), Moves::Waits)
            }
            waits => (waits, Moves::Waits),
        }
    }

    /// Moves payload into a part's buffer; `true` when all of it is there.
    fn fill(&mut self, command: &Command, done: u32, part: Part, buffer: &Block) -> bool {
        let filled = command.len - self.requests.payload_left() - done;
        let at = part.buffer(command.op).1 + filled;
        let target = self.arena.at(buffer).wrapping_add(at as usize);
        // SAFETY: the buffer holds the part's payload from that place on, of which `len - filled`
        // bytes are behind `target`, and only the receive under way may use it. If there is one
        // into the buffer, the inbox was empty before it and still is, and nothing is moved.
        let moved = unsafe { self.inbox.move_to(target, (part.len - filled) as usize) } as u32;
        self.requests.on_payload(moved);
        filled + moved == part.len
    }

    /// Where the payload of the part goes that is being received: an address and a length.
    pub(super) fn filling(&self, block: u32) -> Option<(*mut u8, usize)> {
        let Some(Assembling { command, target: Target::Unaligned(work) }) = &self.assembling else {
            return None;
        };
        let Step::Filling(buffer) = &work.step else { return None };
        let part = self.part(command, work.done, block);
        let filled = command.len - self.requests.payload_left() - work.done;
        let at = part.buffer(command.op).1 + filled;
        Some((self.arena.at(buffer).wrapping_add(at as usize), (part.len - filled) as usize))
    }

    fn submit_part(
        &mut self,
        io: &mut dyn PortIo,
        command: &Command,
        part: Part,
        op: Op,
        buffer: Option<Block>,
    ) {
        let piece = Piece { offset: part.start, len: part.span };
        let command = Command { op, offset: part.start, len: part.span, ..*command };
        let key = self.taken.insert(Taken { command, buffer, whole: Whole::No, piece });
        self.submit(io, key);
    }

    /// The block that a part asked for is this port's.
    pub(super) fn on_locked(&mut self, io: &mut dyn PortIo) {
        if let Some(Assembling { target: Target::Unaligned(work), .. }) = &mut self.assembling {
            work.step = match std::mem::take(&mut work.step) {
                Step::Locking(buffer) => Step::Locked(buffer),
                other => other,
            };
        }
        self.pump(io);
    }

    /// The disk answered for a part.
    pub(super) fn on_unaligned_part(
        &mut self,
        io: &mut dyn PortIo,
        taken: Taken,
        result: Result<(), IoError>,
    ) {
        let Some(Assembling { command, target: Target::Unaligned(work) }) = &mut self.assembling
        else {
            return;
        };
        let (command, done) = (*command, work.done);
        let step = std::mem::take(&mut work.step);
        let part = self.part(&command, done, io.disk().block_size);
        let (doing, buffer) = match step {
            Step::Placing(buffer) => (Doing::All, Some(buffer)),
            Step::AtDisk(doing) => (doing, taken.buffer),
            _ => (Doing::All, taken.buffer),
        };
        let mut result = outcome(taken.command.op, result);
        if let (Ok(()), Op::PlacedWrite, Some(buffer)) = (result, taken.command.op, &buffer) {
            result = self.place(io, &command, part, buffer);
        }
        if let Err(error) = result {
            return self.fail_unaligned(io, &command, done, buffer, error);
        }
        let mut served = part.len;
        match (command.op, doing, buffer) {
            (Op::Read, _, Some(buffer)) => {
                let replies = self.session.replies;
                let head = |out: &mut Vec<u8>| {
                    if done == 0 {
                        reply::data(out, replies, command.cookie, command.offset, command.len);
                    }
                };
                self.send_queue.push_data_from(head, buffer, part.skip, part.len);
            }
            (_, Doing::ReadToChange, Some(buffer)) => {
                self.change(&command, part, &buffer);
                served = 0;
                if let Some(Assembling { target: Target::Unaligned(work), .. }) =
                    &mut self.assembling
                {
                    work.step = Step::Changed(buffer);
                }
            }
            (_, doing, buffer) => {
                if doing == Doing::WriteBack {
                    io.unlock_block();
                }
                if let Some(buffer) = buffer {
                    self.arena.give(buffer);
                }
            }
        }
        if let Some(Assembling { target: Target::Unaligned(work), .. }) = &mut self.assembling {
            work.done += served;
        }
        self.pump(io);
    }

    /// Puts a part's bytes into its block, which was read into the buffer.
    fn change(&mut self, command: &Command, part: Part, buffer: &Block) {
        let block = self.arena.at(buffer);
        let target = block.wrapping_add(part.skip as usize);
        let len = part.len as usize;
        // SAFETY: the buffer holds the block, and behind it the payload where there is one. Nothing
        // is under way into it.
        unsafe {
            match command.op {
                Op::Write(_) => {
                    std::ptr::copy_nonoverlapping(block.add(part.span as usize), target, len);
                }
                _ => std::ptr::write_bytes(target, 0, len),
            }
        }
    }

    /// Writes a part's bytes to their place in an image in memory.
    fn place(
        &mut self,
        io: &mut dyn PortIo,
        command: &Command,
        part: Part,
        buffer: &Block,
    ) -> Result<(), NbdError> {
        let start = self.arena.at(buffer);
        let len = part.len as usize;
        // SAFETY: the buffer holds the part's payload from there on, or room for its zeroes, and
        // nothing is under way into it.
        let bytes = unsafe {
            match command.op {
                Op::Write(_) => std::slice::from_raw_parts(start.add(part.span as usize), len),
                _ => {
                    std::ptr::write_bytes(start, 0, len);
                    std::slice::from_raw_parts(start, len)
                }
            }
        };
        let placed = io.write_placed(part.start + u64::from(part.skip), bytes);
        let error = |e: std::io::Error| IoError::from_errno(e.raw_os_error().unwrap_or(libc::EIO));
        outcome(command.op, placed.map_err(error))
    }

    fn fail_unaligned(
        &mut self,
        io: &mut dyn PortIo,
        command: &Command,
        done: u32,
        buffer: Option<Block>,
        error: NbdError,
    ) {
        io.unlock_block();
        if let Some(buffer) = buffer {
            self.arena.give(buffer);
        }
        self.assembling = None;
        if command.op == Op::Read && done > 0 {
            return self.end(io, Ended::HalfAnswer);
        }
        self.requests.skip_payload();
        self.refuse(command.cookie, error);
        self.pump(io);
    }
}

/// Whether a step can be followed by another at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moves {
    GoesOn,
    Waits,
}

#[cfg(test)]
#[path = "port_unaligned_tests.rs"]
mod tests;
