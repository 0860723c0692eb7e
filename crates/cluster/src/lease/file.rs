use super::holder::{Holder, LeaseError, Token};
use crate::identity::Identity;
use headgate_units::Nanos;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// What the name of a disk is followed by.
pub const LEASE_SUFFIX: &str = ".lease";

/// Longer contents are not read.
const CONTENT_MAX: usize = 4096;

/// A lease on a disk, held by a lock on a file beside its image.
///
/// The lock goes with the process that holds it, however that ends. The file stays: it says who
/// holds the disk, or who did so last and whether that one gave it back. So one who is refused can
/// be told the holder's name, and one who takes over can tell a crash from an orderly end.
#[derive(Debug)]
pub struct FileLease {
    file: File,
    path: PathBuf,
    content: Content,
}

/// What the file says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Content {
    token: Token,
    holder: Holder,
    released: bool,
}

/// What was gained.
#[derive(Debug)]
pub struct Grant {
    /// The lease.
    pub lease: FileLease,
    /// Who held it just before, if that one's name can be read.
    pub before: Option<Holder>,
    /// The same, if it did not give it back: it crashed, or lost its locks.
    pub former: Option<Holder>,
    /// How long to wait before the first request. The kernel vouches for locks of this host; a host
    /// whose locks were lost on the way has to notice that first ([`FileLease::standing`]).
    pub wait: Nanos,
}

/// Whether a lease is still what it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Yes.
    Held,
    /// Another has it: stop at once.
    Lost {
        /// Who, if its name can be read.
        to: Option<Holder>,
    },
}

fn failed<'a>(
    doing: &'static str,
    path: &'a Path,
) -> impl FnOnce(io::Error) -> LeaseError + use<'a> {
    move |source| LeaseError::Io { doing, path: path.to_owned(), source }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)
}

/// Whether the whole file could be locked by this open file alone.
fn lock(file: &File) -> io::Result<bool> {
    let lock = libc::flock {
        l_type: libc::F_WRLCK as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    // SAFETY: `lock` is a valid flock structure for the duration of the call.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &lock) } == 0 {
        return Ok(true);
    }
    match io::Error::last_os_error() {
        e if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        e => Err(e),
    }
}

fn read(file: &File) -> io::Result<Option<Content>> {
    let mut bytes = vec![0; CONTENT_MAX];
    let length = file.read_at(&mut bytes, 0)?;
    Ok(serde_json::from_slice(&bytes[..length]).ok())
}

/// Whether the path still names this file.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let open = file.metadata()?;
    match path.symlink_metadata() {
        Ok(named) => Ok(named.dev() == open.dev() && named.ino() == open.ino()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

impl FileLease {
    /// The lease of the disk with this image.
    pub fn path_of(image: &Path) -> PathBuf {
        let mut path = image.as_os_str().to_owned();
        path.push(LEASE_SUFFIX);
        path.into()
    }

    /// Becomes the holder of `disk`, whose lease is at `path`, or says who is.
    ///
    /// `grace` is what a host needs to notice that it lost a lease: twice the time between two of
    /// its looks at its [`standing`](FileLease::standing).
    ///
    /// # Errors
    /// [`LeaseError::Held`] with the holder's name, or what the file system says.
    pub fn acquire(
        path: &Path,
        disk: &str,
        own: &Identity,
        grace: Nanos,
    ) -> Result<Grant, LeaseError> {
        let io = |doing| failed(doing, path);
        let file = loop {
            let file = open(path).map_err(io("open"))?;
            if !lock(&file).map_err(io("lock"))? {
                let disk = disk.to_owned();
                return Err(match read(&file).map_err(io("read"))? {
                    Some(Content { holder, token, .. }) => LeaseError::Held { disk, holder, token },
                    None => LeaseError::HeldByUnknown { disk, path: path.to_owned() },
                });
            }
            // Removed and made anew between the two steps: then this lock protects nothing.
            if is_at(&file, path).map_err(io("look at"))? {
                break file;
            }
        };
        let before = read(&file).map_err(io("read"))?;
        let token = Token(before.as_ref().map_or(1, |c| c.token.0.saturating_add(1)));
        let mut lease = FileLease {
            file,
            path: path.to_owned(),
            content: Content { token, holder: Holder::of(own), released: false },
        };
        lease.write()?;
        let former = before.as_ref().filter(|c| !c.released).map(|c| c.holder.clone());
        let elsewhere = former.as_ref().is_some_and(|f| f.host != lease.content.holder.host);
        let wait = if elsewhere { grace } else { Nanos::ZERO };
        Ok(Grant { lease, before: before.map(|c| c.holder), former, wait })
    }

    /// Who holds the lease at `path`, or held it last; `None` when nobody ever did, or the name
    /// cannot be read.
    ///
    /// # Errors
    /// What the file system says.
    pub fn holder(path: &Path) -> Result<Option<Holder>, LeaseError> {
        match OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(failed("open", path)(e)),
            Ok(file) => Ok(read(&file).map_err(failed("read", path))?.map(|c| c.holder)),
        }
    }

    /// Which holder of the disk this is.
    pub fn token(&self) -> Token {
        self.content.token
    }

    fn write(&mut self) -> Result<(), LeaseError> {
        let mut text =
            serde_json::to_vec(&self.content).map_err(|e| failed("write", &self.path)(e.into()))?;
        text.push(b'\n');
        let write = || {
            self.file.write_all_at(&text, 0)?;
            self.file.set_len(text.len() as u64)?;
            self.file.sync_all()
        };
        write().map_err(failed("write", &self.path))
    }

    /// Whether this is still the holder. To be asked about once a second: file systems over a
    /// network may lose a lock without saying so, and its next holder then writes its name into the
    /// file.
    ///
    /// A file that was removed is made good: the lock is taken on a new one.
    ///
    /// # Errors
    /// What the file system says; the lease is in doubt then, as everything on that datastore is.
    pub fn standing(&mut self) -> Result<Standing, LeaseError> {
        if is_at(&self.file, &self.path).map_err(failed("look at", &self.path))? {
            let content = read(&self.file).map_err(failed("read", &self.path))?;
            return match content {
                Some(content) if content == self.content => Ok(Standing::Held),
                Some(content) => Ok(Standing::Lost { to: Some(content.holder) }),
                // Damaged, and ours by its lock.
                None => self.write().map(|()| Standing::Held),
            };
        }
        let file = open(&self.path).map_err(failed("open", &self.path))?;
        let mine = lock(&file).map_err(failed("lock", &self.path))?;
        let content = read(&file).map_err(failed("read", &self.path))?;
        match content {
            // Whoever made the file anew has been here in between.
            Some(content) if content != self.content => {
                Ok(Standing::Lost { to: Some(content.holder) })
            }
            _ if !mine => Ok(Standing::Lost { to: None }),
            _ => {
                self.file = file;
                self.write().map(|()| Standing::Held)
            }
        }
    }

    /// Gives the disk back: no request may be in flight any more.
    ///
    /// # Errors
    /// When that could not be written down. The lock is gone nevertheless; the next holder is told
    /// of a crash.
    pub fn release(mut self) -> Result<(), LeaseError> {
        if self.standing()? == Standing::Held {
            self.content.released = true;
            self.write()?;
        }
        Ok(())
    }
}
