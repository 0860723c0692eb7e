//! A file system that hangs, delays and fails on command: a directory of files, served over FUSE by
//! this process.
//!
//! It is for what no real file system does when a test wants it. Mounting needs root or
//! `fusermount3`; where neither helps, [`FaultyFs::mount`] answers `None`.

use crate::wait_for;
use anyhow::Context;
use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyStatfs, ReplyWrite, Request, TimeOrNow,
    WriteFlags,
};
use rustix::fs::FallocateFlags;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, SystemTime};

/// How long the kernel may answer by itself.
const TTL: Duration = Duration::ZERO;

/// What is done to operations from now on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    #[default]
    None,
    /// None is answered.
    Hang,
    /// No read or write of a file's bytes is answered; everything else is. A process that waits
    /// for a page of a mapping can be killed.
    HangData,
    /// Each takes so much longer.
    Delay(Duration),
    /// Each fails with this error number.
    Fail(i32),
    /// Those that write or make something fail with this error number.
    FailWrites(i32),
}

#[derive(Default)]
struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    fault: Fault,
    /// Operations that hang now.
    held: usize,
    /// Operations that came since the file system was mounted.
    seen: u64,
}

/// What an operation does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Does {
    Look,
    Change,
    Read,
    Write,
}

impl Fault {
    fn holds(self, does: Does) -> bool {
        match self {
            Fault::Hang => true,
            Fault::HangData => matches!(does, Does::Read | Does::Write),
            Fault::None | Fault::Delay(_) | Fault::Fail(_) | Fault::FailWrites(_) => false,
        }
    }
}

