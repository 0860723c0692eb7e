//! Record files on storage: where they are, and how one is written and read.

use headgate_catalog::{RecordFile, RecordFileError};
use headgate_cluster::lease::FileLease;
use rustix::fs::OFlags;
use std::ffi::OsString;
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
pub(crate) fn datastore_record_path(directory: &Path, host: &str) -> PathBuf {
    directory.join(format!("{DATASTORE_PREFIX}{host}{RECORD_SUFFIX}"))
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

fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    // Whoever can write the directory chose what has this name.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
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

/// The record at a path; `None` when there is none.
pub(crate) fn read_record(path: &Path) -> Result<Option<RecordFile>, ReadError> {
    let Some(text) = read(path)? else { return Ok(None) };
    Ok(Some(RecordFile::parse(&text)?))
}

/// The name under which a file is written.
fn unfinished(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".new");
    path.with_file_name(name)
}

/// Whether a record was being written under this name.
fn is_unfinished(name: &str) -> bool {
    name.starts_with('.') && name.ends_with(&format!("{RECORD_SUFFIX}.new"))
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

fn sync_parent(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())
}

/// Either the old content or the new one survives a crash.
fn write_atomically(path: &Path, text: &[u8]) -> io::Result<()> {
    let new = unfinished(path);
    remove(&new)?;
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
        .open(&new)?;
    file.write_all(text)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    sync_parent(path)
}

/// What is to be on storage at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) path: PathBuf,
    /// The image that the note is about. Without it there is nothing to be noted.
    pub(super) image: Option<PathBuf>,
    /// `None`: no file.
    pub(super) text: Option<String>,
}

/// Whether another host has the image: then what is said of it is that host's.
fn is_foreign(image: &Path, host: &str) -> io::Result<bool> {
    let holder = FileLease::holder(&FileLease::path_of(image)).map_err(io::Error::other)?;
    Ok(holder.is_some_and(|holder| holder.host != host))
}

impl Note {
    /// Writes or removes the file, unless that is another host's to do.
    pub(super) fn carry_out(&self, host: &str) -> io::Result<()> {
        if let Some(image) = &self.image
            && is_foreign(image, host)?
        {
            return Ok(());
        }
        let there = self
            .image
            .as_ref()
            .is_none_or(|image| fs::symlink_metadata(image).is_ok_and(|meta| meta.is_file()));
        match &self.text {
            Some(text) if there => {
                if read(&self.path).is_ok_and(|old| old.as_deref() == Some(text.as_bytes())) {
                    return Ok(());
                }
                write_atomically(&self.path, text.as_bytes())
            }
            _ => withdraw(&self.path, host),
        }
    }
}

/// Removes a record, unless another host wrote it.
fn withdraw(path: &Path, host: &str) -> io::Result<()> {
    match read_record(path) {
        Ok(None) => return Ok(()),
        Ok(Some(record)) if record.host != host => return Ok(()),
        Err(ReadError::Io(e)) => return Err(e),
        // A record, or what is left of one.
        Ok(Some(_)) | Err(ReadError::Content(_)) => {}
    }
    remove(path)?;
    sync_parent(path)
}

/// Removes what a crash left: records of this host whose images are gone, and unfinished ones.
pub(super) fn sweep(directory: &Path, host: &str) -> io::Result<()> {
    let entries = match fs::read_dir(directory) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let (path, name) = (entry.path(), entry.file_name());
        let Some(name) = name.to_str() else { continue };
        if is_unfinished(name) {
            remove(&path)?;
        } else if let Some(image) = name.strip_suffix(RECORD_SUFFIX)
            && image.ends_with(".img")
            && fs::symlink_metadata(directory.join(image)).is_err()
        {
            withdraw(&path, host)?;
        }
    }
    Ok(())
}
