//! Blocks that two files share: what file systems call a reflink.

use super::shared::{Kind, SharedImage, length};
use crate::request::{Extent, ExtentKind};
use headgate_units::Bytes;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// So much is tried first.
const TRIAL: u64 = 64 << 10;

/// Extents of the file system that are shared at once. It keeps changes of the file waiting
/// meanwhile, for some 30 us for each.
const EXTENTS: usize = 128;

/// What is shared at once where nobody can say in how many extents it lies.
const UNKNOWN: u64 = 4 << 20;

/// How much is written at once of what memory holds, and for how long that goes on.
const WRITTEN: u64 = 64 << 20;
const WRITING: Duration = Duration::from_millis(20);

impl SharedImage {
    /// Has the same range of another file use the blocks of this one, until either is changed
    /// there; or as much of its beginning as lies in few extents, in whole chunks and one at least.
    /// Says how much. What that has in memory is written first. Blocks.
    pub(crate) fn share_blocks(
        &self,
        with: &SharedImage,
        offset: u64,
        len: u64,
        chunk: Bytes,
    ) -> io::Result<u64> {
        let near = in_extents(&self.file, offset, len).unwrap_or(UNKNOWN);
        let near = (near / chunk.0 * chunk.0).max(chunk.0).min(len);
        clone_range(&self.file, &with.file, offset, near)?;
        Ok(near)
    }

    /// The extents of a range as [`SharedImage::extents`] has them, up to where memory holds what
    /// takes long to write: until then all of it is written. Blocks.
    pub(crate) fn written_extents(&self, offset: u64, len: u64) -> io::Result<Vec<Extent>> {
        let mut extents = self.extents(offset, len)?;
        let (began, mut at) = (Instant::now(), offset);
        for n in 0..extents.len() {
            let end = at + extents[n].len;
            while extents[n].kind == ExtentKind::Data && at < end {
                // Something is found each time.
                if at > offset && began.elapsed() >= WRITING {
                    extents[n].len -= end - at;
                    extents.truncate(n + usize::from(extents[n].len > 0));
                    return Ok(extents);
                }
                let some = WRITTEN.min(end - at);
                write_out(&self.file, at, some)?;
                at += some;
            }
            at = end;
        }
        Ok(extents)
    }

    /// Whether all of this file, of `size` bytes, can share its blocks with another one that holds
    /// nothing yet: it is tried, and undone. Blocks.
    pub(crate) fn can_share_blocks(&self, with: &SharedImage, size: u64) -> io::Result<bool> {
        if (self.kind, with.kind) != (Kind::File, Kind::File) {
            return Ok(false);
        }
        let block = rustix::fs::fstatvfs(&self.file)?.f_frsize.max(1);
        if !size.is_multiple_of(block) || length(&self.file)? < size {
            return Ok(false);
        }
        let there = length(&with.file)?;
        if clone_range(&self.file, &with.file, 0, TRIAL.min(size)).is_err() {
            return Ok(false);
        }
        with.file.set_len(0)?;
        with.file.set_len(there)?;
        Ok(true)
    }
}

/// `FICLONERANGE`: `from` and `to` at the same offset.
fn clone_range(from: &File, to: &File, offset: u64, len: u64) -> io::Result<()> {
    let range = libc::file_clone_range {
        src_fd: i64::from(from.as_raw_fd()),
        src_offset: offset,
        src_length: len,
        dest_offset: offset,
    };
    // SAFETY: the request reads this structure, and writes to no memory of ours.
    let done = unsafe { libc::ioctl(to.as_raw_fd(), libc::FICLONERANGE, &raw const range) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Has the kernel write what it holds of a range in memory, and waits for that. Nobody else waits.
fn write_out(file: &File, offset: u64, len: u64) -> io::Result<()> {
    let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: no memory of ours is involved.
    let done = unsafe {
        libc::sync_file_range(
            file.as_raw_fd(),
            offset as libc::off64_t,
            len as libc::off64_t,
            flags,
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// `struct fiemap_extent` of the kernel.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct MappedExtent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved: [u64; 2],
    flags: u32,
    reserved_too: [u32; 3],
}

/// `struct fiemap` of the kernel, with room for its answer.
#[repr(C)]
struct Map {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    room: u32,
    reserved: u32,
    extents: [MappedExtent; EXTENTS],
}

/// `FS_IOC_FIEMAP`: `_IOWR('f', 11, struct fiemap)`.
const FIEMAP: libc::Ioctl = 0xc020_660b_u32 as libc::Ioctl;

/// How much of a range lies in no more than [`EXTENTS`] extents, from its beginning on.
fn in_extents(file: &File, offset: u64, len: u64) -> io::Result<u64> {
    let mut map = Map {
        start: offset,
        length: len,
        flags: 0,
        mapped: 0,
        room: EXTENTS as u32,
        reserved: 0,
        extents: [MappedExtent::default(); EXTENTS],
    };
    // SAFETY: the request reads and writes this structure, and `room` says how long it is.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), FIEMAP, &raw mut map) };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    let found = map.extents.get(..map.mapped as usize).unwrap_or_default();
    match found {
        [.., last] if found.len() == EXTENTS => {
            Ok(last.logical.saturating_add(last.length).saturating_sub(offset).min(len))
        }
        _ => Ok(len),
    }
}

#[cfg(test)]
mod tests {
    use super::super::shared::Mapped;
    use super::*;
    use std::os::unix::fs::FileExt;

    fn image(size: u64) -> SharedImage {
        let file = tempfile::tempfile().unwrap();
        file.set_len(size).unwrap();
        SharedImage { file, kind: Kind::File, mapped: Mapped::No }
    }

    /// Either the file system can, and then the range is shared, or nothing is changed.
    #[test]
    fn a_trial_leaves_nothing_behind() {
        let (from, to) = (image(1 << 20), image(1 << 20));
        from.file.write_all_at(&[7; 1 << 20], 0).unwrap();
        let can = from.can_share_blocks(&to, 1 << 20).unwrap();
        let mut found = vec![1; 1 << 20];
        to.file.read_exact_at(&mut found, 0).unwrap();
        assert!(found.iter().all(|byte| *byte == 0));
        assert_eq!(length(&to.file).unwrap(), 1 << 20);
        let shared = from.share_blocks(&to, 64 << 10, 128 << 10, Bytes(64 << 10));
        assert_eq!(shared.ok(), can.then_some(128 << 10));
        to.file.read_exact_at(&mut found, 0).unwrap();
        let expected = if can { 128 << 10 } else { 0 };
        assert_eq!(found.iter().filter(|byte| **byte == 7).count(), expected);
    }

    #[test]
    fn a_size_of_no_whole_blocks_and_a_device_are_not_shared() {
        let (from, to) = (image(1 << 20), image(1 << 20));
        assert!(!from.can_share_blocks(&to, (1 << 20) - 512).unwrap());
        assert!(!from.can_share_blocks(&to, 2 << 20).unwrap(), "longer than the file");
        let device = SharedImage { kind: Kind::BlockDevice, ..image(1 << 20) };
        assert!(!from.can_share_blocks(&device, 1 << 20).unwrap());
        assert!(!device.can_share_blocks(&to, 1 << 20).unwrap());
    }
}
