//! Aligned memory for requests whose own buffers direct IO cannot use.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// One step of a bounced request, in bytes: larger requests go in several steps, so that a guest
/// with odd buffers cannot make the host hold a second copy of them.
pub(super) const BOUNCE: usize = 256 << 10;
const ALIGNMENT: usize = 4096;

/// [`BOUNCE`] bytes, aligned for any device, zeroed at birth.
#[derive(Debug)]
pub(crate) struct Bounce {
    memory: NonNull<u8>,
}

const LAYOUT: Layout = match Layout::from_size_align(BOUNCE, ALIGNMENT) {
    Ok(layout) => layout,
    Err(_) => unreachable!(),
};

impl Bounce {
    pub(super) fn new() -> Bounce {
        // SAFETY: the layout has a non-zero size.
        let memory = unsafe { alloc_zeroed(LAYOUT) };
        let Some(memory) = NonNull::new(memory) else { handle_alloc_error(LAYOUT) };
        Bounce { memory }
    }

    pub(super) fn as_mut_ptr(&mut self) -> *mut u8 {
        self.memory.as_ptr()
    }

    /// Copies the start of the bounce buffer into `buffers`, `len` bytes (at most [`BOUNCE`]).
    ///
    /// # Safety
    /// The buffers are valid for writes and do not overlap this one.
    pub(super) unsafe fn scatter(&self, buffers: &[libc::iovec], len: usize) {
        let mut at = 0;
        for buffer in buffers {
            let n = buffer.iov_len.min(len.min(BOUNCE) - at);
            // SAFETY: `at + n <= BOUNCE`; the destination is valid by the caller's promise.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    self.memory.as_ptr().add(at),
                    buffer.iov_base.cast(),
                    n,
                )
            };
            at += n;
        }
    }

    /// Copies `buffers` into the bounce buffer, `len` bytes (at most [`BOUNCE`]).
    ///
    /// # Safety
    /// The buffers are valid for reads and do not overlap this one.
    pub(super) unsafe fn gather(&mut self, buffers: &[libc::iovec], len: usize) {
        let mut at = 0;
        for buffer in buffers {
            let n = buffer.iov_len.min(len.min(BOUNCE) - at);
            // SAFETY: `at + n <= BOUNCE`; the source is valid by the caller's promise.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    buffer.iov_base.cast::<u8>(),
                    self.memory.as_ptr().add(at),
                    n,
                )
            };
            at += n;
        }
    }
}

impl Drop for Bounce {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and not freed before.
        unsafe { dealloc(self.memory.as_ptr(), LAYOUT) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn iovec(bytes: &mut [u8]) -> libc::iovec {
        libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() }
    }

    #[test]
    fn scatter_and_gather_are_inverse() {
        let mut source: Vec<u8> = (0..100).collect();
        let (a, b) = source.split_at_mut(33);
        let mut bounce = Bounce::new();
        // SAFETY: live, disjoint buffers.
        unsafe { bounce.gather(&[iovec(a), iovec(b)], 90) };
        let mut target = [0u8; 100];
        let (c, d) = target.split_at_mut(7);
        // SAFETY: live, disjoint buffers.
        unsafe { bounce.scatter(&[iovec(c), iovec(d)], 90) };
        assert!(target[..90].iter().copied().eq(0..90));
        assert!(target[90..].iter().all(|&b| b == 0));
    }
}
