//! Record files on storage: where they are, and how one is written and read.

use crate::images;
use headgate_catalog::{RecordFile, RecordFileError};
use headgate_cluster::lease::FileLease;
use rustix::fs::{AtFlags, Mode, OFlags, openat, renameat, statat, unlinkat};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// What the name of an image is followed by.
const RECORD_SUFFIX: &str = ".record";

/// What the name of a datastore's record begins with; the host that wrote it follows.
const DATASTORE_PREFIX: &str = ".headgate-datastore-";

/// Longer files are no records.
const LENGTH_MAX: u64 = 16 << 20;

/// The record beside an image.
pub(crate) fn record_path(image: &Path) -> PathBuf {
    let mut path = image.as_os_str().to_owned();
    path.push(RECORD_SUFFIX);
    path.into()
}

/// The record of a datastore in its own directory. Hosts that share the directory have one each.
pub(super) fn datastore_record_name(host: &str) -> String {
    format!("{DATASTORE_PREFIX}{host}{RECORD_SUFFIX}")
}

/// The records of datastores in a directory, of whatever host.
pub(crate) fn datastore_records(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if name
            .to_str()
            .is_some_and(|name| name.starts_with(DATASTORE_PREFIX) && name.ends_with(RECORD_SUFFIX))
        {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

/// What a record file that cannot be used is like.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Content(#[from] RecordFileError),
}

/// Whoever can write the directory chose what has a record's name.
const READ: OFlags = OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK);

/// The content of a file that was opened; `None` when there was none.
fn read(opened: io::Result<File>) -> io::Result<Option<Vec<u8>>> {
    let file = match opened {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a file"));
    }
    let mut text = Vec::new();
    file.take(LENGTH_MAX + 1).read_to_end(&mut text)?;
    if text.len() as u64 > LENGTH_MAX {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is too long for a record"));
    }
    Ok(Some(text))
}

fn read_in(directory: &File, name: &str) -> io::Result<Option<Vec<u8>>> {
    let opened = openat(directory, name, READ | OFlags::CLOEXEC, Mode::empty());
    read(opened.map(File::from).map_err(io::Error::from))
}

/// The record at a path; `None` when there is none.
pub(crate) fn read_record(path: &Path) -> Result<Option<RecordFile>, ReadError> {
    let flags = READ.bits().cast_signed();
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
    let Some(text) = read(opened)? else { return Ok(None) };
    Ok(Some(RecordFile::parse(&text)?))
}

/// The name under which a file is written.
fn unfinished(name: &str) -> String {
    format!(".{name}.new")
}

/// Whether a record was being written under this name.
fn is_unfinished(name: &str) -> bool {
    name.starts_with('.') && name.ends_with(&format!("{RECORD_SUFFIX}.new"))
}

fn remove(directory: &File, name: &str) -> io::Result<()> {
    match unlinkat(directory, name, AtFlags::empty()) {
        Err(Errno::NOENT) => Ok(()),
        done => Ok(done?),
    }
}

/// Either the old content or the new one survives a crash.
pub(crate) fn write_atomically(directory: &File, name: &str, text: &[u8]) -> io::Result<()> {
    let new = unfinished(name);
    remove(directory, &new)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(openat(directory, &new, flags, Mode::RUSR | Mode::WUSR)?);
    file.write_all(text)?;
    file.sync_all()?;
    renameat(directory, &new, directory, name)?;
    directory.sync_all()
}

/// Which part of a datastore's directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    Itself,
    /// Where the images of removed disks are.
    Removed,
}

impl Part {
    fn path(self, directory: &Path) -> PathBuf {
        match self {
            Part::Itself => directory.to_owned(),
            Part::Removed => images::removed_directory(directory),
        }
    }
}

/// What is to be on storage in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) part: Part,
    /// The file's name.
    pub(super) name: String,
    /// The name of the image that the note is about. Without it there is nothing to be noted.
    pub(super) image: Option<String>,
    /// What the file says; `None`: no file. Text is made of it when it is written: of many notes of
    /// one file the last one is.
    pub(super) says: Option<Box<RecordFile>>,
}

/// Whether another host has the image: then what is said of it is that host's.
fn is_foreign(image: &Path, host: &str) -> io::Result<bool> {
    let holder = FileLease::holder(&FileLease::path_of(image)).map_err(io::Error::other)?;
    Ok(holder.is_some_and(|holder| holder.host != host))
}

fn is_file(directory: &File, name: &str) -> bool {
    statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|found| {
        rustix::fs::FileType::from_raw_mode(found.st_mode) == rustix::fs::FileType::RegularFile
    })
}

impl Note {
    /// Which file it is about.
    pub(super) fn key(&self) -> (Part, String) {
        (self.part, self.name.clone())
    }

    /// What a record about an image is.
    pub(super) fn of_image(part: Part, image: String, says: Option<Box<RecordFile>>) -> Note {
        Note { part, name: format!("{image}{RECORD_SUFFIX}"), image: Some(image), says }
    }

    /// Writes or removes the file in a directory whose path has no links, unless that is another
    /// host's to do.
    pub(super) fn carry_out(&self, directory: &Path, host: &str) -> io::Result<()> {
        let path = self.part.path(directory);
        let directory = match images::open_directory(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound && self.says.is_none() => return Ok(()),
            directory => directory?,
        };
        if let Some(image) = &self.image
            && self.part == Part::Itself
            && is_foreign(&path.join(image), host)?
        {
            return Ok(());
        }
        let there = self.image.as_ref().is_none_or(|image| is_file(&directory, image));
        match &self.says {
            Some(file) if there => {
                let text = file.to_text();
                let old = read_in(&directory, &self.name);
                if old.is_ok_and(|old| old.as_deref() == Some(text.as_bytes())) {
                    return Ok(());
                }
                write_atomically(&directory, &self.name, text.as_bytes())
            }
            _ => withdraw(&directory, &self.name, host),
        }
    }
}

/// Removes a record, unless another host wrote it.
fn withdraw(directory: &File, name: &str, host: &str) -> io::Result<()> {
    let Some(text) = read_in(directory, name)? else { return Ok(()) };
    // A record, or what is left of one.
    if RecordFile::parse(&text).is_ok_and(|record| record.host != host) {
        return Ok(());
    }
    remove(directory, name)?;
    directory.sync_all()
}

/// Removes what a crash left in a directory whose path has no links: records of this host whose
/// images are gone, and unfinished ones.
pub(super) fn sweep(directory: &Path, host: &str) -> io::Result<()> {
    let opened = images::open_directory(directory)?;
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name();
        let Some(name) = name.to_str() else { continue };
        if is_unfinished(name) {
            remove(&opened, name)?;
        } else if let Some(image) = name.strip_suffix(RECORD_SUFFIX)
            && image.ends_with(".img")
            && matches!(statat(&opened, image, AtFlags::SYMLINK_NOFOLLOW), Err(Errno::NOENT))
        {
            withdraw(&opened, name, host)?;
        }
    }
    Ok(())
}
