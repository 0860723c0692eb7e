//! The shard's io_uring, and how a completion finds its owner.

use headgate_units::Nanos;
use io_uring::{IoUring, squeue, types};
use std::io;

/// Whose completion it is; 64 bits of `user_data`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The eventfd that wakes the shard for commands.
    Wake,
    /// A request at a file backend, by its slot.
    Request(u32),
    /// A port's own operation.
    Port { port: u32, key: u32 },
    /// Nobody waits for it (a cancellation's own completion).
    Nobody,
    /// An operation on the socket of a remote disk.
    Link { link: u32, way: Way },
}

/// A connection's directions, each with one operation under way at the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Requests to the server.
    Out,
    /// Replies from it.
    In,
}

const KIND_SHIFT: u32 = 60;
const PORT_SHIFT: u32 = 32;
/// Ports are numbered below this so that kind, port and key fit together.
pub(crate) const PORTS_MAX: u32 = 1 << (KIND_SHIFT - PORT_SHIFT);

const _: () = assert!(PORT_SHIFT >= u32::BITS, "a key may be any u32");

impl Owner {
    pub(crate) fn encode(self) -> u64 {
        match self {
            Owner::Wake => 0,
            Owner::Request(slot) => 1 << KIND_SHIFT | u64::from(slot),
            Owner::Port { port, key } => {
                2 << KIND_SHIFT | u64::from(port) << PORT_SHIFT | u64::from(key)
            }
            Owner::Nobody => 3 << KIND_SHIFT,
            Owner::Link { link, way: Way::Out } => 4 << KIND_SHIFT | u64::from(link),
            Owner::Link { link, way: Way::In } => 5 << KIND_SHIFT | u64::from(link),
        }
    }

    pub(crate) fn decode(user_data: u64) -> Owner {
        match user_data >> KIND_SHIFT {
            0 => Owner::Wake,
            1 => Owner::Request(user_data as u32),
            2 => Owner::Port {
                port: (user_data >> PORT_SHIFT) as u32 & (PORTS_MAX - 1),
                key: user_data as u32,
            },
            4 => Owner::Link { link: user_data as u32, way: Way::Out },
            5 => Owner::Link { link: user_data as u32, way: Way::In },
            _ => Owner::Nobody,
        }
    }
}

/// What waiting awake came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// There is something to do.
    Over,
    /// Nothing happened.
    GoesOn,
}

/// One result, copied out of the completion queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub owner: Owner,
    pub result: i32,
    pub more: bool,
}

/// Entries of the submission queue; a turn that needs more submits in between.
const ENTRIES: u32 = 512;
/// Kernel workers for what cannot be done without blocking (flushes, hole punching), beside one for
/// each request that datastores may have under way: a datastore that hangs with all of its requests
/// leaves these to the others.
const WORKERS: u32 = 64;
/// Kernel workers for what is no file.
const OTHER_WORKERS: u32 = 16;

pub(crate) struct Ring {
    uring: IoUring,
    files: FileTable,
}

/// Slots of the ring's registered files.
struct FileTable {
    free: Vec<u32>,
    size: u32,
}

/// Open disks per shard.
pub(crate) const FILES_MAX: u32 = 16_384;

impl Ring {
    pub(crate) fn new() -> io::Result<Ring> {
        let uring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_submit_all()
            .setup_cqsize(ENTRIES * 8)
            .build(ENTRIES)?;
        let submitter = uring.submitter();
        submitter.register_iowq_max_workers(&mut [WORKERS, OTHER_WORKERS])?;
        let size = register_files(&submitter)?;
        Ok(Ring { uring, files: FileTable { free: (0..size).rev().collect(), size } })
    }

    /// Datastores may have so many requests under way, all together.
    pub(crate) fn set_windows(&mut self, requests: u32) {
        let workers = WORKERS.saturating_add(requests);
        let set = self.uring.submitter().register_iowq_max_workers(&mut [workers, OTHER_WORKERS]);
        if let Err(e) = set {
            tracing::warn!(error = %e, "a datastore that hangs may hold up others' flushes");
        }
    }

    /// Queues an operation for the next [`Ring::submit`].
    ///
    /// # Safety
    /// The memory that the entry names stays valid until its completion has been seen.
    pub(crate) unsafe fn push(&mut self, entry: squeue::Entry, owner: Owner) {
        let entry = entry.user_data(owner.encode());
        // SAFETY: the caller's promise.
        while unsafe { self.uring.submission().push(&entry) }.is_err() {
            // The queue is full: hand over what is in it. Overload of the completion queue is kept
            // by the kernel (NODROP), so the only errors are transient and the next try repeats
            // them.
            let _ = self.uring.submit();
        }
    }

