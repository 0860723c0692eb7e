//! Who hands operations to a file system that may block.

use super::image::RAMFS_MAGIC;
use std::fs::File;
use std::io;

/// Who hands an image's operations to its file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Submission {
    /// The shard's thread, for the file system says what would block, and blocks nobody.
    Shard,
    /// A worker of the kernel's: the file system may block, whatever it says.
    Worker,
}

/// File systems of local disks and memory, which io_uring asks without blocking. Others are asked
/// by a worker: FUSE claims the same of itself, and waits for its server.
pub(super) fn submission(file: &File) -> io::Result<Submission> {
    let kind = rustix::fs::fstatfs(file)?.f_type;
    Ok(match kind {
        libc::EXT4_SUPER_MAGIC
        | libc::XFS_SUPER_MAGIC
        | libc::BTRFS_SUPER_MAGIC
        | libc::F2FS_SUPER_MAGIC
        | libc::TMPFS_MAGIC
        | RAMFS_MAGIC => Submission::Shard,
        _ => Submission::Worker,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_file_systems_that_are_known_are_asked_by_the_shard() {
        let of = |path| submission(&File::open(path).unwrap()).unwrap();
        assert_eq!(of("/dev/shm"), Submission::Shard);
        assert_eq!(of("/proc"), Submission::Worker, "as FUSE, and all that is to come");
    }
}
