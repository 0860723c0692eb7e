//! Fencing: no request of a disk goes to its storage after the disk's lease has ended.
//!
//! A daemon that stood still (SIGSTOP, a paused machine) does not know it when it goes on. So the
//! term is compared with the clock as the last thing before the system call that hands requests to
//! the kernel, and not only where they are dispatched: operations of a fenced disk wait here for
//! the end of the turn. What is later than the term stays here until the term is prolonged, or
//! nobody waits for it any more.
//!
//! Two things remain, which only the storage can refuse: a daemon that is stopped between that
//! comparison and the system call, and what is in the kernel already. The lease's margin covers
//! them (`docs/decisions/0022-leases.md`), and so does a device that is reserved for its host: it
//! refuses what comes from others (`docs/decisions/0077-persistent-reservations.md`). Once it has
//! refused one request of a disk, the others wait here too.

use crate::backend::context::Context;
use crate::clock;
use crate::kernel::ring::Owner;
use crate::request::IoError;
use crate::tables::Tables;
use headgate_units::Nanos;
use io_uring::squeue;

/// How often held operations are tried again: a term that was prolonged goes on as soon as that.
const RETRY: Nanos = Nanos::from_millis(10);

/// Operations of fenced disks that the ring does not have yet, in their order.
#[derive(Debug, Default)]
pub(crate) struct Fenced {
    waiting: Vec<(u32, squeue::Entry)>,
}

impl Fenced {
    /// Keeps an operation of a request until the end of the turn.
    pub(super) fn push(&mut self, key: u32, entry: squeue::Entry) {
        self.waiting.push((key, entry));
    }

    /// When to [try again](Context::submit_fenced) what could not go.
    #[inline]
    pub(crate) fn next_try(&self, now: Nanos) -> Option<Nanos> {
        (!self.waiting.is_empty()).then(|| now + RETRY)
    }
}

impl Context {
    /// Gives the ring the operations of fenced disks whose terms last. To be called immediately
    /// before the ring is submitted. Those whose terms are over end in an error once nobody waits
    /// for them. O(operations that wait).
    #[inline]
    pub(crate) fn submit_fenced(&mut self, is_awaited: impl Fn(&Tables, u32) -> bool) {
        if !self.fenced.waiting.is_empty() {
            self.submit_fenced_at(clock::boottime(), is_awaited);
        }
    }

    fn submit_fenced_at(&mut self, now: Nanos, is_awaited: impl Fn(&Tables, u32) -> bool) {
        let mut waiting = std::mem::take(&mut self.fenced.waiting);
        waiting.retain(|(key, entry)| {
            let slot = &self.tables.slots[*key];
            let disk = &self.tables.disks[slot.disk as usize];
            if disk.storage.file().is_none_or(|file| file.image.tenure().is_over_at(now)) {
                if is_awaited(&self.tables, *key) {
                    return true;
                }
                self.end_party(*key, Err(IoError::Backend(libc::EIO)));
                return false;
            }
            // SAFETY: as when the operation was made: what it names is valid until the request's
            // completion, which has not come.
            unsafe { self.ring.push(entry.clone(), Owner::Request(*key)) };
            false
        });
        self.fenced.waiting = waiting;
    }
}
