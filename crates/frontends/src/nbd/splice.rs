//! Long reads of an image in memory, sent without being copied: the image's pages go into a pipe
//! and from there into the socket, and the client copies out of them.
//!
//! What the client gets is what the image holds when it looks, which is some time between its
//! request and its receipt of the answer: all that a read promises beside writes that are under
//! way.

use super::send_queue::SendError;
use headgate_engine::port::PortIo;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::net::AddressFamily;
use rustix::net::sockopt::socket_domain;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// What the pipe holds, in bytes, if the system lets us have so much: a long read and its head in
/// one piece.
const PIPE_BYTES: usize = 256 << 10;

/// The range of an answer whose data is spliced from the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spliced {
    /// First byte of the range.
    pub offset: u64,
    /// Its length.
    pub len: u32,
}

/// How far an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Nothing is under way.
    Out,
    /// The socket is full: go on when it has room.
    Waiting,
}

/// One answer at a time from the image to the socket.
#[derive(Debug)]
pub struct Splicer {
    out: OwnedFd,
    into: OwnedFd,
    /// Bytes in the pipe.
    held: usize,
    /// What is not in the pipe yet.
    left: Option<Spliced>,
}

impl Splicer {
    /// For this socket, which gets non-blocking: `None` if it is not a unix socket, where alone the
    /// client itself takes the bytes from the pages, or if there is no pipe to be had.
    pub fn new(socket: BorrowedFd<'_>) -> Option<Splicer> {
        if socket_domain(socket) != Ok(AddressFamily::UNIX) {
            return None;
        }
        let (out, into) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).ok()?;
        // A pipe that stays small costs more calls, nothing else.
        let _ = fcntl_setpipe_size(&into, PIPE_BYTES);
        // Only the socket's own flag keeps a splice from waiting; the ring waits for such a socket
        // all the same.
        let flags = fcntl_getfl(socket).ok()?;
        fcntl_setfl(socket, flags | OFlags::NONBLOCK).ok()?;
        Some(Splicer { out, into, held: 0, left: None })
    }

    /// Is an answer under way?
    pub fn is_busy(&self) -> bool {
        self.held > 0 || self.left.is_some()
    }

    /// Begins an answer, `head` before the data; none is under way.
    ///
    /// # Errors
    /// The pipe, which is empty, does not take the head.
    pub fn begin(&mut self, head: &[u8], spliced: Spliced) -> Result<(), SendError> {
        match rustix::io::write(&self.into, head) {
            Ok(put) if put == head.len() => {}
            Ok(_) => return Err(SendError::Splice(libc::EIO)),
            Err(error) => return Err(SendError::Splice(error.raw_os_error())),
        }
        self.held = head.len();
        self.left = Some(spliced);
        Ok(())
    }

    /// Moves what can be moved.
    ///
    /// # Errors
    /// The client is gone, or the image no longer has the range: half an answer cannot be taken
    /// back.
    pub fn advance(
        &mut self,
        io: &mut dyn PortIo,
        socket: BorrowedFd<'_>,
    ) -> Result<Progress, SendError> {
        while self.is_busy() {
            if let Some(Spliced { offset, len }) = self.left {
                match io.splice_out(offset, len, self.into.as_raw_fd()) {
                    Ok(0) => return Err(SendError::Splice(libc::EIO)),
                    Ok(moved) => {
                        self.held += moved as usize;
                        let rest = Spliced { offset: offset + u64::from(moved), len: len - moved };
                        self.left = (rest.len > 0).then_some(rest);
                    }
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock && self.held > 0 => {}
                    Err(e) => return Err(SendError::Splice(e.raw_os_error().unwrap_or(libc::EIO))),
                }
            }
            let more = if self.left.is_some() { SpliceFlags::MORE } else { SpliceFlags::empty() };
            match splice(&self.out, None, socket, None, self.held, more) {
                Ok(0) => return Err(SendError::Short),
                Ok(sent) => self.held -= sent,
                Err(Errno::AGAIN) => return Ok(Progress::Waiting),
                Err(Errno::INTR) => {}
                Err(error) => return Err(SendError::Gone(error.raw_os_error())),
            }
        }
        Ok(Progress::Out)
    }
}
