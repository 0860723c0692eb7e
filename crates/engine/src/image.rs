//! Disk images: raw sparse files and block devices, opened, locked and measured by the control side.

use crate::lock;
use crate::mapping::Mapping;
use crate::remote::Connection;
use crate::request::{Extent, ExtentKind};
use headgate_nbd::uri::Uri;
use headgate_units::Bytes;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use thiserror::Error;

/// Disk sizes are multiples of this, so that an image fits storage of any block size.
pub const SIZE_STEP: u64 = 4096;

/// The largest disk, in bytes: what ext4 and XFS both store in one file.
pub const SIZE_MAX: u64 = 16 << 40;

/// Whether requests go around the host's page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caching {
    /// `O_DIRECT`, or an error where the file system cannot.
    Direct,
    /// `O_DIRECT` where the file system can, else through the page cache; [`Image::is_direct`] tells which.
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
    /// Neither a regular file nor a block device.
    #[error("{path} is neither a regular file nor a block device")]
    Kind {
        /// The image.
        path: PathBuf,
    },
    /// `O_DIRECT` was asked for and is not to be had.
    #[error("{path}: the file system does not support O_DIRECT; use buffered access or another file system")]
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    File,
    BlockDevice,
    Null,
    Remote,
}

/// What a transfer of an image's bytes may wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Medium {
    /// A device.
    Device,
    /// Nothing: the file system is in memory, a transfer is a copy.
    Memory,
}

/// An opened and locked disk image.
#[derive(Debug)]
pub struct Image {
    file: Option<File>,
    path: PathBuf,
    kind: Kind,
    size: u64,
    block_size: u32,
    memory_alignment: usize,
    direct: bool,
    medium: Medium,
    remote: Option<Box<Remote>>,
    /// Of an image in memory, unless there is no address space for it.
    mapping: Option<Mapping>,
}

/// An export of an NBD server that a disk is.
#[derive(Debug)]
pub(crate) struct Remote {
    pub uri: Uri,
    pub size: Bytes,
    pub block_size: u32,
    /// `None`: the server is not there yet.
    pub connection: Option<Connection>,
}

fn io_error(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ImageError {
    let path = path.to_owned();
    move |source| ImageError::Io { doing, path, source }
}

fn is_disk_size(size: u64) -> bool {
    (SIZE_STEP..=SIZE_MAX).contains(&size) && size.is_multiple_of(SIZE_STEP)
}

fn sync_directory_of(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => File::open(dir)?.sync_all(),
        _ => File::open(".")?.sync_all(),
    }
}

impl Image {
    /// Creates a sparse file of this size, and makes it and its directory entry durable.
    ///
    /// # Errors
    /// When the size is not a disk's, the file exists, or the file system refuses; nothing is left behind then.
    pub fn create(path: &Path, size: Bytes) -> Result<(), ImageError> {
        let size = size.0;
        if !is_disk_size(size) {
            return Err(ImageError::Size(size));
        }
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .map_err(io_error("create", path))?;
        let made = file.set_len(size).and_then(|()| file.sync_all()).and_then(|()| sync_directory_of(path));
        made.map_err(|source| {
            // The error that made us give up is the one to report.
            let _ = std::fs::remove_file(path);
            io_error("create", path)(source)
        })
    }

    /// Removes an image file and makes that durable. A file that is gone already is fine.
    ///
    /// # Errors
    /// What the file system says.
    pub fn remove(path: &Path) -> Result<(), ImageError> {
        match std::fs::remove_file(path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(io_error("remove", path)(e)),
            _ => sync_directory_of(path).map_err(io_error("sync the directory of", path)),
        }
    }

    /// Opens an image and becomes its only writer, waiting up to `patience` for a killed predecessor's last requests to
    /// leave the kernel. Blocks: not for a shard's thread.
    ///
    /// # Errors
    /// See [`ImageError`].
    pub fn open(path: &Path, caching: Caching, patience: Duration) -> Result<Image, ImageError> {
        let open = |flags: i32| OpenOptions::new().read(true).write(true).custom_flags(flags).open(path);
        let (file, direct) = match caching {
            Caching::Buffered => (open(0), false),
            Caching::Direct | Caching::PreferDirect => match open(libc::O_DIRECT) {
                Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {
                    if caching == Caching::Direct {
                        return Err(ImageError::NoDirect { path: path.to_owned() });
                    }
                    (open(0), false)
                }
                opened => (opened, true),
            },
        };
        let file = file.map_err(io_error("open", path))?;
        let kind = file.metadata().map_err(io_error("inspect", path))?.file_type();
        let kind = match () {
            () if kind.is_file() => Kind::File,
            () if kind.is_block_device() => Kind::BlockDevice,
            () => return Err(ImageError::Kind { path: path.to_owned() }),
        };
        Self::lock(&file, path, patience)?;
        let size = length(&file).map_err(io_error("measure", path))?;
        let medium = medium(&file).map_err(io_error("inspect the file system of", path))?;
        if direct && medium == Medium::Memory {
            // There is no cache to go around, and the flag would make the kernel copy what it could lend.
            forget_direct(&file).map_err(io_error("set up", path))?;
        }
        let (block_size, memory_alignment) = match medium {
            Medium::Device if direct => direct_alignment(&file).map_err(io_error("measure", path))?,
            _ => (512, 1),
        };
        if size == 0 || !size.is_multiple_of(u64::from(block_size)) {
            return Err(ImageError::Size(size));
        }
        let mapping = match medium {
            Medium::Memory => Mapping::of(&file, size).ok(),
            Medium::Device => None,
        };
        Ok(Image {
            mapping,
            file: Some(file),
            path: path.to_owned(),
            kind,
            size,
            block_size,
            memory_alignment,
            direct,
            medium,
            remote: None,
        })
    }

