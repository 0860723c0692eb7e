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
            if there { slot.request.len as libc::c_long } else { return Some(-libc::EIO) }
        }
        (Step::Main, op @ (Op::Read | Op::Write(_))) if left <= STEP_MAX => {
            let buffers = if slot.done == 0 && slot.buffers.len() <= libc::UIO_MAXIOV as usize {
                &slot.buffers
            } else {
                remaining(&slot.buffers, slot.done, left, &mut slot.rest);
                &slot.rest
            };
            let flags = match op {
                Op::Write(durability) => flags(durability),
                _ => 0,
            };
            // SAFETY: the port keeps the request's buffers valid until its completion, those of a
            // read for writes.
            unsafe { transfer(file, op, buffers, offset, flags) }
        }
        _ => return None,
    };
    Some(match result {
        // At most STEP_MAX, which fits.
        0.. => result as i32,
        _ => -io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO),
    })
}

/// One system call: what moved, or -1 and `errno`.
///
/// By number, for the C library's functions are cancellation points, and pay for it twice in each
/// call. A single buffer spares the kernel the reading of a list.
///
/// # Safety
/// All buffers are valid for `op` until this returns.
unsafe fn transfer(
    file: &File,
    op: Op,
    buffers: &[libc::iovec],
    offset: libc::off_t,
    flags: i32,
) -> libc::c_long {
    let (fd, flags) = (libc::c_long::from(file.as_raw_fd()), libc::c_long::from(flags));
    let (one, many) = match op {
        Op::Write(_) => (libc::SYS_pwrite64, libc::SYS_pwritev2),
        _ => (libc::SYS_pread64, libc::SYS_preadv2),
    };
    match buffers {
        [only] if flags == 0 => {
            // SAFETY: as promised by the caller.
            unsafe { libc::syscall(one, fd, only.iov_base, only.iov_len, offset) }
        }
        _ => {
            let (list, count) = (buffers.as_ptr(), buffers.len());
            // An offset of 64 bits needs no upper half.
            let upper: libc::c_long = 0;
            // SAFETY: as promised by the caller.
            unsafe { libc::syscall(many, fd, list, count, offset, upper, flags) }
        }
    }
}

/// The flags of `pwritev2` that give a write this durability.
pub(super) fn flags(durability: Durability) -> i32 {
    match durability {
        Durability::Cached => 0,
        Durability::Fua => libc::RWF_DSYNC,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    fn memory_file(content: &[u8]) -> File {
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let file = File::from(rustix::fs::memfd_create("image", flags).unwrap());
        file.write_all_at(content, 0).unwrap();
        file
    }

    fn lists(buffers: &mut [Vec<u8>]) -> Vec<libc::iovec> {
        let list =
            |b: &mut Vec<u8>| libc::iovec { iov_base: b.as_mut_ptr().cast(), iov_len: b.len() };
        buffers.iter_mut().map(list).collect()
    }

    #[test]
    fn one_buffer_and_many_read_the_same() {
        let content: Vec<u8> = (0..100u8).collect();
        let file = memory_file(&content);
        for sizes in [vec![30], vec![1, 20, 9]] {
            let mut buffers: Vec<_> = sizes.iter().map(|&n| vec![0; n]).collect();
            let list = lists(&mut buffers);
            // SAFETY: the buffers outlive the call.
            let moved = unsafe { transfer(&file, Op::Read, &list, 60, 0) };
            assert_eq!((moved, buffers.concat()), (30, content[60..90].to_vec()), "{sizes:?}");
        }
    }

    #[test]
    fn one_buffer_and_many_write_the_same_with_each_durability() {
        for durability in [Durability::Cached, Durability::Fua] {
            for sizes in [vec![30], vec![1, 20, 9]] {
                let file = memory_file(&[0; 100]);
                let mut buffers: Vec<_> = sizes.iter().map(|&n| vec![n as u8; n]).collect();
                let list = lists(&mut buffers);
                // SAFETY: the buffers outlive the call.
                let moved =
                    unsafe { transfer(&file, Op::Write(durability), &list, 60, flags(durability)) };
                let mut content = [0; 100];
                file.read_exact_at(&mut content, 0).unwrap();
                let expected = [vec![0; 60], buffers.concat(), vec![0; 10]].concat();
                assert_eq!((moved, content.to_vec()), (30, expected), "{durability:?} {sizes:?}");
            }
        }
    }

    #[test]
    fn an_end_of_file_and_an_error_are_told() {
        let file = memory_file(&[7; 100]);
        for sizes in [vec![30], vec![10, 20]] {
            let mut buffers: Vec<_> = sizes.iter().map(|&n| vec![0; n]).collect();
            let list = lists(&mut buffers);
            // SAFETY: the buffers outlive the calls.
            let read = |offset| unsafe { transfer(&file, Op::Read, &list, offset, 0) };
            assert_eq!((read(80), read(100)), (20, 0), "{sizes:?}");
            assert_eq!(read(-2), -1);
            assert_eq!(io::Error::last_os_error().raw_os_error(), Some(libc::EINVAL));
        }
    }
}
