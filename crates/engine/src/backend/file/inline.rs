//! Transfers that wait for nothing, done on the shard's own thread.
//!
//! A file system in memory has no way to say that a transfer would not block, so io_uring hands
//! each to a worker thread: two switches of thread for one copy of 4 KiB.

use crate::kernel::buffers::remaining;
use crate::request::{Durability, Op, Step};
use crate::tables::slots::Slot;
use rustix::fs::SeekFrom;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Most bytes of one step: more would hold up the shard's other disks.
const STEP_MAX: u64 = 256 << 10;

/// Does what is next for a request whose image is in memory: answers as the kernel's completion
/// would, bytes or a negative error number. `None`: not a transfer or a flush, or one too large; it
/// takes the ring's way.
pub(super) fn perform(file: &File, slot: &mut Slot) -> Option<i32> {
    let offset = libc::off_t::try_from(slot.request.offset + slot.done).ok()?;
    let left = slot.request.len - slot.done;
    let result = match (slot.step, slot.request.op) {
        (Step::Main, Op::Flush) => {
            return Some(rustix::fs::fdatasync(file).map_or_else(|e| -e.raw_os_error(), |()| 0));
        }
        (Step::Main, Op::Splice | Op::PlacedWrite) => {
            // The port moves the data itself, later. Only that its place is there must be known by
            // then. Nobody uses the file's position.
            let end = rustix::fs::seek(file, SeekFrom::End(0)).unwrap_or(0);
            let there = end >= slot.request.offset + slot.request.len;
            if there { slot.request.len as isize } else { return Some(-libc::EIO) }
        }
        (Step::Main, op @ (Op::Read | Op::Write(_))) if left <= STEP_MAX => {
            let buffers = if slot.done == 0 && slot.buffers.len() <= libc::UIO_MAXIOV as usize {
                &slot.buffers
            } else {
                remaining(&slot.buffers, slot.done, left, &mut slot.rest);
                &slot.rest
            };
            let fd = file.as_raw_fd();
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

/// The flags of `pwritev2` that give a write this durability.
pub(super) fn flags(durability: Durability) -> i32 {
    match durability {
        Durability::Cached => 0,
        Durability::Fua => libc::RWF_DSYNC,
    }
}
