//! Page faults of this process that wait for ever: userfaultfd(2), which nobody answers.

use super::SharedMemory;
use headgate_vring::HostMapping;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};
use rustix::mm::{UserfaultfdFlags, userfaultfd};
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;

/// `UFFD_API`.
const API: u64 = 0xaa;
/// `UFFDIO_REGISTER_MODE_MISSING`: pages that are not there yet.
const MISSING: u64 = 1;
/// `UFFD_USER_MODE_ONLY`, which everybody may ask for.
const USER_MODE_ONLY: UserfaultfdFlags = UserfaultfdFlags::from_bits_retain(1);

/// `struct uffdio_api`.
#[derive(Default)]
#[repr(C)]
struct Agree {
    api: u64,
    features: u64,
    ioctls: u64,
}

/// `struct uffdio_register`.
#[derive(Default)]
#[repr(C)]
struct Register {
    start: u64,
    len: u64,
    mode: u64,
    ioctls: u64,
}

const AGREE: Opcode = opcode::read_write::<Agree>(0xaa, 0x3f);
const REGISTER: Opcode = opcode::read_write::<Register>(0xaa, 0);

/// A range of memory whose missing pages nobody brings. This process must not touch it.
pub(crate) struct Unanswered(
    #[expect(dead_code, reason = "open, it holds the faults back")] OwnedFd,
);

impl Unanswered {
    /// Holds back faults in this range of whole pages, which were never touched.
    pub(crate) fn pages(memory: &SharedMemory, range: Range<u64>) -> io::Result<Unanswered> {
        // SAFETY: a new descriptor, which nothing is registered with.
        let fd = unsafe { userfaultfd(USER_MODE_ONLY | UserfaultfdFlags::CLOEXEC) }?;
        let mut agree = Agree { api: API, ..Agree::default() };
        // SAFETY: the number stands for this structure, which the kernel reads and writes.
        unsafe { ioctl(&fd, Updater::<AGREE, Agree>::new(&mut agree)) }?;
        let start = memory.base().as_ptr().addr() as u64 + range.start;
        let len = range.end - range.start;
        let mut register = Register { start, len, mode: MISSING, ioctls: 0 };
        // SAFETY: as above. Faults in the range wait from now on; nothing is moved or unmapped.
        unsafe { ioctl(&fd, Updater::<REGISTER, Register>::new(&mut register)) }?;
        Ok(Unanswered(fd))
    }
}
