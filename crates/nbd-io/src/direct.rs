//! Requests one at a time, for the few bytes that are read or written before a connection is put to
//! its use.

use crate::dial::{time_left, timed};
use crate::{Opened, Socket};
use headgate_nbd::client::form::Form;
use headgate_nbd::client::replies::{Brings, Event, Replies};
use headgate_nbd::counters::Report;
use headgate_nbd::wire::{Request, command};
use std::io::{self, Read, Write};
use std::time::Instant;

/// What an error number counts as that no system has.
const EIO: i32 = rustix::io::Errno::IO.raw_os_error();

/// Room for heads and small payloads, in bytes.
const INBOX: usize = 4 << 10;

/// A client of an export that has no request under way. It blocks, up to a deadline.
#[derive(Debug)]
pub struct Direct<'a> {
    socket: &'a mut Socket,
    form: Form,
    deadline: Instant,
    cookie: u64,
}

impl Direct<'_> {
    /// The socket has other time limits afterwards.
    pub fn new(opened: &mut Opened, deadline: Instant) -> Direct<'_> {
        let Opened { socket, form, .. } = opened;
        Direct { socket, form: *form, deadline, cookie: 0 }
    }

    /// Fills `into` from the export, from byte `offset` on.
    ///
    /// # Errors
    /// The server's, [`io::ErrorKind::TimedOut`], or [`io::ErrorKind::InvalidData`] when the server
    /// breaks the protocol. The connection is of no use then.
    pub fn read(&mut self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let len = length(into)?;
        self.ask(command::READ, offset, len, &[])?;
        self.answer(Brings::Data { offset, len }, into)
    }

    /// Writes `bytes` to the export, from byte `offset` on.
    ///
    /// # Errors
    /// As [`read`](Direct::read).
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.ask(command::WRITE, offset, length(bytes)?, bytes)?;
        self.answer(Brings::Nothing, &mut [])
    }

    /// Makes durable what was written.
    ///
    /// # Errors
    /// As [`read`](Direct::read).
    pub fn flush(&mut self) -> io::Result<()> {
        self.ask(command::FLUSH, 0, 0, &[])?;
        self.answer(Brings::Nothing, &mut [])
    }

    fn ask(&mut self, number: u16, offset: u64, len: u32, payload: &[u8]) -> io::Result<()> {
        self.cookie += 1;
        let request = Request { flags: 0, command: number, cookie: self.cookie, offset, len };
        let mut message = request.to_bytes().to_vec();
        if self.form.counting().is_agreed() {
            message.extend(Report::default().to_bytes());
        }
        message.extend(payload);
        self.socket.set_timeouts(Some(time_left(self.deadline)?))?;
        self.socket.write_all(&message).map_err(timed)
    }

    /// Takes the reply to the request that was sent, and what it brings.
    fn answer(&mut self, brings: Brings, into: &mut [u8]) -> io::Result<()> {
        let mut replies = Replies::new(INBOX);
        replies.clear(self.form);
        let asked = self.cookie;
        loop {
            // One request is under way: what is behind its reply belongs to nobody.
            let event = replies.next(|cookie| (cookie == asked).then_some(brings));
            match event.map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e.to_string()))? {
                Some(Event::Data { at, bytes, .. }) => {
                    into[at as usize..][..bytes.len()].copy_from_slice(bytes);
                }
                Some(Event::Zeroes { at, len, .. }) => into[at as usize..][..len as usize].fill(0),
                Some(Event::End { error: 0, .. }) => return Ok(()),
                Some(Event::End { error, .. }) => {
                    // The protocol's numbers are Linux's.
                    let error = i32::try_from(error).unwrap_or(EIO);
                    return Err(io::Error::from_raw_os_error(error));
                }
                None => {
                    let room = match replies.payload() {
                        Some(payload) => &mut into[payload.at as usize..][..payload.left as usize],
                        None => replies.spare(usize::MAX),
                    };
                    let count = self.receive(room)?;
                    replies.received(count);
                }
            }
        }
    }

    /// Receives something, or is interrupted.
    fn receive(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.socket.set_timeouts(Some(time_left(self.deadline)?))?;
        match self.socket.read(into).map_err(timed) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(0),
            other => other,
        }
    }
}

fn length(bytes: &[u8]) -> io::Result<u32> {
    u32::try_from(bytes.len()).map_err(|_| io::ErrorKind::InvalidInput.into())
}
