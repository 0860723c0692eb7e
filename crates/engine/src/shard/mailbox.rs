//! How other threads speak to a shard: closures through a channel, and an eventfd that wakes it.

use super::Shard;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use thiserror::Error;

/// Work for the shard's thread.
pub(crate) type Command = Box<dyn FnOnce(&mut Shard) + Send>;

/// The shard's thread has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the engine has been shut down")]
pub struct ShardGone;

#[derive(Clone, Debug)]
pub(crate) struct Mailbox {
    commands: Sender<Command>,
    bell: Arc<OwnedFd>,
}

impl Mailbox {
    pub(crate) fn new() -> io::Result<(Mailbox, Receiver<Command>)> {
        // SAFETY: a plain system call; a non-negative result is a descriptor that we own.
        let bell = unsafe {
            let fd = libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd)
        };
        let (commands, inbox) = channel();
        Ok((Mailbox { commands, bell: Arc::new(bell) }, inbox))
    }

    pub(crate) fn send(&self, command: Command) -> Result<(), ShardGone> {
        self.commands.send(command).map_err(|_| ShardGone)?;
        let one = 1u64;
        // SAFETY: writes eight bytes of a live integer. The only failure is a full counter, which has rung already.
        unsafe { libc::write(self.bell.as_raw_fd(), (&raw const one).cast(), 8) };
        Ok(())
    }

    pub(super) fn bell(&self) -> RawFd {
        self.bell.as_raw_fd()
    }
}
