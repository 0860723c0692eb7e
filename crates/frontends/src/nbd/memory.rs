//! The memory of one connection: what the kernel reads from the client and from the disk into.
//!
//! It is mapped when the connection is made and costs pages only where they are used, which the
//! connection's account allows chunk by chunk. The kernel hands out zeroes, and no page ever serves
//! another connection: nobody can see another client's bytes in it. Everything goes through raw
//! pointers, for the kernel writes into it while the port runs.

use super::buddy::{Block, Buddy, MAX_ORDER, order_of};
use super::budget::{Account, CHUNK};
use headgate_nbd::server::MAX_PAYLOAD;
use std::io;
use std::ptr::{self, NonNull};
use std::sync::Arc;

/// Alignment and grain of all buffers, in bytes: enough for direct IO on any disk.
pub const PAGE: usize = 4096;

/// What one connection may hold in buffers, in bytes: two of the longest requests.
pub const BUFFER_BYTES: usize = LARGEST * (PAGE << MAX_ORDER);

const LARGEST: usize = 2;

const _: () =
    assert!(PAGE << MAX_ORDER == MAX_PAYLOAD as usize, "the longest request fits a block");

const PAGES_PER_CHUNK: usize = CHUNK / PAGE;

const CHUNKS: usize = BUFFER_BYTES / CHUNK;

/// What an inbox holds before its account has allowed more, in bytes: the longest request whose
/// payload is received together with its head from a client of little depth, and its head.
pub const SMALL_INBOX: usize = 8 << 10;

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

    /// Gives the pages of a range back to the system. They read as zeroes afterwards.
    fn discard(&self, offset: usize, len: usize) {
        debug_assert!(offset + len <= self.len);
        // SAFETY: the range lies inside the mapping, which is private and anonymous, and the caller
        // has nothing in it that is still needed. Advice may fail, and then the pages stay.
        unsafe { libc::madvise(self.at(offset).cast(), len, libc::MADV_DONTNEED) };
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
    account: Arc<Account>,
    chunks: Vec<Chunk>,
    /// Chunks that are claimed and of which nothing is taken.
    unused: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Chunk {
    /// Blocks that are taken and lie in it, wholly or in part.
    blocks: u16,
    claim: Claim,
}

/// Whether a chunk counts in the connection's account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Claim {
    #[default]
    No,
    Yes,
}

/// There is no buffer now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoBuffer {
    /// The connection holds all that it may. It gets one when an answer is out.
    Full,
    /// The account allows no more.
    Denied,
}

impl Arena {
    /// Maps [`BUFFER_BYTES`].
    ///
    /// # Errors
    /// The process has no address space left.
    pub fn map(account: Arc<Account>) -> io::Result<Arena> {
        Ok(Arena {
            region: Region::map(BUFFER_BYTES)?,
            pages: Buddy::new(LARGEST as u32),
            account,
            chunks: vec![Chunk::default(); CHUNKS],
            unused: 0,
        })
    }

    /// Takes a buffer of at least `len` bytes.
    ///
    /// # Errors
    /// See [`NoBuffer`].
    pub fn take(&mut self, len: u32) -> Result<Block, NoBuffer> {
        let order = order_of(len.div_ceil(PAGE as u32)).ok_or(NoBuffer::Full)?;
        let block = self.pages.take(order).ok_or(NoBuffer::Full)?;
        let range = chunks_of(&block);
        let unclaimed = |chunks: &[Chunk]| {
            let more = chunks.iter().filter(|chunk| chunk.claim == Claim::No).count();
            more * CHUNK
        };
        let more = unclaimed(&self.chunks[range.clone()]);
        if more > 0 && !self.account.claim(more) {
            // What is claimed elsewhere and not used may be enough.
            self.give_back_unused();
            if !self.account.claim(unclaimed(&self.chunks[range.clone()])) {
                self.pages.give(block);
                return Err(NoBuffer::Denied);
            }
        }
        for chunk in &mut self.chunks[range] {
            if chunk.claim == Claim::Yes && chunk.blocks == 0 {
                self.unused -= 1;
            }
            chunk.claim = Claim::Yes;
            chunk.blocks += 1;
        }
        Ok(block)
    }

