//! Aligned memory for requests whose own buffers direct IO cannot use.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// One step of a bounced request, in bytes: larger requests go in several steps, so that a guest with odd buffers
/// cannot make the host hold a second copy of them.
pub(super) const BOUNCE: usize = 256 << 10;
const ALIGNMENT: usize = 4096;

/// [`BOUNCE`] bytes, aligned for any device, zeroed at birth.
#[derive(Debug)]
pub(super) struct Bounce {
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
            unsafe { std::ptr::copy_nonoverlapping(self.memory.as_ptr().add(at), buffer.iov_base.cast(), n) };
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
                std::ptr::copy_nonoverlapping(buffer.iov_base.cast::<u8>(), self.memory.as_ptr().add(at), n)
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

/// Fills `rest` with what remains of `buffers` after `skip` bytes, at most `max` bytes and `IOV_MAX` pieces; returns its length in bytes.
pub(super) fn remaining(buffers: &[libc::iovec], skip: u64, max: u64, rest: &mut Vec<libc::iovec>) -> u64 {
    rest.clear();
    let (mut skip, mut len) = (skip, 0);
    for buffer in buffers {
        let size = buffer.iov_len as u64;
        if skip >= size {
            skip -= size;
            continue;
        }
        let take = (size - skip).min(max - len);
        if take == 0 || rest.len() == libc::UIO_MAXIOV as usize {
            break;
        }
        rest.push(libc::iovec {
            iov_base: buffer.iov_base.cast::<u8>().wrapping_add(skip as usize).cast(),
            iov_len: take as usize,
        });
        skip = 0;
        len += take;
    }
    len
}

#[cfg(test)]
mod tests {
    use super::*;

    fn iovec(bytes: &mut [u8]) -> libc::iovec {
        libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() }
    }

    #[test]
    fn remaining_skips_and_cuts() {
        let mut memory = [0u8; 30];
        let (a, b) = memory.split_at_mut(10);
        let buffers = [iovec(a), iovec(b)];
        let mut rest = Vec::new();
        let lens = |rest: &[libc::iovec]| rest.iter().map(|v| v.iov_len).collect::<Vec<_>>();
        assert_eq!(remaining(&buffers, 0, 30, &mut rest), 30);
        assert_eq!(lens(&rest), [10, 20]);
        assert_eq!(remaining(&buffers, 4, 8, &mut rest), 8);
        assert_eq!(lens(&rest), [6, 2]);
        assert_eq!(remaining(&buffers, 10, 30, &mut rest), 20);
        assert_eq!(lens(&rest), [20]);
        assert_eq!(remaining(&buffers, 30, 30, &mut rest), 0);
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