    /// A disk without storage: reads are zeroes, writes vanish. For measuring the path to the backend.
    ///
    /// # Errors
    /// [`ImageError::Size`].
    pub fn null(size: Bytes) -> Result<Image, ImageError> {
        if !is_disk_size(size.0) {
            return Err(ImageError::Size(size.0));
        }
        Ok(Image {
            file: None,
            path: PathBuf::new(),
            kind: Kind::Null,
            size: size.0,
            block_size: 512,
            memory_alignment: 1,
            direct: false,
            medium: Medium::Memory,
            remote: None,
            mapping: None,
        })
    }

    /// An export of an NBD server, of this size and block size (512 to 4096). Without a connection the disk tries until it
    /// has one; until then, and whenever it is lost, requests wait for up to [`remote::PATIENCE`](crate::remote::PATIENCE).
    ///
    /// # Errors
    /// [`ImageError::Size`] when the size is not whole blocks.
    pub fn remote(
        uri: Uri,
        size: Bytes,
        block_size: u32,
        connection: Option<Connection>,
    ) -> Result<Image, ImageError> {
        let known = (512..=4096).contains(&block_size) && block_size.is_power_of_two();
        if size.0 == 0 || !known || !size.0.is_multiple_of(u64::from(block_size)) {
            return Err(ImageError::Size(size.0));
        }
        Ok(Image {
            file: None,
            path: PathBuf::from(uri.to_string()),
            kind: Kind::Remote,
            size: size.0,
            block_size,
            memory_alignment: 1,
            direct: true,
            medium: Medium::Device,
            remote: Some(Box::new(Remote { uri, size, block_size, connection })),
            mapping: None,
        })
    }

