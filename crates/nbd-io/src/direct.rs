//! Requests one at a time, for the few bytes that are read or written before a connection is put to
//! its use.

use crate::dial::{time_left, timed};
use crate::{Opened, Socket};
use headgate_nbd::client::replies::HEAD;
use headgate_nbd::counters::{self, Counting, Report};
use headgate_nbd::wire::{Request, SIMPLE_REPLY_MAGIC, command};
use std::io::{self, Read, Write};
use std::time::Instant;

/// What an error number counts as that no system has.
const EIO: i32 = rustix::io::Errno::IO.raw_os_error();

/// A client of an export that was opened with simple replies and has no request under way. It
/// blocks, up to a deadline.
#[derive(Debug)]
pub struct Direct<'a> {
    socket: &'a mut Socket,
    counting: Counting,
    deadline: Instant,
    cookie: u64,
}

impl Direct<'_> {
    /// The socket has other time limits afterwards.
    pub fn new(opened: &mut Opened, deadline: Instant) -> Direct<'_> {
        let Opened { socket, counters, .. } = opened;
        Direct { socket, counting: *counters, deadline, cookie: 0 }
    }

    /// Fills `into` from the export, from byte `offset` on.
    ///
    /// # Errors
    /// The server's, [`io::ErrorKind::TimedOut`], or [`io::ErrorKind::InvalidData`] when the server
    /// breaks the protocol. The connection is of no use then.
    pub fn read(&mut self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.ask(command::READ, offset, into.len(), &[])?;
        self.receive(into)
    }

    /// Writes `bytes` to the export, from byte `offset` on.
    ///
    /// # Errors
    /// As [`read`](Direct::read).
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.ask(command::WRITE, offset, bytes.len(), bytes)
    }

    /// Makes durable what was written.
    ///
    /// # Errors
    /// As [`read`](Direct::read).
    pub fn flush(&mut self) -> io::Result<()> {
        self.ask(command::FLUSH, 0, 0, &[])
    }

    /// Sends a request and takes the head of its reply.
    fn ask(&mut self, number: u16, offset: u64, len: usize, payload: &[u8]) -> io::Result<()> {
        let len = u32::try_from(len).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        self.cookie += 1;
        let request = Request { flags: 0, command: number, cookie: self.cookie, offset, len };
        let mut message = request.to_bytes().to_vec();
        if self.counting == Counting::Agreed {
            message.extend(Report::default().to_bytes());
        }
        message.extend(payload);
        self.socket.set_timeouts(Some(time_left(self.deadline)?))?;
        self.socket.write_all(&message).map_err(timed)?;
        let mut head = [0; HEAD];
        self.receive(&mut head)?;
        if self.counting == Counting::Agreed {
            self.receive(&mut [0; counters::REPLY_LEN])?;
        }
        let [m0, m1, m2, m3, e0, e1, e2, e3, cookie @ ..] = head;
        let is_reply = u32::from_be_bytes([m0, m1, m2, m3]) == SIMPLE_REPLY_MAGIC;
        if !is_reply || u64::from_be_bytes(cookie) != self.cookie {
            let why = "the server answers something else than it was asked";
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        match u32::from_be_bytes([e0, e1, e2, e3]) {
            0 => Ok(()),
            // The protocol's numbers are Linux's.
            error => Err(io::Error::from_raw_os_error(i32::try_from(error).unwrap_or(EIO))),
        }
    }

    fn receive(&mut self, into: &mut [u8]) -> io::Result<()> {
        self.socket.set_timeouts(Some(time_left(self.deadline)?))?;
        self.socket.read_exact(into).map_err(timed)
    }
}
