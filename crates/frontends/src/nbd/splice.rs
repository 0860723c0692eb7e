//! Long reads of an image in memory, sent without being copied: the image's pages go into a pipe
//! and from there into the socket, and the client copies out of them.
//!
//! What the client gets is what the image holds when it looks, which is some time between its
//! request and its receipt of the answer: all that a read promises beside writes that are under
//! way.

use super::send_queue::SendError;
use headgate_engine::port::PortIo;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// What the pipe holds, in bytes, if the system lets us have so much: a long read and its head in
/// one piece.
const PIPE_BYTES: libc::c_int = 256 << 10;

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
    pub fn new(socket: RawFd) -> Option<Splicer> {
        if !is_unix(socket) {
            return None;
        }
        let mut ends = [-1; 2];
        // SAFETY: writes two integers; on success both are descriptors that we own.
        let (out, into) = unsafe {
            if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) < 0 {
                return None;
            }
            (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1]))
        };
        // SAFETY: plain system calls on descriptors that are open. A pipe that stays small costs
        // more calls, nothing else. Only the socket's own flag keeps a splice from waiting; the
        // ring waits for such a socket all the same.
        unsafe {
            libc::fcntl(into.as_raw_fd(), libc::F_SETPIPE_SZ, PIPE_BYTES);
            let flags = libc::fcntl(socket, libc::F_GETFL);
            if flags < 0 || libc::fcntl(socket, libc::F_SETFL, flags | libc::O_NONBLOCK) < 0 {
                return None;
            }
        }
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
        // SAFETY: reads from a live slice.
        let put = unsafe { libc::write(self.into.as_raw_fd(), head.as_ptr().cast(), head.len()) };
        if usize::try_from(put) != Ok(head.len()) {
            return Err(SendError::Splice(
                io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO),
            ));
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
    pub fn advance(&mut self, io: &mut dyn PortIo, socket: RawFd) -> Result<Progress, SendError> {
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
            let more = if self.left.is_some() { libc::SPLICE_F_MORE } else { 0 };
            // SAFETY: a plain system call on descriptors that are open, without offsets.
            let sent = unsafe {
                let none = std::ptr::null_mut();
                libc::splice(self.out.as_raw_fd(), none, socket, none, self.held, more)
            };
            match usize::try_from(sent) {
                Ok(0) => return Err(SendError::Short),
                Ok(sent) => self.held -= sent,
                Err(_) => match io::Error::last_os_error() {
                    e if e.kind() == io::ErrorKind::WouldBlock => return Ok(Progress::Waiting),
                    e if e.kind() == io::ErrorKind::Interrupted => {}
                    e => return Err(SendError::Gone(e.raw_os_error().unwrap_or(libc::EIO))),
                },
            }
        }
        Ok(Progress::Out)
    }
}

fn is_unix(socket: RawFd) -> bool {
    let (mut domain, mut len) = (0 as libc::c_int, size_of::<libc::c_int>() as libc::socklen_t);
    // SAFETY: writes at most the integer that it is given.
    let got = unsafe {
        let (domain, len) = ((&raw mut domain).cast(), &raw mut len);
        libc::getsockopt(socket, libc::SOL_SOCKET, libc::SO_DOMAIN, domain, len)
    };
    got == 0 && domain == libc::AF_UNIX
}
