//! Image files that somebody else made.

use crate::content::{Run, Source};
use crate::error::ImageError;
use crate::format::Format;
use crate::qcow2::{Backing, Qcow2Source};
use crate::raw::RawSource;
use crate::signature::{self, Looks};
use headgate_units::Bytes;
use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// An image file, or a block device.
pub struct ImageSource {
    format: Format,
    inner: Box<dyn Source>,
}

impl ImageSource {
    /// Opens an image for reading. Without a `format`, the first bytes decide between raw and
    /// qcow2; what looks like another format is refused.
    ///
    /// # Errors
    /// The file cannot be read, or is no image of the format, or
    /// [takes content from another](ImageError::NamesAnother) and may not.
    pub fn open(
        path: &Path,
        format: Option<Format>,
        backing: Backing,
    ) -> Result<ImageSource, ImageError> {
        let file = open_file(path)?;
        let format = match format {
            Some(format) => format,
            None => detect(&file, path)?,
        };
        let inner: Box<dyn Source> = match format {
            Format::Raw => Box::new(RawSource::new(file, path.to_owned())?),
            Format::Qcow2 => Box::new(Qcow2Source::new(file, path, backing)?),
        };
        if inner.size() == Bytes(0) {
            return Err(ImageError::unfit(path, "it is empty"));
        }
        Ok(ImageSource { format, inner })
    }

    /// The format of the file.
    pub fn format(&self) -> Format {
        self.format
    }
}

impl Source for ImageSource {
    fn size(&self) -> Bytes {
        self.inner.size()
    }

    fn granule(&self) -> u64 {
        self.inner.granule()
    }

    fn status(&self, offset: u64, len: u64) -> Result<Vec<Run>, ImageError> {
        self.inner.status(offset, len)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), ImageError> {
        self.inner.read(offset, into)
    }
}

/// Opens a file or a block device. Anything else could be without an end, or wait for ever.
pub(crate) fn open_file(path: &Path) -> Result<File, ImageError> {
    let told = |e: io::Error| ImageError::file("open", path, e);
    // A pipe without a writer does not stop this.
    let flags = OFlags::NONBLOCK.bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(told)?;
    let kind = file.metadata().map_err(told)?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return Err(ImageError::unfit(path, "it is neither a file nor a block device"));
    }
    Ok(file)
}

fn detect(file: &File, path: &Path) -> Result<Format, ImageError> {
    let mut head = [0; signature::LEN];
    let mut got = 0;
    while got < head.len() {
        match file.read_at(&mut head[got..], got as u64) {
            Ok(0) => break,
            Ok(count) => got += count,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(ImageError::file("read", path, e)),
        }
    }
    match signature::looks(&head[..got]) {
        Looks::Like(format) => Ok(format),
        Looks::Foreign(name) => {
            let why = format!("it looks like {name}, which is not read here");
            let hint = "convert it: qemu-img convert -O qcow2 IMAGE COPY; or, if its bytes are the \
                        disk's all the same, give --format raw";
            Err(ImageError::Unfit { file: path.to_owned(), why, hint: Some(hint.into()) })
        }
    }
}
