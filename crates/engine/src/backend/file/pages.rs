//! The pages of a file in memory, for moving data without a copy.

use super::mapping::Mapping;
use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::os::unix::fs::FileExt;

/// The data of a disk that lies in memory, as pages of a file: for moving it without a copy.
pub(crate) struct Pages<'a> {
    pub(super) file: &'a File,
    pub(super) mapping: Option<&'a Mapping>,
}

impl Pages<'_> {
    /// See [`PortIo::splice_out`](crate::port::PortIo::splice_out).
    pub(crate) fn splice_out(&self, offset: u64, len: u32, pipe: RawFd) -> io::Result<u32> {
        let mut offset = offset;
        // SAFETY: the port keeps its pipe open during the call.
        let pipe = unsafe { BorrowedFd::borrow_raw(pipe) };
        let flags = rustix::pipe::SpliceFlags::NONBLOCK;
        let file = self.file;
        let moved = rustix::pipe::splice(file, Some(&mut offset), pipe, None, len as usize, flags)?;
        // At most `len`, which fits.
        Ok(moved as u32)
    }

    /// See [`PortIo::write_placed`](crate::port::PortIo::write_placed).
    pub(crate) fn write_placed(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    /// See [`PortIo::read_placed`](crate::port::PortIo::read_placed).
    pub(crate) fn read_placed(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(bytes, offset)
    }

    /// See [`PortIo::map_for_recv`](crate::port::PortIo::map_for_recv).
    pub(crate) fn map_for_recv(&self, offset: u64, len: u32) -> Option<*mut u8> {
        self.mapping?.at(offset, u64::from(len))
    }

    /// Whether the pages have addresses.
    pub(crate) fn is_mapped(&self) -> bool {
        self.mapping.is_some()
    }
}
