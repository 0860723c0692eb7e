//! Event descriptors: those that the front-end shares with the port, and the port's own.
//!
//! The front-end holds the same open file, so nothing that is set on it here stays set. In
//! particular it can clear `O_NONBLOCK` and fill the counter, and then a `write` waits until
//! somebody reads. Such a `write` is interrupted (`alarm.rs`), and from then on the disk's
//! front-ends are signalled in a way that never waits and costs twice as much: the kernel's own
//! signal stops at the highest count, and a ring of its own makes the kernel send that. See
//! `docs/decisions/0057-front-end-border.md` and `0079-writes-that-are-interrupted.md`.

use super::alarm::guard;
use io_uring::{IoUring, opcode};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A descriptor that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BadEvent {
    /// It is something else, whose readiness would mean something else.
    #[error("the descriptor is '{0}', which is no eventfd: send one made by eventfd(2)")]
    NotAnEventFd(String),
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

/// Whether a signal to the front-ends of one disk has ever had to wait. Kept for as long as the
/// disk is served, so that each disk's front-ends hold a shard up once.
#[derive(Debug, Default)]
pub(crate) struct Trust {
    disk: String,
    is_lost: AtomicBool,
}

impl Trust {
    /// That in the front-ends of the disk of this name.
    pub(crate) fn new(disk: &str) -> Trust {
        Trust { disk: disk.to_owned(), is_lost: AtomicBool::new(false) }
    }
}

/// An eventfd of the front-end that is signalled here.
pub(crate) struct Signal {
    file: File,
    trust: Arc<Trust>,
    /// Once the trust is lost: makes the kernel signal.
    ring: Option<IoUring>,
}

impl Signal {
    /// Takes over a descriptor that a front-end of the disk of `trust` sent.
    ///
    /// # Errors
    /// It is no eventfd.
    pub(crate) fn new(file: File, trust: Arc<Trust>) -> Result<Signal, BadEvent> {
        check(&file)?;
        Ok(Signal { file, trust, ring: None })
    }

    /// Adds one, whatever the front-end does with its descriptor. A full counter stays full, and
    /// then the other side has a signal already. One system call. Holds up the thread for some
    /// milliseconds if the front-end sees to it, and only the first time that one of its disk does.
    pub(crate) fn signal(&mut self) {
        if self.trust.is_lost.load(Ordering::Relaxed) {
            return self.signal_by_ring();
        }
        let file = &self.file;
        match guard(|| write_one(file)) {
            Some(Err(Errno::INTR)) => {
                self.trust.is_lost.store(true, Ordering::Relaxed);
                tracing::warn!(
                    disk = self.trust.disk,
                    "a front-end made its signal wait, which held up its shard for some \
                     milliseconds: its disk's signals cannot wait any more, and cost more"
                );
                self.signal_by_ring();
            }
            // Errors are a full counter.
            Some(_) => {}
            None => self.signal_by_ring(),
        }
    }

    #[cold]
    #[inline(never)]
    fn signal_by_ring(&mut self) {
        if self.ring.is_none() {
            self.ring = ring(&self.file)
                .inspect_err(|error| tracing::warn!(%error, "cannot signal a front-end"))
                .ok();
        }
        let Some(ring) = &mut self.ring else { return };
        let nop = opcode::Nop::new().build();
        // SAFETY: the operation has no buffers. No room means that an earlier one could not be
        // submitted: it serves as well.
        let _ = unsafe { ring.submission().push(&nop) };
        if let Err(error) = ring.submit() {
            // The operation stays in the ring, and goes with the next signal.
            tracing::warn!(%error, "the kernel does not signal a front-end: is it out of memory?");
        }
        ring.completion().for_each(drop);
    }
}

/// By number: the C library's function is a cancellation point, which costs.
fn write_one(file: &File) -> Result<(), Errno> {
    let one = 1u64;
    let (fd, from) = (libc::c_long::from(file.as_raw_fd()), &raw const one);
    // SAFETY: `one` outlives the call.
    match unsafe { libc::syscall(libc::SYS_write, fd, from, size_of_val(&one)) } {
        0.. => Ok(()),
        _ => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}

/// A ring that signals an eventfd for each of its completions.
fn ring(file: &File) -> io::Result<IoUring> {
    let ring = IoUring::new(1)?;
    ring.submitter().register_eventfd(file.as_raw_fd())?;
    Ok(ring)
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

    fn lost() -> Arc<Trust> {
        Arc::new(Trust { is_lost: AtomicBool::new(true), ..Trust::default() })
    }

    #[test]
    fn every_signal_is_counted_in_both_ways() {
        for trust in [Arc::default(), lost()] {
            let theirs = eventfd_of_a_front_end();
            let mut signal = Signal::new(theirs.try_clone().unwrap(), trust).unwrap();
            for expected in [1, 5, 300] {
                (0..expected).for_each(|_| signal.signal());
                assert_eq!(count(&theirs), expected);
            }
        }
    }

    #[test]
    fn a_full_counter_is_waited_for_once_for_all_front_ends_of_a_disk() {
        const FULL: u64 = u64::MAX - 1;
        let full = || {
            let file = eventfd_of_a_front_end();
            (&file).write_all(&FULL.to_ne_bytes()).unwrap();
            file
        };
        let trust = Arc::<Trust>::default();
        let (first, second) = (full(), full());
        let signal = |file: &File| Signal::new(file.try_clone().unwrap(), trust.clone()).unwrap();
        let (mut one, mut other) = (signal(&first), signal(&second));
        one.signal();
        assert!(trust.is_lost.load(Ordering::Relaxed));
        assert_eq!(count(&first), FULL + 1, "the signal that waited came after all");
        for (signal, theirs) in [(&mut one, &first), (&mut other, &second)] {
            signal.signal();
            signal.signal();
            assert!(signal.ring.is_some());
            assert!(count(theirs) >= 2, "what is owed has come");
        }
        assert!(!Arc::<Trust>::default().is_lost.load(Ordering::Relaxed), "other disks'");
    }

    #[test]
    fn a_front_end_that_closed_its_descriptor_is_no_concern() {
        let mut signal = Signal::new(eventfd_of_a_front_end(), Arc::default()).unwrap();
        (0..10).for_each(|_| signal.signal());
    }

    #[test]
    fn other_descriptors_are_refused_and_named() {
        let file = || File::open("/dev/null").unwrap();
        for error in [Kick::new(file()).err(), Signal::new(file(), Arc::default()).err()] {
            let text = error.unwrap().to_string();
            assert!(text.contains("/dev/null") && text.contains("eventfd(2)"), "{text}");
        }
        let epoll = File::from(
            rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC).unwrap(),
        );
        assert!(Signal::new(epoll, Arc::default()).is_err(), "an anonymous inode, but no eventfd");
    }

    #[test]
    fn the_front_ends_flags_are_its_own() {
        let theirs = eventfd_of_a_front_end();
        fcntl_setfl(&theirs, OFlags::empty()).unwrap();
        let _signal = Signal::new(theirs.try_clone().unwrap(), Arc::default()).unwrap();
        let _kick = Kick::new(theirs.try_clone().unwrap()).unwrap();
        let flags = rustix::fs::fcntl_getfl(&theirs).unwrap();
        assert!(!flags.contains(OFlags::NONBLOCK));
    }
}
