//! Image files that are made here.

use crate::content::Sink;
use crate::error::ImageError;
use crate::format::Format;
use crate::qcow2::Qcow2Sink;
use crate::raw::RawSink;
use headgate_units::Bytes;
use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::{NamedTempFile, TempPath};

/// Whether a file may be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replace {
    /// A file that is there stays.
    No,
    /// It is replaced.
    Yes,
}

/// A new image under a name of its own, beside the one that it gets when it is whole. Dropped
/// before, it is removed.
pub struct NewImage {
    sink: Box<dyn Sink>,
    partial: TempPath,
    path: PathBuf,
    replace: Replace,
}

impl NewImage {
    /// Begins an image of zeroes. Its file is called `.NAME.XXXXXX.partial` meanwhile.
    ///
    /// # Errors
    /// [`ImageError::Exists`], or the file cannot be made.
    pub fn begin(
        path: &Path,
        format: Format,
        size: Bytes,
        replace: Replace,
    ) -> Result<NewImage, ImageError> {
        let told = |e: io::Error| ImageError::file("write", path, e);
        match path.metadata() {
            Ok(meta) if !meta.is_file() => {
                return Err(ImageError::unfit(path, "it is there, and is not a file"));
            }
            Ok(_) if replace == Replace::No => return Err(ImageError::Exists(path.to_owned())),
            _ => {}
        }
        let Some(name) = path.file_name() else {
            return Err(told(io::Error::new(io::ErrorKind::InvalidInput, "it names no file")));
        };
        let prefix = format!(".{}.", name.to_string_lossy());
        let partial = tempfile::Builder::new()
            .prefix(&prefix)
            .suffix(".partial")
            // The umask takes away from this, as of any file that a command writes.
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(directory(path))
            .map_err(told)?;
        let (file, partial) = NamedTempFile::into_parts(partial);
        let sink: Box<dyn Sink> = match format {
            Format::Raw => Box::new(RawSink::new(file, path.to_owned(), size.0)?),
            Format::Qcow2 => Box::new(Qcow2Sink::new(file, path.to_owned(), size.0)?),
        };
        Ok(NewImage { sink, partial, path: path.to_owned(), replace })
    }

    /// Where its content goes.
    pub fn sink(&self) -> &dyn Sink {
        &*self.sink
    }

    /// Gives the image, which was flushed, its name, durably.
    ///
    /// # Errors
    /// [`ImageError::Exists`]: somebody else has made such a file meanwhile. Or the directory
    /// cannot be written. The image is removed then.
    pub fn finish(self) -> Result<(), ImageError> {
        let NewImage { sink, partial, path, replace } = self;
        // What it writes when it is dropped must be on disk before the name is.
        drop(sink);
        let told = |e: io::Error| ImageError::file("write", &path, e);
        File::open(&partial).and_then(|file| file.sync_all()).map_err(told)?;
        let named = match replace {
            Replace::Yes => partial.persist(&path),
            Replace::No => partial.persist_noclobber(&path),
        };
        named.map_err(|e| match e.error.kind() {
            io::ErrorKind::AlreadyExists => ImageError::Exists(path.clone()),
            _ => told(e.error),
        })?;
        File::open(directory(&path)).and_then(|directory| directory.sync_all()).map_err(told)
    }
}

fn directory(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
