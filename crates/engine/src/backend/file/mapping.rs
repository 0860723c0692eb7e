//! An image in memory, mapped: where the kernel can put what it receives, without a buffer in
//! between.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};

/// The pages of a file, shared with all others who have it open.
///
/// Nothing here ever looks at them: only the kernel writes into them, on behalf of a system call
/// that is given a pointer. A page that is no more (a file truncated under us, a full file system)
/// fails that call with `EFAULT`, where a touch of ours would raise `SIGBUS`.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is ours as long as the value lives; the pointer means the same on every
// thread.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps the first `len` bytes of a file. Costs address space at once and memory for page tables
    /// with use, one part in 512.
    pub(crate) fn of(file: &File, len: u64) -> io::Result<Mapping> {
        let len = usize::try_from(len).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_NORESERVE);
        // SAFETY: a new mapping of a file that we have open, at an address of the kernel's choice,
        // touches nothing that exists.
        let base =
            unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, file.as_raw_fd(), 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { base, len })
    }

    /// Where a range is, if it is all inside.
    pub(crate) fn at(&self, offset: u64, len: u64) -> Option<*mut u8> {
        let (offset, len) = (usize::try_from(offset).ok()?, usize::try_from(len).ok()?);
        let end = offset.checked_add(len)?;
        // SAFETY: the offset lies inside the mapping.
        (end <= self.len).then(|| unsafe { self.base.as_ptr().add(offset) })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and the shard drops an image only when no port of it has an
        // operation under way.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Seek, Write};
    use std::os::unix::fs::FileExt;

    fn in_memory(len: u64) -> File {
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let file = File::from(rustix::fs::memfd_create(c"image", flags).unwrap());
        file.set_len(len).unwrap();
        file
    }

    #[test]
    fn what_the_kernel_puts_there_is_in_the_file_and_a_page_that_is_gone_fails_the_call() {
        let image = in_memory(16 << 10);
        let mapping = Mapping::of(&image, 16 << 10).unwrap();
        assert!(mapping.at(12 << 10, 4 << 10).is_some() && mapping.at(16 << 10, 0).is_some());
        assert!(mapping.at(12 << 10, (4 << 10) + 1).is_none() && mapping.at(u64::MAX, 2).is_none());
        let mut source = in_memory(0);
        source.write_all(&[7; 8192]).unwrap();
        source.rewind().unwrap();
        let at = mapping.at(4096, 4096).unwrap();
        // SAFETY: 4,096 bytes of the mapping.
        let read = || unsafe { libc::read(source.as_raw_fd(), at.cast(), 4096) };
        assert_eq!(read(), 4096);
        let mut found = [0; 4096];
        image.read_exact_at(&mut found, 4096).unwrap();
        assert_eq!(found, [7; 4096]);
        image.set_len(4096).unwrap();
        assert_eq!((read(), io::Error::last_os_error().raw_os_error()), (-1, Some(libc::EFAULT)));
    }
}
