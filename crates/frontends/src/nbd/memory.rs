//! The memory of one connection: what the kernel reads from the client and from the disk into.
//!
//! It is mapped when the connection is made and costs pages only where they are used. The kernel
//! hands out zeroes, and no page ever serves another connection: nobody can see another client's
//! bytes in it. Everything goes through raw pointers, for the kernel writes into it while the port
//! runs.

use super::buddy::{Block, Buddy, MAX_ORDER, order_of};
use headgate_nbd::server::MAX_PAYLOAD;
use std::io;
use std::ptr::{self, NonNull};

/// Alignment and grain of all buffers, in bytes: enough for direct IO on any disk.
pub const PAGE: usize = 4096;

/// What one connection may hold in buffers, in bytes: two of the longest requests.
pub const BUFFER_BYTES: usize = LARGEST * (PAGE << MAX_ORDER);

const LARGEST: usize = 2;

const _: () =
    assert!(PAGE << MAX_ORDER == MAX_PAYLOAD as usize, "the longest request fits a block");

/// A private anonymous mapping.
#[derive(Debug)]
struct Region {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the region owns its mapping; the pointer means the same on every thread.
unsafe impl Send for Region {}

impl Region {
    /// Maps `len` bytes of zeroes, page-aligned.
    ///
    /// # Errors
    /// The process has no address space left.
    fn map(len: usize) -> io::Result<Region> {
        let (protection, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
        );
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing that
        // exists.
        let base = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Region { base, len })
    }

    /// The length in bytes.
    fn len(&self) -> usize {
        self.len
    }

    /// A pointer to the byte at `offset`, at most the length.
    fn at(&self, offset: usize) -> *mut u8 {
        debug_assert!(offset <= self.len);
        // SAFETY: the offset stays inside the mapping or one past its end.
        unsafe { self.base.as_ptr().add(offset.min(self.len)) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and whoever dropped the region has no pointer into it left.
        // It cannot fail on a range that `map` got.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// A connection's buffers for payload and data.
#[derive(Debug)]
pub struct Arena {
    region: Region,
    pages: Buddy,
}

impl Arena {
    /// Maps [`BUFFER_BYTES`].
    ///
    /// # Errors
    /// The process has no address space left.
    pub fn map() -> io::Result<Arena> {
        Ok(Arena { region: Region::map(BUFFER_BYTES)?, pages: Buddy::new(LARGEST as u32) })
    }

    /// Takes a buffer of at least `len` bytes. `None`: the connection holds as much as it may.
    pub fn take(&mut self, len: u32) -> Option<Block> {
        self.pages.take(order_of(len.div_ceil(PAGE as u32))?)
    }

    /// Takes a buffer back. Nobody uses a pointer to it any more.
    pub fn give(&mut self, block: Block) {
        self.pages.give(block);
    }

    /// The buffer's first byte, aligned to [`PAGE`].
    pub fn at(&self, block: &Block) -> *mut u8 {
        self.region.at(block.page() as usize * PAGE)
    }
}

/// What was received and not yet used: a window that moves through a region and starts over when it
/// is empty.
#[derive(Debug)]
pub struct Inbox {
    region: Region,
    start: usize,
    end: usize,
}

impl Inbox {
    /// Maps `len` bytes and puts `early`, as much as fits, in front.
    ///
    /// # Errors
    /// The process has no address space left.
    pub fn map(len: usize, early: &[u8]) -> io::Result<Inbox> {
        let region = Region::map(len.max(early.len()))?;
        // SAFETY: the region is at least as long, is ours, and is new.
        unsafe { ptr::copy_nonoverlapping(early.as_ptr(), region.at(0), early.len()) };
        Ok(Inbox { region, start: 0, end: early.len() })
    }

    /// The bytes not yet used.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `start..end` lies in the region and was written; the kernel writes only behind
        // `end`.
        unsafe { std::slice::from_raw_parts(self.region.at(self.start), self.end - self.start) }
    }

    /// Drops the first `len` bytes.
    pub fn consume(&mut self, len: usize) {
        self.start = (self.start + len).min(self.end);
    }

    /// Moves up to `len` bytes to `target`; answers how many.
    ///
    /// # Safety
    /// `target` is valid for writes of `len` bytes, outside this region.
    pub unsafe fn move_to(&mut self, target: *mut u8, len: usize) -> usize {
        let bytes = self.bytes();
        let len = len.min(bytes.len());
        // SAFETY: the source is a slice of at least `len` bytes, the target is the caller's
        // promise.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), target, len) };
        self.consume(len);
        len
    }

    /// Where to receive, and how many bytes, after making the most of the room. No receive into
    /// this region is under way.
    pub fn space(&mut self) -> (*mut u8, usize) {
        if self.start > 0
            && (self.start == self.end || self.region.len() - self.end < self.region.len() / 4)
        {
            // SAFETY: both ranges lie in the region, `copy` allows them to overlap, and the kernel
            // does not write now.
            unsafe {
                ptr::copy(self.region.at(self.start), self.region.at(0), self.end - self.start)
            };
            (self.start, self.end) = (0, self.end - self.start);
        }
        (self.region.at(self.end), self.region.len() - self.end)
    }

    /// The kernel wrote `len` bytes to where [`space`](Inbox::space) said.
    pub fn on_received(&mut self, len: usize) {
        self.end = (self.end + len).min(self.region.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_zeroed_and_bounded() {
        let mut arena = Arena::map().unwrap();
        let small = arena.take(512).unwrap();
        assert_eq!(arena.at(&small) as usize % PAGE, 0);
        // SAFETY: the block is one page, and ours.
        let page = unsafe { std::slice::from_raw_parts(arena.at(&small), PAGE) };
        assert!(page.iter().all(|&byte| byte == 0));
        let large = arena.take(32 << 20).unwrap();
        assert!(arena.take(32 << 20).is_none());
        arena.give(small);
        let second = arena.take(32 << 20).unwrap();
        assert!(arena.take(1).is_none());
        arena.give(large);
        arena.give(second);
        assert!(arena.take(u32::MAX).is_none());
    }

    #[test]
    fn the_inbox_keeps_what_is_not_used_and_finds_room_again() {
        let mut inbox = Inbox::map(4096, b"early").unwrap();
        assert_eq!(inbox.bytes(), b"early");
        let (at, len) = inbox.space();
        assert_eq!(len, 4096 - 5);
        // SAFETY: `space` gives room for `len` bytes.
        unsafe { ptr::write_bytes(at, 7, len) };
        inbox.on_received(len);
        assert_eq!(inbox.space().1, 0);
        inbox.consume(4000);
        assert_eq!(inbox.space().1, 4000);
        assert_eq!(inbox.bytes(), [7; 96]);
        let mut target = [0; 200];
        // SAFETY: the target is as long as it says.
        assert_eq!(unsafe { inbox.move_to(target.as_mut_ptr(), 200) }, 96);
        assert_eq!(target[..97], [&[7; 96][..], &[0]].concat());
        assert_eq!(inbox.space().1, 4096);
    }
}
