//! Raw sparse files and block devices: opened, locked and measured by the control side.

use super::lock;
use super::mapping::Mapping;
use super::pages::Pages;
use super::shared::{Kind, Mapped, SharedImage, length};
use super::stamps::{Stamps, stamp, stamps};
use super::submission::{Submission, submission};
use super::tenure::Tenure;
use super::without_links::open_without_links;
use crate::backend::size::{SIZE_STEP, is_disk_size};
use crate::request::Access;
use crate::topology::{self, Topology};
use headgate_mirror::stamp::Stamp;
use headgate_units::{AtomicNanos, Bytes};
use rustix::fs::{MemfdFlags, OFlags};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use thiserror::Error;

/// Whether requests go around the host's page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caching {
    /// `O_DIRECT`, or an error where the file system cannot.
    Direct,
    /// `O_DIRECT` where the file system can, else through the page cache; `FileImage::access`
    /// tells which.
    PreferDirect,
    /// Through the page cache.
    Buffered,
}

/// What kept an image from being created or opened.
#[derive(Debug, Error)]
pub enum ImageError {
    /// The size is not one a disk can have.
    #[error(
        "a disk's size must be a multiple of {SIZE_STEP} bytes, at least {SIZE_STEP} and at most 16 TiB, not {0}"
    )]
    Size(u64),
    /// Another process has it open.
    #[error(
        "{path} is in use by another process (a second daemon, or a QEMU that has the image open): stop that first"
    )]
    InUse {
        /// The image.
        path: PathBuf,
    },
    /// Not what it has to be.
    #[error("{path} is not {expected}")]
    Kind {
        /// The image.
        path: PathBuf,
        /// "a regular file" or "a block device".
        expected: &'static str,
    },
    /// A link where an image should be, or on the way there.
    #[error(
        "{path} is a symbolic link, or has one in its path, and could lead to any file of this host: put the image itself there, or add the directory that it is in as a datastore"
    )]
    Link {
        /// The link.
        path: PathBuf,
    },
    /// The kernel lets nobody else have the device.
    #[error(
        "{path} is in use on this host: it is mounted, swap, a part of another device (LVM, md, dm), or claimed by another process"
    )]
    Claimed {
        /// The device.
        path: PathBuf,
    },
    /// `O_DIRECT` was asked for and is not to be had.
    #[error(
        "{path}: the file system does not support O_DIRECT; use buffered access or another file system"
    )]
    NoDirect {
        /// The image.
        path: PathBuf,
    },
    /// A system call failed.
    #[error("cannot {doing} {path}: {source}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// To which file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
}

/// What a transfer of an image's bytes may wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Medium {
    /// A device.
    Device,
    /// Nothing: the file system is in memory, a transfer is a copy.
    Memory,
}

/// Whether a file was opened to go around the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direct {
    Yes,
    No,
}

/// An opened and locked file or block device.
#[derive(Debug)]
pub(crate) struct FileImage {
    file: File,
    kind: Kind,
    memory_alignment: usize,
    topology: Topology,
    access: Access,
    medium: Medium,
    submission: Submission,
    /// Whether its stamps say if somebody changed it.
    stamps: Stamps,
    /// Of an image in memory, unless there is no address space for it.
    mapping: Option<Mapping>,
    /// Those of before it had another size.
    earlier_mappings: Vec<Mapping>,
    tenure: Tenure,
}

