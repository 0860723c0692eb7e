//! Keeps the daemon alive when a front-end cuts off the memory that it shares.
//!
//! Guest memory is a file of the front-end. Whoever holds that file can shorten it, and touching a
//! page behind the end raises `SIGBUS`. Sealing would prevent it, but huge pages and memory files
//! on disk cannot be sealed. So a handler puts empty private memory in place of a [`Watched`] range
//! when a fault in it comes up: the guest's requests read zeroes or are answered into nothing,
//! which harms that guest alone. The kernel's own accesses fail with `EFAULT` and need no handler.
//!
//! The handler runs between any two instructions. It touches only the atomics of a fixed table and
//! makes one system call.

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Ranges that can be watched at once: 509 regions of a front-end is what memory hot-plug allows,
/// and most have one or two.
const RANGES_MAX: usize = 16_384;

/// A place in the table. `start` is [`FREE`], [`CLAIMED`] or an address; `end` counts once `start`
/// is an address.
struct Range {
    start: AtomicUsize,
    end: AtomicUsize,
    lost: AtomicBool,
}

const FREE: usize = 0;
const CLAIMED: usize = 1;

static RANGES: [Range; RANGES_MAX] = [const {
    Range { start: AtomicUsize::new(FREE), end: AtomicUsize::new(0), lost: AtomicBool::new(false) }
}; RANGES_MAX];
/// Places from here on were never used: what the handler need not look at.
static USED: AtomicUsize = AtomicUsize::new(0);
/// What handled the signal before.
static FORMER: OnceLock<Former> = OnceLock::new();

struct Former(libc::sigaction);

/// A mapped range whose loss is survived, until dropped.
#[derive(Debug)]
pub(super) struct Watched {
    range: usize,
}

/// No range more can be watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum WatchError {
    #[error("{RANGES_MAX} memory regions are mapped already")]
    Full,
    #[error("cannot handle SIGBUS")]
    Handler,
}

impl Watched {
    /// Watches `len` bytes from `start`, a whole mapping that must stay until the value is dropped.
    pub(super) fn new(start: *mut u8, len: usize) -> Result<Watched, WatchError> {
        install()?;
        for (index, entry) in RANGES.iter().enumerate() {
            let claim =
                entry.start.compare_exchange(FREE, CLAIMED, Ordering::Acquire, Ordering::Relaxed);
            if claim.is_ok() {
                USED.fetch_max(index + 1, Ordering::Release);
                entry.lost.store(false, Ordering::Relaxed);
                entry.end.store(start as usize + len, Ordering::Relaxed);
                entry.start.store(start as usize, Ordering::Release);
                return Ok(Watched { range: index });
            }
        }
        Err(WatchError::Full)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let range = &RANGES[self.range];
        range.start.store(FREE, Ordering::Release);
        if range.lost.load(Ordering::Relaxed) {
            tracing::warn!(
                "a front-end shortened the memory it shares; its guest's requests went nowhere"
            );
        }
    }
}

fn install() -> Result<(), WatchError> {
    let mut worked = true;
    FORMER.get_or_init(|| {
        let mut former = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: both structures are valid; an all-zero sigaction with a handler and a mask is
        // complete. `on_sigbus` keeps to what a signal handler may do.
        unsafe {
            let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
            action.sa_sigaction = on_sigbus as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
            libc::sigemptyset(&mut action.sa_mask);
            worked = libc::sigaction(libc::SIGBUS, &action, former.as_mut_ptr()) == 0;
            Former(former.assume_init())
        }
    });
    if worked { Ok(()) } else { Err(WatchError::Handler) }
}

extern "C" fn on_sigbus(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the kernel passes a valid siginfo; for SIGBUS it holds the faulting address.
    let address = unsafe { (*info).si_addr() } as usize;
    for range in &RANGES[..USED.load(Ordering::Acquire).min(RANGES_MAX)] {
        let start = range.start.load(Ordering::Acquire);
        let end = range.end.load(Ordering::Relaxed);
        if start > CLAIMED && (start..end).contains(&address) {
            range.lost.store(true, Ordering::Relaxed);
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let flags =
                libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            // SAFETY: the range is one whole mapping of guest memory, which stays until it is no
            // longer watched. Nothing in it is a Rust object: it is reached by atomic accesses and
            // copies that may find any bytes.
            let mapped =
                unsafe { libc::mmap(start as *mut _, end - start, protection, flags, -1, 0) };
            if mapped != libc::MAP_FAILED {
                return;
            }
        }
    }
    // Not ours: whoever handled it before does, or the process ends as it would have.
    let Some(Former(former)) = FORMER.get() else { return };
    // SAFETY: `former` is what the kernel reported as the handler, called as its flags say;
    // resetting to it makes the faulting instruction raise the signal again.
    unsafe {
        if former.sa_flags & libc::SA_SIGINFO != 0 && former.sa_sigaction > 1 {
            let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                std::mem::transmute(former.sa_sigaction);
            handler(signal, info, context);
        } else {
            libc::sigaction(libc::SIGBUS, former, ptr::null_mut());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_vanished_reads_as_zeroes() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8192).unwrap();
        let offset = vm_memory::FileOffset::new(file.try_clone().unwrap(), 0);
        let mapping = vm_memory::MmapRegion::<()>::from_file(offset, 8192).unwrap();
        let watched = Watched::new(mapping.as_ptr(), 8192).unwrap();
        // SAFETY: the mapping is two pages long and stays to the end of the test.
        unsafe { mapping.as_ptr().add(4096).write_volatile(7) };
        file.set_len(0).unwrap();
        // SAFETY: as above.
        assert_eq!(unsafe { mapping.as_ptr().add(4096).read_volatile() }, 0);
        assert!(RANGES[watched.range].lost.load(Ordering::Relaxed));
        // SAFETY: as above.
        unsafe { mapping.as_ptr().write_volatile(1) };
    }
}