    fn lock(file: &File, path: &Path, patience: Duration) -> Result<(), ImageError> {
        let deadline = Instant::now() + patience;
        loop {
            match lock::try_lock(file) {
                Ok(()) => return Ok(()),
                Err(e) if e.kind() != io::ErrorKind::WouldBlock => return Err(io_error("lock", path)(e)),
                Err(_) if Instant::now() >= deadline => {
                    return Err(ImageError::InUse { path: path.to_owned() });
                }
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        }
    }

    /// Size in bytes.
    pub fn size(&self) -> Bytes {
        Bytes(self.size)
    }

    /// The smallest unit of a request, in bytes.
    pub fn block_size(&self) -> u32 {
        self.block_size
    }

    /// Do requests bypass the host's page cache.
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// Where the image lies: a path, the URI of an export, or nothing for a disk without storage.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The export, if the image is one.
    pub(crate) fn remote_mut(&mut self) -> Option<&mut Remote> {
        self.remote.as_deref_mut()
    }

    pub(crate) fn is_remote(&self) -> bool {
        self.remote.is_some()
    }

    pub(crate) fn fd(&self) -> Option<RawFd> {
        self.file.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// What a buffer's address and length must be a multiple of, in bytes.
    pub(crate) fn memory_alignment(&self) -> usize {
        self.memory_alignment
    }

    pub(crate) fn medium(&self) -> Medium {
        self.medium
    }

    /// The file's pages, if they can be written to where they are.
    pub(crate) fn mapping(&self) -> Option<&Mapping> {
        self.mapping.as_ref()
    }

    /// A second handle on the same open file, for work that blocks.
    pub(crate) fn share(&self) -> io::Result<Option<SharedImage>> {
        let Some(file) = &self.file else { return Ok(None) };
        Ok(Some(SharedImage { file: file.try_clone()?, kind: self.kind }))
    }
}

/// A handle for queries that may block.
#[derive(Debug)]
pub(crate) struct SharedImage {
    file: File,
    kind: Kind,
}

/// Answers beyond this many extents are cut: the client asks again from where the answer ended.
const EXTENTS_MAX: usize = 4096;

impl SharedImage {
    /// The extents of a range, in order, possibly cut after [`EXTENTS_MAX`]. Blocks.
    pub(crate) fn extents(&self, offset: u64, len: u64) -> io::Result<Vec<Extent>> {
        if self.kind != Kind::File {
            return Ok(vec![Extent { len, kind: ExtentKind::Data }]);
        }
        let end = offset + len;
        let mut at = offset;
        let mut extents = Vec::new();
        while at < end && extents.len() < EXTENTS_MAX {
            let data = self.seek(at, libc::SEEK_DATA)?.unwrap_or(end).min(end);
            if data > at {
                extents.push(Extent { len: data - at, kind: ExtentKind::Hole });
                at = data;
                continue;
            }
            let hole = self.seek(at, libc::SEEK_HOLE)?.unwrap_or(end).min(end);
            extents.push(Extent { len: hole - at, kind: ExtentKind::Data });
            at = hole;
        }
        Ok(extents)
    }

    /// `None` past the last data or hole.
    fn seek(&self, from: u64, whence: i32) -> io::Result<Option<u64>> {
        // SAFETY: a plain system call on an owned descriptor; the file offset it moves is used by nobody.
        let at = unsafe { libc::lseek(self.file.as_raw_fd(), from as i64, whence) };
        if at >= 0 {
            return Ok(Some(at as u64));
        }
        match io::Error::last_os_error() {
            e if e.raw_os_error() == Some(libc::ENXIO) => Ok(None),
            e => Err(e),
        }
    }
}

fn forget_direct(file: &File) -> io::Result<()> {
    // SAFETY: plain system calls on an owned descriptor.
    let set = unsafe {
        let flags = libc::fcntl(file.as_raw_fd(), libc::F_GETFL);
        flags >= 0 && libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags & !libc::O_DIRECT) == 0
    };
    if set { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn length(file: &File) -> io::Result<u64> {
    // SAFETY: a plain system call on an owned descriptor; works for files and block devices alike.
    match unsafe { libc::lseek(file.as_raw_fd(), 0, libc::SEEK_END) } {
        n if n >= 0 => Ok(n as u64),
        _ => Err(io::Error::last_os_error()),
    }
}

fn medium(file: &File) -> io::Result<Medium> {
    // SAFETY: all-zero is a valid statfs buffer, and the kernel only writes into it.
    let mut st: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: an owned descriptor and a valid buffer.
    if unsafe { libc::fstatfs(file.as_raw_fd(), &mut st) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // A device node lies on a file system in memory; what is behind it does not.
    let in_memory = file.metadata()?.is_file() && matches!(st.f_type, libc::TMPFS_MAGIC | RAMFS_MAGIC);
    Ok(if in_memory { Medium::Memory } else { Medium::Device })
}

/// As in the kernel's `linux/magic.h`; libc does not have it.
const RAMFS_MAGIC: libc::__fsword_t = 0x8584_58f6;

/// Block size and memory alignment that direct IO needs here; where the kernel does not tell, 4096 always works.
fn direct_alignment(file: &File) -> io::Result<(u32, usize)> {
    // SAFETY: all-zero is a valid statx buffer, and the kernel only writes into it.
    let mut st: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: an owned descriptor, an empty path as AT_EMPTY_PATH allows, and a valid buffer.
    let rc = unsafe {
        libc::statx(file.as_raw_fd(), c"".as_ptr(), libc::AT_EMPTY_PATH, libc::STATX_DIOALIGN, &mut st)
    };
    if rc != 0 {
        return Err(io::Error::last_os_error());
    }
    if st.stx_mask & libc::STATX_DIOALIGN == 0 || st.stx_dio_offset_align == 0 {
        return Ok((4096, 4096));
    }
    Ok((st.stx_dio_offset_align.max(512), st.stx_dio_mem_align.max(1) as usize))
}

#[cfg(test)]
mod tests {
    use super::*;
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
        let image = Image::open(&path, Caching::PreferDirect, NO_WAIT).unwrap();
        assert_eq!(image.size(), Bytes::from_mib(1));
        assert!(matches!(Image::open(&path, Caching::Buffered, NO_WAIT), Err(ImageError::InUse { .. })));
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
        let image = Image::open(&path, Caching::Buffered, NO_WAIT).unwrap();
        image.file.as_ref().unwrap().write_all_at(&[1; 65536], 1 << 20).unwrap();
        let shared = image.share().unwrap().unwrap();
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
    fn a_directory_is_no_image() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Image::open(dir.path(), Caching::Buffered, NO_WAIT).is_err());
        let device = Path::new("/dev/null");
        assert!(matches!(Image::open(device, Caching::Buffered, NO_WAIT), Err(ImageError::Kind { .. })));
    }
}
