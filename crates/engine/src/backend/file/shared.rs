//! A second handle on an image, for what blocks.

use super::mapping::Mapping;
use crate::error::ResizeError;
use crate::request::{Extent, ExtentKind};
use headgate_units::Bytes;
use rustix::fs::SeekFrom;
use std::fs::File;
use std::io;

/// Answers beyond this many extents are cut: the client asks again from where the answer ended.
const EXTENTS_MAX: usize = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    BlockDevice,
}

/// Whether the pages of an image have addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mapped {
    Yes,
    No,
}

/// A handle for what may block.
#[derive(Debug)]
pub(crate) struct SharedImage {
    pub(super) file: File,
    pub(super) kind: Kind,
    pub(super) mapped: Mapped,
}

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
            let data = self.seek(SeekFrom::Data(at))?.unwrap_or(end).min(end);
            if data > at {
                extents.push(Extent { len: data - at, kind: ExtentKind::Hole });
                at = data;
                continue;
            }
            let hole = self.seek(SeekFrom::Hole(at))?.unwrap_or(end).min(end);
            extents.push(Extent { len: hole - at, kind: ExtentKind::Data });
            at = hole;
        }
        Ok(extents)
    }

    /// `None` past the last data or hole. The file offset that this moves is used by nobody.
    fn seek(&self, from: SeekFrom) -> io::Result<Option<u64>> {
        match rustix::fs::seek(&self.file, from) {
            Ok(at) => Ok(Some(at)),
            Err(rustix::io::Errno::NXIO) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// Where the first data behind an offset is, if there is any. A block device is all data.
    /// Blocks.
    pub(crate) fn data_behind(&self, offset: u64) -> Result<Option<Bytes>, ResizeError> {
        let found = match self.kind {
            Kind::File => self.seek(SeekFrom::Data(offset)),
            Kind::BlockDevice => Ok((offset < length(&self.file)?).then_some(offset)),
        };
        Ok(found?.map(Bytes))
    }

    /// Gives a file this size, durably; a block device must have it, or more. Blocks. Returns the
    /// addresses of the pages, where they had any.
    pub(crate) fn resize(&self, size: u64) -> Result<Option<Mapping>, ResizeError> {
        match self.kind {
            Kind::File => {
                self.file.set_len(size)?;
                self.file.sync_all()?;
            }
            Kind::BlockDevice => {
                let found = length(&self.file)?;
                if found < size {
                    return Err(ResizeError::Device { found: Bytes(found), size: Bytes(size) });
                }
            }
        }
        match self.mapped {
            Mapped::Yes => Ok(Some(Mapping::of(&self.file, size)?)),
            Mapped::No => Ok(None),
        }
    }
}

/// Works for files and block devices alike.
pub(super) fn length(file: &File) -> io::Result<u64> {
    Ok(rustix::fs::seek(file, SeekFrom::End(0))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    fn image(mapped: Mapped) -> SharedImage {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8 << 20).unwrap();
        SharedImage { file, kind: Kind::File, mapped }
    }

    #[test]
    fn data_behind_an_offset_is_found_and_holes_are_none() {
        let image = image(Mapped::No);
        assert_eq!(image.data_behind(0).unwrap(), None);
        image.file.write_all_at(b"x", 5 << 20).unwrap();
        assert_eq!(image.data_behind(4 << 20).unwrap(), Some(Bytes(5 << 20)));
        assert_eq!(image.data_behind(6 << 20).unwrap(), None);
        assert_eq!(image.data_behind(9 << 20).unwrap(), None, "behind the end");
    }

    #[test]
    fn a_file_gets_its_size_and_its_pages_their_addresses() {
        let image = image(Mapped::Yes);
        image.file.write_all_at(&[7; 4096], 4 << 20).unwrap();
        let mapping = image.resize(16 << 20).unwrap().unwrap();
        assert_eq!(length(&image.file).unwrap(), 16 << 20);
        assert!(mapping.at((16 << 20) - 4096, 4096).is_some());
        let smaller = image.resize(4 << 20).unwrap().unwrap();
        assert!(smaller.at(4 << 20, 1).is_none());
        image.resize(8 << 20).unwrap();
        let mut found = [1; 4096];
        image.file.read_exact_at(&mut found, 4 << 20).unwrap();
        assert_eq!(found, [0; 4096], "what was behind the end is gone");
    }

    #[test]
    fn a_device_keeps_the_size_that_it_has() {
        let SharedImage { file, .. } = image(Mapped::No);
        let device = SharedImage { file, kind: Kind::BlockDevice, mapped: Mapped::No };
        device.resize(8 << 20).unwrap();
        device.resize(4 << 20).unwrap();
        let error = device.resize(9 << 20).unwrap_err();
        assert_eq!(error.to_string(), "the device has 8 MiB, and the disk is to have 9 MiB");
        assert_eq!(length(&device.file).unwrap(), 8 << 20);
        assert_eq!(device.data_behind(4 << 20).unwrap(), Some(Bytes(4 << 20)));
        assert_eq!(device.data_behind(8 << 20).unwrap(), None);
    }
}
