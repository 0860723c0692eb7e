//! Raw files.

use crate::content::{Content, Run, Sink, Source};
use crate::error::ImageError;
use headgate_units::Bytes;
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// A raw file, or a block device.
#[derive(Debug)]
pub(crate) struct RawSource {
    file: File,
    path: PathBuf,
    size: u64,
}

impl RawSource {
    /// `file` was opened under `path`, for reading.
    pub(crate) fn new(file: File, path: PathBuf) -> Result<RawSource, ImageError> {
        // A block device has its size only here.
        let size = rustix::fs::seek(&file, SeekFrom::End(0));
        let size = size.map_err(|e| ImageError::file("read", &path, e.into()))?;
        Ok(RawSource { file, path, size })
    }

    fn seek(&self, to: SeekFrom) -> Result<Option<u64>, ImageError> {
        match rustix::fs::seek(&self.file, to) {
            Ok(at) => Ok(Some(at)),
            Err(Errno::NXIO) => Ok(None),
            Err(e) => Err(ImageError::file("read", &self.path, e.into())),
        }
    }
}

impl Source for RawSource {
    fn size(&self) -> Bytes {
        Bytes(self.size)
    }

    fn status(&self, offset: u64, len: u64) -> Result<Vec<Run>, ImageError> {
        // The file's position is of no use to anybody: reads name theirs.
        let data = match self.seek(SeekFrom::Data(offset)) {
            Ok(data) => data.unwrap_or(self.size),
            // No holes on this file system, or on a device.
            Err(ImageError::File { source, .. }) if source.raw_os_error() == Some(EINVAL) => {
                return Ok(vec![Run { len, content: Content::Data }]);
            }
            Err(e) => return Err(e),
        };
        if data > offset {
            return Ok(vec![Run { len: data - offset, content: Content::Zeroes }]);
        }
        let hole = self.seek(SeekFrom::Hole(offset))?.unwrap_or(self.size);
        Ok(vec![Run { len: hole.saturating_sub(offset).max(1), content: Content::Data }])
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), ImageError> {
        let read = self.file.read_exact_at(into, offset);
        read.map_err(|e| ImageError::file("read", &self.path, e))
    }
}

const EINVAL: i32 = Errno::INVAL.raw_os_error();

/// A new raw file.
#[derive(Debug)]
pub(crate) struct RawSink {
    file: File,
    path: PathBuf,
    size: u64,
}

impl RawSink {
    /// `file` is empty. It gets its size, and takes no space yet.
    pub(crate) fn new(file: File, path: PathBuf, size: u64) -> Result<RawSink, ImageError> {
        file.set_len(size).map_err(|e| ImageError::file("write", &path, e))?;
        Ok(RawSink { file, path, size })
    }
}

impl Sink for RawSink {
    fn size(&self) -> Bytes {
        Bytes(self.size)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), ImageError> {
        let written = self.file.write_all_at(bytes, offset);
        written.map_err(|e| ImageError::file("write", &self.path, e))
    }

    /// It is a hole.
    fn zero(&self, _offset: u64, _len: u64) -> Result<(), ImageError> {
        Ok(())
    }

    fn flush(&self) -> Result<(), ImageError> {
        self.file.sync_all().map_err(|e| ImageError::file("write", &self.path, e))
    }
}