    /// Takes a buffer back. Nobody uses a pointer to it any more.
    pub fn give(&mut self, block: Block) {
        for chunk in &mut self.chunks[chunks_of(&block)] {
            chunk.blocks -= 1;
            if chunk.blocks == 0 {
                self.unused += 1;
            }
        }
        self.pages.give(block);
    }

    /// Gives chunks that are claimed and not used back to the system and the account.
    pub fn give_back_unused(&mut self) {
        let mut from = 0;
        while self.unused > 0 && from < self.chunks.len() {
            let is_unused = |chunk: &Chunk| chunk.claim == Claim::Yes && chunk.blocks == 0;
            let run = self.chunks[from..].iter().take_while(|chunk| is_unused(chunk)).count();
            if run > 0 {
                self.region.discard(from * CHUNK, run * CHUNK);
                self.chunks[from..from + run].fill(Chunk::default());
                self.unused -= run;
                self.account.release(run * CHUNK);
            }
            from += run.max(1);
        }
    }

    /// The buffer's first byte, aligned to [`PAGE`].
    pub fn at(&self, block: &Block) -> *mut u8 {
        self.region.at(block.page() as usize * PAGE)
    }
}

/// The chunks that a block lies in.
fn chunks_of(block: &Block) -> std::ops::Range<usize> {
    let first = block.page() as usize;
    first / PAGES_PER_CHUNK..(first + block.pages() as usize).div_ceil(PAGES_PER_CHUNK)
}

/// What was received and not yet used: a window that moves through a region and starts over when it
/// is empty. It begins small, and gets long once a receive filled it.
#[derive(Debug)]
pub struct Inbox {
    region: Region,
    account: Arc<Account>,
    /// How much of the region may be used.
    room: usize,
    start: usize,
    end: usize,
}

impl Inbox {
    /// Maps `len` bytes and puts `early`, as much as fits, in front.
    ///
    /// # Errors
    /// The process has no address space left.
    pub fn map(len: usize, early: &[u8], account: Arc<Account>) -> io::Result<Inbox> {
        let region = Region::map(len.max(early.len()))?;
        // SAFETY: the region is at least as long, is ours, and is new.
        unsafe { ptr::copy_nonoverlapping(early.as_ptr(), region.at(0), early.len()) };
        let room = SMALL_INBOX.max(early.len()).min(region.len());
        Ok(Inbox { region, account, room, start: 0, end: early.len() })
    }

    /// What there is room for beyond [`SMALL_INBOX`].
    fn extra(&self) -> usize {
        self.region.len().saturating_sub(SMALL_INBOX)
    }

    /// Makes use of the whole region, if the account allows it.
    fn grow(&mut self) {
        if self.room < self.region.len() && self.account.claim_inbox(self.extra()) {
            self.room = self.region.len();
        }
    }

    /// Whether [`shrink`](Inbox::shrink) has anything to give back.
    pub fn is_long(&self) -> bool {
        self.room == self.region.len() && self.extra() > 0 && self.start == self.end
    }

    /// Gives back all but [`SMALL_INBOX`]. Nothing is unused in it, and no receive into it is under
    /// way.
    pub fn shrink(&mut self) {
        if self.is_long() {
            self.region.discard(0, self.region.len());
            (self.start, self.end) = (0, 0);
            self.room = SMALL_INBOX;
            self.account.release_inbox();
        }
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
        if self.start > 0 && (self.start == self.end || self.room - self.end < self.room / 4) {
            // SAFETY: both ranges lie in the region, `copy` allows them to overlap, and the kernel
            // does not write now.
            unsafe {
                ptr::copy(self.region.at(self.start), self.region.at(0), self.end - self.start)
            };
            (self.start, self.end) = (0, self.end - self.start);
        }
        (self.region.at(self.end), self.room - self.end)
    }