fn io_error(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ImageError {
    let path = path.to_owned();
    move |source| ImageError::Io { doing, path, source }
}

/// Opens by these flags, around the page cache if that is asked for and possible. Answers whether
/// it is.
fn open_with(
    caching: Caching,
    path: &Path,
    open: impl Fn(i32) -> io::Result<File>,
) -> Result<(File, Direct), ImageError> {
    let (file, direct) = match caching {
        Caching::Buffered => (open(0), Direct::No),
        Caching::Direct | Caching::PreferDirect => match open(libc::O_DIRECT) {
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {
                if caching == Caching::Direct {
                    return Err(ImageError::NoDirect { path: path.to_owned() });
                }
                (open(0), Direct::No)
            }
            opened => (opened, Direct::Yes),
        },
    };
    let path = || path.to_owned();
    match file {
        Ok(file) => Ok((file, direct)),
        Err(e) if e.raw_os_error() == Some(libc::ELOOP) => Err(ImageError::Link { path: path() }),
        Err(source) => Err(ImageError::Io { doing: "open", path: path(), source }),
    }
}

/// Claims a block device as a mount does, and lets it go again: whoever has it mounted or claimed
/// keeps it to himself.
///
/// It is not held: a lease decides between two daemons, and one that stands still must not keep the
/// device from its successor.
fn claim(path: &Path, deadline: Instant) -> Result<(), ImageError> {
    loop {
        match OpenOptions::new().read(true).custom_flags(libc::O_EXCL).open(path) {
            Ok(_) => return Ok(()),
            Err(e) if e.raw_os_error() != Some(libc::EBUSY) => {
                return Err(io_error("open", path)(e));
            }
            // Another daemon that looks, perhaps.
            Err(_) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(10)),
            Err(_) => return Err(ImageError::Claimed { path: path.to_owned() }),
        }
    }
}

fn sync_directory_of(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => File::open(dir)?.sync_all(),
        _ => File::open(".")?.sync_all(),
    }
}

