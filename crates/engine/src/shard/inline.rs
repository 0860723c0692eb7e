//! Transfers that wait for nothing, done on the shard's own thread.
//!
//! A file system in memory has no way to say that a transfer would not block, so io_uring hands each to a worker thread: two
//! switches of thread for one copy of 4 KiB.

use super::bounce::remaining;
use super::io::flags;
use super::slots::{Slot, Step};
use crate::request::Op;
use std::io;
use std::os::fd::RawFd;

/// Most bytes of one step: more would hold up the shard's other disks.
const STEP_MAX: u64 = 256 << 10;

/// Does what is next for a request whose image is in memory: answers as the kernel's completion would, bytes or a negative
/// error number. `None`: not a transfer or a flush, or one too large; it takes the ring's way.
pub(super) fn perform(fd: RawFd, slot: &mut Slot) -> Option<i32> {
    let offset = libc::off_t::try_from(slot.request.offset + slot.done).ok()?;
    let left = slot.request.len - slot.done;
    let result = match (slot.step, slot.request.op) {
        (Step::Main, Op::Flush) => {
            // SAFETY: an open descriptor.
            unsafe { libc::fdatasync(fd) as isize }
        }
        (Step::Main, Op::Lend | Op::Place) => {
            // The port moves the data itself, later; only that its place is there must be known by then.
            // SAFETY: an open descriptor, whose position nobody uses.
            let end = unsafe { libc::lseek(fd, 0, libc::SEEK_END) };
            let there = end >= 0 && end as u64 >= slot.request.offset + slot.request.len;
            if there { slot.request.len as isize } else { return Some(-libc::EIO) }
        }
        (Step::Main, op @ (Op::Read | Op::Write(_))) if left <= STEP_MAX => {
            let buffers = if slot.done == 0 && slot.buffers.len() <= libc::UIO_MAXIOV as usize {
                &slot.buffers
            } else {
                remaining(&slot.buffers, slot.done, left, &mut slot.rest);
                &slot.rest
            };
            let (at, count) = (buffers.as_ptr(), buffers.len() as libc::c_int);
            match op {
                Op::Write(durability) => {
                    // SAFETY: the port keeps the request's buffers valid until its completion.
                    unsafe { libc::pwritev2(fd, at, count, offset, flags(durability)) }
                }
                _ => {
                    // SAFETY: as above, and valid for writes.
                    unsafe { libc::preadv2(fd, at, count, offset, 0) }
                }
            }
        }
        _ => return None,
    };
    Some(match result {
        // At most STEP_MAX, which fits.
        0.. => result as i32,
        _ => -io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO),
    })
}

/// Writes a few bytes: see [`PortIo::put`](crate::port::PortIo::put).
pub(super) fn put(fd: RawFd, offset: u64, bytes: &[u8]) -> io::Result<()> {
    let offset = libc::off_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: an open descriptor and a slice.
    let written = unsafe { libc::pwrite(fd, bytes.as_ptr().cast(), bytes.len(), offset) };
    match usize::try_from(written) {
        Ok(written) if written == bytes.len() => Ok(()),
        Ok(_) => Err(io::ErrorKind::WriteZero.into()),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// Moves pages of an image in memory into a pipe: see [`PortIo::lend`](crate::port::PortIo::lend).
pub(super) fn lend(fd: RawFd, offset: u64, len: u32, pipe: RawFd) -> io::Result<u32> {
    let mut offset = libc::off64_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: open descriptors, and an offset that the call may change.
    let moved = unsafe {
        let none = std::ptr::null_mut();
        libc::splice(fd, &raw mut offset, pipe, none, len as usize, libc::SPLICE_F_NONBLOCK)
    };
    // At most `len`, which fits.
    if moved < 0 { Err(io::Error::last_os_error()) } else { Ok(moved as u32) }
}