impl Gate {
    fn locked(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when an operation may be carried out, or the error that it ends with.
    fn pass(&self, does: Does) -> Result<(), Errno> {
        let mut state = self.locked();
        state.seen += 1;
        state.held += 1;
        self.changed.notify_all();
        while state.fault.holds(does) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.held -= 1;
        match state.fault {
            Fault::None | Fault::Hang | Fault::HangData => Ok(()),
            Fault::Delay(time) => {
                drop(state);
                sleep(time);
                Ok(())
            }
            Fault::Fail(number) => Err(Errno::from_i32(number)),
            Fault::FailWrites(number) => match does {
                Does::Change | Does::Write => Err(Errno::from_i32(number)),
                Does::Look | Does::Read => Ok(()),
            },
        }
    }
}

/// A mounted file system that does what it is told. Dropping it lets everything go and unmounts it.
pub struct FaultyFs {
    path: PathBuf,
    gate: Arc<Gate>,
    session: Option<BackgroundSession>,
    first: Option<Child>,
}

impl FaultyFs {
    /// Mounts an empty one at a directory `name` below `base`; `None` where that is not possible.
    ///
    /// # Errors
    /// When its directories cannot be made.
    pub fn mount(base: &Path, name: &str) -> anyhow::Result<Option<FaultyFs>> {
        let (path, store) = (base.join(name), base.join(format!("{name}.store")));
        for dir in [&path, &store] {
            fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
        }
        let gate = Arc::new(Gate::default());
        let served = Served { store, gate: gate.clone(), files: Mutex::default() };
        let mounted = fuser::spawn_mount(served, &path, &Config::default());
        let session = match mounted {
            Ok(session) => session,
            Err(e) => {
                eprintln!("SKIPPED: no FUSE here: {e}");
                return Ok(None);
            }
        };
        Ok(Some(FaultyFs { path, gate, session: Some(session), first: None }))
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Operations that came so far.
    pub fn seen(&self) -> u64 {
        self.gate.locked().seen
    }

    /// From now on nothing is answered.
    ///
    /// The kernel does not let a killed process go whose operation the server has read. The server
    /// reads one at a time, so a program of ours goes first, and all that come after it wait where
    /// a kill finds them.
    ///
    /// # Errors
    /// When that program cannot be started, or does not arrive.
    pub fn hang(&mut self) -> anyhow::Result<()> {
        self.set(Fault::Hang);
        let mut first = Command::new("stat");
        first.arg(self.path.join("first")).stdout(Stdio::null()).stderr(Stdio::null());
        self.first = Some(first.spawn().context("starting stat")?);
        wait_for("an operation should hang", Duration::from_secs(60), || {
            Ok((self.gate.locked().held > 0).then_some(()))
        })
    }

    /// Does this to operations from now on. Those that hang go on.
    pub fn set(&self, fault: Fault) {
        self.gate.locked().fault = fault;
        self.gate.changed.notify_all();
    }

    /// Operations that hang now.
    pub fn held(&self) -> usize {
        self.gate.locked().held
    }

    /// All is well from now on.
    pub fn heal(&mut self) {
        self.set(Fault::None);
        if let Some(mut first) = self.first.take() {
            // It failed, as there is no such file.
            let _ = first.wait();
        }
    }
}

impl Drop for FaultyFs {
    fn drop(&mut self) {
        self.heal();
        if let Some(session) = self.session.take() {
            // A daemon that has files open keeps it a little longer.
            let _ = Command::new("umount").arg("--lazy").arg(&self.path).status();
            drop(session);
        }
    }
}

/// The server: files of one directory.
struct Served {
    store: PathBuf,
    gate: Arc<Gate>,
    /// Files that were looked up, by their inode number in the store.
    files: Mutex<HashMap<u64, Arc<File>>>,
}

fn attributes(meta: &fs::Metadata, ino: INodeNo) -> FileAttr {
    let kind = if meta.is_dir() { FileType::Directory } else { FileType::RegularFile };
    let time = meta.modified().unwrap_or(SystemTime::UNIX_EPOCH);
    FileAttr {
        ino,
        size: meta.len(),
        blocks: meta.blocks(),
        atime: time,
        mtime: time,
        ctime: time,
        crtime: time,
        kind,
        perm: (meta.mode() & 0o7777) as u16,
        nlink: meta.nlink() as u32,
        uid: meta.uid(),
        gid: meta.gid(),
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

impl Served {
    fn keep(&self, file: File) -> io::Result<FileAttr> {
        let meta = file.metadata()?;
        let ino = meta.ino();
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.entry(ino).or_insert_with(|| Arc::new(file));
        Ok(attributes(&meta, INodeNo(ino)))
    }

    fn find(&self, name: &OsStr) -> io::Result<FileAttr> {
        let options = OpenOptions::new().read(true).write(true).open(self.store.join(name))?;
        self.keep(options)
    }

    fn file(&self, ino: INodeNo) -> io::Result<Arc<File>> {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.get(&ino.0).cloned().ok_or_else(|| io::Error::from_raw_os_error(libc::ESTALE))
    }

    fn attr(&self, ino: INodeNo) -> io::Result<FileAttr> {
        if ino == INodeNo::ROOT {
            return Ok(attributes(&fs::metadata(&self.store)?, ino));
        }
        Ok(attributes(&self.file(ino)?.metadata()?, ino))
    }

    /// Carries an operation out, if it may be.
    fn run<T>(&self, does: Does, work: impl FnOnce() -> io::Result<T>) -> Result<T, Errno> {
        self.gate.pass(does)?;
        work().map_err(Errno::from)
    }

    /// The same on a thread of its own where nothing but such operations hangs.
    fn run_aside<T>(
        &self,
        does: Does,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
        answer: impl FnOnce(Result<T, Errno>) + Send + 'static,
    ) {
        let gate = Arc::clone(&self.gate);
        let run = move || answer(gate.pass(does).and_then(|()| work().map_err(Errno::from)));
        let fault = self.gate.locked().fault;
        match fault {
            Fault::HangData => drop(std::thread::spawn(run)),
            _ => run(),
        }
    }
}

fn empty(result: Result<(), Errno>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(e) => reply.error(e),
    }
}

fn entry(result: Result<FileAttr, Errno>, reply: ReplyEntry) {
    match result {
        Ok(attr) => reply.entry(&TTL, &attr, Generation(0)),
        Err(e) => reply.error(e),
    }
}

impl Filesystem for Served {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        entry(self.run(Does::Look, || self.find(name)), reply);
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.run(Does::Look, || self.attr(ino)) {
            Ok(attr) => reply.attr(&TTL, &attr),
            Err(e) => reply.error(e),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let set = || match size {
            Some(size) => self.file(ino)?.set_len(size).and_then(|()| self.attr(ino)),
            None => self.attr(ino),
        };
        match self.run(Does::Change, set) {
            Ok(attr) => reply.attr(&TTL, &attr),
            Err(e) => reply.error(e),
        }
    }

    fn create(
        &self,
        _: &Request,
        _: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let create = || {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).mode(mode);
            options.create_new(flags & libc::O_EXCL != 0);
            self.keep(options.open(self.store.join(name))?)
        };
        match self.run(Does::Change, create) {
            Ok(attr) => {
                reply.created(&TTL, &attr, Generation(0), FileHandle(0), FopenFlags::empty());
            }
            Err(e) => reply.error(e),
        }
    }

    fn unlink(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(self.run(Does::Change, || fs::remove_file(self.store.join(name))), reply);
    }

    fn link(&self, _: &Request, ino: INodeNo, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let link = || {
            let of = |entry: &fs::DirEntry| entry.metadata().is_ok_and(|m| m.ino() == ino.0);
            let mut entries = fs::read_dir(&self.store)?.filter_map(Result::ok);
            let old = entries.find(of).ok_or(io::ErrorKind::NotFound)?;
            fs::hard_link(old.path(), self.store.join(name))?;
            self.attr(ino)
        };
        entry(self.run(Does::Change, link), reply);
    }

    fn rename(
        &self,
        _: &Request,
        _: INodeNo,
        name: &OsStr,
        _: INodeNo,
        new: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let (old, new) = (self.store.join(name), self.store.join(new));
        empty(self.run(Does::Change, || fs::rename(old, new)), reply);
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let file = self.file(ino);
        let read = move || {
            let mut bytes = vec![0; size as usize];
            let length = file?.read_at(&mut bytes, offset)?;
            bytes.truncate(length);
            Ok(bytes)
        };
        self.run_aside(Does::Read, read, |result| match result {
            Ok(bytes) => reply.data(&bytes),
            Err(e) => reply.error(e),
        });
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let (file, data) = (self.file(ino), data.to_vec());
        let write = move || file?.write_all_at(&data, offset).map(|()| data.len() as u32);
        self.run_aside(Does::Write, write, |result| match result {
            Ok(length) => reply.written(length),
            Err(e) => reply.error(e),
        });
    }

    /// Closing a file asks nothing from the second time on: the kernel would not let a killed
    /// process go that waits for this.
    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn fsync(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        empty(self.run(Does::Change, || self.file(ino)?.sync_data()), reply);
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        empty(self.run(Does::Change, || File::open(&self.store)?.sync_all()), reply);
    }

    fn fallocate(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let flags = FallocateFlags::from_bits_retain(mode.cast_unsigned());
        let free = || {
            let file = self.file(ino)?;
            Ok(rustix::fs::fallocate(&*file, flags, offset, length)?)
        };
        empty(self.run(Does::Change, free), reply);
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let names = || {
            let entries = fs::read_dir(&self.store)?.collect::<io::Result<Vec<_>>>()?;
            let one = |e: &fs::DirEntry| Ok((INodeNo(e.metadata()?.ino()), e.file_name()));
            entries.iter().map(one).collect::<io::Result<Vec<_>>>()
        };
        match self.run(Does::Look, names) {
            Ok(names) => {
                for (at, (ino, name)) in names.iter().enumerate().skip(offset as usize) {
                    if reply.add(*ino, at as u64 + 1, FileType::RegularFile, name) {
                        break;
                    }
                }
                reply.ok();
            }
            Err(e) => reply.error(e),
        }
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        match self.run(Does::Look, || Ok(rustix::fs::statvfs(&self.store)?)) {
            Ok(s) => {
                let (block, fragment) = (s.f_bsize as u32, s.f_frsize as u32);
                reply.statfs(
                    s.f_blocks, s.f_bfree, s.f_bavail, s.f_files, s.f_ffree, block, 255, fragment,
                );
            }
            Err(e) => reply.error(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn files_are_files_and_what_hangs_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let Some(mut faulty) = FaultyFs::mount(dir.path(), "faulty").unwrap() else { return };
        let (old, new) = (faulty.path().join("old"), faulty.path().join("new"));
        fs::write(&old, "text").unwrap();
        fs::hard_link(&old, &new).unwrap();
        fs::remove_file(&old).unwrap();
        assert_eq!(fs::read(&new).unwrap(), b"text");
        assert_eq!(fs::read_dir(faulty.path()).unwrap().count(), 1);
        faulty.set(Fault::FailWrites(libc::ENOSPC));
        assert_eq!(fs::write(&old, "x").unwrap_err().raw_os_error(), Some(libc::ENOSPC));
        faulty.hang().unwrap();
        let (done, ended) = channel();
        let reader = std::thread::spawn(move || {
            let read = fs::read(&new);
            done.send(()).unwrap();
            read
        });
        ended.recv_timeout(Duration::from_millis(200)).unwrap_err();
        faulty.heal();
        assert_eq!(reader.join().unwrap().unwrap(), b"text");
    }
}
