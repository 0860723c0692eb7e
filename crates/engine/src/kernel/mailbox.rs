//! How other threads speak to a shard: closures through a channel, and an eventfd that wakes it.
//!
//! A mailbox does not know what a shard is: it carries work on a `T`. [`Mailbox::outlet`] gives a
//! sender for work on a part of the `T`, so that a backend needs to know that part only.

use crate::error::ShardGone;
use rustix::event::{EventfdFlags, eventfd};
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Work on a `T`, for the thread that owns it.
pub(crate) type Command<T> = Box<dyn FnOnce(&mut T) + Send>;

/// Sends work to the thread that owns a `T`. Clones send to the same thread.
pub(crate) struct Mailbox<T> {
    commands: Sender<Command<T>>,
    bell: Arc<OwnedFd>,
}

impl<T> Clone for Mailbox<T> {
    fn clone(&self) -> Mailbox<T> {
        Mailbox { commands: self.commands.clone(), bell: self.bell.clone() }
    }
}

impl<T> fmt::Debug for Mailbox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailbox").field("bell", &self.bell).finish_non_exhaustive()
    }
}

/// Sends work on a part of what a mailbox's thread owns.
type Post<U> = dyn Fn(Command<U>) -> Result<(), ShardGone> + Send + Sync;

/// Sends work on a `U`, which is a part of what a mailbox's thread owns. Clones send to the same.
pub(crate) struct Outlet<U>(Arc<Post<U>>);

impl<U> Clone for Outlet<U> {
    fn clone(&self) -> Outlet<U> {
        Outlet(self.0.clone())
    }
}

impl<U> Outlet<U> {
    /// Sends work.
    ///
    /// # Errors
    /// The thread has ended.
    pub(crate) fn send(&self, command: Command<U>) -> Result<(), ShardGone> {
        (self.0)(command)
    }
}

impl<T: 'static> Mailbox<T> {
    /// A sender for work on the part of the `T` that `part` finds.
    pub(crate) fn outlet<U: 'static>(&self, part: fn(&mut T) -> &mut U) -> Outlet<U> {
        let mailbox = self.clone();
        Outlet(Arc::new(move |command| {
            mailbox.send(Box::new(move |whole: &mut T| command(part(whole))))
        }))
    }
}

impl<T> Mailbox<T> {
    pub(crate) fn new() -> io::Result<(Mailbox<T>, Receiver<Command<T>>)> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let (commands, inbox) = channel();
        Ok((Mailbox { commands, bell: Arc::new(bell) }, inbox))
    }

    /// Sends work and wakes the thread.
    ///
    /// # Errors
    /// The thread has ended.
    pub(crate) fn send(&self, command: Command<T>) -> Result<(), ShardGone> {
        self.commands.send(command).map_err(|_| ShardGone)?;
        // The only failure is a full counter, which has rung already.
        let _ = rustix::io::write(&*self.bell, &1u64.to_ne_bytes());
        Ok(())
    }

    /// Whether both send to the same thread.
    pub(crate) fn is(&self, other: &Mailbox<T>) -> bool {
        Arc::ptr_eq(&self.bell, &other.bell)
    }

    /// Readable when there may be work.
    pub(crate) fn bell(&self) -> RawFd {
        self.bell.as_raw_fd()
    }
}