    /// The kernel wrote `len` bytes to where [`space`](Inbox::space) said.
    pub fn on_received(&mut self, len: usize) {
        self.end = (self.end + len).min(self.room);
        if self.end == self.room {
            self.grow();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::nbd::budget::Budget;

    fn account(chunks: usize) -> Arc<Account> {
        // A disk has a quarter.
        Budget::new(4 * chunks * CHUNK).account("disk")
    }

    #[test]
    fn buffers_are_aligned_zeroed_and_bounded() {
        let mut arena = Arena::map(account(CHUNKS)).unwrap();
        let small = arena.take(512).unwrap();
        assert_eq!(arena.at(&small) as usize % PAGE, 0);
        // SAFETY: the block is one page, and ours.
        let page = unsafe { std::slice::from_raw_parts(arena.at(&small), PAGE) };
        assert!(page.iter().all(|&byte| byte == 0));
        let large = arena.take(32 << 20).unwrap();
        assert_eq!(arena.take(32 << 20), Err(NoBuffer::Full));
        arena.give(small);
        let second = arena.take(32 << 20).unwrap();
        assert_eq!(arena.take(1), Err(NoBuffer::Full));
        arena.give(large);
        arena.give(second);
        assert_eq!(arena.take(u32::MAX), Err(NoBuffer::Full));
    }

    #[test]
    fn what_the_account_denies_is_had_again_when_other_buffers_are_unused() {
        let account = account(3);
        let mut arena = Arena::map(account.clone()).unwrap();
        let held = arena.take(CHUNK as u32).unwrap();
        let more = arena.take(2 * CHUNK as u32).unwrap();
        assert_eq!(arena.take(2 * CHUNK as u32), Err(NoBuffer::Denied));
        assert_eq!(account.claimed(), 3 * CHUNK);
        arena.give(more);
        arena.give(held);
        assert_eq!(account.claimed(), 3 * CHUNK, "kept for the next requests");
        let all = arena.take(4 * CHUNK as u32).unwrap();
        assert_eq!(account.claimed(), 4 * CHUNK);
        arena.give(all);
        arena.give_back_unused();
        assert_eq!((account.claimed(), arena.unused), (0, 0));
    }

    #[test]
    fn what_is_given_back_holds_no_old_bytes() {
        let mut arena = Arena::map(account(1)).unwrap();
        let block = arena.take(PAGE as u32).unwrap();
        // SAFETY: the block is one page, and ours.
        unsafe { ptr::write_bytes(arena.at(&block), 7, PAGE) };
        arena.give(block);
        arena.give_back_unused();
        let block = arena.take(PAGE as u32).unwrap();
        // SAFETY: as above.
        let page = unsafe { std::slice::from_raw_parts(arena.at(&block), PAGE) };
        assert!(page.iter().all(|&byte| byte == 0));
    }

    #[test]
    fn an_inbox_gets_long_when_it_was_filled_and_short_again() {
        let account = account(4);
        let mut inbox = Inbox::map(4 * SMALL_INBOX, &[], account.clone()).unwrap();
        assert_eq!(inbox.space().1, SMALL_INBOX);
        inbox.on_received(SMALL_INBOX - 1);
        assert_eq!(account.claimed(), 0);
        inbox.on_received(1);
        assert_eq!((inbox.space().1, account.claimed()), (3 * SMALL_INBOX, 3 * SMALL_INBOX));
        inbox.shrink();
        assert_eq!(account.claimed(), 3 * SMALL_INBOX, "something is unused");
        inbox.consume(SMALL_INBOX);
        inbox.shrink();
        assert_eq!((inbox.space().1, account.claimed()), (SMALL_INBOX, 0));
    }

    #[test]
    fn the_inbox_keeps_what_is_not_used_and_finds_room_again() {
        let mut inbox = Inbox::map(4096, b"early", account(1)).unwrap();
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