impl FileImage {
    /// See [`Image::create`](crate::Image::create).
    pub(crate) fn create(path: &Path, size: Bytes) -> Result<(), ImageError> {
        let size = size.0;
        if !is_disk_size(size) {
            return Err(ImageError::Size(size));
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let file = open_without_links(path, flags).map_err(|e| match e.raw_os_error() {
            Some(libc::ELOOP) => ImageError::Link { path: path.to_owned() },
            _ => io_error("create", path)(e),
        })?;
        let made = file
            .set_len(size)
            .and_then(|()| file.sync_all())
            .and_then(|()| sync_directory_of(path));
        made.map_err(|source| {
            // The error that made us give up is the one to report.
            let _ = std::fs::remove_file(path);
            io_error("create", path)(source)
        })
    }

    /// See [`Image::remove`](crate::Image::remove).
    pub(crate) fn remove(path: &Path) -> Result<(), ImageError> {
        match std::fs::remove_file(path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(io_error("remove", path)(e)),
            _ => sync_directory_of(path).map_err(io_error("sync the directory of", path)),
        }
    }

    /// The image, its size and its block size, in bytes: see [`Image::open`](crate::Image::open).
    pub(crate) fn open(
        path: &Path,
        caching: Caching,
        patience: Duration,
    ) -> Result<(FileImage, u64, u32), ImageError> {
        let (file, direct) = open_with(caching, path, |direct| {
            let direct = OFlags::from_bits_retain(direct.cast_unsigned());
            open_without_links(path, OFlags::RDWR | OFlags::NONBLOCK | direct)
        })?;
        if !file.metadata().map_err(io_error("inspect", path))?.is_file() {
            return Err(ImageError::Kind { path: path.to_owned(), expected: "a regular file" });
        }
        // It was for the open alone, which must not wait for a pipe's other end.
        forget(&file, OFlags::NONBLOCK).map_err(io_error("set up", path))?;
        Self::set_up(file, Kind::File, direct, path, Instant::now() + patience)
    }

    /// See [`Image::open_device`](crate::Image::open_device).
    pub(crate) fn open_device(
        path: &Path,
        caching: Caching,
        patience: Duration,
    ) -> Result<(FileImage, u64, u32), ImageError> {
        let deadline = Instant::now() + patience;
        claim(path, deadline)?;
        let (file, direct) = open_with(caching, path, |direct| {
            OpenOptions::new().read(true).write(true).custom_flags(direct).open(path)
        })?;
        if !file.metadata().map_err(io_error("inspect", path))?.file_type().is_block_device() {
            return Err(ImageError::Kind { path: path.to_owned(), expected: "a block device" });
        }
        Self::set_up(file, Kind::BlockDevice, direct, path, deadline)
    }

    /// Locks and measures what was opened.
    fn set_up(
        file: File,
        kind: Kind,
        direct: Direct,
        path: &Path,
        deadline: Instant,
    ) -> Result<(FileImage, u64, u32), ImageError> {
        Self::lock(&file, path, deadline)?;
        let size = length(&file).map_err(io_error("measure", path))?;
        let medium = medium(&file).map_err(io_error("inspect the file system of", path))?;
        if direct == Direct::Yes && medium == Medium::Memory {
            // There is no cache to go around, and the flag would make the kernel copy what it could
            // lend.
            forget(&file, OFlags::DIRECT).map_err(io_error("set up", path))?;
        }
        let (block_size, memory_alignment) = match medium {
            Medium::Device if direct == Direct::Yes => {
                direct_alignment(&file).map_err(io_error("measure", path))?
            }
            _ => (512, 1),
        };
        if size == 0 || !size.is_multiple_of(u64::from(block_size)) {
            return Err(ImageError::Size(size));
        }
        let mapping = match medium {
            Medium::Memory => Mapping::of(&file, size).ok(),
            Medium::Device => None,
        };
        let access = match direct {
            Direct::Yes => Access::Direct,
            Direct::No => Access::Cached,
        };
        let submission = match kind {
            Kind::BlockDevice => Submission::Shard,
            Kind::File => {
                submission(&file).map_err(io_error("inspect the file system of", path))?
            }
        };
        let stamps = match kind {
            Kind::BlockDevice => Stamps::Silent,
            Kind::File => stamps(&file).map_err(io_error("inspect the file system of", path))?,
        };
        let told = match kind {
            Kind::BlockDevice => topology::of_device(&file),
            Kind::File => topology::of_file(&file),
        };
        let topology = Topology::of(block_size, told.map_err(io_error("measure", path))?);
        let image = FileImage {
            file,
            kind,
            memory_alignment,
            topology,
            access,
            medium,
            submission,
            stamps,
            mapping,
            earlier_mappings: Vec::new(),
            tenure: Tenure::default(),
        };
        Ok((image, size, block_size))
    }

    /// An anonymous file in memory, its size and its block size, in bytes.
    pub(crate) fn memory(size: Bytes) -> Result<(FileImage, u64, u32), ImageError> {
        let size = size.0;
        if !is_disk_size(size) {
            return Err(ImageError::Size(size));
        }
        let path = Path::new("a RAM disk");
        let made = rustix::fs::memfd_create(c"headgate", MemfdFlags::CLOEXEC);
        let file = File::from(made.map_err(io::Error::from).map_err(io_error("create", path))?);
        file.set_len(size).map_err(io_error("create", path))?;
        let mapping = Mapping::of(&file, size).ok();
        let (kind, medium, access) = (Kind::File, Medium::Memory, Access::Cached);
        let submission = Submission::Shard;
        let image = FileImage {
            file,
            kind,
            memory_alignment: 1,
            topology: Topology::plain(512),
            access,
            medium,
            submission,
            stamps: Stamps::Silent,
            mapping,
            earlier_mappings: Vec::new(),
            tenure: Tenure::default(),
        };
        Ok((image, size, 512))
    }

    fn lock(file: &File, path: &Path, deadline: Instant) -> Result<(), ImageError> {
        loop {
            match lock::try_lock(file) {
                Ok(()) => return Ok(()),
                Err(e) if e.kind() != io::ErrorKind::WouldBlock => {
                    return Err(io_error("lock", path)(e));
                }
                Err(_) if Instant::now() >= deadline => {
                    return Err(ImageError::InUse { path: path.to_owned() });
                }
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        }
    }

    pub(crate) fn access(&self) -> Access {
        self.access
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// What a buffer's address and length must be a multiple of, in bytes.
    pub(crate) fn memory_alignment(&self) -> usize {
        self.memory_alignment
    }

    pub(crate) fn topology(&self) -> Topology {
        self.topology
    }

    /// Has it served until `term` only. Transfers take the ring's way then, where the term is
    /// compared with the clock.
    pub(crate) fn set_term(&mut self, term: Arc<AtomicNanos>) {
        self.tenure.term = Some(term);
        self.medium = Medium::Device;
        self.mapping = None;
    }

    /// Who hands its operations to its file system.
    #[inline]
    pub(crate) fn submission(&self) -> Submission {
        self.submission
    }

    /// Has `refused` set when its device refuses a request, which is reserved for this host.
    pub(crate) fn set_refused(&mut self, refused: Arc<AtomicBool>) {
        self.tenure.refused = Some(refused);
    }

    /// What its file system says of it now, where that tells whether somebody changed it. Blocks.
    pub(crate) fn stamp(&self) -> Option<Stamp> {
        match self.stamps {
            Stamps::Telling => stamp(&self.file).ok(),
            Stamps::Silent => None,
        }
    }

    /// For how long it may be served.
    #[inline]
    pub(crate) fn tenure(&self) -> &Tenure {
        &self.tenure
    }

    /// The file, where transfers wait for nothing.
    #[inline]
    pub(crate) fn in_memory(&self) -> Option<&File> {
        (self.medium == Medium::Memory).then_some(&self.file)
    }

    /// The data as pages, where the file is in memory.
    pub(crate) fn pages(&self) -> Option<Pages<'_>> {
        Some(Pages { file: self.in_memory()?, mapping: self.mapping.as_ref() })
    }

    /// A second handle on the same open file, for work that blocks.
    pub(crate) fn share(&self) -> io::Result<SharedImage> {
        let mapped = if self.mapping.is_some() { Mapped::Yes } else { Mapped::No };
        Ok(SharedImage { file: self.file.try_clone()?, kind: self.kind, mapped })
    }

    /// The pages have other addresses from now on. Those before stay valid: a port may have an
    /// operation under way there.
    pub(crate) fn remap(&mut self, mapping: Option<Mapping>) {
        if let (Some(mapping), true) = (mapping, self.mapping.is_some()) {
            self.earlier_mappings.extend(self.mapping.replace(mapping));
        }
    }
}

fn forget(file: &File, unwanted: OFlags) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(file)?;
    Ok(rustix::fs::fcntl_setfl(file, flags - unwanted)?)
}

fn medium(file: &File) -> io::Result<Medium> {
    let kind = rustix::fs::fstatfs(file)?.f_type;
    // A device node lies on a file system in memory; what is behind it does not.
    let in_memory = file.metadata()?.is_file() && matches!(kind, libc::TMPFS_MAGIC | RAMFS_MAGIC);
    Ok(if in_memory { Medium::Memory } else { Medium::Device })
}

/// As in the kernel's `linux/magic.h`; libc does not have it.
pub(super) const RAMFS_MAGIC: libc::__fsword_t = 0x8584_58f6;

/// Block size and memory alignment that direct IO needs here; where the kernel does not tell, 4096
/// always works.
fn direct_alignment(file: &File) -> io::Result<(u32, usize)> {
    let asked = rustix::fs::StatxFlags::DIOALIGN;
    let st = rustix::fs::statx(file, c"", rustix::fs::AtFlags::EMPTY_PATH, asked)?;
    if st.stx_mask & asked.bits() == 0 || st.stx_dio_offset_align == 0 {
        return Ok((4096, 4096));
    }
    Ok((st.stx_dio_offset_align.max(512), st.stx_dio_mem_align.max(1) as usize))
}

#[cfg(test)]
mod tests {
    use super::FileImage as Image;
    use super::*;
    use crate::request::{Extent, ExtentKind};
    use std::os::unix::fs::FileExt;

