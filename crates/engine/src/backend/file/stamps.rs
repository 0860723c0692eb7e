//! What file systems tell of changes of a file.

use headgate_mirror::stamp::Stamp;
use headgate_units::{Bytes, Nanos};
use rustix::fs::{AtFlags, StatxFlags, StatxTimestamp};
use std::fs::File;
use std::io;

/// Whether the stamps of a file say if somebody changed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stamps {
    /// They do.
    Telling,
    /// They may not.
    Silent,
}

/// Those of file systems of this host's own disks, which have the kernel's clock and write a time
/// for every change, through a mapping too. A server has a clock of its own, one in memory writes
/// no time for changes through a mapping, and one that lies on others is as they are.
pub(super) fn stamps(file: &File) -> io::Result<Stamps> {
    let kind = rustix::fs::fstatfs(file)?.f_type;
    Ok(match kind {
        libc::EXT4_SUPER_MAGIC | libc::XFS_SUPER_MAGIC | libc::BTRFS_SUPER_MAGIC => Stamps::Telling,
        _ => Stamps::Silent,
    })
}

/// Since 1970.
fn nanos(time: StatxTimestamp) -> Option<Nanos> {
    let seconds = u64::try_from(time.tv_sec).ok()?.checked_mul(1_000_000_000)?;
    seconds.checked_add(u64::from(time.tv_nsec)).map(Nanos)
}

/// What the file system says of a file now. Blocks.
pub(super) fn stamp(file: &File) -> io::Result<Stamp> {
    let asked = StatxFlags::BASIC_STATS;
    let st = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, asked)?;
    let (Some(modified), Some(changed)) = (nanos(st.stx_mtime), nanos(st.stx_ctime)) else {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it has no time since 1970"));
    };
    Ok(Stamp {
        device: rustix::fs::makedev(st.stx_dev_major, st.stx_dev_minor),
        inode: st.stx_ino,
        length: Bytes(st.stx_size),
        modified,
        changed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{FileExt, MetadataExt};
    use std::thread::sleep;
    use std::time::Duration;

    #[test]
    fn only_file_systems_that_are_known_to_tell_are_asked() {
        let of = |path| stamps(&File::open(path).unwrap()).unwrap();
        assert_eq!(of("/dev/shm"), Stamps::Silent, "no time is written for changes of its pages");
        assert_eq!(of("/proc"), Stamps::Silent, "as all that is to come");
    }

    #[test]
    fn a_stamp_is_the_files_and_a_change_gives_it_another_one() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 20).unwrap();
        let (before, meta) = (stamp(&file).unwrap(), file.metadata().unwrap());
        assert_eq!((before.device, before.inode), (meta.dev(), meta.ino()));
        assert_eq!(before.length, Bytes(1 << 20));
        let since_1970 = |seconds: i64, nanos: i64| Nanos((seconds * 1_000_000_000 + nanos) as u64);
        assert_eq!(before.modified, since_1970(meta.mtime(), meta.mtime_nsec()));
        assert_eq!(before.changed, since_1970(meta.ctime(), meta.ctime_nsec()));
        assert_eq!(stamp(&file).unwrap(), before);
        sleep(Duration::from_millis(30));
        file.write_all_at(&[1], 0).unwrap();
        let written = stamp(&file).unwrap();
        assert!(written.changed > before.changed && written.modified > before.modified);
        // Whoever sets the time back is noticed all the same.
        sleep(Duration::from_millis(30));
        file.set_modified(meta.modified().unwrap()).unwrap();
        let set_back = stamp(&file).unwrap();
        assert_eq!(set_back.modified, before.modified);
        assert!(set_back.changed > written.changed);
    }
}
