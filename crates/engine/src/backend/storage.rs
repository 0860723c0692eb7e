//! What a disk's data lies in: [`Source`] before the disk is open, [`Storage`] while it is.

use super::file::image::FileImage;
use super::file::pages::Pages;
use super::nbd::connection::Export;
use crate::error::EngineError;
use crate::request::Access;
use crate::tables::range_queue::RangeQueue;
use headgate_stripe::Layout;
use io_uring::types::Fixed;

/// The storage that an image is made of.
#[derive(Debug)]
pub(crate) enum Source {
    /// A file or a block device, opened and locked.
    File(FileImage),
    /// None.
    Null,
    /// An anonymous file in memory.
    Memory(FileImage),
    /// An export of a server.
    Export(Box<Export>),
    /// Exports of several servers, by member.
    Stripe(Vec<Export>, Layout),
}

impl Source {
    pub(crate) fn access(&self) -> Access {
        match self {
            Source::File(file) | Source::Memory(file) => file.access(),
            Source::Null => Access::Cached,
            Source::Export(_) | Source::Stripe(..) => Access::Direct,
        }
    }

    /// What opening a disk on a datastore with the wrong backend says.
    pub(crate) fn mismatch(&self) -> EngineError {
        match self {
            Source::Null => EngineError::NullImage,
            Source::File(_) | Source::Memory(_) | Source::Export(_) | Source::Stripe(..) => {
                EngineError::OtherStorage
            }
        }
    }
}

/// The storage of an open disk.
#[derive(Debug)]
pub(crate) enum Storage {
    /// A file that the ring knows.
    File(OpenFile),
    /// None.
    Null,
    /// Links to a server or to several.
    Remote(u32),
    /// None of its own: what is asked of a moving disk's front is asked of the two sides.
    Moving,
}

impl Storage {
    /// The file, where it is one.
    #[inline]
    pub(crate) fn file(&self) -> Option<&OpenFile> {
        match self {
            Storage::File(file) => Some(file),
            Storage::Null | Storage::Remote(_) | Storage::Moving => None,
        }
    }

    /// How requests that free or zero ranges get here: on a file they exclude each other.
    pub(crate) fn range_queue(&self) -> RangeQueue {
        match self.file() {
            Some(file) if file.image.in_memory().is_none() => RangeQueue::one_at_a_time(),
            _ => RangeQueue::Unbounded,
        }
    }

    /// The remote disk, where it is one.
    #[inline]
    pub(crate) fn remote(&self) -> Option<u32> {
        match self {
            Storage::Remote(remote) => Some(*remote),
            Storage::File(_) | Storage::Null | Storage::Moving => None,
        }
    }

    /// Whether it is that of a moving disk's front.
    pub(crate) fn is_front(&self) -> bool {
        matches!(self, Storage::Moving)
    }

    /// The data as pages of a file in memory, where it is that.
    #[inline]
    pub(crate) fn pages(&self) -> Option<Pages<'_>> {
        self.file().and_then(OpenFile::pages)
    }
}

/// A file of an open disk.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub image: FileImage,
    /// Its slot in the ring's table of files.
    pub fixed: Fixed,
}

impl OpenFile {
    #[inline]
    pub(crate) fn pages(&self) -> Option<Pages<'_>> {
        self.image.pages()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::file::image::Caching;
    use headgate_units::Bytes;
    use std::time::Duration;

    #[test]
    fn only_a_file_on_storage_has_one_range_freed_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("d.raw");
        FileImage::create(&path, Bytes::from_mib(1)).unwrap();
        let (on_disk, ..) = FileImage::open(&path, Caching::Buffered, Duration::ZERO).unwrap();
        let (in_memory, ..) = FileImage::memory(Bytes::from_mib(1)).unwrap();
        let of = |image| Storage::File(OpenFile { image, fixed: Fixed(0) }).range_queue();
        assert!(matches!(of(on_disk), RangeQueue::OneAtATime { .. }));
        assert!(matches!(of(in_memory), RangeQueue::Unbounded));
        for other in [Storage::Null, Storage::Remote(0)] {
            assert!(matches!(other.range_queue(), RangeQueue::Unbounded));
        }
    }
}
