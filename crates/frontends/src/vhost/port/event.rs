//! Event descriptors: those that the front-end shares with the port, and the port's own.
//!
//! The front-end holds the same open file, so nothing that is set on it here stays set. In
//! particular it can clear `O_NONBLOCK` and fill the counter, and then a `write` waits until
//! somebody reads. The kernel's own signal never waits: it stops at the highest count. A ring of
//! its own makes the kernel send that. See `docs/decisions/0057-front-end-border.md`.

use io_uring::{IoUring, opcode};
use rustix::event::{EventfdFlags, eventfd};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;

/// A descriptor that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BadEvent {
    /// It is something else, whose readiness would mean something else.
    #[error("the descriptor is '{0}', which is no eventfd: send one made by eventfd(2)")]
    NotAnEventFd(String),
    /// The kernel has no ring, or no descriptor, left.
    #[error(
        "cannot prepare to signal an eventfd: {0}; if it has too many open files, raise LimitNOFILE"
    )]
    NoRing(io::Error),
}

fn check(file: &File) -> Result<(), BadEvent> {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let link = link.map_err(|e| BadEvent::NotAnEventFd(e.to_string()))?;
    if link.as_os_str() != "anon_inode:[eventfd]" {
        return Err(BadEvent::NotAnEventFd(link.display().to_string()));
    }
    Ok(())
}

/// An eventfd that the front-end signals. It is waited for, and neither read nor written.
#[derive(Debug)]
pub(crate) struct Kick(File);

impl Kick {
    /// Takes over a descriptor that the front-end sent.
    ///
    /// # Errors
    /// It is no eventfd.
    pub(crate) fn new(file: File) -> Result<Kick, BadEvent> {
        check(&file)?;
        Ok(Kick(file))
    }

    pub(crate) fn raw(&self) -> i32 {
        self.0.as_raw_fd()
    }
}

/// An eventfd of the front-end that is signalled here. It costs one descriptor: that of a ring,
/// which keeps the eventfd.
pub(crate) struct Signal(IoUring);

impl Signal {
    /// Takes over a descriptor that the front-end sent.
    ///
    /// # Errors
    /// It is no eventfd, or there is no ring for it.
    pub(crate) fn new(file: File) -> Result<Signal, BadEvent> {
        check(&file)?;
        let ring = IoUring::new(1).map_err(BadEvent::NoRing)?;
        ring.submitter().register_eventfd(file.as_raw_fd()).map_err(BadEvent::NoRing)?;
        Ok(Signal(ring))
    }

    /// Adds one, whatever the front-end does with its descriptor. Never waits: a full counter
    /// stays full, and then the other side has a signal already. One system call.
    pub(crate) fn signal(&mut self) {
        let nop = opcode::Nop::new().build();
        // SAFETY: the operation has no buffers. No room means that an earlier one could not be
        // submitted: it serves as well.
        let _ = unsafe { self.0.submission().push(&nop) };
        if let Err(error) = self.0.submit() {
            // The operation stays in the ring, and goes with the next signal.
            tracing::warn!(%error, "the kernel does not signal a front-end: is it out of memory?");
        }
        self.0.completion().for_each(drop);
    }
}

/// The port's own eventfd, which nobody else holds: brings the port back in the shard's next turn.
#[derive(Debug)]
pub(crate) struct Recall(File);

impl Recall {
    /// A new one.
    ///
    /// # Errors
    /// No descriptor is left.
    pub(crate) fn new() -> io::Result<Recall> {
        Ok(Recall(File::from(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?)))
    }

    pub(crate) fn raw(&self) -> i32 {
        self.0.as_raw_fd()
    }

    /// The readiness event comes. Never waits: the descriptor's flags are this process's alone.
    pub(crate) fn signal(&self) {
        // A full counter fails, and its event has come.
        let _ = (&self.0).write(&1u64.to_ne_bytes());
    }

    #[cfg(test)]
    pub(crate) fn is_signalled(&self) -> bool {
        let mut count = [0; 8];
        io::Read::read(&mut &self.0, &mut count).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{OFlags, fcntl_setfl};
    use std::io::Read;

    fn eventfd_of_a_front_end() -> File {
        File::from(eventfd(0, EventfdFlags::CLOEXEC).unwrap())
    }

    fn count(mut file: &File) -> u64 {
        let mut bytes = [0; 8];
        file.read_exact(&mut bytes).unwrap();
        u64::from_ne_bytes(bytes)
    }

    #[test]
    fn every_signal_is_counted() {
        let theirs = eventfd_of_a_front_end();
        let mut signal = Signal::new(theirs.try_clone().unwrap()).unwrap();
        for expected in [1, 5, 300] {
            (0..expected).for_each(|_| signal.signal());
            assert_eq!(count(&theirs), expected);
        }
    }

    #[test]
    fn a_front_end_that_closed_its_descriptor_is_no_concern() {
        let mut signal = Signal::new(eventfd_of_a_front_end()).unwrap();
        (0..10).for_each(|_| signal.signal());
    }

    #[test]
    fn other_descriptors_are_refused_and_named() {
        let file = || File::open("/dev/null").unwrap();
        for error in [Kick::new(file()).err(), Signal::new(file()).err()] {
            let text = error.unwrap().to_string();
            assert!(text.contains("/dev/null") && text.contains("eventfd(2)"), "{text}");
        }
        let epoll = File::from(
            rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC).unwrap(),
        );
        assert!(Signal::new(epoll).is_err(), "an anonymous inode, but no eventfd");
    }

    #[test]
    fn the_front_ends_flags_are_its_own() {
        let theirs = eventfd_of_a_front_end();
        fcntl_setfl(&theirs, OFlags::empty()).unwrap();
        let _signal = Signal::new(theirs.try_clone().unwrap()).unwrap();
        let _kick = Kick::new(theirs.try_clone().unwrap()).unwrap();
        let flags = rustix::fs::fcntl_getfl(&theirs).unwrap();
        assert!(!flags.contains(OFlags::NONBLOCK));
    }
}
