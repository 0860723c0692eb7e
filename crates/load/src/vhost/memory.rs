//! Memory shared with the device: a memfd, mapped here and there. With `page_faults` the only place
//! of this crate with `unsafe`.
//!
//! Invariant: the mapping lives exactly as long as the value, and nobody makes Rust references to
//! its bytes; all access goes through `headgate_vring`, which is atomic.

use headgate_vring::HostMapping;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::ptr::NonNull;
use vmm_sys_util::eventfd::EventFd;

/// Borrows an event's descriptor, which [`EventFd`] does not lend by itself.
pub(crate) fn event_fd(owner: &EventFd) -> BorrowedFd<'_> {
    // SAFETY: an `EventFd` owns its descriptor and keeps it open; the answer does not outlive it.
    unsafe { BorrowedFd::borrow_raw(owner.as_raw_fd()) }
}

/// Passes a descriptor off as an event's, whatever it is.
pub(crate) fn as_event(fd: OwnedFd) -> EventFd {
    // SAFETY: the descriptor is open, and the `EventFd` owns it from here on.
    unsafe { EventFd::from_raw_fd(fd.into_raw_fd()) }
}

/// Zeroed memory that another process can map by its file descriptor.
pub(crate) struct SharedMemory {
    fd: OwnedFd,
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: owns its mapping; access is atomic, through `headgate_vring`.
unsafe impl Send for SharedMemory {}
// SAFETY: as above.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// At least `len` bytes.
    pub(crate) fn new(len: usize) -> io::Result<SharedMemory> {
        let len = len.max(1).next_multiple_of(4096);
        let fd = memfd_create("headgate-load", MemfdFlags::CLOEXEC)?;
        ftruncate(&fd, len as u64)?;
        SharedMemory::map(fd, len)
    }

    /// Maps the first `len` bytes of the file.
    pub(crate) fn map(fd: OwnedFd, len: usize) -> io::Result<SharedMemory> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing that exists.
        let base = unsafe { mmap(std::ptr::null_mut(), len, access, MapFlags::SHARED, &fd, 0) }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(SharedMemory { fd, base, len })
    }
}

impl AsFd for SharedMemory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length, and no reference into it exists.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}

// SAFETY: the mapping is fixed from `new` to `drop`, readable and writable, and nobody makes
// references to its bytes.
unsafe impl HostMapping for SharedMemory {
    fn base(&self) -> NonNull<u8> {
        self.base
    }
    fn len(&self) -> usize {
        self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headgate_vring::memory::RegionHint;
    use headgate_vring::{GuestAddress, GuestMemory, Region};
    use std::sync::Arc;

    #[test]
    fn what_is_written_here_is_in_the_file_that_the_device_maps() {
        let shared = Arc::new(SharedMemory::new(5000).unwrap());
        let region =
            Region::new(GuestAddress(0), Arc::clone(&shared) as Arc<dyn HostMapping>).unwrap();
        let memory = GuestMemory::new(vec![region]).unwrap();
        memory.write(GuestAddress(4097), b"hello").unwrap();
        let mut bytes = [0; 5];
        rustix::io::pread(&*shared, &mut bytes, 4097).unwrap();
        assert_eq!(&bytes, b"hello");
        rustix::io::pwrite(&*shared, b"world", 8187).unwrap();
        memory.read(GuestAddress(8187), &mut bytes, &mut RegionHint::default()).unwrap();
        assert_eq!(&bytes, b"world");
        assert!(memory.write(GuestAddress(8192), b"x").is_err());
    }
}
