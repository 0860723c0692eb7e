//! Answers of a connection: from a completion to the client.

use super::super::intake::Taken;
use super::super::send_queue::{Next, SendError};
use super::super::splice::{Progress, Spliced, Splicer};
use super::super::translate::{Command, extents_behind, outcome};
use super::{Ended, NbdPort, SEND};
use headgate_engine::port::PortIo;
use headgate_engine::request::{Completion, Extent, Op};
use headgate_nbd::server::reply::{self, StatusRequest};
use headgate_nbd::wire::NbdError;
use std::os::fd::{AsFd, AsRawFd};

impl NbdPort {
    pub(super) fn refuse(&mut self, cookie: u64, error: NbdError) {
        let replies = self.session.replies;
        self.send_queue.push(|out| reply::error(out, replies, cookie, error));
    }

    pub(super) fn answer(&mut self, taken: Taken, completion: &Completion) {
        let (command, replies) = (taken.command, self.session.replies);
        let cookie = command.cookie;
        let result = outcome(command.op, completion.result);
        let head = |out: &mut Vec<u8>| {
            reply::data(out, replies, cookie, command.offset, command.len);
        };
        match (result, taken.buffer) {
            (Ok(()), Some(buffer)) if command.op == Op::Read => {
                self.send_queue.push_data(head, buffer, command.len);
            }
            (Ok(()), _) if command.op == Op::Splice => {
                self.send_queue
                    .push_spliced(head, Spliced { offset: command.offset, len: command.len });
            }
            (result, buffer) => {
                if let Some(buffer) = buffer {
                    self.arena.give(buffer);
                }
                match result {
                    Err(error) => self.refuse(cookie, error),
                    Ok(()) if command.op == Op::BlockStatus => {
                        self.say_status(&command, taken.piece.len, &completion.extents);
                    }
                    Ok(()) => self.send_queue.push(|out| reply::done(out, cookie)),
                }
            }
        }
    }

    /// A chunk for each context that the client selected. `held` are the extents of so much of the
    /// range as the disk was asked for.
    fn say_status(&mut self, command: &Command, looked_at: u32, held: &[Extent]) {
        let Command { cookie, skip, asked, extents, .. } = *command;
        let contexts = self.session.contexts;
        let (offset, len) = (command.offset + u64::from(skip), (looked_at - skip).min(asked));
        let request = StatusRequest { cookie, contexts, len, extents };
        let bitmaps = &self.bitmaps;
        self.send_queue.push(|out| {
            for context in contexts.ids() {
                let Some(index) = context.bitmap() else {
                    reply::block_status(out, request, context, extents_behind(held, skip));
                    continue;
                };
                let bitmap = bitmaps.get(index).into_iter();
                let changes = bitmap.flat_map(|bitmap| bitmap.extents(offset, len));
                reply::block_status(out, request, context, changes);
            }
        });
    }

    /// Sends what there is, until something has to be waited for.
    pub(super) fn send(&mut self, io: &mut dyn PortIo) -> Result<(), Ended> {
        let socket = self.socket.as_raw_fd();
        loop {
            match (self.send_queue.poll_send(&self.arena), &mut self.splicer) {
                (Next::Nothing, _) => return Ok(()),
                (Next::Message(message), _) => {
                    // SAFETY: the queue keeps the message and all it points to until `on_sent`,
                    // and lives as long as the port.
                    unsafe { io.send(socket, message, SEND) }
                    return Ok(());
                }
                (Next::Spliced(head, spliced), Some(splicer)) => splicer.begin(head, spliced)?,
                (Next::Spliced(..), None) => return Err(SendError::Splice(libc::EBADF).into()),
            }
            if self.splice(io)? == Progress::Waiting {
                return Ok(());
            }
            // No event will say that it is out: what waited for that begins now.
            self.take_requests(io)?;
        }
    }

    /// Goes on with the spliced answer under way.
    fn splice(&mut self, io: &mut dyn PortIo) -> Result<Progress, Ended> {
        let socket = self.socket.as_raw_fd();
        let Some(splicer) = &mut self.splicer else { return Ok(Progress::Out) };
        let progress = splicer.advance(io, self.socket.as_fd())?;
        match progress {
            Progress::Out => self.send_queue.on_spliced(&mut self.arena),
            Progress::Waiting => io.poll_writable(socket, SEND),
        }
        Ok(progress)
    }

    pub(super) fn on_send_event(&mut self, io: &mut dyn PortIo, result: i32) {
        let outcome = if self.splicer.as_ref().is_some_and(Splicer::is_busy) {
            self.splice(io).map(|_| ())
        } else {
            self.send_queue.on_sent(result, &mut self.arena).map_err(Ended::from)
        };
        match outcome {
            Ok(()) => self.pump(io),
            Err(ended) => self.end(io, ended),
        }
    }
}

#[cfg(test)]
#[path = "port_status_tests.rs"]
mod tests;
