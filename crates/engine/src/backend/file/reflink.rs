//! Blocks that two files share: what file systems call a reflink.

use super::shared::{Kind, SharedImage, length};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// So much is tried first.
const TRIAL: u64 = 64 << 10;

impl SharedImage {
    /// Has the same range of another file use the blocks of this one, until either is changed
    /// there. What the range has in memory is written first. Blocks.
    pub(crate) fn share_blocks(&self, with: &SharedImage, offset: u64, len: u64) -> io::Result<()> {
        clone_range(&self.file, &with.file, offset, len)
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
        let shared = from.share_blocks(&to, 64 << 10, 128 << 10);
        assert_eq!(shared.is_ok(), can, "{shared:?}");
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
