//! Memory of whole pages, aligned for any device.

/// Bytes of a page.
const PAGE: usize = 4096;

#[derive(Clone)]
#[repr(align(4096))]
struct Page([u8; PAGE]);

/// So many bytes, rounded up to whole pages, zeroed at birth. They do not move while this lives.
pub(crate) struct PageBuffer {
    pages: Vec<Page>,
    len: usize,
}

impl PageBuffer {
    pub(crate) fn new(len: usize) -> PageBuffer {
        PageBuffer { pages: vec![Page([0; PAGE]); len.div_ceil(PAGE)], len }
    }

    /// What `buffers` hold, up to their length together.
    ///
    /// # Safety
    /// The buffers are valid for reads. Their content may change meanwhile.
    pub(crate) unsafe fn of(buffers: &[libc::iovec]) -> PageBuffer {
        let mut pages = PageBuffer::new(buffers.iter().map(|buffer| buffer.iov_len).sum());
        let mut at = pages.start();
        for buffer in buffers {
            // SAFETY: the caller's promise; the pages are as long as all buffers together.
            unsafe { std::ptr::copy_nonoverlapping(buffer.iov_base.cast(), at, buffer.iov_len) };
            at = at.wrapping_add(buffer.iov_len);
        }
        pages
    }

    fn start(&mut self) -> *mut u8 {
        self.pages.as_mut_ptr().cast()
    }

    /// How many bytes were asked for.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether the first `len` bytes, or all that there are, are zeroes. Nobody writes them
    /// meanwhile.
    pub(crate) fn is_zero(&self, len: usize) -> bool {
        let len = len.min(self.len);
        let (whole, rest) = (len / PAGE, len % PAGE);
        let is_zero = |bytes: &[u8]| bytes.iter().fold(0, |all, byte| all | byte) == 0;
        self.pages[..whole].iter().all(|page| is_zero(&page.0))
            && (rest == 0 || is_zero(&self.pages[whole].0[..rest]))
    }

    /// The first `len` bytes, or all that there are, as a buffer.
    pub(crate) fn buffer(&mut self, len: usize) -> libc::iovec {
        self.part(0, len)
    }

    /// `len` bytes from `from` on, or all that there are, as a buffer.
    pub(crate) fn part(&mut self, from: usize, len: usize) -> libc::iovec {
        let from = from.min(self.len);
        let iov_base = self.start().wrapping_add(from).cast();
        libc::iovec { iov_base, iov_len: len.min(self.len - from) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_hold_what_buffers_held() {
        let (mut a, mut b) = ([1u8; 5000], [2u8; 100]);
        let iovec =
            |b: &mut [u8]| libc::iovec { iov_base: b.as_mut_ptr().cast(), iov_len: b.len() };
        // SAFETY: both arrays live.
        let mut pages = unsafe { PageBuffer::of(&[iovec(&mut a), iovec(&mut b)]) };
        assert_eq!(pages.len(), 5100);
        let whole = pages.buffer(usize::MAX);
        assert_eq!((whole.iov_base as usize % PAGE, whole.iov_len), (0, 5100));
        // SAFETY: the pages live.
        let held = unsafe { std::slice::from_raw_parts(whole.iov_base.cast::<u8>(), 5100) };
        assert!(held[..5000].iter().all(|&b| b == 1) && held[5000..].iter().all(|&b| b == 2));
        assert_eq!(pages.buffer(10).iov_len, 10);
        let part = pages.part(4990, 50);
        // SAFETY: the pages live.
        let held = unsafe { std::slice::from_raw_parts(part.iov_base.cast::<u8>(), part.iov_len) };
        assert_eq!(held, [[1u8; 10].as_slice(), &[2; 40]].concat());
        assert_eq!((pages.part(5090, 50).iov_len, pages.part(9999, 1).iov_len), (10, 0));
    }

    #[test]
    fn nothing_is_held_without_buffers() {
        // SAFETY: there are none.
        assert_eq!(unsafe { PageBuffer::of(&[]) }.buffer(1).iov_len, 0);
    }
}