    const NO_WAIT: Duration = Duration::ZERO;

    #[test]
    fn create_open_and_the_sizes_between() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("d.raw");
        assert!(matches!(Image::create(&path, Bytes(4095)), Err(ImageError::Size(4095))));
        assert!(!path.exists());
        Image::create(&path, Bytes::from_mib(1)).unwrap();
        let again = Image::create(&path, Bytes::from_mib(1)).unwrap_err().to_string();
        assert!(again.contains("exists"), "{again}");
        let (image, size, _) = Image::open(&path, Caching::PreferDirect, NO_WAIT).unwrap();
        assert_eq!(size, 1 << 20);
        assert!(matches!(
            Image::open(&path, Caching::Buffered, NO_WAIT),
            Err(ImageError::InUse { .. })
        ));
        drop(image);
        Image::open(&path, Caching::Buffered, NO_WAIT).unwrap();
        Image::remove(&path).unwrap();
        Image::remove(&path).unwrap();
    }

    #[test]
    fn extents_tell_data_from_holes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("d.raw");
        Image::create(&path, Bytes::from_mib(4)).unwrap();
        let (image, ..) = Image::open(&path, Caching::Buffered, NO_WAIT).unwrap();
        image.file.write_all_at(&[1; 65536], 1 << 20).unwrap();
        let shared = image.share().unwrap();
        let extents = shared.extents(0, 4 << 20).unwrap();
        assert_eq!(
            extents,
            [
                Extent { len: 1 << 20, kind: ExtentKind::Hole },
                Extent { len: 65536, kind: ExtentKind::Data },
                Extent { len: (3 << 20) - 65536, kind: ExtentKind::Hole },
            ]
        );
        assert_eq!(
            shared.extents((1 << 20) + 4096, 4096).unwrap(),
            [Extent { len: 4096, kind: ExtentKind::Data }]
        );
    }

    #[test]
    fn what_is_no_regular_file_is_no_image() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Image::open(dir.path(), Caching::Buffered, NO_WAIT).is_err());
        let device = Path::new("/dev/null");
        assert!(matches!(
            Image::open(device, Caching::Buffered, NO_WAIT),
            Err(ImageError::Kind { .. })
        ));
        let (file, link) = (dir.path().join("d.raw"), dir.path().join("link.img"));
        Image::create(&file, Bytes::from_mib(1)).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        for caching in [Caching::Buffered, Caching::PreferDirect, Caching::Direct] {
            let opened = Image::open(&link, caching, NO_WAIT);
            assert!(matches!(opened, Err(ImageError::Link { .. })), "{caching:?}: {opened:?}");
        }
        // Nor through a link in the middle of the path, to open or to make a file.
        let way = dir.path().join("way");
        std::os::unix::fs::symlink(dir.path(), &way).unwrap();
        let opened = Image::open(&way.join("d.raw"), Caching::Buffered, NO_WAIT);
        assert!(matches!(opened, Err(ImageError::Link { .. })), "{opened:?}");
        let made = Image::create(&way.join("new.raw"), Bytes::from_mib(1));
        assert!(matches!(made, Err(ImageError::Link { .. })), "{made:?}");
        // Nobody writes to a pipe, and the open does not wait for anybody.
        let pipe = dir.path().join("pipe.img");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let opened = Image::open(&pipe, Caching::Buffered, NO_WAIT);
        assert!(matches!(opened, Err(ImageError::Kind { .. })), "{opened:?}");
    }

    #[test]
    fn a_device_is_a_block_device_by_whatever_path() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("d.raw"), dir.path().join("by-id"));
        Image::create(&file, Bytes::from_mib(1)).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        for path in [&file, &link, Path::new("/dev/null")] {
            let opened = Image::open_device(path, Caching::Buffered, NO_WAIT);
            let expected = "a block device";
            assert!(
                matches!(opened, Err(ImageError::Kind { expected: e, .. }) if e == expected),
                "{opened:?}"
            );
        }
    }
}