    /// Does one operation and waits for it, while no other is under way.
    ///
    /// # Safety
    /// The memory that the entry names stays valid until the call returns.
    pub(crate) unsafe fn perform(&mut self, entry: squeue::Entry) -> io::Result<i32> {
        // SAFETY: the caller's promise.
        unsafe { self.push(entry, Owner::Nobody) };
        let mut events = Vec::new();
        while events.is_empty() {
            self.submit(None)?;
            self.reap(&mut events);
        }
        Ok(events[0].result)
    }

    /// Hands queued operations to the kernel, runs its deferred work, and waits for one completion:
    /// not at all, for at most `wait`, or (`None`) until there is one.
    pub(crate) fn submit(&mut self, wait: Option<Nanos>) -> io::Result<()> {
        if wait == Some(Nanos::ZERO) && !self.has_business() {
            return Ok(());
        }
        let want = usize::from(wait != Some(Nanos::ZERO));
        let outcome = match wait {
            None | Some(Nanos::ZERO) => self.uring.submit_and_wait(want),
            Some(wait) => {
                let timeout = types::Timespec::new()
                    .sec(wait.0 / 1_000_000_000)
                    .nsec((wait.0 % 1_000_000_000) as u32);
                self.uring
                    .submitter()
                    .submit_with_args(want, &types::SubmitArgs::new().timespec(&timeout))
            }
        };
        match outcome {
            Ok(_) => Ok(()),
            Err(e)
                if matches!(
                    e.raw_os_error(),
                    Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN)
                ) =>
            {
                Ok(())
            }
            Err(e) => Err(e),
        }
    }

    /// Is there anything that a system call would do: entries to take, deferred work, completions
    /// that found no place. The kernel says so in memory that both see.
    fn has_business(&mut self) -> bool {
        let queue = self.uring.submission();
        !queue.is_empty() || queue.taskrun() || queue.cq_overflow()
    }

    /// Is there a completion, or work of the kernel's that will make one? Looks at memory.
    pub(crate) fn has_events(&mut self) -> bool {
        self.uring.submission().taskrun() || !self.uring.completion().is_empty()
    }

    /// Moves what has completed into `events`.
    pub(crate) fn reap(&mut self, events: &mut Vec<Event>) {
        events.extend(self.uring.completion().map(|cqe| Event {
            owner: Owner::decode(cqe.user_data()),
            result: cqe.result(),
            more: io_uring::cqueue::more(cqe.flags()),
        }));
    }

    /// Registers an open file; operations name it by the slot, which saves the kernel a look-up per
    /// request.
    pub(crate) fn register_file(&mut self, fd: std::os::fd::RawFd) -> io::Result<types::Fixed> {
        let slot = self.files.free.pop().ok_or_else(|| {
            io::Error::other(format!(
                "this shard has {} disks open, as many as it can: add shards",
                self.files.size
            ))
        })?;
        match self.uring.submitter().register_files_update(slot, &[fd]) {
            Ok(_) => Ok(types::Fixed(slot)),
            Err(e) => {
                self.files.free.push(slot);
                Err(e)
            }
        }
    }

    pub(crate) fn unregister_file(&mut self, file: types::Fixed) {
        // Cannot fail for a slot that we filled; the slot is reused either way.
        let _ = self.uring.submitter().register_files_update(file.0, &[-1]);
        self.files.free.push(file.0);
    }
}

/// A sparse table may not exceed the process's limit of open files: takes what it gets, down to a
/// useful minimum.
fn register_files(submitter: &io_uring::Submitter<'_>) -> io::Result<u32> {
    let mut size = FILES_MAX;
    loop {
        match submitter.register_files_sparse(size) {
            Ok(()) => return Ok(size),
            Err(e) if e.raw_os_error() == Some(libc::EMFILE) && size > 64 => size /= 2,
            Err(e) => return Err(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_survive_the_kernel() {
        for owner in [
            Owner::Wake,
            Owner::Request(u32::MAX),
            Owner::Port { port: PORTS_MAX - 1, key: u32::MAX },
            Owner::Port { port: 0, key: 7 },
            Owner::Nobody,
            Owner::Link { link: u32::MAX, way: Way::Out },
            Owner::Link { link: 3, way: Way::In },
        ] {
            assert_eq!(Owner::decode(owner.encode()), owner);
        }
    }
}
