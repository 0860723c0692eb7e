//! Disks that get another size while they are served, as the engine's control side sees them.

use crate::engine::Engine;
use crate::error::{EngineError, ResizeError};
use crate::ids::DiskId;
use crate::shard::resizing::Resizing;
use headgate_units::Bytes;

/// What to do about data in the part of a disk that is cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutOff {
    /// Cut off nothing that has any.
    Keep,
    /// It goes.
    Discard,
}

impl Engine {
    /// Gives a disk another size, in bytes, and its image file too, durably. Clients are told of a
    /// larger one; a smaller one it gets only while it has no clients. A block device must have the
    /// size already. Blocks for as long as the storage takes.
    ///
    /// A call that fails because the shard stands still ([`EngineError::Stalled`]) may have changed
    /// the file. The same call again finishes it.
    ///
    /// # Errors
    /// [`EngineError::NoDisk`], [`EngineError::Resize`], [`EngineError::Place`] where an emulated
    /// device has no room. The disk has the size that it had then.
    pub fn resize_disk(
        &self,
        disk: DiskId,
        size: Bytes,
        cut_off: CutOff,
    ) -> Result<(), EngineError> {
        let begun = self.call(disk.shard, move |s| s.begin_resize(disk.key, size.0))??;
        let Resizing { before, image } = begun;
        let resized = image.as_ref().map_or(Ok(None), |image| {
            if size.0 < before
                && cut_off == CutOff::Keep
                && let Some(at) = image.data_behind(size.0)?
            {
                return Err(ResizeError::Data { size, at });
            }
            image.resize(size.0).inspect_err(|_| {
                // As far as it got. A file that is too long is no harm.
                if size.0 > before {
                    let _ = image.resize(before);
                }
            })
        });
        match resized {
            Ok(mapping) => {
                self.call(disk.shard, move |s| s.end_resize(disk.key, size.0, mapping))?
            }
            Err(error) => {
                self.call(disk.shard, move |s| s.end_resize(disk.key, before, None))??;
                Err(error.into())
            }
        }
    }
}
