use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The file with what the catalog holds besides disks with images.
pub(crate) const RECORDS: &str = "records.json";

/// The directory that holds everything the daemon writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateDir {
    root: PathBuf,
}

/// The longest path of a unix socket, in bytes: `sun_path` without its final zero.
pub const SOCKET_PATH_MAX: usize = 107;

/// Why the state directory cannot be used.
#[derive(Debug, Error)]
pub enum StateDirError {
    /// Another daemon has it.
    #[error("another headgate daemon{} serves the state directory {}", .pid.map(|p| format!(" (process {p})")).unwrap_or_default(), .root.display())]
    Locked {
        /// The directory.
        root: PathBuf,
        /// The other daemon, if it said.
        pid: Option<u32>,
    },
    /// Sockets in it would have names that no system call takes.
    #[error(
        "the state directory's path {} is too long: the sockets in it would have paths of more than {SOCKET_PATH_MAX} bytes",
        .root.display()
    )]
    TooLong {
        /// The directory.
        root: PathBuf,
    },
    /// Clients get paths in it as text.
    #[error("the state directory's path {} is not valid UTF-8", .root.display())]
    NotUtf8 {
        /// The directory.
        root: PathBuf,
    },
    /// The file system failed.
    #[error("cannot {doing} {}: {source}", .path.display())]
    Io {
        /// What was being done.
        doing: &'static str,
        /// To which path.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
}

/// Proof that no other daemon uses the state directory; the lock goes with the process, however it
/// ends.
#[derive(Debug)]
pub struct StateDirLock {
    _file: File,
}

impl StateDir {
    /// `/var/lib/headgate` for root, else `headgate` under the XDG state home.
    pub fn default_root() -> Option<PathBuf> {
        if rustix::process::geteuid().is_root() {
            return Some(PathBuf::from("/var/lib/headgate"));
        }
        let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
        absolute("XDG_STATE_HOME")
            .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))
            .map(|state| state.join("headgate"))
    }

    /// Names the directory; creates nothing. A relative path is taken from the working directory.
    ///
    /// # Errors
    /// When the path cannot hold the daemon's sockets.
    pub fn new(root: &Path) -> Result<StateDir, StateDirError> {
        let root = std::path::absolute(root).map_err(|source| StateDirError::Io {
            doing: "find",
            path: root.to_owned(),
            source,
        })?;
        if root.to_str().is_none() {
            return Err(StateDirError::NotUtf8 { root });
        }
        let dir = StateDir { root };
        if dir.api_socket().as_os_str().len() > SOCKET_PATH_MAX {
            return Err(StateDirError::TooLong { root: dir.root });
        }
        Ok(dir)
    }

    /// Creates the directory and becomes its only daemon. While another daemon has it, `wait` is
    /// told so, and says whether to try again: a process that was killed holds its lock until the
    /// kernel has taken it apart, and a new daemon may be there before.
    ///
    /// # Errors
    /// [`StateDirError::Locked`] when another daemon has it, and `wait` has broken off.
    pub fn lock_or(
        &self,
        mut wait: impl FnMut(&StateDirError) -> ControlFlow<()>,
    ) -> Result<StateDirLock, StateDirError> {
        loop {
            match self.lock() {
                Err(held @ StateDirError::Locked { .. }) => {
                    if wait(&held).is_break() {
                        return Err(held);
                    }
                }
                done => return done,
            }
        }
    }

    /// Creates the directory and becomes its only daemon.
    ///
    /// # Errors
    /// [`StateDirError::Locked`] when another daemon has it.
    pub fn lock(&self) -> Result<StateDirLock, StateDirError> {
        let io = |doing, path: &Path| {
            let path = path.to_owned();
            move |source| StateDirError::Io { doing, path, source }
        };
        self.create()?;
        let path = self.root.join("lock");
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(io("open", &path))?;
        self.give_to_owner(&path).map_err(io("give away", &path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let pid = fs::read_to_string(&path).ok().and_then(|text| text.trim().parse().ok());
                return Err(StateDirError::Locked { root: self.root.clone(), pid });
            }
            Err(TryLockError::Error(source)) => return Err(io("lock", &path)(source)),
        }
        file.set_len(0)
            .and_then(|()| writeln!(file, "{}", std::process::id()))
            .map_err(io("write", &path))?;
        Ok(StateDirLock { _file: file })
    }

    /// Creates the directory and those in it. Everybody may go through them to the sockets, whose
    /// own rights decide; nobody else may list them, or change what is in them.
    ///
    /// # Errors
    /// What the file system says.
    pub fn create(&self) -> Result<(), StateDirError> {
        let made = self.create_all();
        made.map_err(|(doing, path, source)| StateDirError::Io { doing, path, source })
    }

    fn create_all(&self) -> Result<(), (&'static str, PathBuf, io::Error)> {
        if !self.root.exists() {
            fs::create_dir_all(&self.root).map_err(|e| ("create", self.root.clone(), e))?;
            passable(&self.root)?;
        }
        for dir in [self.vhost_dir(), self.machines_dir()] {
            fs::create_dir_all(&dir).map_err(|e| ("create", dir.clone(), e))?;
            self.give_to_owner(&dir).map_err(|e| ("give away", dir.clone(), e))?;
            passable(&dir)?;
        }
        Ok(())
    }

    /// Gives what was made in the directory to the directory's owner: root may give a command, and
    /// the daemon be another user.
    pub(crate) fn give_to_owner(&self, made: &Path) -> io::Result<()> {
        let (owner, now) = (fs::metadata(&self.root)?, fs::metadata(made)?);
        let is_the_owners = (owner.uid(), owner.gid()) == (now.uid(), now.gid());
        if is_the_owners || !rustix::process::geteuid().is_root() {
            return Ok(());
        }
        chown(made, Some(owner.uid()), Some(owner.gid()))
    }

    /// Holds nothing that an earlier daemon left.
    pub fn is_fresh(&self) -> bool {
        !self.catalog().exists()
    }

    /// The directory itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The API's socket.
    pub fn api_socket(&self) -> PathBuf {
        self.root.join("headgate.sock")
    }

    /// The NBD server's socket, for all disks.
    pub fn nbd_socket(&self) -> PathBuf {
        self.root.join("nbd.sock")
    }

    /// Where the vhost-user sockets are.
    pub fn vhost_dir(&self) -> PathBuf {
        self.root.join("vhost")
    }

    /// Where each virtual machine has a directory of sockets.
    pub fn machines_dir(&self) -> PathBuf {
        self.root.join("machines")
    }

    /// A virtual machine's directory of sockets.
    pub fn machine_dir(&self, vm: &headgate_model::Name) -> PathBuf {
        self.machines_dir().join(vm.as_str())
    }

    /// The NBD socket for clients of a machine's disks: its own, unless that has too long a name;
    /// that of all disks for those without a machine.
    pub fn nbd_socket_of(&self, vm: Option<&headgate_model::Name>) -> PathBuf {
        let own = vm.map(|vm| self.machine_dir(vm).join("nbd.sock"));
        own.filter(|path| path.as_os_str().len() <= SOCKET_PATH_MAX)
            .unwrap_or_else(|| self.nbd_socket())
    }

    /// A disk's vhost-user socket.
    pub fn vhost_socket(&self, disk: &headgate_model::Name) -> PathBuf {
        self.vhost_dir().join(format!("{disk}.sock"))
    }

    /// The longest disk name whose socket has a legal path, in bytes.
    pub fn longest_disk_name(&self) -> usize {
        let around = self.vhost_dir().as_os_str().as_bytes().len() + "/.sock".len();
        SOCKET_PATH_MAX.saturating_sub(around).min(headgate_model::NAME_MAX)
    }

    /// The catalog.
    pub fn catalog(&self) -> PathBuf {
        self.root.join("catalog.sqlite")
    }

    /// The copies of the catalog.
    pub fn catalog_copies(&self) -> PathBuf {
        self.root.join("catalog.copies")
    }

    /// What the catalog holds besides disks with images, noted once more.
    pub fn records(&self) -> PathBuf {
        self.root.join(RECORDS)
    }

    /// What snapshots know of those before them.
    pub(crate) fn changes(&self) -> PathBuf {
        self.root.join("changes")
    }

    /// What was changed, and by whom.
    pub fn events(&self) -> PathBuf {
        self.root.join("events")
    }

    /// What disks and datastores did.
    pub fn samples(&self) -> PathBuf {
        self.root.join("samples.sqlite")
    }

    /// A path from the catalog: relative ones are in the state directory, so that it can be moved.
    pub fn resolve(&self, path: &Path) -> PathBuf {
        self.root.join(path)
    }
}

