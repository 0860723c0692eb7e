//! Image locks that QEMU's tools respect.
//!
//! QEMU marks what it does to an image, and what it tolerates others to do, by
//! open-file-description locks on single bytes: byte 100+p says "I do p", byte 200+p "nobody else
//! may do p". A disk here reads, writes and resizes, and tolerates none of the latter two; so
//! `qemu-img` refuses to open the image for writing, and we refuse an image that a QEMU process
//! writes.
//!
//! An open-file-description lock lives as long as the last reference to the open file, and requests
//! in an io_uring hold such references. A daemon that was killed therefore keeps its locks until
//! its last request has left the kernel: whoever gets the lock afterwards cannot be overtaken by an
//! old write (Law 2).

use std::io;
use std::os::fd::{AsRawFd, RawFd};

const DOES: i64 = 100;
const FORBIDS: i64 = 200;
const CONSISTENT_READ: i64 = 0;
const WRITE: i64 = 1;
const RESIZE: i64 = 3;

/// What we do, and what we forbid others.
const MARKS: [i64; 5] =
    [DOES + CONSISTENT_READ, DOES + WRITE, DOES + RESIZE, FORBIDS + WRITE, FORBIDS + RESIZE];
/// What another's mark contradicts: it forbids what we do, or does what we forbid.
const CONFLICTS: [i64; 5] =
    [FORBIDS + CONSISTENT_READ, FORBIDS + WRITE, FORBIDS + RESIZE, DOES + WRITE, DOES + RESIZE];

fn byte(kind: libc::c_int, start: i64) -> libc::flock {
    libc::flock {
        l_type: kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: start,
        l_len: 1,
        l_pid: 0,
    }
}

fn set(fd: RawFd, kind: libc::c_int, start: i64) -> io::Result<()> {
    let lock = byte(kind, start);
    // SAFETY: `lock` is a valid flock structure for the duration of the call.
    match unsafe { libc::fcntl(fd, libc::F_OFD_SETLK, &lock) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn is_free(fd: RawFd, start: i64) -> io::Result<bool> {
    let mut lock = byte(libc::F_WRLCK, start);
    // SAFETY: `lock` is a valid flock structure that the kernel may overwrite.
    match unsafe { libc::fcntl(fd, libc::F_OFD_GETLK, &mut lock) } {
        0 => Ok(lock.l_type == libc::F_UNLCK as i16),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Tries to become the only writer of the open file.
///
/// # Errors
/// [`io::ErrorKind::WouldBlock`] when another process holds the image; else what the file system
/// says.
pub fn try_lock(file: &impl AsRawFd) -> io::Result<()> {
    let fd = file.as_raw_fd();
    let outcome = mark_and_check(fd);
    if outcome.is_err() {
        for start in MARKS {
            // The locks go with the file anyway; an error here leaves nothing to do.
            let _ = set(fd, libc::F_UNLCK, start);
        }
    }
    outcome
}

fn mark_and_check(fd: RawFd) -> io::Result<()> {
    for start in MARKS {
        set(fd, libc::F_RDLCK, start)?;
    }
    for start in CONFLICTS {
        if !is_free(fd, start)? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::OpenOptions;

    #[test]
    fn an_image_has_one_writer() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || OpenOptions::new().read(true).write(true).open(file.path()).unwrap();
        let first = open();
        try_lock(&first).unwrap();
        let second = open();
        assert_eq!(try_lock(&second).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(first);
        try_lock(&second).unwrap();
    }
}