/// Lets everybody go through a directory, and nobody but its owner list or change it.
fn passable(dir: &Path) -> Result<(), (&'static str, PathBuf, io::Error)> {
    fs::set_permissions(dir, fs::Permissions::from_mode(0o711))
        .map_err(|e| ("set the mode of", dir.to_owned(), e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_daemon_per_state_directory() {
        let temp = tempfile::tempdir().unwrap();
        let dir = StateDir::new(temp.path()).unwrap();
        let held = dir.lock().unwrap();
        let error = dir.lock().unwrap_err().to_string();
        assert!(error.contains(&format!("(process {})", std::process::id())), "{error}");
        drop(held);
        dir.lock().unwrap();
    }

    #[test]
    fn a_lock_that_is_given_up_while_one_waits_is_taken() {
        let temp = tempfile::tempdir().unwrap();
        let dir = StateDir::new(temp.path()).unwrap();
        let mut held = Some(dir.lock().unwrap());
        let mut told = Vec::new();
        let taken = dir.lock_or(|error| {
            told.push(error.to_string());
            if told.len() == 3 {
                drop(held.take());
            }
            ControlFlow::Continue(())
        });
        assert_eq!(told.len(), 3);
        assert!(told[0].starts_with("another headgate daemon"), "{told:?}");
        dir.lock().unwrap_err();
        drop(taken.unwrap());
    }

    #[test]
    fn one_who_does_not_wait_any_longer_is_told_who_has_it() {
        let temp = tempfile::tempdir().unwrap();
        let dir = StateDir::new(temp.path()).unwrap();
        let _held = dir.lock().unwrap();
        let mut tries = 0;
        let error = dir.lock_or(|_| {
            tries += 1;
            if tries == 5 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert!(matches!(error, Err(StateDirError::Locked { pid: Some(_), .. })), "{error:?}");
        assert_eq!(tries, 5);
    }

    #[test]
    fn the_longest_name_fits_a_socket_path() {
        let dir = StateDir::new(Path::new(&format!("/{}", "x".repeat(60)))).unwrap();
        let name = "n".repeat(dir.longest_disk_name()).parse().unwrap();
        assert_eq!(dir.vhost_socket(&name).as_os_str().len(), SOCKET_PATH_MAX);
        let long = StateDir::new(Path::new(&format!("/{}", "x".repeat(100)))).unwrap_err();
        assert!(long.to_string().contains("too long"), "{long}");
    }
}
